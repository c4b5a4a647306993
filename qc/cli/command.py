"""Commands: frozen dataclasses whose fields are their options, each in a file below ``commands/``."""

from __future__ import annotations

import dataclasses
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import click
from annotated_types import Gt

from qc.ir.errors import QuantizedError
from qc.options import Option, limits, path, plain_types, unwrapped, word

from .completion import complete
from .sections import split_examples, write_examples, write_options
from .swapped import refuse_swapped

_MOST = 2**31 - 1
_PLUGIN_HELP = "Use the passes and more of a Python file or package, which is run"


class Command(ABC):
    """A command: its docstring is the help, the first line of its file what the list of commands says.

    Command lines behind "Examples:" at the end of the docstring stand in the help as they are.
    A field is an option or an argument, a dataclass with more of them, or some of those of another dataclass.

    Attributes:
        elsewhere: options that other commands have and this one cannot have, each with the reason.
        if_quantized: what to do with a model that is quantized already, where the command wants a float one.
    """

    elsewhere: ClassVar[Mapping[str, str]] = {}
    if_quantized: ClassVar[str] = ""

    @abstractmethod
    def run(self) -> int | None:
        """Does it; the exit code, if that is not 0."""


def click_command(cls: type[Command], name: str, short_help: str) -> click.Command:
    """What click runs."""
    text, examples = split_examples(cls.__doc__ or "")
    made = _ClickCommand(
        name,
        params=[*_parameters(cls), code_option("--plugin", "FILE.py", _use_plugins, _PLUGIN_HELP)],
        callback=lambda **given: _run(cls, given),
        help=text,
        short_help=short_help,
    )
    made.examples, made.elsewhere = examples, cls.elsewhere
    return made


def _run(cls: type[Command], given: Mapping[str, Any]) -> int | None:
    """Runs a command with what was given; it says itself what to do with a model that is quantized."""
    try:
        code: int | None = _filled(cls, given).run()
    except QuantizedError as error:
        if not cls.if_quantized:
            raise
        raise QuantizedError(
            f"the model is quantized already, {error.found}: {cls.if_quantized}; where the float model is "
            "lost, 'qc MODEL.onnx --passes dequantize -o FLOAT.onnx' makes one"
        ) from error
    return code


