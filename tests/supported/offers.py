"""Offers: one op between quantize and dequantize ops, and what a runtime makes of many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from support.models import random_feeds
from support.pipelines import run_model

from qc.ir.errors import QcError
from qc.ir.facts.op_table import traits_of
from qc.ir.quant.formats import FloatFormat, Format, IntFormat, parse_format
from qc.ir.quant.packing import pack
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import QuantSpec
from qc.passes.framework.target import Target
from qc.runtime.devices.device import Device
from qc.runtime.execution.executed import ExecutedOp

from .catalogue import SAMPLES

OPSET = 21
BLOCK = 32
_STEP = {4: 0.3, 8: 0.02, 16: 0.0001}
_SHRINK = 1 / 32  # of weights, so that few sums of products leave the grid
# What is further from ONNX Runtime's number, in steps of 8 bits or as a share of the range, is wrong.
_STEPS, _SHARE = 3, 0.1
_POSITIVE = "positive"  # data with such a name
_WHOLE = "op"  # what the names of the op itself begin with; a number follows


@dataclass(frozen=True, order=True)
class Offer:
    """What is offered.

    Attributes:
        op_type: the operator.
        data: the format of the data, such as ``uint8``; ``float16`` for an op without grids.
        weight: format and granularity of the weight, such as ``int8 channel``; ``computed`` if the second
            factor is data; empty for an op without.
        rank: the rank of the data.
    """

    op_type: str
    data: str
    weight: str
    rank: int


def accepted(offers: Sequence[Offer], device: Device, target: Target) -> dict[Offer, bool]:
    """Which offers a runtime takes, in integers if they have grids, and computes as ONNX Runtime does."""
    found = _taken(offers, device, target)
    taken = [offer for offer in offers if found[offer]]
    return found | dict.fromkeys(set(taken) - _right(taken, device, target), False)


def _right(offers: Sequence[Offer], device: Device, target: Target) -> set[Offer]:
    """The offers whose numbers are those of ONNX Runtime, but for rounding."""
    model, places = _joined(offers, target)
    (feed,) = random_feeds(model, 1)
    for name, array in feed.items():
        if _POSITIVE in name:
            feed[name] = (np.abs(array) % 1 + 0.5).astype(array.dtype)
    found = device.open(model).run(feed)
    exact = run_model(model, feed, optimize=not device.emulated)  # integers may saturate on this processor
    wrong = {
        name.partition("_")[0]
        for name, array in exact.items()
        if array.dtype == np.float32
        and not np.abs(found[name] - array).max() < max(_SHARE * np.ptp(array), _STEPS * _STEP[8])
    }
    return {offer for name, offer in places.items() if name.partition("_")[0] not in wrong}


def _taken(offers: Sequence[Offer], device: Device, target: Target) -> dict[Offer, bool]:
    """Which offers a runtime takes: those that are left when it no longer refuses any.

    If it takes each of them and gives up the whole, they are offered by halves.
    """
    if not offers:
        return {}
    model, places = _joined(offers, target)
    try:
        execution = device.execution(model)
    except QcError:
        return _by_halves(offers, device, target)
    found = {places[op.node.proto.name]: op for op in execution.ops if op.node.proto.name in places}
    left = [offer for offer in offers if _is_taken(offer, found.get(offer))]
    if not execution.failure:
        return {offer: offer in left for offer in offers}
    halves = _by_halves if len(left) == len(offers) else _taken
    return dict.fromkeys(offers, False) | halves(left, device, target)


def _by_halves(offers: Sequence[Offer], device: Device, target: Target) -> dict[Offer, bool]:
    if len(offers) == 1:
        return {offers[0]: False}
    middle = len(offers) // 2
    return _taken(offers[:middle], device, target) | _taken(offers[middle:], device, target)


def _is_taken(offer: Offer, op: ExecutedOp | None) -> bool:
    if op is None or op.integer is None:  # a runtime can do without what only moves data
        return traits_of(offer.op_type).grid in ("keeps", "joins") or offer.data == "float16"
    return not op.place if offer.data == "float16" else op.integer


def _joined(offers: Sequence[Offer], target: Target) -> tuple[ModelProto, dict[str, Offer]]:
    """One model of all offers, and the names of the ops in question."""
    parts, places = [], {}
    for number, offer in enumerate(offers):
        part = _Part(offer, target, f"{number}_")
        parts.append(part)
        places[part.name] = offer
    graph = helper.make_graph(
        [node for part in parts for node in part.nodes],
        "offers",
        [value for part in parts for value in part.inputs],
        [value for part in parts for value in part.outputs],
        [tensor for part in parts for tensor in part.constants],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), places


class _Part:
    """The nodes of one offer."""

    def __init__(self, offer: Offer, target: Target, prefix: str) -> None:
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.constants: list[TensorProto] = []
        self.name = f"{prefix}{_WHOLE}"
        self._offer, self._target, self._prefix = offer, target, prefix
        self._sample = SAMPLES[offer.op_type]
        self._format = parse_format(offer.data)
        self._float = TensorProto.FLOAT16 if isinstance(self._format, FloatFormat) else TensorProto.FLOAT
        self._build()

    def _build(self) -> None:
        sample, rank = self._sample, self._offer.rank
        shape = sample.shape(rank)
        names = _POSITIVE if sample.positive else "x"
        read = [self._data(f"{names}{index}", shape) for index in range(sample.data)]
        if self._offer.op_type == "Where":
            condition = self._name("condition")
            self.inputs.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, shape))
            read.insert(0, condition)
        if self._offer.weight == "computed":
            read.append(self._data("w", (*shape[:-2], shape[-1], shape[-2])))
        elif sample.weight is not None:
            read.append(self._weight(sample.weight(rank)))
        for port in sample.biases:
            read.append(self._bias(port))
        for port, numbers in sample.parameters.items():
            read += [""] * (port - len(read)) + [self._constant(f"p{port}", numbers, shape)]
        attributes = sample.attributes(rank) if callable(sample.attributes) else sample.attributes
        made = [self._name(f"y{index}") for index in range(len(sample.made))]
        self.nodes.append(helper.make_node(self._offer.op_type, read, made, name=self.name, **attributes))
        for index, name in enumerate(made):
            self._result(name, sample.made[index])

    def _name(self, name: str) -> str:
        return self._prefix + name

    def _store(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, self._name(name)))
        return self._name(name)

    def _constant(self, name: str, numbers: object, shape: tuple[int, ...]) -> str:
        if numbers is None:
            return ""
        array = np.asarray(numbers(shape) if callable(numbers) else numbers)
        if array.dtype == np.float32 and self._offer.op_type != "Resize":
            array = array.astype(helper.tensor_dtype_to_np_dtype(self._float))
        return self._store(name, array)

    def _data(self, name: str, shape: tuple[int, ...]) -> str:
        self.inputs.append(helper.make_tensor_value_info(self._name(name), self._float, shape))
        return self._rounded(self._name(name))

    def _result(self, name: str, type: int) -> None:
        if type == TensorProto.FLOAT:
            name, type = self._rounded(name, result=True), self._float
        self.outputs.append(helper.make_tensor_value_info(name, type, None))

    def _rounded(self, name: str, *, result: bool = False) -> str:
        """A tensor, rounded to the grid of data."""
        if isinstance(self._format, FloatFormat):
            return name
        rule = self._target.rule_for(self._offer.op_type)
        limits = rule.range_in(self._format) if result else None
        spec = QuantSpec(self._format)
        step = _STEP[self._format.bits]
        low = 0.0 if _POSITIVE in name else step * (self._format.lowest - self._format.middle)
        encoding = encoding_of_range(
            spec, *np.asarray(limits or (low, low + step * (2**self._format.bits - 1)))
        )
        zero_point = self._codes(f"{name}_z", encoding.zero_point, ())
        scale = self._store(f"{name}_s", np.asarray(encoding.scale, np.float32))
        codes, rounded = f"{name}_q", f"{name}_d"
        self.nodes.append(helper.make_node("QuantizeLinear", [name, scale, zero_point], [codes], name=codes))
        self.nodes.append(
            helper.make_node("DequantizeLinear", [codes, scale, zero_point], [rounded], name=rounded)
        )
        return rounded

    def _codes(self, name: str, codes: np.ndarray, shape: tuple[int, ...], format: str = "") -> str:
        kind = parse_format(format) if format else self._format
        assert isinstance(kind, IntFormat)
        raw = np.broadcast_to(codes, shape)
        if kind.bits < 8:
            packed = pack(raw, kind.bits).tobytes()
            tensor = helper.make_tensor(self._name(name), kind.onnx_type, shape, packed, raw=True)
        else:
            array = np.ascontiguousarray(raw, helper.tensor_dtype_to_np_dtype(kind.onnx_type))
            tensor = numpy_helper.from_array(array.reshape(shape), self._name(name))
        self.constants.append(tensor)
        return self._name(name)

    def _weight(self, shape: tuple[int, ...]) -> str:
        if isinstance(self._format, FloatFormat):
            return self._store("w", np.full(shape, 0.5, np.float16))
        text, granularity = self._offer.weight.split()
        format = parse_format(text)
        assert isinstance(format, IntFormat)
        attributes, parameters = {}, ()
        if granularity == "channel":
            attributes, parameters = {"axis": self._sample.axis}, (shape[self._sample.axis],)
        elif granularity == "block":
            axis = self._sample.blocked
            assert axis is not None
            attributes = {"axis": axis, "block_size": BLOCK}
            parameters = tuple(n // BLOCK if place == axis else n for place, n in enumerate(shape))
        codes = np.random.default_rng(0).integers(format.lowest + 1, format.highest, shape)
        scale = _weight_step(format) * np.linspace(0.5, 1, int(np.prod(parameters))).reshape(parameters)
        return self._stored("w", text, codes, scale, attributes)

    def _stored(
        self, name: str, format: str, codes: np.ndarray, scale: np.ndarray, attributes: dict[str, int]
    ) -> str:
        """A constant behind a dequantize op, with the middle code for zero."""
        kind = parse_format(format)
        assert isinstance(kind, IntFormat)
        inputs = [
            self._codes(f"{name}_q", codes, codes.shape, format),
            self._store(f"{name}_s", np.asarray(scale, np.float32)),
            self._codes(f"{name}_z", np.array(kind.middle), scale.shape, format),
        ]
        made = self._name(f"{name}_d")
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [made], name=made, **attributes))
        return made

    def _bias(self, port: int) -> str:
        """A number for each channel: 32-bit integers where the target has such biases."""
        shape = self._sample.weight(self._offer.rank) if self._sample.weight is not None else ()
        count = shape[self._sample.axis]
        if isinstance(self._format, FloatFormat) or not self._target.quantize_bias:
            kind = helper.tensor_dtype_to_np_dtype(self._float)
            return self._store(f"b{port}", np.ones(count, kind))
        text, granularity = self._offer.weight.split()
        scale = np.array(_STEP[self._format.bits] * _weight_step(parse_format(text)))
        wide = {"axis": 0} if granularity == "channel" else {}
        if wide:
            scale = scale * np.linspace(0.5, 1, count)
        return self._stored(f"b{port}", "int32", np.full(count, 100), scale, wide)


def offers(target: Target) -> Iterator[Offer]:
    """All that is offered for a target: every format of the data and of the weight, and every rank."""
    usual = target.activation.dtype
    for sample in SAMPLES.values():
        weights = list(_weights(sample.op_type)) if sample.weight is not None else [""]
        fitting = weights[0]
        for rank in sample.ranks:
            yield Offer(sample.op_type, usual, fitting, rank)
        for data in FORMATS:
            for weight in weights if data != "float16" else [fitting]:
                if (data, weight) != (usual, fitting):
                    yield Offer(sample.op_type, data, weight, sample.rank)


FORMATS = ("uint8", "int8", "uint16", "int16", "float16")


def _weights(op_type: str) -> Iterator[str]:
    sample = SAMPLES[op_type]
    is_product = bool(traits_of(op_type).product)
    formats = ("int8", "uint8") if is_product else ("uint8", "int8")
    yield from (f"{format} tensor" for format in (*formats, "uint16", "int16"))
    if not is_product:
        return
    yield from ("int4 tensor", "int8 channel", "int4 channel")
    if sample.blocked is not None:
        yield from ("int8 block", "int4 block")
    if sample.may_compute_weight:
        yield "computed"


def _weight_step(format: Format) -> float:
    assert isinstance(format, IntFormat)
    return _STEP[format.bits] * _SHRINK
