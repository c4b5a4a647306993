"""Turns the quantize and dequantize ops of a QDQ model back into quantizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.clipped_codes import CodeClip, code_clip, readers_of_codes
from qc.ir.facts.constants import constant_data
from qc.ir.facts.qdq import QdqReader, float_name, is_qdq
from qc.ir.facts.scopes import Captures, captured_values
from qc.ir.facts.two_level import two_level_scale
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.quant.arithmetic import dequantize, quantize
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, Quantizer
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from ..lower.qdq.fit_kernels import unfit_kernels
from ..lower.qdq.moved_pairs import restore_moved


@dataclass(frozen=True)
class ImportQdq(Pass):
    """Takes the grids of a QDQ model, whoever made it, and leaves the float model with frozen quantizers.

    A QuantizeLinear followed by DequantizeLinear ops of the same grid becomes a quantizer on the tensor; a
    DequantizeLinear of a constant becomes a float constant on a grid. What does not come in such pairs stays
    as it is: grids that are computed, codes that other ops read, constants that float32 cannot hold. Where
    the target sees through what only moves data, that has the grid of what it moves. A Clip that limits codes
    to those of a narrower format, as in models of Brevitas (QCDQ), makes a grid of that format. The
    ops of QONNX are read as such pairs.
    """

    name = "import-qdq"
    stage = Stage.ANNOTATE
    uses = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        unfit_kernels(model)
        known = _Known({}, {}, QdqReader())
        for graph in list(model.graphs()):
            _Import(model, graph, known).run()
        if context.target is not None and not context.target.lowering.rounds_moved:
            restore_moved(model)
        model.release_names()


class _Known(NamedTuple):
    """What all graphs share.

    Attributes:
        quantizers: by what tells grids apart: scale and zero point, or the constant that was dequantized.
        constants: the float constants by the codes and the grid that they were stored in.
        reader: reads the ops.
    """

    quantizers: dict[tuple[object, ...], Quantizer]
    constants: dict[tuple[object, ...], Value]
    reader: QdqReader


class _Import:
    """The import of one graph; ops that share scale and zero point share a quantizer."""

    def __init__(self, model: Model, graph: Graph, known: _Known) -> None:
        self._model = model
        self._graph = graph
        self._rewriter = Rewriter(model)
        self._captures = Captures(self._rewriter)
        self._known = known
        self._left_over: dict[Op, None] = {}

    def run(self) -> None:
        for op in self._graph.ops():
            if op not in self._graph:
                continue
            if is_qdq(op, "DequantizeLinear"):
                self._constant(op)
            elif is_qdq(op, "QuantizeLinear"):
                self._pair(op)
        for op in self._left_over:
            if op in self._graph and not self._result(op).is_read:
                with self._rewriter.action("scales and codes to quantizer", op):
                    self._rewriter.erase_op(op)

    def _constant(self, op: Op) -> None:
        codes = op.inputs[0]
        encoding = self._encoding(op)
        clip = code_clip(codes.producer) if codes is not None else None
        codes = clip.source if clip is not None else codes
        data = constant_data(codes) if codes is not None else None
        if codes is None or data is None or encoding is None or self._makes_scales(op):
            return
        array = data.numpy()
        limits = None
        if clip is not None:
            limits = (clip.lowest, clip.highest) if not clip.holds(array) else None
            array, encoding = clip.limited(array), clip.narrowed(encoding) or encoding
        numbers = dequantize(array, encoding)
        if not np.array_equal(np.asarray(quantize(numbers, encoding)), array.astype(np.int32)):
            return
        result = self._result(op)
        with self._rewriter.action("dequantize constant", op):
            constant = self._float_constant(codes.original, limits, numbers, result, encoding)
            self._take(op, result, self._captures.into(self._graph, constant), [], encoding)

    def _float_constant(
        self,
        codes: Value,
        limits: tuple[int, int] | None,
        numbers: np.ndarray,
        result: Value,
        encoding: Encoding,
    ) -> Value:
        """A constant where the codes are, the same for all that limit and dequantize them in the same way."""
        key = (codes, limits, str(encoding.spec), encoding.scale.tobytes(), encoding.zero_point.tobytes())
        if key not in self._known.constants:
            name = float_name(codes.name, result.name)
            constant = self._rewriter.add_constant(codes.graph, numbers, name)
            if name == result.name and codes.graph is self._graph and not result.is_output:
                self._rewriter.swap_names(constant, result)
            self._known.constants[key] = constant
        return self._known.constants[key]

    def _pair(self, op: Op) -> None:
        source = op.inputs[0]
        encoding = self._encoding(op)
        clips, readers = readers_of_codes(self._result(op))
        if source is None or encoding is None or not readers or self._result(op).is_output:
            return
        if not all(self._restores(reader, encoding) for reader in readers):
            return
        if clips:
            encoding = self._clipped(op, source, clips, encoding)
            if encoding is None:
                return
        results = [self._result(reader) for reader in readers]
        alone = source.const is None and source.is_read_once
        if not alone and any(result.is_output for result in results):
            return
        for reader, result in zip(readers, results, strict=True):
            with self._rewriter.action("pair to quantizer", reader):
                rounded = self._model.quant.get(Site(source)) is not None  # by the pair before this one
                sites = [Site(source)] if alone and not rounded else []
                self._take(reader, result, source, sites, encoding)
        with self._rewriter.action("pair to quantizer", op):
            for clip in clips:
                self._erase(clip.op)
            self._erase(op)

    def _clipped(self, op: Op, source: Value, clips: list[CodeClip], encoding: Encoding) -> Encoding | None:
        """The grid of codes that a Clip limits, if quantize ops can make it and nobody reads the others.

        Those of a constant need not be made.
        """
        limits = {(clip.lowest, clip.highest) for clip in clips}
        if len(limits) > 1 or len(clips) < len(self._result(op).uses):
            return None
        found = clips[0].narrowed(encoding)
        if constant_data(source) is not None:
            return found
        format = found.spec.format if found is not None else None
        is_made = isinstance(format, IntFormat) and format.bits == format.storage_bits
        return found if found is not None and is_made and not found.spec.narrow else None

    def _take(self, op: Op, result: Value, new: Value, sites: list[Site], encoding: Encoding) -> None:
        """Lets the readers of ``result`` read ``new``, with a quantizer at ``sites`` or at each reading."""
        keys = _keys(op, new, encoding)
        quantizer = next((known for key in keys if (known := self._known.quantizers.get(key))), None)
        sites = sites or list(_sites(result, new))
        self._rewriter.replace_uses(result, new)
        self._erase(op)
        for site in sites:
            if self._model.quant.get(site) is None:
                placed = self._model.quant.place(site, quantizer or encoding.spec, "the model came with it")
                self._known.quantizers.update(dict.fromkeys(keys, placed))
                quantizer = placed
        if quantizer is not None and quantizer.encoding is None:
            self._model.quant.calibrate(quantizer, encoding, "the model came with it")
            self._model.quant.freeze(quantizer)

    def _erase(self, op: Op) -> None:
        """Erases an op; what computes its scales and codes goes later, if nothing else reads them."""
        for value in op.inputs:
            producer = value.producer if value is not None else None
            if producer is not None and producer.is_type("Clip", "Constant", "DequantizeLinear"):
                self._left_over[producer] = None
        self._rewriter.erase_op(op)

    def _restores(self, op: Op, encoding: Encoding) -> bool:
        """Whether ``op`` is a DequantizeLinear of the same grid."""
        if not is_qdq(op, "DequantizeLinear"):
            return False
        other = self._encoding(op)
        return other is not None and other.equals(encoding)

    def _makes_scales(self, op: Op) -> bool:
        """Whether all that read the result take it as scales of blocks, in the second of two levels."""
        result = self._result(op)
        scales = (use.port == 1 and use.op.attribute("block_size", 0) for use in result.uses)
        return two_level_scale(result) is not None and result.is_read and all(scales)

    def _result(self, op: Op) -> Value:
        result = op.outputs[0]
        assert result is not None
        return result

    def _encoding(self, op: Op) -> Encoding | None:
        """The grid of a quantize or dequantize op of float32; None if it is computed or unknown."""
        scale = (*op.inputs, None)[1]
        is_float = scale is not None and scale.type.elem_type in (TensorProto.FLOAT, TensorProto.UNDEFINED)
        return self._known.reader.encoding(op) if is_float else None


def _keys(op: Op, value: Value, encoding: Encoding) -> list[tuple[object, ...]]:
    """What tells the grid of an op from others: its scale and zero point, and the constant on it."""
    scale, zero_point = (*op.inputs, None, None)[1:3]
    keys: list[tuple[object, ...]] = [(scale, zero_point, str(encoding.spec))]
    return keys if value.original.const is None else [*keys, (value.original,)]


def _sites(old: Value, new: Value) -> Iterator[Site]:
    """The readings of ``old`` in all graphs, as those of ``new``, which takes its place."""
    for op, port in old.uses:
        if isinstance(port, int):
            yield Site(new, op, port)
    for owner in old.capturing:
        inside = [graph for body in owner.subgraphs.values() for graph in body.walk()]
        for alias in captured_values(inside).get(old, ()):
            yield from (Site(alias, op, port) for op, port in alias.uses if isinstance(port, int))
