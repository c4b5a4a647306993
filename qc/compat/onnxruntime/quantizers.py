"""The classes by which Optimum and others quantize: a quantizer has a model, and replaces it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization import DynamicQuantConfig, QuantType, StaticQuantConfig
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir.errors import UsageError

from ..missing import PartlyProvided, refuse
from .errors import raised_as_in_onnxruntime
from .operators import as_operators
from .quantize import compile_dynamic, compile_static
from .ranges import Ranges


class QDQQuantizer(PartlyProvided):
    """Writes a QDQ model with ranges that a calibrator found before.

    Attributes:
        model: the float model, and the quantized one after :meth:`quantize_model`.
    """

    def __init__(
        self,
        model: ModelProto,
        per_channel: bool,
        reduce_range: bool,
        weight_qType: QuantType,
        activation_qType: QuantType,
        tensors_range: Any,
        nodes_to_quantize: Collection[str] | None,
        nodes_to_exclude: Collection[str] | None,
        op_types_to_quantize: Collection[str] | None,
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = ONNXModel(model)
        self._activation_type, self._ranges = activation_qType, _ranges(tensors_range)
        self._told = {
            "weight_type": weight_qType,
            "op_types_to_quantize": op_types_to_quantize,
            "nodes_to_quantize": nodes_to_quantize,
            "nodes_to_exclude": nodes_to_exclude,
            "per_channel": per_channel,
            "reduce_range": reduce_range,
            "extra_options": extra_options,
        }

    def __init_subclass__(cls) -> None:
        """Refuses the quantizers of other tools, which build on the insides of ONNX Runtime's."""
        if cls.__module__ != __name__:
            refuse(f"a base of '{cls.__module__}.{cls.__qualname__}'", "import it before qc is installed")

    @raised_as_in_onnxruntime()
    def quantize_model(self) -> ModelProto:
        """Quantizes the model, and returns it.

        Raises:
            As :func:`~qc.compat.onnxruntime.quantize_static`.
        """
        return self._replace(self._static())

    def _static(self) -> ModelProto:
        if self._ranges is None:
            raise UsageError("static quantization needs tensors_range, as a calibrator finds them")
        config = StaticQuantConfig(None, activation_type=self._activation_type, **self._told)
        return compile_static(self.model.model, config, self._ranges).model

    def _replace(self, model: ModelProto) -> ModelProto:
        self.model = ONNXModel(model)
        return model


class ONNXQuantizer(QDQQuantizer):
    """Writes a model of ONNX Runtime's ops of integers, or one whose data is quantized in every run."""

    def __init__(
        self,
        model: ModelProto,
        per_channel: bool,
        reduce_range: bool,
        mode: Any,
        static: bool,
        weight_qType: QuantType,
        activation_qType: QuantType,
        tensors_range: Any,
        nodes_to_quantize: Collection[str] | None,
        nodes_to_exclude: Collection[str] | None,
        op_types_to_quantize: Collection[str] | None,
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        chosen = nodes_to_quantize, nodes_to_exclude, op_types_to_quantize
        super().__init__(
            model,
            per_channel,
            reduce_range,
            weight_qType,
            activation_qType,
            tensors_range,
            *chosen,
            extra_options,
        )
        self._is_static = static

    @raised_as_in_onnxruntime()
    def quantize_model(self) -> ModelProto:
        """As :meth:`QDQQuantizer.quantize_model`."""
        if self._is_static:
            return self._replace(as_operators(self._static(), None))
        return self._replace(compile_dynamic(self.model.model, DynamicQuantConfig(**self._told)).model)


def _ranges(given: Any) -> Ranges | None:
    """The ends of ranges, of a calibrator's ``TensorsData`` or of a dictionary with pairs."""
    if given is None:
        return None
    ends = {name: getattr(entry, "range_value", entry) for name, entry in given.items()}
    return {name: (np.asarray(low).item(), np.asarray(high).item()) for name, (low, high) in ends.items()}
