"""The patterns that AIMET fuses to one op before it places quantizers.

They are narrower than the supergroups of the same names in the catalogue: a supergroup in any spelling of an
exporter that AIMET has no pattern for would move quantizers. They are wider in three places where AIMET is at
fault: axes may be inputs, as opset 18 has them, and what looks like scale or bias must be constant and vary
along the normalized axis only, so that a residual connection or a gate behind a norm stays outside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op, Value
from qc.ir.tensor_ref import TensorRef
from qc.patterns import Match, Pattern, Supergroup, attribute, choice, constant, find_all, op, value
from qc.patterns.fragments import either, floating, is_epsilon, square, varying_axes

from .nodes import Node

AxesTest = Callable[[object], bool] | None

_MASKED = -20.0  # what a mask adds makes Softmax zero


def find_fusions(graph: Graph, wanted: Collection[str], taken: Iterable[Op]) -> list[Match]:
    """The matches of the patterns of the given names, in topological order.

    Args:
        taken: ops that belong to something else.
    """
    patterns = [_FUSIONS[name] for name in _FUSIONS if name in wanted]
    return find_all(graph, patterns, taken) if patterns else []


def find_unfused(graph: Graph, wanted: Collection[str], taken: Iterable[Op]) -> list[Match]:
    """The patterns of the given names in forms that are not fused, but have no quantizers inside either.

    Norms over several axes, and products with a stack of matrices with a bias behind them.
    """
    patterns = [_UNFUSED[name] for name in _UNFUSED if name in wanted]
    return find_all(graph, patterns, taken) if patterns else []


def fused_node(match: Match) -> Node:
    """What a match counts as."""
    captures = match.captures
    if match.name == "MatmulAdd":
        transposed = match.choices["weight"] == "transposed"
        inputs = (captures["x"], captures["stored"], captures["bias"])
        return Node("Gemm", "", inputs, match.results, match.ops, {"transB": int(transposed)})
    if match.name == "MaskedSoftmax":
        inputs = (captures["x"], captures["mask"], captures["masked"])
        return Node(match.name, "", inputs, match.results, match.ops)
    names = ("x", "scale", "bias") if match.name == "LayerNormalization" else ("x", "scale")
    present = tuple(captures[name] for name in names if name in captures)
    return Node(match.name, "", present, match.results, match.ops)


def _root_mean_square(x: Pattern, scaled: Pattern | None, axes: AxesTest = None) -> Pattern:
    """``x / sqrt(mean(x^2) + epsilon)``, times ``scaled`` if that is given."""
    mean = op.ReduceMean(square(x), axes=attribute("axes", axes), keepdims=1)
    guarded = mean + constant(where=is_epsilon)
    root = op.Sqrt(guarded)
    inverse = either(op.Reciprocal(root), 1 / root, guarded**-0.5)
    plain = x / root | x * inverse
    if scaled is None:
        return plain
    return (op.Cast(plain) | plain) * scaled


def _layer_norm(axes: AxesTest = None) -> Pattern:
    x = value("x", where=floating)
    difference = x - op.ReduceMean(x, axes=attribute("outer_axes", axes), keepdims=1)
    scaled = _root_mean_square(difference, constant("scale"), axes)
    return either(scaled + constant("bias"), scaled, _root_mean_square(difference, None, axes))


def _batched_matmul_add() -> Pattern:
    weight = constant("weight", where=lambda data: len(data.shape) != 2)
    product = op.MatMul(value("x", where=floating), weight)
    return product + constant("bias", where=lambda data: len(data.shape) == 1)


def _rms_norm(axes: AxesTest = None) -> Pattern:
    x = value("x", where=floating)
    return _root_mean_square(x, constant("scale"), axes) | _root_mean_square(x, None, axes)


def _matmul_add() -> Pattern:
    stored = constant("stored", where=lambda data: len(data.shape) == 2)
    weight = choice("weight", {"transposed": op.Transpose(stored, perm=(1, 0)), "plain": stored})
    return op.MatMul(value("x", where=floating), weight) + constant("bias", where=lambda d: len(d.shape) == 1)


def _masked_softmax() -> Pattern:
    x, mask = value("x", where=_has_four_axes), value("mask")
    lowest = op.ReduceMin(x, axes=(-1,), keepdims=1) + constant("masked", where=_is_masking)
    return op.Softmax(op.Where(mask, x, lowest), axis=-1)


def _is_one_axis(axes: object) -> bool:
    return isinstance(axes, tuple) and len(axes) == 1


def _is_masking(data: TensorRef) -> bool:
    return data.is_small and int(np.prod(data.shape)) == 1 and float(data.numpy().ravel()[0]) <= _MASKED


def _has_four_axes(x: Value) -> bool:
    return x.type.rank == 4


def _is_layer_norm(match: Match) -> str | None:
    """Whether there is a scale; without one only the mean square of the centred values counts as one op.

    What is a norm with a scale, but shows the normalized values to others before they are scaled, is none of
    both: all up to there counts as one op.
    """
    if "scale" not in match.captures and not _is_scaled_after_it_is_shown(match.result):
        return "a norm without a scale"
    return _scales_normalized_axis(match)


def _is_scaled_after_it_is_shown(result: Value) -> bool:
    uses = result.uses
    shown = len(uses) > 1 or result.is_output
    factors = [value for use in uses if use.op.is_type("Mul") for value in use.op.inputs]
    return shown and any(value is not None and constant_data(value) is not None for value in factors)


def _scales_normalized_axis(match: Match) -> str | None:
    """Whether both means are over one axis, and scale and bias vary along it only."""
    attributes = match.attributes
    if attributes.get("outer_axes", attributes["axes"]) != attributes["axes"]:
        return "the mean and the variance are over different axes"
    shape = match["x"].type.shape
    axes = attributes["axes"]
    assert isinstance(axes, tuple)
    for name in ("scale", "bias"):
        found = match.captures.get(name)
        data = constant_data(found) if found is not None else None
        if data is None:
            continue
        normalized = {axis - len(shape) if axis >= 0 and shape is not None else axis for axis in axes}
        if not varying_axes(data.shape) <= normalized:
            return f"a {name} of shape {list(data.shape)} for a norm over axis {axes[0]}"
    return None


_DOC = "as AIMET fuses it"
_FUSIONS = {
    "LayerNormalization": Supergroup(
        "LayerNormalization", _layer_norm(_is_one_axis), _DOC, "normalization", check=_is_layer_norm
    ),
    "RMSNormalization": Supergroup(
        "RMSNormalization", _rms_norm(_is_one_axis), _DOC, "normalization", check=_scales_normalized_axis
    ),
    "MatmulAdd": Supergroup("MatmulAdd", _matmul_add(), _DOC, "weighted"),
    "MaskedSoftmax": Supergroup("MaskedSoftmax", _masked_softmax(), _DOC, "softmax"),
}
_UNFUSED = {
    "LayerNormalization": Supergroup(
        "LayerNormalization", _layer_norm(), _DOC, "normalization", check=_scales_normalized_axis
    ),
    "RMSNormalization": Supergroup(
        "RMSNormalization", _rms_norm(), _DOC, "normalization", check=_scales_normalized_axis
    ),
    "MatmulAdd": Supergroup("MatmulAdd", _batched_matmul_add(), _DOC, "weighted"),
}
