"""How help is divided: commands and options under headings, and examples above them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import click

# In this order; a command that is not named here comes last.
COMMANDS = {
    "Quantize": ["compile", "auto", "observe", "merge-statistics"],
    "Judge the result": ["report", "eval", "bench", "check", "sensitivity", "diff"],
    "Look inside": ["inspect", "data", "view", "why", "weights", "print", "parse", "explain-match"],
    "Encodings and configurations of AIMET": ["encodings", "explain-config", "convert-config"],
    "Find what goes wrong": ["bisect", "reduce", "repro"],
    "Learn": ["help", "list-passes", "list-pipelines", "list-targets", "list-supergroups"],
}

# By the names of their fields, behind those that only one command has.
OPTIONS = {
    "What to make": [
        *("passes", "pipeline", "options", "append", "config", "rules", "precision", "target", "also_for"),
        *("fix_shapes", "fix_inputs", "emit", "fail_if_unquantized", "allow_unquantized"),
    ],
    "Data": [
        *("data", "eval_data", "calibration", "labels", "random_data", "sizes", "statistics"),
        *("preset", "resize", "crop", "scale", "mean", "std", "color", "layout"),
        *("tokenizer", "length", "rate", "columns"),
    ],
    "Time and memory": ["threads", "device", "jobs", "cache", "memory", "no_verdict"],
    "What the passes do": [
        *("print_before", "print_after", "print_diff", "dump_dir", "remarks", "remarks_out", "time", "stats"),
        *("verify_each", "check_analyses", "action_limit", "reproducer", "no_reproducer"),
    ],
    "Others": ["seed", "plugin", "custom_ops", "quiet", "version", "help"],
}

_EXAMPLES = "\n\nExamples:\n"


def split_examples(docstring: str) -> tuple[str, list[str]]:
    """What a docstring says, and the command lines below its ``Examples:``."""
    text, _, examples = inspect.cleandoc(docstring).partition(_EXAMPLES)
    return text, [line.strip() for line in examples.splitlines()]


def write_examples(formatter: click.HelpFormatter, examples: Iterable[str]) -> None:
    """Command lines as they are, each to be copied."""
    with formatter.section("Examples"):
        for line in examples:
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def write_options(
    formatter: click.HelpFormatter, ctx: click.Context, params: Iterable[click.Parameter]
) -> None:
    """The options with their help under their headings."""
    told = {_name(param): param.get_help_record(ctx) for param in params}
    records = {name: record for name, record in told.items() if record is not None and record[1]}
    listed = {name for names in OPTIONS.values() for name in names}
    own = [name for name in records if name not in listed]
    for heading, names in {"Options": own, **OPTIONS}.items():
        found = [records[name] for name in names if name in records]
        if found:
            with formatter.section(heading):
                formatter.write_dl(found)


def _name(param: click.Parameter) -> str:
    """The name of a parameter; that of the help has another one in every version of click."""
    return "help" if "--help" in param.opts else str(param.name)
