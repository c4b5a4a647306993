"""The float tensors that stand for codes, whichever ops made those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import helper

from qc.ir.facts.clipped_codes import CodeClip, code_clip
from qc.ir.facts.constants import constant_data, constant_numbers
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.qdq import float_name, is_qdq
from qc.ir.facts.scopes import Captures
from qc.ir.facts.two_level import two_level_scale
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import ValueType

from .limits import activated, clipped, limited


class NoTwin(Exception):
    """Codes for which there is no float tensor, or ops that are not as they should be."""


class Grid(NamedTuple):
    """What codes stand for: ``(code - zero_point) * scale``; without a zero point, it is 0."""

    scale: Value
    zero_point: Value | None = None
    axis: int = 1
    block_size: int = 0

    def equals(self, other: Grid, rank: int | None) -> bool:
        """Whether both are the same numbers, computed or constant, for codes of a rank, if that is known."""
        same_numbers = _same(self.scale, other.scale) and _same(self.zero_point, other.zero_point)
        scale = constant_numbers(self.scale)
        if scale is None or scale.size == 1:
            return same_numbers
        axes = {grid.axis % rank if rank else grid.axis for grid in (self, other)}
        return same_numbers and len(axes) == 1 and self.block_size == other.block_size


def _same(one: Value | None, other: Value | None) -> bool:
    """Whether two parameters of grids hold the same numbers; what is left out is 0."""
    if one is not None and other is not None and one.original is other.original:
        return True
    a, b = (np.zeros(1) if value is None else constant_numbers(value) for value in (one, other))
    if a is None or b is None:
        return False
    a, b = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return (a.size == b.size or 1 in (a.size, b.size)) and bool((a == b).all())


class FloatTwins:
    """The float twin of each tensor of codes, made when it is first asked for.

    What is asked for belongs to the action that is open; :meth:`keep` or :meth:`forget` tells how it ended.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self._kept: dict[object, tuple[Value, Grid]] = {}
        self._open: dict[object, tuple[Value, Grid]] = {}
        self._captures = Captures(rewriter)

    def keep(self) -> None:
        """The action is done."""
        self._kept |= self._open
        self.forget()

    def forget(self) -> None:
        """The action is taken back, and so is what it made."""
        self._open, self._captures = {}, Captures(self.rewriter)

    def put(self, codes: Value, twin: Value, grid: Grid) -> None:
        """Takes note of the twin of what an op makes."""
        self._open[codes] = twin, grid

    def of(self, codes: Value | None, grid: Grid) -> Value:
        """The float tensor for what an op takes for codes on a grid, in the graph of the op.

        Raises:
            NoTwin: there is none.
        """
        if codes is None:
            raise NoTwin
        return self._captures.into(codes.graph, self._find(codes.original, grid))

    def constant(self, codes: Value, array: np.ndarray, hint: str = "") -> Value:
        """A float constant where the codes are."""
        return self.rewriter.add_constant(codes.original.graph, array, hint or float_name(codes.name))

    def substitute(self, old: Value, new: Value) -> None:
        """Lets all who read a value read another one, which takes the name of an output."""
        is_fixed = new.producer is None or new.is_output
        if old.is_output and is_fixed:  # it cannot take another name
            source, new = new, self.rewriter.add_value(old.graph, f"{old.name}_float", old.type)
            self.rewriter.add_op(old.graph, "Identity", [source], [new])
        self.rewriter.replace_uses(old, new)

    def add_op(self, op: Op, op_type: str, given: Sequence[Value | None]) -> Value:
        """The result of a new float op in the place of ``op``."""
        result = self.rewriter.add_value(op.graph, f"{op.name or op.op_type}_{op_type}")
        self.rewriter.add_op(op.graph, op_type, given, [result])
        return result

    def _find(self, codes: Value, grid: Grid) -> Value:
        if constant_data(codes) is not None:
            return self._dequantized(codes, grid)
        known = self._open.get(codes) or self._kept.get(codes)
        if known is None:
            self._make(codes, grid)
            known = self._open[codes]
        rank = codes.type.rank
        if not known[1].equals(grid, rank):
            raise NoTwin
        return known[0]

    def _make(self, codes: Value, grid: Grid) -> None:
        op = codes.producer
        if op is None:
            raise NoTwin
        inputs = op.inputs
        source = inputs[0]
        if source is not None and is_qdq(op, "QuantizeLinear") and inputs[1] is not None:
            blocks = op.attribute("block_size", 0)
            made = Grid(inputs[1], (*inputs, None)[2], op.attribute("axis", 1), blocks)
            self.put(codes, self._before(source, codes, made), made)
        elif source is not None and op.is_type("DynamicQuantizeLinear") and op.outputs[0] is codes:
            self.put(codes, source, dynamic_grid(op))
        elif (clip := code_clip(op)) is not None:
            self._limit(codes, clip, grid)
        elif is_grid_preserving(op) or op.is_type("Resize"):
            self._move(op, [0], grid)
        elif op.is_type("Concat"):
            self._move(op, range(op.num_inputs), grid)
        elif op.is_type("Pad") and op.num_inputs > 2:
            self._move(op, [0, 2], grid)
        else:
            raise NoTwin

    def _before(self, source: Value, codes: Value, grid: Grid) -> Value:
        """What a QuantizeLinear reads; a constant is rounded, and what the grid cuts off stays cut off."""
        data = constant_data(source)
        if data is None:
            return limited(self.rewriter, source, grid.scale, grid.zero_point, codes.type.elem_type)
        scale, zero = _parameters(grid, data.shape)
        dtype = helper.tensor_dtype_to_np_dtype(codes.type.elem_type)
        if dtype.kind not in "iu":
            raise NoTwin
        lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
        steps = np.clip(np.rint(data.numpy() / scale) + zero, lowest, highest) - zero
        return self.constant(source, (steps * scale).astype(scale.dtype), f"{source.name}_rounded")

    def _limit(self, codes: Value, clip: CodeClip, grid: Grid) -> None:
        """Codes within limits: a constant within them, or the activation that they stand for.

        The limits of a narrower format are what a calibration saw, like those of the element type; but for a
        lower one that is a Relu. All others are a Clip of the network.
        """
        twin, (lowest, highest) = self.of(clip.source, grid), (clip.lowest, clip.highest)
        data = constant_data(twin)
        if data is not None:
            self.put(codes, self._limited_constant(clip, twin, data, grid), grid)
            return
        zero = known_numbers(grid.zero_point) if grid.zero_point is not None else np.zeros(1)
        is_format = clip.format is not None and clip.holds(zero)
        if is_format and not (clip.cuts_below and (zero == lowest).any()):
            type = codes.type.elem_type or clip.source.type.elem_type
            twin = limited(self.rewriter, twin, grid.scale, grid.zero_point, type, (lowest, highest))
        elif clip.cuts_below or clip.cuts_above:
            low, high = (_number(code, grid, ()) for code in (lowest, highest))
            if is_format:
                twin = activated(self.rewriter, twin, float(high), high.dtype)
            else:
                ends = low if clip.cuts_below else None, high if clip.cuts_above else None
                twin = clipped(self.rewriter, twin, *ends)
        self.put(codes, twin, grid)

    def _limited_constant(self, clip: CodeClip, twin: Value, data: TensorRef, grid: Grid) -> Value:
        """The twin of a constant, or one within the limits if it is not."""
        array = data.numpy()
        low, high = (_number(code, grid, array.shape) for code in (clip.lowest, clip.highest))
        limits = np.minimum(np.maximum(array, low), high).astype(array.dtype)
        if (limits == array).all():
            return twin
        return self.constant(twin, limits, f"{float_name(clip.source.name)}_limited")

    def _move(self, op: Op, ports: Iterable[int], grid: Grid) -> None:
        """The same op on the twins of the codes that it moves."""
        scale = constant_numbers(grid.scale)
        if not _is_dynamic(grid) if scale is None else scale.size > 1:  # an axis may move along
            raise NoTwin
        inputs = list(op.inputs)
        for port in ports:
            inputs[port] = self.of(inputs[port], grid)
        results = []
        moved = op.inputs[0]
        for codes in op.outputs:
            if codes is None or moved is None or codes.type.elem_type != moved.type.elem_type:
                raise NoTwin
            results.append(self.add_value(codes, grid))
        self.rewriter.add_op(op.graph, op.op_type, inputs, results, attributes_of(op))
        for codes, result in zip(op.outputs, results, strict=True):
            assert codes is not None
            self.put(codes, result, grid)

    def add_value(self, codes: Value, grid: Grid) -> Value:
        """A new float value with the shape of codes, and the name that it probably had."""
        type = ValueType(grid.scale.type.elem_type, codes.type.shape)
        return self.rewriter.add_value(codes.graph, float_name(codes.name), type)

    def _dequantized(self, codes: Value, grid: Grid) -> Value:
        key = (codes, grid.scale.original, grid.zero_point and grid.zero_point.original, *grid[2:])
        known = self._open.get(key) or self._kept.get(key)
        if known is None:
            data = constant_data(codes)
            assert data is not None
            known = self.constant(codes, dequantized(data, grid)), grid
            self._open[key] = known
        return known[0]


