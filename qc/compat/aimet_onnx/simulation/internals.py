"""What Qualcomm's AI Hub Models and Microsoft's Olive call of a simulation's internals."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir.facts.op_table import GRID_JOINING
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.quant_table import Site

from ..deprecation import warn_deprecated
from ..errors import ArgumentError
from ..graph_edits import without_quantizers
from ..meta.operations import Op, Product
from ..qc_quantize_op import QcQuantizeOp
from .bias import give_integer_biases
from .exception_rules import apply_exception_rules
from .quantized_model import QuantizedModel

# Op types that tie grids; scripts set the list in the module quantsim. Joining ones tie whatever it says.
TIED = ("Concat", "AveragePool", "Relu")
# What AIMET gives no quantizers to, since these ops only move what they read.
MOVING = (
    *("branch", "Flatten", "Gather", "Reshape", "Shape", "Unsqueeze", "Squeeze", "Split", "Compress", "Tile"),
    *("Transpose", "Identity"),
)


class Internals(QuantizedModel):
    """Taking quantizers out, and what begins with an underscore in AIMET and is called all the same."""

    @staticmethod
    def remove_quantizers(model: ModelProto | ONNXModel) -> ModelProto:
        """Takes the quantizers out of a simulation's ``model``, which is changed and returned."""
        return without_quantizers(model.model if isinstance(model, ONNXModel) else model)

    @classmethod
    def _from_onnx_qdq(cls, model: Any, strict: bool = False, **arguments: Any) -> Any:
        """``from_onnx_qdq``, before it was public."""
        return cls.from_onnx_qdq(model, strict, **arguments)

    @classmethod
    @abstractmethod
    def from_onnx_qdq(cls, model: Any, strict: bool = False, **arguments: Any) -> Any:
        """The simulation of a QDQ model."""

    @abstractmethod
    def _calibrate_parameters(self) -> None:
        """Gives parameters without numbers those of their constants."""

    def _apply_exception_rules(self) -> None:
        """Gives norms and products of activations what the device wants; calibrate again afterwards."""
        apply_exception_rules(self)

    def _get_closest_enabled_quantizer(self, tensor: Product | str) -> QcQuantizeOp | None:
        """The quantizer that decides about a tensor; None if there is none."""
        warn_deprecated("_get_closest_enabled_quantizer", "_get_enabled_quantizer")
        return self._placement.effective(tensor if isinstance(tensor, str) else tensor.name)

    def _get_enabled_quantizer_name(self, tensor_name: str) -> str | None:
        """The tensor whose quantizer decides about a tensor; None if there is none.

        Raises:
            KeyError: the model has no such tensor.
        """
        if tensor_name not in self.connected_graph.get_all_products():
            raise KeyError(f"the model has no tensor '{tensor_name}'")
        return self._placement.decisive(tensor_name)

    def _get_enabled_quantizer(self, tensor_name: str) -> QcQuantizeOp | None:
        """The quantizer that decides about a tensor; None if there is none."""
        found = self._get_enabled_quantizer_name(tensor_name)
        return self._placement.ops[found] if found is not None else None

    def _insert_quantizer(self, input_name: str, is_param: bool) -> None:
        """Gives a tensor a quantizer that the configuration has none for, such as the result of a Reshape."""
        value = tensors_by_name(self._ir).get(input_name)
        if value is None:
            raise ArgumentError(f"the model has no tensor '{input_name}'")
        if input_name in self._placement.ops:
            raise RuntimeError(f"tensor '{input_name}' has a quantizer")
        alike = self._placement.parameters if is_param else self._placement.activations
        made = self._placement.ops[alike[0]].copy()
        site = self._placement.sites[input_name] = Site(value)
        made._sites.append(site)
        made.enabled = True
        alike.append(input_name)
        self._placement.ops[input_name] = made

    def _tie_quantizers_for_op_types(self, op_types_to_tie: Sequence[str]) -> None:
        """Gives what these ops read and make one quantizer: that of the result where they join tensors."""
        for op in reversed(self.connected_graph.ordered_ops):
            if op.type in op_types_to_tie:
                self.set_quantizers(self._tied(op))

    def _tied(self, op: Op) -> Mapping[str, QcQuantizeOp]:
        """The quantizers of the tensors around one op."""
        decisive = self._placement.decisive
        read = [name for one in op.inputs if not one.is_parm and (name := decisive(one.name)) is not None]
        made = [name for one in op.outputs if (name := one.name) in self._placement.ops]
        if op.type not in GRID_JOINING:
            read, made = made, read[:1]
        kept = self._placement.ops[made[0]] if made else None
        return dict.fromkeys(read, kept) if kept is not None and kept.enabled else {}

    def _compute_param_encodings(
        self, *, dummy_input: Mapping[str, np.ndarray] | None = None, overwrite: bool = True
    ) -> None:
        """Gives parameters numbers: all that are not frozen, or, without ``overwrite``, those without."""
        for op in self.get_all_quantizers()[0] if overwrite else ():
            op.begin_calibration()
            if op.rounds and not op.is_encoding_frozen():
                self._ir.quant.reopen(op.quantizer, "calibrated again")
        self._calibrate_parameters()

    def _concretize_int32_bias_quantizers(self) -> ExitStack:
        """Gives biases grids of 32-bit integers: for good, or in a ``with`` statement until its end."""
        return give_integer_biases(self)

    def _insert_data_movement_op_output_quantizers(self) -> None:
        """Does nothing: QDQ models and files have the grids of what ops like Reshape only move anyway."""

    @contextmanager
    def _remove_quantization_nodes(self) -> Iterator[None]:
        """Turns all quantizers off for a while."""
        on = [op for op in dict.fromkeys(self._placement.ops.values()) if op.enabled]
        try:
            for op in on:
                op.enabled = False
            yield
        finally:
            for op in on:
                op.enabled = True


class Ties(NamedTuple):
    """Op types that do not tie grids, and those that do beside the usual ones."""

    untied: tuple[str, ...]
    tied: tuple[str, ...]


def ties_of(ties: bool, tied: Sequence[str], moving: Sequence[str]) -> Ties:
    """Options of ``configure-quantizers`` by what scripts set in the module ``quantsim``."""
    if set(moving) != set(MOVING):
        text = "op_outputs_to_ignore was changed, and qc keeps the grid of what such ops only move"
        warnings.warn(f"{text}; set another one with set_quantizers", stacklevel=4)
    if not ties:
        return Ties(tuple(sorted({*GRID_JOINING, "AveragePool", "Relu", "Resize", "Upsample"})), ())
    known = {*TIED, *GRID_JOINING}
    return Ties(tuple(sorted({*TIED} - GRID_JOINING - {*tied})), tuple(sorted({*tied} - known)))
