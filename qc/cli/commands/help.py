"""Explain a pass, a pipeline, a target or a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Group
from rich.text import Text

from qc import pipeline_names, resolve_pipeline
from qc.ir.errors import UsageError, nearest
from qc.options import argument
from qc.passes import PassDescription, PipelineFile, Stage, describe, registry
from qc.passes.framework.context import NEEDS
from qc.passes.framework.pipeline import COMBINATORS
from qc.passes.framework.target import Target, load_target, target_names
from qc.passes.framework.target_rules import FormatRule
from qc.passes.framework.toml_source import parse_toml, read_text
from qc.rendering.terminal import Fact, facts_grid, indented

from ..combinators import CombinatorDescription, describe_combinator
from ..command import Command
from ..docstrings import paragraphs, plain
from ..output import ReportConsole, standard_output

# How a target can run an op, in words.
_RUNS = {
    "integer": "run in integers",
    "between": "run in integers between integer ops only, where that saves conversions",
    "carry": "move data, in integers where their input is",
    "weights": "store their weights in integers; what they compute with is float to the model",
    "float": "run in float",
}


@dataclass(frozen=True, kw_only=True)
class Help(Command):
    """Explains a pass with its options, a pipeline, a target, or a command; files of such, too.

    Examples:
        qc help calibrate
        qc help ort-cpu
    """

    name: str | None = argument("[PASS|PIPELINE|TARGET|COMMAND]", None)

    def run(self) -> None:
        context = click.get_current_context().parent
        assert context is not None and isinstance(context.command, click.Group)
        group, name = context.command, self.name
        console = standard_output(prose=True)
        if name is None:
            click.echo(context.get_help())
        elif name in registry():
            _show_pass(console, describe(registry().get(name)))
        elif name in COMBINATORS:
            _show_combinator(console, describe_combinator(COMBINATORS[name]))
        elif name in pipeline_names() or _is_pipeline_file(name):
            _show_pipeline(console, resolve_pipeline(name))
        elif name in target_names() or (name.endswith(".toml") and Path(name).is_file()):
            _show_target(console, load_target(name))
        elif (command := group.get_command(context, name)) is not None:
            click.echo(command.get_help(click.Context(command, info_name=name, parent=context)))
        else:
            known = [*registry().names(), *COMBINATORS, *pipeline_names(), *target_names()]
            hint = nearest(name, [*known, *group.list_commands(context)], cutoff=0.65)
            raise UsageError(f"there is no pass, pipeline, target or command '{name}'{hint}")


def _is_pipeline_file(name: str) -> bool:
    """Whether it is a file of a pipeline, not of a target; what is wrong with it is told when it is read."""
    try:
        return name.endswith(".toml") and "pipeline" in parse_toml(read_text(name, "file"), name)
    except UsageError:
        return False


def _show_pass(console: ReportConsole, description: PassDescription) -> None:
    _show_head(console, description.name, description.docstring)
    facts: list[Fact] = [("stage", description.stage.deed)]
    for need in description.needs:
        if need != "executor":
            facts.append(("needs", ": ".join(NEEDS[need])))
        elif description.stage is Stage.ANNOTATE and "data" not in description.needs:  # it runs the model
            facts.append(("needs", f"{': '.join(NEEDS['data'])}; not if only weights are quantized"))
    console.show(facts_grid(facts))
    _show_options(console, description, f"{description.name}{{%s}}")


def _show_combinator(console: ReportConsole, description: CombinatorDescription) -> None:
    _show_head(console, f"{description.name}<...>(passes)", description.docstring)
    _show_options(console, description, f"{description.name}<%s>(...)")


def _show_head(console: ReportConsole, name: str, docstring: str) -> None:
    console.show(Text(name, style="bold"), "")
    for text, keeps_lines in paragraphs(docstring):
        console.show(indented(plain(text)), "", wrap=not keeps_lines)


def _show_options(
    console: ReportConsole, description: PassDescription | CombinatorDescription, form: str
) -> None:
    if not description.options:
        return
    example = description.options[0]
    written = form % f"{example.name}={_example(example.default)}"
    console.show("", Text.assemble(("options", "bold"), f", written {written}"))
    for option in description.options:
        console.show(
            "",
            Text.assemble("  ", (option.name, "bold"), f"  default {option.default}"),
            indented(option.help, 4),
            indented(Text(option.type, style="dim"), 4),
        )


def _example(default: str) -> str:
    return "..." if default in ("none", "[]") else default


def _show_pipeline(console: ReportConsole, file: PipelineFile) -> None:
    console.show(Text(file.name, style="bold"), "", indented(file.description), "")
    passes = [("" if index else "passes", str(step)) for index, step in enumerate(file.pipeline.steps)]
    console.show(facts_grid([("target", file.target or "any"), *passes]))


def _show_target(console: ReportConsole, target: Target) -> None:
    _show_head(console, target.name, target.summary)
    biases = "int32, scaled as input times weight" if target.quantize_bias else "float"
    formats = [("activations", _formats(target.activation)), ("weights", _formats(target.weight))]
    console.show(facts_grid([*formats, ("biases", biases)]))
    for title, rules, others in (
        ("ops", target.ops, target.default),
        ("supergroups", target.region_rules, None),
    ):
        console.show("", Text(title, style="bold"))
        facts: list[Fact] = []
        for runs, meaning in _RUNS.items():
            names = ", ".join(name for name, rule in rules.items() if rule.runs == runs)
            if names:
                facts.append((f"  {runs}", Group(Text(meaning, style="dim"), names)))
        if others is not None:
            facts.append(("  others", f"{others.runs}{f': {others.why}' if others.why else ''}"))
        console.show(facts_grid(facts))


def _formats(rule: FormatRule) -> str:
    """The format of a rule, and others that may be asked for."""
    also = f"; also {', '.join(rule.also)}" if rule.also else ""
    return f"{rule.spec()}{also}"
