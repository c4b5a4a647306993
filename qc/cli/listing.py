"""``qc list-passes``, ``list-pipelines``, ``list-targets``, ``list-supergroups`` and ``qc help``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from qc import pipeline_names, resolve_pipeline
from qc.ir.errors import UsageError, nearest
from qc.passes import PassDescription, PipelineFile, Stage, describe, registry
from qc.passes.framework.context import NEEDS
from qc.passes.framework.pipeline import COMBINATORS
from qc.passes.framework.target import Target, load_target, target_names
from qc.passes.framework.target_rules import FormatRule
from qc.patterns import Supergroup, blocks, supergroups
from qc.report.terminal import Fact, facts_grid, indented, listing

from .combinators import CombinatorDescription, describe_combinator
from .docstrings import paragraphs, plain
from .files import WordType
from .output import ReportConsole, standard_output

_TITLES = {
    Stage.FLOAT: "rewrite the float graph",
    Stage.ANNOTATE: "place and calibrate quantizers",
    Stage.LOWER: "lower the quantized model",
}

# How a target can run an op, in words.
_RUNS = {
    "integer": "run in integers",
    "between": "run in integers between integer ops only, where that saves conversions",
    "carry": "move data, in integers where their input is",
    "float": "run in float",
}


# Kinds of supergroups, in words.
_KINDS = {
    "normalization": "normalizations",
    "softmax": "softmax",
    "activation": "activations",
    "weighted": "weighted ops with a bias, a BatchNorm, Mul and Add, or an activation behind them",
    "elementwise": "other ops with an activation behind them, and a BatchNorm written out as Mul and Add",
    "block": "blocks: several ops to a target that does not name them",
}


@click.command("list-passes", short_help="List the passes.")
def list_passes() -> None:
    """Lists the passes by stage; a pipeline never goes back to an earlier stage."""
    groups = {
        title: [(cls.name, cls.summary()) for cls in registry() if cls.stage is stage]
        for stage, title in _TITLES.items()
    }
    combinators = map(describe_combinator, COMBINATORS.values())
    groups["run other passes"] = [(combinator.name, combinator.summary) for combinator in combinators]
    width = max(len(name) for rows in groups.values() for name, _ in rows)
    console = standard_output()
    for index, (title, rows) in enumerate(groups.items()):
        table = listing(((name, plain(summary).removesuffix(".")) for name, summary in rows), width)
        console.show(*([""] if index else []), Text(title, style="bold"), indented(table))


@click.command("list-pipelines", short_help="List the pipelines that come with qc.")
def list_pipelines() -> None:
    """Lists the pipelines that come with qc; 'qc help NAME' shows what is in one."""
    files = map(resolve_pipeline, pipeline_names())
    rows = ((file.name, file.description + (f"; for {file.target}" if file.target else "")) for file in files)
    standard_output().show(listing(rows))


@click.command("list-targets", short_help="List the targets that come with qc.")
def list_targets() -> None:
    """Lists the targets that come with qc."""
    standard_output().show(listing((name, load_target(name).summary) for name in target_names()))


@click.command("list-supergroups", short_help="List the supergroups.")
def list_supergroups() -> None:
    """Lists the supergroups by kind: the sets of ops that a target can run as one, in all their spellings."""
    kinds: dict[str, list[Supergroup]] = {}
    for group in (*supergroups(), *blocks()):
        kinds.setdefault(group.kind, []).append(group)
    ordered = sorted(kinds, key=lambda kind: [*_KINDS, kind].index(kind))
    width = max(len(group.name) for groups in kinds.values() for group in groups if not group.options)
    console = standard_output()
    for index, kind in enumerate(ordered):
        title = Text(_KINDS.get(kind, kind), style="bold")
        console.show(*([""] if index else []), title, indented(_group_names(kinds[kind], width)))


def _group_names(groups: list[Supergroup], width: int) -> RenderableType:
    """A listing of supergroups; of a family, what each part of the name stands for."""
    rows: dict[str, str] = {}
    for group in groups:
        if not group.options:
            rows.setdefault(group.name, group.doc)
    for family in (group for group in groups if group.options):
        parts = {part: [label for label in labels if label] for part, labels in family.options.items()}
        known = {label for labels in parts.values() for label in labels}
        alone = [name for name in family.names if name in known]
        rows[family.name] = family.doc
        rows |= {
            f"  {part}": ", ".join(labels) for part, labels in (parts | {"alone": alone}).items() if labels
        }
    return listing(rows.items(), width)


@click.command("help", short_help="Explain a pass, a pipeline, a target or a command.")
@click.argument("name", metavar="[PASS|PIPELINE|TARGET|COMMAND]", type=WordType(), required=False)
@click.pass_context
def help_command(context: click.Context, name: str | None) -> None:
    """Explains a pass with its options, a pipeline, a target, or a command."""
    group = context.parent.command if context.parent is not None else None
    assert isinstance(group, click.Group) and context.parent is not None
    console = standard_output(prose=True)
    if name is None:
        click.echo(context.parent.get_help())
    elif name in registry():
        _show_pass(console, describe(registry().get(name)))
    elif name in COMBINATORS:
        _show_combinator(console, describe_combinator(COMBINATORS[name]))
    elif name in pipeline_names():
        _show_pipeline(console, resolve_pipeline(name))
    elif name in target_names() or (name.endswith(".toml") and Path(name).is_file()):
        _show_target(console, load_target(name))
    elif name in group.commands:
        command = group.commands[name]
        click.echo(command.get_help(click.Context(command, info_name=name, parent=context.parent)))
    else:
        known = [*registry().names(), *COMBINATORS, *pipeline_names(), *target_names(), *group.commands]
        raise UsageError(f"there is no pass, pipeline, target or command '{name}'{nearest(name, known)}")


def _show_pass(console: ReportConsole, description: PassDescription) -> None:
    _show_head(console, description.name, description.docstring)
    facts: list[Fact] = [("stage", description.stage.deed)]
    for need in description.needs:
        if need != "executor":
            facts.append(("needs", ": ".join(NEEDS[need])))
        elif description.stage is Stage.ANNOTATE:  # what it runs the model on
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
