"""What the shell completes: passes, pipelines, targets and tensors by their names, and files elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names that fit what was typed of a value so far; in a list, of its last element."""
    names = _NAMES.get(str(param.name))
    if names is None:
        return [CompletionItem(incomplete, type="file")]
    before, comma, last = incomplete.rpartition(",")
    try:
        found = [name for name in names(ctx) if name.startswith(last)]
    except Exception:  # what is wrong is told when the command runs, not while it is typed
        return []
    if not found and "FILE" in (param.metavar or ""):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(f"{before}{comma}{name}") for name in found]


def _passes(ctx: click.Context) -> Iterable[str]:
    from qc.passes import registry

    return registry().names()


def _pipelines(ctx: click.Context) -> Iterable[str]:
    from qc import pipeline_names

    return pipeline_names()


def _targets(ctx: click.Context) -> Iterable[str]:
    from qc.passes.framework.target import target_names

    return target_names()


def _presets(ctx: click.Context) -> Iterable[str]:
    from qc.runtime.data.data_files import PRESETS

    return PRESETS


def _tensors(ctx: click.Context) -> Iterable[str]:
    """The results of ops, and the ops, of the model that was typed."""
    from qc.ir.onnx.load import load_model

    for node in load_model(_model(ctx)).graph.node:
        yield from filter(None, dict.fromkeys((*node.output, node.name)))


def _model(ctx: click.Context) -> str:
    """The model that was typed."""
    # Behind an option that has no value yet, click leaves the arguments alone.
    return ctx.params.get("model") or next(word for word in ctx.args if word.endswith(".onnx"))


def _ops(ctx: click.Context) -> Iterable[str]:
    """What rules of precision name: the op types of the model that was typed, its ops, and its tensors."""
    from qc.ir.onnx.load import load_model

    nodes = load_model(_model(ctx)).graph.node
    yield from dict.fromkeys(node.op_type for node in nodes)
    yield from (f"op:{node.name}" for node in nodes if node.name)
    yield from (name for node in nodes for name in node.output if name)


def _options(ctx: click.Context) -> Iterable[str]:
    """The options of all passes, as --opt names them."""
    from qc.passes import registry
    from qc.passes.framework.describe import describe

    for one in registry():
        yield from (f"{one.name}.{option.name}" for option in describe(one).options)


def _configurations(ctx: click.Context) -> Iterable[str]:
    from qc.passes.quantize.quantsim.reading import config_names

    return config_names()


def _topics(ctx: click.Context) -> Iterable[str]:
    """What 'qc help' explains."""
    group = ctx.parent.command if ctx.parent is not None else None
    commands = group.list_commands(ctx) if isinstance(group, click.Group) else []
    return dict.fromkeys([*_passes(ctx), *_pipelines(ctx), *_targets(ctx), *commands])


_NAMES: dict[str, Callable[[click.Context], Iterable[str]]] = {
    "passes": _passes,
    "append": _passes,
    "print_before": _passes,
    "print_after": _passes,
    "pipeline": _pipelines,
    "target": _targets,
    "also_for": _targets,
    "preset": _presets,
    "tensor": _tensors,
    "around": _tensors,
    "rules": _ops,
    "options": _options,
    "config": _configurations,
    "name": _topics,
}
