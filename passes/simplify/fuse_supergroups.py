"""Writes ops as the one op that the target runs them as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.onnx.lower import lower_ops
from qc.ir.onnx.types import declare
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import UNKNOWN, ValueType
from qc.patterns import Match, Matcher, Supergroup
from qc.patterns.attributes import attribute_of

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from ..framework.target import Target
from .decompositions.builder import put_in_place

_DATA = ""  # what a step reads that is no parameter: the data of the form
_FEW = 6  # lengths that tell as much of an elementwise op as any
_PICTURE = 4  # the fewest dimensions of pictures: samples, channels, and positions


@dataclass(frozen=True)
class FuseSupergroups(Pass):
    """Writes a GELU, a Softmax or a normalization of several ops as the one op of ONNX.

    The normalizations are LayerNormalization, RMSNormalization, LpNormalization and InstanceNormalization,
    into which a scale and a bias behind it go; one along other axes than the op has gets a Transpose on both
    sides. A hard-swish becomes a HardSwish, or the product of the data and its HardSigmoid, and a
    hard-sigmoid a HardSigmoid. That is done where the target file asks for it (``written_as``), the data is
    float32 and the opset has the op, to which models are converted when they are compiled. Both forms are
    run on random numbers, and where they do not agree the ops stay. A ReduceMean over all positions of
    pictures that belongs to no supergroup becomes a GlobalAveragePool where the target runs that alone in
    integers, with a Flatten behind it if the dimensions are dropped.
    """

    name = "fuse-supergroups"
    stage = Stage.FLOAT
    needs = frozenset({"target", "executor"})
    tolerance = 1e-4

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        known = _with_forms(target)
        rewriter = Rewriter(model)
        for graph in model.graph.walk() if known else ():
            fused: dict[Value, Value] = {}
            for match in Matcher(graph, known).find_all():
                op_type, x = _written_as(target, match.name), fused.get(match["x"], match["x"])
                since, form_of = _FORMS[op_type]
                form = form_of(match)
                is_written = _is_written(match, op_type, form)
                if is_written or model.opset < since or len(match.results) > 1 or _adds_axes(match):
                    continue
                forms = (form, _unbiased(form, match)) if form is not None else ()
                form = next((one for one in forms if one and _agrees(match, x, op_type, one, context)), None)
                if form is None:
                    reason = f"it is not the {op_type} of ONNX to the number"
                    model.journal.note(Remark(SKIP, match.root, match.root.label, reason))
                    continue
                with rewriter.action(f"fuse {match.name}", match.root):
                    fused[match.result] = _replace(rewriter, match.ops, match.result, x, op_type, form)
        if target.rule_for("ReduceMean").runs == "float" != target.rule_for("GlobalAveragePool").runs:
            _pool_means(model, target, rewriter)


def opset_of_forms(model: Model, target: Target) -> int:
    """The first opset that has the ops which the target runs instead of what the model writes out.

    0 if there are none that the model's own opset lacks.
    """
    newer = {
        group: since
        for group in _with_forms(target)
        if (since := _FORMS[_written_as(target, group.name)][0]) > model.opset
    }
    by_name = {group.name: since for group, since in newer.items()}
    graphs = model.graph.walk() if newer else ()
    found = (match.name for graph in graphs for match in Matcher(graph, list(newer)).find_all())
    return max(map(by_name.__getitem__, found), default=0)


def _with_forms(target: Target) -> list[Supergroup]:
    return [group for group in target.known_supergroups() if _written_as(target, group.name) in _FORMS]


@dataclass(frozen=True)
class _Form:
    """What one op reads besides its data, its attributes, and the order of axes that it wants, if any.

    One that ``is_flat`` drops the dimensions behind the second, which the op has made 1. What a form that
    ``is_gate`` makes is multiplied by the data. ``beside_deviation`` is what the ops of a norm add to the
    deviation, where the one op adds the square of it to the variance.
    """

    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    is_flat: bool = False
    is_gate: bool = False
    beside_deviation: float = 0.0

    @property
    def probes(self) -> list[tuple[float, float]]:
        """Deviations of random numbers on which both forms are compared, and how far they may differ there.

        Numbers of the size of an epsilon show where it is added. Beside a deviation a hundred times as large
        its square makes 1 %, which no other form of the one op has less of.
        """
        usual = (2.0, 1e-4)
        if self.beside_deviation:
            return [usual, (100 * self.beside_deviation, 2e-2)]
        epsilon = self.attributes.get("epsilon", 0.0)
        return [usual, (epsilon**0.5, 1e-3)] if epsilon else [usual]

    @property
    def is_elementwise(self) -> bool:
        """Whether it computes each number by itself."""
        return not self.parameters and "axis" not in self.attributes and not self.is_flat

    def steps(self, op_type: str) -> list[tuple[str, Sequence[str], Mapping[str, Any]]]:
        """The ops, one behind the other: type, parameters and attributes."""
        step = op_type, tuple(self.parameters), self.attributes
        if self.is_flat:
            return [step, ("Flatten", (), {"axis": 1})]
        if self.is_gate:
            return [step, ("Mul", (_DATA,), {})]
        if not self.order:
            return [step]
        back = np.argsort(self.order).tolist()
        return [("Transpose", (), {"perm": self.order}), step, ("Transpose", (), {"perm": back})]

    def between(self, data: ValueType) -> ValueType:
        """The type between the steps, by that of the data."""
        shape = data.shape or ()
        if self.is_gate:
            return data
        flat = (*shape[:2], *(1,) * len(shape[2:]))
        return data._replace(shape=flat if self.is_flat else tuple(shape[axis] for axis in self.order))


def _written_as(target: Target, name: str) -> str:
    rule = target.region_rule(name)
    return (rule.written_as or "") if rule is not None else ""


def _gelu(match: Match) -> _Form:
    is_exact = any(op.is_type("Erf") for op in match.ops)
    return _Form(attributes={} if is_exact else {"approximate": "tanh"})


def _layer_norm(match: Match) -> _Form | None:
    """The scale and the bias over all normalized axes; these must have known lengths, and become the last."""
    shape, axes = match["x"].type.shape, match.attributes.get("axes")
    if shape is None or not isinstance(axes, tuple):
        return None
    rank, normalized = len(shape), sorted(axis % len(shape) for axis in axes)
    order = (*(axis for axis in range(rank) if axis not in normalized), *normalized)
    lengths = tuple(length for axis in normalized if isinstance(length := shape[axis], int))
    if len(lengths) != len(axes):
        return None
    parameters = {"scale": np.ones(lengths, np.float32)}
    for name in ("scale", "bias"):
        data = match.constant(name)
        if data is not None:
            array = data.numpy().astype(np.float32)
            if array.ndim > rank:  # it gives the result more axes
                return None
            array = array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(order)
            parameters[name] = np.ascontiguousarray(
                np.broadcast_to(array.reshape(array.shape[-len(axes) :]), lengths)
            )
    epsilon, beside = _epsilon(match, 0.0)
    attributes = {"axis": -len(axes), "epsilon": epsilon}
    order = order if order != tuple(range(rank)) else ()
    return _Form(parameters, attributes, order, beside_deviation=beside)


def _rms_norm(match: Match) -> _Form | None:
    """What has a scale and no bias."""
    form = _layer_norm(match)
    return form if form is not None and "bias" not in form.parameters else None


def _softmax(match: Match) -> _Form | None:
    axes = match.attributes.get("axes")
    return _Form(attributes={"axis": axes[0]}) if isinstance(axes, tuple) and len(axes) == 1 else None


def _l2_norm(match: Match) -> _Form | None:
    axes = match.attributes.get("axes")
    return _Form(attributes={"axis": axes[0], "p": 2}) if isinstance(axes, tuple) and len(axes) == 1 else None


def _instance_norm(match: Match) -> _Form | None:
    """One number for each channel, those of the op itself together with what is behind it."""
    shape, axes = match["x"].type.shape, match.attributes.get("axes")
    one_op = next((op for op in match.ops if op.is_type("InstanceNormalization")), None)
    if shape is None or (one_op is None and not isinstance(axes, tuple)):
        return None
    positions = axes if isinstance(axes, tuple) else range(2, len(shape))
    channel, *others = set(range(1, len(shape))) - {axis % len(shape) for axis in positions}
    length = shape[channel]
    read = one_op.inputs[1:] if one_op else ()
    given = [constant_data(value) if value is not None else None for value in read]
    if others or not isinstance(length, int) or None in given:
        return None
    scale, bias = (data.numpy() for data in given if data) if given else (np.float32(1), np.float32(0))
    factor, shift = (
        data.numpy().ravel() if (data := match.constant(name)) is not None else np.float32(neutral)
        for name, neutral in (("scale", 1), ("bias", 0))
    )
    merged = {"scale": scale * factor, "bias": bias * factor + shift}
    if any(np.size(array) not in (1, length) for array in merged.values()):
        return None
    parameters = {
        name: np.broadcast_to(array, (length,)).astype(np.float32) for name, array in merged.items()
    }
    default = one_op.attribute("epsilon", 1e-5) if one_op else 0.0
    epsilon, beside = _epsilon(match, default)
    order = (0, channel, *(axis for axis in range(1, len(shape)) if axis != channel)) if channel != 1 else ()
    return _Form(parameters, {"epsilon": epsilon}, order, beside_deviation=beside)


def _epsilon(match: Match, default: float) -> tuple[float, float]:
    """What the one op adds to the variance, and what the ops add to the deviation instead, or 0."""
    data = match.constant("epsilon")
    if data is None:
        return default, 0.0
    number = float(data.numpy().item())
    added = (op for op in match.ops if match["epsilon"] in op.inputs)
    makers = (value.producer for op in added for value in op.inputs if value is not None)
    beside = any(maker is not None and maker.is_type("Sqrt", "Pow") for maker in makers)
    return (number**2, number) if beside else (number, 0.0)


def _unbiased(form: _Form, match: Match) -> _Form | None:
    """A normalization by the deviation with ``n - 1`` in it, by the one with ``n``, the length of what is
    normalized; None of other forms and lengths that are not known.
    """
    shape, axes = match["x"].type.shape, match.attributes.get("axes")
    if shape is None or not isinstance(axes, tuple) or "scale" not in form.parameters:
        return None
    lengths = [length for axis in axes if isinstance(length := shape[axis], int)]
    count = prod(lengths)
    if len(lengths) != len(axes) or count < 2:
        return None
    share = (count - 1) / count
    scale = (form.parameters["scale"] * share**0.5).astype(np.float32)
    attributes = {**form.attributes, "epsilon": form.attributes["epsilon"] * share}
    return replace(form, parameters={**form.parameters, "scale": scale}, attributes=attributes)


def _hard_sigmoid(match: Match) -> _Form:
    """The function of a hard-swish, which multiplies what it reads, or that by itself."""
    return _Form(attributes={"alpha": 1 / 6, "beta": 0.5}, is_gate=match.name == "hard_swish")


# By op type: the first opset that has it, and what makes it of a match.
_FORMS: dict[str, tuple[int, Callable[[Match], _Form | None]]] = {
    "Gelu": (20, _gelu),
    "HardSigmoid": (6, _hard_sigmoid),
    "HardSwish": (14, lambda match: _Form()),
    "InstanceNormalization": (6, _instance_norm),
    "LayerNormalization": (17, _layer_norm),
    "LpNormalization": (1, _l2_norm),
    "RMSNormalization": (23, _rms_norm),
    "Softmax": (13, _softmax),
}


def _is_written(match: Match, op_type: str, form: _Form | None) -> bool:
    """Whether the ops are that op already, with nothing around it that could go into it."""
    is_there = any(op.is_type(op_type) for op in match.ops)
    return is_there and (len(match.ops) == 1 or (form is not None and form.is_gate))


def _adds_axes(match: Match) -> bool:
    """Whether the result has other axes than the data, which the one op would give it."""
    read, made = match["x"].type.shape, match.result.type.shape
    return read is not None and made is not None and len(read) != len(made)


def _agrees(match: Match, data: Value, op_type: str, form: _Form, context: PassContext) -> bool:
    """Whether the op computes what the ops of a match do, on random numbers."""
    if data.type.shape is None or data.captured is not None or data.type.elem_type != TensorProto.FLOAT:
        return False
    graph = match.graph
    values = [value for op in match.ops for value in op.inputs if value is not None]
    read = dict.fromkeys(value.producer for value in values)
    constants = [op for op in read if op is not None and op.is_type("Constant")]
    known = (data, *(value for op in (*match.ops, *constants) for value in op.outputs))
    if any(value not in known and constant_data(value) is None for value in values):
        return False  # such as a shape, of lengths that are free
    written = lower_ops(graph, [*constants, *match.ops], [match.result])
    written.graph.input.append(declare(data))
    steps = form.steps(op_type)
    names = [data.name, *(f"{data.name}_{index}" for index in range(1, len(steps))), match.result.name]
    nodes = [
        helper.make_node(
            type, [names[index], *(name or data.name for name in read)], [names[index + 1]], **attributes
        )
        for index, (type, read, attributes) in enumerate(steps)
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in form.parameters.items()]
    one_op = helper.make_graph(nodes, op_type, [declare(data)], [declare(match.result)], tensors)
    single = ModelProto(ir_version=written.ir_version, opset_import=written.opset_import, graph=one_op)
    shape = [length if isinstance(length, int) else 2 for length in data.type.shape]
    numbers = all(prod(one.dims) == 1 for one in written.graph.initializer) and not constants
    if form.is_elementwise and numbers:
        shape = [min(length, _FEW) for length in shape]
        for info in (*written.graph.input, *written.graph.output, *single.graph.input, *single.graph.output):
            info.type.tensor_type.ClearField("shape")
    rng, executor = np.random.default_rng(0), context.required_executor()
    feeds = [{data.name: rng.normal(0, size, shape).astype(np.float32)} for size, _ in form.probes]
    expected, found = (
        [made[match.result.name] for made in executor.run(one, feeds, base_dir=graph.model.base_dir)]
        for one in (written, single)
    )
    results = zip(found, expected, form.probes, strict=True)
    return all(np.allclose(one, other, rtol=off, atol=off / 10) for one, other, (_, off) in results)


def _pool_means(model: Model, target: Target, rewriter: Rewriter) -> None:
    for graph in model.graph.walk():
        means = [op for op in graph.ops() if op.is_type("ReduceMean") and _is_over_positions(op)]
        matches = Matcher(graph, target.known_supergroups()).find_all() if means else ()
        inside = {op for match in matches for op in match.ops}
        for op in means:
            data, result = op.inputs[0], op.outputs[0]
            if data is not None and result is not None and op not in inside:
                form = _Form(is_flat=not op.attribute("keepdims", 1))
                with rewriter.action("pool", op):
                    _replace(rewriter, [op], result, data, "GlobalAveragePool", form)


def _is_over_positions(op: Op) -> bool:
    """Whether it reduces all axes of pictures but the first two, those of samples and of channels."""
    read = op.inputs
    type = read[0].type if read[0] is not None else UNKNOWN
    if type.elem_type != TensorProto.FLOAT or type.rank is None or type.rank < _PICTURE:
        return False
    return attribute_of(op, "axes", read) == tuple(range(2, type.rank))


def _replace(
    rewriter: Rewriter, ops: Sequence[Op], result: Value, data: Value, op_type: str, form: _Form
) -> Value:
    """Puts the op in the place of others; its result."""
    graph = result.graph
    given = {_DATA: data}
    for name, array in form.parameters.items():
        given[name] = rewriter.add_constant(graph, array, f"{result.name}_{name}")
    steps, made = form.steps(op_type), data
    between = form.between(data.type)
    for index, (type, parameters, attributes) in enumerate(steps):
        last = index == len(steps) - 1
        read = made
        name = result.name if last else f"{result.name}_{type}"
        made = rewriter.add_value(graph, name, result.type if last else between)
        rewriter.add_op(graph, type, [read, *(given[name] for name in parameters)], [made], attributes)
    put_in_place(rewriter, result, made)
    for op in reversed(ops):
        if not any(value is not None and value.is_read for value in op.outputs):
            rewriter.erase_op(op)
    return made
