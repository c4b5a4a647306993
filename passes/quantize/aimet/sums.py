"""AIMET's last step of a calibration: scales of weights that keep the 32-bit sums of its devices in range."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_table import WEIGHTED
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerTensor

from ..quantsim.drafts import hands_on
from ..quantsim.nodes import Node, NodeGraph

_LARGEST_CODE = 2**31 - 2**15
_LEAST_FACTOR = 2.0**-23.5  # of a sum, to be a code of the result


def enlarge_weight_scales(model: Model) -> None:
    """Makes the scales of weights in the main graph as large as aimet-onnx 2.42 does.

    With the scales ``s_in``, ``s_w`` and ``s_out`` of input, weight and result, and the offset ``o_out`` of
    the result, each channel of a weight without blocks, or the whole of it with its largest bias ``b``, gets
    one after the other::

        s_w >= |b| / ((2^31 - 2^15) s_in)
        s_w >= 2^-23.5 s_out / s_in
        s_w >= |round(b / s) + round(o_out s_out / s)| s / ((2^31 - 2^15) s_in)    where s = s_in s_w

    in float32 but for the first and the last quotient, which are float64. The last two are for results with
    an integer grid only. Frozen grids stay.
    """
    nodes = NodeGraph(model.graph)
    for node in nodes.nodes:
        if not node.is_type(*WEIGHTED):
            continue
        constants = {parameter.slot: parameter.value for parameter in nodes.parameters(node)}
        add = _bias_add(nodes, node)
        source, result = node.input(0), node.outputs[0]
        if add is not None:
            bias = next(value for value in add.inputs if value is not None and _is_vector(value))
            is_data = any(not quantizer.spec.derived for quantizer in model.quant.quantizers_on(bias))
            if _are_one(model, node, add) or not is_data:
                constants["bias"] = bias
            result = add.outputs[0] if _are_one(model, node, add) else result
        if "weight" in constants:
            _enlarge(model, nodes, constants["weight"], constants.get("bias"), source, result)


def _bias_add(nodes: NodeGraph, node: Node) -> Node | None:
    """The addition of a bias behind a MatMul, which nothing else reads."""
    made = node.outputs[0]
    readers = nodes.readers(made) if made is not None and node.is_type("MatMul") else []
    if len(readers) != 1 or not readers[0].is_type("Add"):
        return None
    return readers[0] if any(_is_vector(value) for value in readers[0].inputs if value is not None) else None


def _is_vector(value: Value) -> bool:
    data = constant_data(value)
    return data is not None and len(data.shape) == 1


def _are_one(model: Model, product: Node, add: Node) -> bool:
    """Whether ``configure-quantizers`` made one op of a product and its bias."""
    region = product.ops[0].region
    return region is not None and region.name == "MatmulAdd" and region is add.ops[0].region


def _enlarge(
    model: Model,
    nodes: NodeGraph,
    weight: Value,
    bias: Value | None,
    source: Value | None,
    result: Value | None,
) -> None:
    quantizer = next(model.quant.quantizers_on(weight), None)
    own = quantizer.encoding if quantizer is not None else None
    given, made = _arriving(model, nodes, source), _arriving(model, nodes, result)
    if own is None or given is None or not isinstance(own.spec.format, IntFormat):
        return
    data = constant_data(bias) if bias is not None else None
    addend = data.numpy() if data is not None else np.zeros(own.scale.shape, np.float32)
    addend = np.where(np.isfinite(addend), addend, np.float32(0))  # NaN fits no sum
    if isinstance(own.spec.granularity, PerBlock) or (own.scale.ndim and addend.shape != own.scale.shape):
        return
    scale = least_scale(own.scale, addend, given, made)
    if quantizer is not None and not np.array_equal(scale, own.scale):
        larger = Encoding(own.spec, scale, own.zero_point)
        model.quant.calibrate(quantizer, larger, "larger scale for 32-bit sums, as AIMET has it")


def _arriving(model: Model, nodes: NodeGraph, value: Value | None) -> Encoding | None:
    """The integer grid of a tensor, its own or that of what it holds the values of; None if it has none."""
    while value is not None:
        quantizer = next(model.quant.quantizers_on(value), None)
        if quantizer is not None:
            encoding = quantizer.encoding
            fits = isinstance(quantizer.spec.format, IntFormat)
            fits &= isinstance(quantizer.spec.granularity, PerTensor)
            return encoding if fits else None
        producer = nodes.producer(value)
        value = producer.input(0) if producer is not None and hands_on(producer) else None
    return None


def least_scale(scale: np.ndarray, bias: np.ndarray, given: Encoding, made: Encoding | None) -> np.ndarray:
    """The rule for one weight, see :func:`enlarge_weight_scales`.

    Args:
        scale: of the weight; float32, ``()`` or one for each channel.
        bias: one number for each channel.
        given, made: the grids of the input, and of the result if it has one.

    Returns:
        float32, of the shape of ``scale``.
    """
    scale = _without_overflow(scale, bias, given.scale)
    if made is None:
        return scale
    assert isinstance(made.spec.format, IntFormat)
    scale = np.maximum(scale, np.float32(_LEAST_FACTOR) * made.scale * (np.float32(1) / given.scale))
    unit = given.scale * scale
    offset = np.float32(made.spec.format.lowest) - made.zero_point.astype(np.float32)
    sums = np.round(bias / unit) + np.round(offset * made.scale / unit)
    return _without_overflow(scale, sums * unit, given.scale)


def _without_overflow(scale: np.ndarray, sums: np.ndarray, given: np.ndarray) -> np.ndarray:
    """The scales, made so large that no sum exceeds 32 bits; float32."""
    reach = np.abs(sums.astype(np.float64)) / (_LARGEST_CODE * given.astype(np.float64))
    if not scale.ndim:
        reach = reach.max(initial=0.0)
    return np.asarray(np.maximum(scale, reach), np.float32)
