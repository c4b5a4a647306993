"""Arguments that stand in each other's place: a model where something else belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click


def refuse_swapped(ctx: click.Context) -> None:
    """Raises click's UsageError if MODEL is no ONNX file, and another argument or a source of data is one."""
    given = list(_words(ctx))
    place = next((at for at, (param, _) in enumerate(given) if _takes_model(param)), None)
    if place is None or _is_model(given[place][1]):
        return
    for at, (_, word) in enumerate(given):
        if _is_model(word):
            raise click.UsageError(_sentence(ctx, given, place, at), ctx)


def _words(ctx: click.Context) -> Iterator[tuple[click.Parameter, str]]:
    """What is given for arguments, in their order, and then what is given as sources of data."""
    for param in sorted(ctx.command.params, key=lambda one: isinstance(one, click.Option)):
        if isinstance(param, click.Argument) or param.metavar == "SRC":
            value = ctx.params.get(param.name or "")
            for word in value if isinstance(value, tuple) else (value,):
                if word is not None:
                    yield param, str(word)


def _sentence(ctx: click.Context, given: Sequence[tuple[click.Parameter, str]], place: int, at: int) -> str:
    """What stands where, and the command as it is meant."""
    (param, word), (other, model) = given[place], given[at]
    swapped = [given[{place: at, at: place}.get(number, number)][1] for number in range(len(given))]
    flags = [f"{one.opts[0]} " if isinstance(one, click.Option) else "" for one, _ in given]
    command = " ".join(
        [ctx.command_path, *(f"{flag}{one}" for flag, one in zip(flags, swapped, strict=True))]
    )
    where = flags[at].strip() or f"{other.metavar}".strip("[].")
    order = "the model comes first" if place == 0 else "swap them"
    return f"'{word}' is given as {param.metavar}, and the model '{model}' as {where}; {order}: '{command}'"


def _takes_model(param: click.Parameter) -> bool:
    return param.metavar == "MODEL.onnx" and param.nargs == 1


def _is_model(word: str) -> bool:
    """Whether something is the name of an ONNX file that is there."""
    with suppress(OSError, ValueError):  # a text may be too long to be a name
        return Path(word).suffix == ".onnx" and Path(word).is_file()
    return False
