"""Writes supergroups as the one op that the target runs them as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from qc.ir.graph import Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.onnx.lower import lower_ops
from qc.ir.onnx.types import declare
from qc.ir.rewriter import Rewriter
from qc.patterns import Match, Matcher

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from ..framework.target import Target


@dataclass(frozen=True)
class FuseSupergroups(Pass):
    """Writes a GELU or LayerNormalization that is made of several ops as the one op of ONNX.

    That is done where the target runs it only so (``written_as`` in its file), the data is float32 and the
    model's opset has the op. Both forms are run on random numbers, and where they do not agree the ops stay.
    """

    name = "fuse-supergroups"
    stage = Stage.FLOAT
    needs = frozenset({"target", "executor"})
    tolerance = 1e-4

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        known = [group for group in target.known_supergroups() if _written_as(target, group.name) in _FORMS]
        rewriter = Rewriter(model)
        for graph in model.graph.walk() if known else ():
            fused: dict[Value, Value] = {}
            for match in Matcher(graph, known).find_all():
                op_type, x = _written_as(target, match.name), fused.get(match["x"], match["x"])
                since, form_of = _FORMS[op_type]
                if match.root.is_type(op_type) or model.opset < since or len(match.results) > 1:
                    continue
                form = form_of(match)
                if form is None or not _agrees(match, x, op_type, form, context):
                    reason = f"it is not the {op_type} of ONNX to the number"
                    model.journal.note(Remark(SKIP, match.root, match.root.label, reason))
                    continue
                with rewriter.action(f"fuse {match.name}", match.root):
                    fused[match.result] = _replace(rewriter, match, x, op_type, form)


@dataclass(frozen=True)
class _Form:
    """What one op reads besides its data, and its attributes."""

    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


def _written_as(target: Target, name: str) -> str:
    rule = target.region_rule(name)
    return (rule.written_as or "") if rule is not None else ""


def _gelu(match: Match) -> _Form:
    is_exact = any(op.is_type("Erf") for op in match.ops)
    return _Form(attributes={} if is_exact else {"approximate": "tanh"})


def _layer_norm(match: Match) -> _Form | None:
    """The scale and the bias over all normalized axes, which must be the last ones and have known lengths."""
    shape, axes = match["x"].type.shape, match.attributes.get("axes")
    if shape is None or not isinstance(axes, tuple):
        return None
    first = len(shape) - len(axes)
    if sorted(axis % len(shape) for axis in axes) != list(range(first, len(shape))):
        return None
    lengths = tuple(length for length in shape[first:] if isinstance(length, int))
    if len(lengths) != len(axes):
        return None
    parameters = {"scale": np.ones(lengths, np.float32)}
    for name in ("scale", "bias"):
        data = match.constant(name)
        if data is not None:
            array = data.numpy().astype(np.float32)
            parameters[name] = np.ascontiguousarray(
                np.broadcast_to(array.reshape(array.shape[-len(axes) :]), lengths)
            )
    epsilon = match.constant("epsilon")
    attributes = {
        "axis": -len(axes),
        "epsilon": float(epsilon.numpy().item()) if epsilon is not None else 0.0,
    }
    return _Form(parameters, attributes)


# By op type: the first opset that has it, and what makes it of a match.
_FORMS: dict[str, tuple[int, Callable[[Match], _Form | None]]] = {
    "Gelu": (20, _gelu),
    "LayerNormalization": (17, _layer_norm),
}


def _agrees(match: Match, data: Value, op_type: str, form: _Form, context: PassContext) -> bool:
    """Whether the op computes what the ops of a match do, on random numbers."""
    if data.type.shape is None or data.captured is not None or data.type.elem_type != TensorProto.FLOAT:
        return False
    graph = match.graph
    read = [graph.producer(value) for op in match.ops for value in graph.op_inputs(op) if value is not None]
    constants = [op for op in dict.fromkeys(read) if op is not None and op.is_type("Constant")]
    written = lower_ops(graph, [*constants, *match.ops], [match.result])
    written.graph.input.append(declare(data))
    node = helper.make_node(op_type, [data.name, *form.parameters], [match.result.name], **form.attributes)
    tensors = [numpy_helper.from_array(array, name) for name, array in form.parameters.items()]
    one_op = helper.make_graph([node], op_type, [declare(data)], [declare(match.result)], tensors)
    single = ModelProto(ir_version=written.ir_version, opset_import=written.opset_import, graph=one_op)
    shape = [length if isinstance(length, int) else 2 for length in data.type.shape]
    feed = {data.name: np.random.default_rng(0).normal(0, 2, shape).astype(np.float32)}
    executor = context.required_executor()
    expected, found = (
        next(iter(executor.run(one, [feed], base_dir=graph.model.base_dir)))[match.result.name]
        for one in (written, single)
    )
    return np.allclose(found, expected, rtol=1e-4, atol=1e-5)


def _replace(rewriter: Rewriter, match: Match, data: Value, op_type: str, form: _Form) -> Value:
    """Puts the op in the place of a match; its result."""
    graph, result = match.graph, match.result
    inputs: list[Value | None] = [data]
    for name, array in form.parameters.items():
        inputs.append(rewriter.add_constant(graph, array, f"{result.name}_{name}"))
    name, made = result.name, rewriter.add_value(graph, result.name, result.type)
    rewriter.add_op(graph, op_type, inputs, [made], form.attributes)
    rewriter.replace_uses(result, made)
    if made.name != name:  # a graph output takes its name along
        rewriter.swap_names(result, made)
    for op in reversed(match.ops):
        if not any(value is not None and graph.is_read(value) for value in graph.op_outputs(op)):
            rewriter.erase_op(op)
    return made
