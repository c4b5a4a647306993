"""A group of commands one of which needs no name: ``qc model.onnx`` is ``qc compile model.onnx``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from qc.ir.errors import UsageError, nearest


class PipeClosedError(Exception):
    """Nobody reads the output any more. Click would turn a BrokenPipeError into exit code 1."""


class CommandGroup(click.Group):
    """Runs ``default`` when the first argument is not the name of a command."""

    def __init__(
        self, name: str, help: str, default: click.Command, sections: Mapping[str, Sequence[click.Command]]
    ) -> None:
        """``sections`` are the commands by the headings under which the help lists them."""
        super().__init__(name, help=help, commands=[one for section in sections.values() for one in section])
        self.default = default
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which the commands were given."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the name of the default command where none is named; without arguments, shows the help."""
        first = args[0] if args else "--help"
        if first not in (*self.commands, *ctx.help_option_names):
            self._refuse_misspelt(first)
            args = [str(self.default.name), *args]
        return super().parse_args(ctx, args or ["--help"])

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
        """The options of the default command, then the commands."""
        self.default.format_options(click.Context(self.default, parent=ctx), formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with one line each, section by section, all in the same columns."""
        width = max(map(len, self.commands))
        room = formatter.width - width - 4  # an indentation of 2, and 2 between the columns
        for heading, commands in self.sections.items():
            rows = [(f"{one.name:{width}}", one.get_short_help_str(room)) for one in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def _refuse_misspelt(self, word: str) -> None:
        """Raises UsageError for a word that is no file but nearly a command."""
        hint = nearest(word, list(self.commands)) if word.replace("-", "").replace("_", "").isalpha() else ""
        if hint and not word.startswith("-") and not Path(word).exists():
            raise UsageError(f"'{word}' is neither a model nor a command{hint}")