def code_option(name: str, metavar: str, use: Callable[[tuple[str, ...]], None], help: str) -> click.Option:
    """An option for files of code, which are used before anything else."""

    def callback(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> None:
        if files and not ctx.resilient_parsing:
            use(files)

    return click.Option(
        [name],
        multiple=True,
        metavar=metavar,
        expose_value=False,
        is_eager=True,
        callback=callback,
        help=f"{help}; may be repeated.",
    )


def _use_plugins(files: tuple[str, ...]) -> None:
    from .plugins import use_plugins

    use_plugins(files)


class _ClickCommand(click.Command):
    """A command with options that take a value or none; click would take any word that follows for it."""

    examples: Sequence[str] = ()
    elsewhere: Mapping[str, str] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, then the options under headings."""
        if self.examples:
            write_examples(formatter, self.examples)
        write_options(formatter, ctx, self.get_params(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Writes the value of an option without one behind it."""
        bare = {flag: one.bare for one in self.params if isinstance(one, _ClickOption) for flag in one.opts}
        self._refuse_second_sources(ctx, args)
        followers = [*args[1:], ""][: len(args)]
        given = [_with_value(word, next_word, bare) for word, next_word in zip(args, followers, strict=True)]
        return super().parse_args(ctx, given)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, unless the model stands in the place of another argument."""
        refuse_swapped(ctx)
        return super().invoke(ctx)

    def _refuse_second_sources(self, ctx: click.Context, args: Sequence[str]) -> None:
        """Raises click's UsageError if data are given twice: the last would win, and the first be lost."""
        sources = [flag for one in self.params if one.metavar == "SRC" for flag in one.opts]
        for flag in sources:
            if sum(word == flag or word.startswith(f"{flag}=") for word in args) > 1:
                together = "put the files into one folder, which is data as well"
                raise click.UsageError(f"{flag} is given twice, and takes one source; {together}", ctx)


def _with_value(given: str, next_word: str, bare: Mapping[str, object]) -> str:
    value = bare.get(given)
    has_own = isinstance(value, int) and next_word.removeprefix("-").isdecimal()
    return given if value is None or has_own else f"{given}={value}"


class _ClickOption(click.Option):
    """An option with the value that it has if it is written without one."""

    bare: object = None


def _fields(cls: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    """The fields of a dataclass with their types."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        yield field, hints[field.name]


def _parameters(cls: Any) -> Iterator[click.Parameter]:
    for field, annotation in _fields(cls):
        if dataclasses.is_dataclass(annotation):
            yield from _parameters(annotation)
        elif "some" in field.metadata:
            owner, chosen = field.metadata["some"]
            for one in chosen.values():
                yield _parameter(one, plain_types(owner).get(one.name, one.type))
        else:
            yield _parameter(field, annotation)


def _filled(cls: Any, given: Mapping[str, Any]) -> Any:
    """The dataclass, and those within it, with what was given."""
    values: dict[str, Any] = {}
    for field, annotation in _fields(cls):
        if dataclasses.is_dataclass(annotation):
            values[field.name] = _filled(annotation, given)
        elif "some" in field.metadata:
            values[field.name] = {name: given[name] for name in field.metadata["some"][1]}
        else:
            values[field.name] = given[field.name]
    return cls(**values)


def _parameter(field: dataclasses.Field, annotation: Any) -> click.Parameter:
    """What click knows of a field."""
    declared: Option = field.metadata["option"]
    is_required = field.default is dataclasses.MISSING
    default = None if is_required else field.default
    if annotation is bool:
        return _switch(field.name, declared, default)
    several = isinstance(default, tuple) or typing.get_origin(annotation) is tuple
    kind = _click_type(annotation, declared, several)
    if declared.help is None:
        many = -1 if several else 1
        return click.Argument(
            [field.name],
            type=kind,
            metavar=declared.metavar,
            nargs=many,
            required=is_required,
            shell_complete=complete,
        )
    given_default: dict[str, Any] = {} if is_required else {"default": default}  # None counts as one
    made = _ClickOption(
        _flags(field.name, declared),
        type=kind,
        metavar=declared.metavar,
        required=is_required,
        multiple=several,
        envvar=declared.envvar,
        show_default=default not in (None, ()),
        help=declared.help,
        shell_complete=None if isinstance(kind, click.Choice) else complete,
        **given_default,
    )
    made.bare = declared.bare
    return made


def _switch(name: str, declared: Option, default: object) -> click.Option:
    flags = _flags(name, declared)
    if default:
        flags[-1] = f"{flags[-1]}/--no-{flags[-1].removeprefix('--')}"
    return _ClickOption(flags, is_flag=True, default=default, help=declared.help, envvar=declared.envvar)


def _flags(name: str, declared: Option) -> list[str]:
    """How an option is written, and the name of its field."""
    is_long = any(flag.startswith("--") for flag in declared.flags)
    return [name, *declared.flags, *([] if is_long else [f"--{name.replace('_', '-')}"])]


class _Parsed(click.ParamType):
    """A word that a function turns into a value, or refuses."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value."""
        if not isinstance(value, str):  # the default
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            return self.fail(str(error), param, ctx)


def _click_type(annotation: Any, declared: Option, several: bool) -> click.ParamType:
    """The type of a single word."""
    if declared.parse is not None:
        return _Parsed(declared.metavar or "text", declared.parse)
    if several:
        annotation = typing.get_args(annotation)[0]
    annotation, bounds, _ = unwrapped(annotation)
    if typing.get_origin(annotation) is Literal:
        return click.Choice(typing.get_args(annotation))
    if annotation is int:
        least, most = limits(bounds, 1, _MOST)
        return _Parsed("N", lambda text: _integer(text, least, most))
    if annotation is float:
        positive = any(isinstance(bound, Gt) for bound in bounds)
        unit = " of seconds" if (declared.metavar or "").startswith("S") else ""
        return _Parsed("float", partial(_number, positive=positive, unit=unit))
    return _Parsed("text", path if annotation is Path else word)


def _integer(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{text!r} is not a number of at least {least}")
    if int(text) > most:
        raise ValueError(f"{text} is more than {most}")
    return int(text)


def _number(text: str, positive: bool, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0 or (positive and not number):
        raise ValueError(f"{text!r} is not a number{unit} {'above' if positive else 'of at least'} 0")
    return number