def replace(
    twins: FloatTwins,
    op: Op,
    outputs: Sequence[Value | None],
    op_type: str,
    given: Sequence[Value | None],
    attributes: Mapping[str, object] | None = None,
    domain: str = "",
) -> None:
    """Lets a float op make what is read for some values; with the attributes of ``op``, if none are given."""
    rewriter, present = twins.rewriter, [index for index, value in enumerate(given) if value is not None]
    names = [value.name if value is not None else f"{op.name}_unread" for value in outputs]
    results = [rewriter.add_value(op.graph, name) for name in names]
    if attributes is None:
        attributes = attributes_of(op)
    rewriter.add_op(op.graph, op_type, given[: present[-1] + 1], results, attributes, domain)
    for value, result in zip(outputs, results, strict=True):
        if value is not None:
            rewriter.set_type(result, value.type)
            rewriter.replace_uses(value, result)
            if not result.is_output:
                rewriter.swap_names(value, result)


def attributes_of(op: Op) -> dict[str, object]:
    """The attributes of an op, as new ops take them."""
    return {name: op.attribute(name) for name in op.attributes}


def needed(value: Value | None) -> Value:
    """The value; raises NoTwin if it is left out."""
    if value is None:
        raise NoTwin
    return value


def dynamic_grid(op: Op) -> Grid:
    """The grid that a DynamicQuantizeLinear makes."""
    _, scale, zero_point = op.outputs
    if scale is None:
        raise NoTwin
    return Grid(scale, zero_point)


