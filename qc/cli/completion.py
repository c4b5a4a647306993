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

    # Behind an option that has no value yet, click leaves the arguments alone.
    model = ctx.params.get("model") or next(word for word in ctx.args if word.endswith(".onnx"))
    for node in load_model(model).graph.node:
        yield from filter(None, dict.fromkeys((*node.output, node.name)))


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
}
