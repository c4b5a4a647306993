"""``onnxruntime.quantization.matmul_nbits_quantizer``: weights of few bits in blocks, done by qc."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.onnx_model import ONNXModel

import qc
from qc.ir.errors import UsageError
from qc.named_pipelines import resolve_pipeline
from qc.passes.framework.pipeline import Pipeline, Step
from qc.passes.framework.target_tables import Products
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.quantize.annotate_per_channel import AnnotatePerChannel
from qc.passes.quantize.insert_quantizers import InsertQuantizers

from ..missing import PartlyProvided, refuse
from .choice import placing_at_chosen
from .errors import raised_as_in_onnxruntime

__all__ = ["DefaultWeightOnlyQuantConfig", "MatMulNBitsQuantizer"]

_BITS = (2, 4, 8)
_PRODUCTS: dict[int | None, Products] = {None: "exact", 0: "exact", 1: "exact", 4: "fast"}


class DefaultWeightOnlyQuantConfig:
    """What is to be done, as an object; see :class:`MatMulNBitsQuantizer`.

    ONNX Runtime's module needs the package onnx-ir, so that the class of it is not taken from there.
    """

    algorithm = "DEFAULT"

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Collection[str] | None = None,
        quant_axes: Any = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ) -> None:
        self.block_size, self.is_symmetric, self.bits = block_size, is_symmetric, bits
        self.accuracy_level, self.quant_format = accuracy_level, quant_format
        self.op_types_to_quantize = set(op_types_to_quantize or ("MatMul",))
        self.quant_axes = dict(quant_axes or {"MatMul": 0, "Gather": 1})
        self.channel_wised_quantize = channel_wised_quantize


class MatMulNBitsQuantizer(PartlyProvided):
    """Quantizes the weights of products in blocks, and leaves data in float.

    Attributes:
        model: the float model, and the quantized one after :meth:`process`.
    """

    @raised_as_in_onnxruntime()
    def __init__(
        self,
        model: ModelProto | str | Path,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude: Collection[str] | None = None,
        nodes_to_include: Collection[str] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Collection[str] | None = None,
        quant_axes: Any = None,
        channel_wised_quantize: bool = False,
        algo_config: Any = None,
    ) -> None:
        """Notes what is to be done.

        Args:
            model: the float model, or its path.
            bits: 2, 4 or 8.
            block_size: how many inputs of a product share a scale.
            is_symmetric: whether grids are symmetric.
            accuracy_level: in what MatMulNBits computes: in floats, or with 4 in 8-bit integers.
            nodes_to_exclude, nodes_to_include: names of nodes.
            quant_format: ``QOperator`` for MatMulNBits, ``QDQ`` for weights in codes behind DequantizeLinear.
            op_types_to_quantize: default: MatMul alone.
            quant_axes: that of ONNX Runtime's default: blocks lie along the inputs of a product.
            channel_wised_quantize: not provided.
            algo_config: a ``DefaultWeightOnlyQuantConfig``, which takes the place of the other arguments.

        Raises:
            UsageError: another number of bits.
            NotProvidedError: another algorithm, axis or accuracy, or one scale for each channel.
        """
        told = algo_config or DefaultWeightOnlyQuantConfig(
            block_size,
            is_symmetric,
            accuracy_level,
            quant_format,
            op_types_to_quantize,
            quant_axes,
            bits,
            channel_wised_quantize,
        )
        if told.algorithm != DefaultWeightOnlyQuantConfig.algorithm:
            refuse(f"'{type(told).__name__}'", "the pipeline w4-block128 of qc chooses codes without data")
        if told.channel_wised_quantize or told.quant_axes.get("MatMul") != 0:
            refuse("one scale for each channel, or blocks along another axis", "use qc's pipeline w4 or w8")
        if told.accuracy_level not in _PRODUCTS:
            refuse(f"'accuracy_level={told.accuracy_level}'", "use 1 for floats, or 4 for 8-bit integers")
        if told.bits not in _BITS:
            raise UsageError(f"weights have 2, 4 or 8 bits, not {told.bits}")
        self._source = model
        self.model = ONNXModel(model) if isinstance(model, ModelProto) else None
        self.algo_config = told
        self._chosen = _Chosen(
            tuple(sorted(told.op_types_to_quantize)), nodes_to_include or (), nodes_to_exclude or ()
        )

    @raised_as_in_onnxruntime()
    def process(self) -> None:
        """Quantizes the model.

        Raises:
            UsageError: the model has no node of a name that was given.
            ModelError: the model cannot be read, or is not valid.
            CoverageError: there was nothing to quantize.
        """
        self.model = ONNXModel(qc.compile(self._source, Pipeline(list(self._steps()))).model)

    def _steps(self) -> Iterator[Step]:
        """The pipeline w4-block128, with what is told."""
        config = self.algo_config
        weight = f"{'' if config.is_symmetric else 'u'}int{config.bits}"
        for step in resolve_pipeline("w4-block128").pipeline.passes():
            if isinstance(step, InsertQuantizers):
                yield replace(placing_at_chosen(step, self._chosen), weight=weight)
            elif isinstance(step, AnnotatePerChannel):
                yield replace(step, block_size=config.block_size)
            elif isinstance(step, InsertQdq):
                is_qdq = config.quant_format is QuantFormat.QDQ
                yield replace(step, products="standard" if is_qdq else _PRODUCTS[config.accuracy_level])
            else:
                yield step


@dataclass(frozen=True)
class _Chosen:
    op_types_to_quantize: Collection[str]
    nodes_to_quantize: Collection[str]
    nodes_to_exclude: Collection[str]