def known_numbers(value: Value | None) -> np.ndarray:
    """The numbers of a constant; raises NoTwin for what is computed."""
    found = constant_numbers(value)
    if found is None:
        raise NoTwin
    return found


def dequantized(data: TensorRef, grid: Grid) -> np.ndarray:
    """The numbers that constant codes stand for, in the type of the scale, as DequantizeLinear has them."""
    codes = data.numpy()
    scale, zero = _parameters(grid, codes.shape)
    if codes.dtype.kind in "iu" or (codes.dtype.itemsize == 1 and zero.any()):
        codes = codes.astype(np.int32) - zero
    with np.errstate(over="ignore"):  # infinities, as of masks in 8 bits or 16
        return codes.astype(np.float32).astype(scale.dtype) * scale


def _parameters(grid: Grid, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the zero point, an int32, as they line up with codes of a shape."""
    levels = two_level_scale(grid.scale) if grid.block_size else None
    scale = levels.scale if levels is not None else known_numbers(grid.scale)
    zero = known_numbers(grid.zero_point) if grid.zero_point is not None else np.zeros(scale.shape)
    return _spread(scale, grid, shape), _spread(zero.astype(np.int32), grid, shape)


def _number(code: int, grid: Grid, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers that one code stands for, as they line up with codes of a shape."""
    scale, zero = _parameters(grid, shape)
    return np.asarray((code - zero).astype(np.float32).astype(scale.dtype) * scale)


def _spread(parameter: np.ndarray, grid: Grid, shape: tuple[int, ...]) -> np.ndarray:
    if parameter.size == 1:
        return parameter.reshape(())
    if not -len(shape) <= grid.axis < len(shape):
        raise NoTwin
    axis = grid.axis % len(shape)
    if grid.block_size:
        return np.repeat(parameter, grid.block_size, axis)[tuple(slice(0, n) for n in shape)]
    aligned = tuple(length if i == axis else 1 for i, length in enumerate(shape))
    if parameter.shape not in (aligned, (shape[axis],)):
        raise NoTwin
    return parameter.reshape(aligned)


def _is_dynamic(grid: Grid) -> bool:
    producer = grid.scale.original.producer
    return producer is not None and producer.is_type("DynamicQuantizeLinear")
