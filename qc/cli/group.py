"""Groups of commands, which are the files of a folder: none is imported before it is wanted."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from qc.ir.errors import UsageError, nearest

from .command import Command, click_command, code_option
from .sections import write_examples

_CUSTOM_OPS_HELP = "Load a library of custom operators, which is run"
WIDEST = 100  # columns of the help, where the terminal has as many

EXAMPLES = (
    "qc model.onnx --data photos --preset imagenet",
    "qc model.onnx --random-data",
    "qc auto model.onnx --data train.npz --max-drop 1%",
    "qc eval model.onnx --data test.npz --layers",
)


def _is_file(name: str) -> bool:
    with suppress(OSError):  # a name may be too long to be one
        return Path(name).is_file()
    return False


class PipeClosedError(Exception):
    """Nobody reads the output any more. Click would turn a BrokenPipeError into exit code 1."""


class FolderGroup(click.Group):
    """The commands in a folder: ``explain_match.py`` is ``explain-match``, and a folder is a group again.

    The first line of a file, or of the ``__init__.py`` of a folder, is what the list of commands says.
    """

    def __init__(self, name: str, package: str, help: str) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
        super().__init__(name, help=help, context_settings=settings)
        self.package = package
        self.folder = Path(str(importlib.import_module(package).__file__)).parent

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without arguments, shows the help."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first; raises click's UsageError if there is none."""
        names = self.list_commands(ctx)
        if args[0] not in names:
            said = nearest(args[0], names)
            if not said and _is_file(args[0]):
                said = f", which is a file; name one of these in front of it: {', '.join(names)}"
            raise click.UsageError(f"no such command '{args[0]}'{said}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the alphabet."""
        files = [path.stem for path in self.folder.glob("[a-z]*.py")]
        folders = [path.parent.name for path in self.folder.glob("[a-z]*/__init__.py")]
        return sorted(name.replace("_", "-") for name in (*files, *folders))

    def summary_of(self, name: str) -> str:
        """What the list of commands says of one, without importing it."""
        module = name.replace("-", "_")
        path = self.folder / f"{module}.py"
        with (path if path.exists() else self.folder / module / "__init__.py").open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, imported now; None if there is none."""
        if name not in self.list_commands(ctx):
            return None
        path = f"{self.package}.{name.replace('-', '_')}"
        module = importlib.import_module(path)
        if hasattr(module, "__path__"):
            return FolderGroup(name, path, inspect.cleandoc(module.__doc__ or "").partition("\n\n")[2])
        found = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == path]
        (command,) = [one for one in found if issubclass(one, Command)]
        return click_command(command, name, self.summary_of(name))


class MainGroup(FolderGroup):
    """The commands of qc, one of which needs no name: ``qc model.onnx`` is ``qc compile model.onnx``."""

    def __init__(
        self,
        package: str,
        help: str,
        default: str,
        sections: Mapping[str, Sequence[str]],
        running: Sequence[str],
    ) -> None:
        """Makes the group.

        Args:
            default: the command that needs no name.
            sections: names of commands by the headings under which the help lists them.
            running: names of commands that run models, with custom operators if there are any.
        """
        super().__init__("qc", package, help)
        self.default = default
        self.sections = sections
        self.running = running

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the name of the default command where none is named; says how to go on if nothing is given."""
        if not args and not ctx.resilient_parsing:
            self._show_beginning(ctx)
        if args and args[0] not in (*self.list_commands(ctx), *ctx.help_option_names):
            self._refuse_misspelt(args[0], self.list_commands(ctx))
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, imported now; the default one has the options of the group, too."""
        command = super().get_command(ctx, name)
        if command is not None and name == self.default:
            command.params.append(_version_option())
        if command is not None and name in self.running:
            command.params.append(code_option("--custom-ops", "LIBRARY", _use_custom_ops, _CUSTOM_OPS_HELP))
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that fit, or else files: a model needs no command."""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; raises PipeClosedError if the reader of its output went away."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosedError from error

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms."""
        formatter.write_usage("qc", "[OPTIONS] MODEL.onnx")
        formatter.write_usage("qc", "COMMAND [ARGUMENTS]...", prefix=" " * len("Usage: "))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, the commands, and where options are explained."""
        write_examples(formatter, EXAMPLES)
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            formatter.write_dl(
                [
                    (f"qc {self.default} --help", "shows those of qc MODEL.onnx, by sections."),
                    ("qc COMMAND --help", "shows those of a command, with examples."),
                    ("qc --version", "shows the versions of qc and of what it stands on."),
                ]
            )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with one line each, section by section, all in the same columns."""
        names = self.list_commands(ctx)
        listed = [name for section in self.sections.values() for name in section]
        others = [name for name in names if name not in listed]
        width = max(map(len, names))
        for heading, section in {**self.sections, **({"Others": others} if others else {})}.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{width}}", self.summary_of(name)) for name in section])

    def _show_beginning(self, ctx: click.Context) -> None:
        """The usage with examples, and where more is told; ends the command."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        write_examples(formatter, EXAMPLES)
        click.echo(f"{formatter.getvalue()}\n'qc --help' lists the commands.")
        ctx.exit()

    def _refuse_misspelt(self, given: str, names: list[str]) -> None:
        """Raises UsageError for a word that is no file but nearly a command."""
        hint = nearest(given, names) if given.replace("-", "").replace("_", "").isalpha() else ""
        if hint and not given.startswith("-") and not Path(given).exists():
            raise UsageError(f"'{given}' is neither a model nor a command{hint}")


def _use_custom_ops(libraries: tuple[str, ...]) -> None:
    from qc.runtime import use_custom_ops

    use_custom_ops(libraries)


def _version_option() -> click.Option:
    help = "Show the versions of qc and of what it stands on."
    return click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help=help
    )


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        first, *others = (f"{name} {version(name)}" for name in ("qc-onnx", "onnx", "onnxruntime"))
        click.echo(f"{first} ({', '.join(others)})")
        ctx.exit()
