"""``QuantizationSimModel``: AIMET-ONNX's simulation, made of qc's passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

import qc
from qc.ir.base.files import atomic_write
from qc.ir.onnx.save import save_model
from qc.passes import Pass, Pipeline
from qc.passes.encodings import Document, dump_encodings, parse_encodings
from qc.passes.lower.rounding.activation_codes import ActivationCodes
from qc.passes.lower.to_encodings import ToEncodings
from qc.passes.optimize.layers.layer import named_layers
from qc.passes.quantize.configure_quantizers import ConfigureQuantizers
from qc.passes.simplify.convert_to_float32 import ConvertToFloat32
from qc.passes.simplify.fold_constants import FoldConstants
from qc.runtime import use_custom_ops

from ..providers import Providers, device_of
from .arguments import calibration_of, with_old_arguments
from .defs import QTYPE_ALIASES, QuantizationDataType, QuantScheme, float16, float32, int8, qtype
from .errors import ArgumentError, raised_as_in_aimet
from .meta.operations import Product
from .qc_quantize_op import OpMode, QcQuantizeOp
from .simulation.bias import LEAST_SCALE
from .simulation.files import (
    CALIBRATIONS,
    arguments_of,
    calibrate_parameters,
    codes_of,
    ordered,
    qdq_lowering,
    refuse_unrounded,
    version_of,
    with_names_of_codes,
)
from .simulation.internals import MOVING, TIED, ties_of
from .simulation.loading import (
    encodings_to_onnx_qdq,
    freeze_grids,
    load_document,
    load_encodings_to_sim,
    param_document,
    read_qdq,
)
from .simulation.model_names import with_names
from .simulation.placement import fold_parameters, placement_of
from .simulation.quantized_model import Feed
from .simulation.running import RunnableModel
from .simulation.session import build_session, compute_encodings
from .simulation.weights import (
    clamp_activation_encodings,
    set_blockwise_quantization_for_weights,
    set_grouped_blockwise_quantization_for_weights,
    set_lpbq_for_params,
    set_param_type,
)

# What ``aimet_onnx.quantsim`` has in one module.
__all__ = [
    "QTYPE_ALIASES",
    "OpMode",
    "Product",
    "QcQuantizeOp",
    "QuantScheme",
    "QuantizationDataType",
    "QuantizationSimModel",
    "clamp_activation_encodings",
    "compute_encodings",
    "encodings_to_onnx_qdq",
    "load_encodings_to_sim",
    "op_outputs_to_ignore",
    "op_types_to_tie_qtzrs",
    "set_blockwise_quantization_for_weights",
    "set_grouped_blockwise_quantization_for_weights",
    "set_lpbq_for_params",
    "set_param_type",
]


# What scripts set, before they make simulations: the op types that tie grids, and whether any does.
op_types_to_tie_qtzrs = list(TIED)
op_outputs_to_ignore = list(MOVING)
_tie_qtzrs = True
_INT32_MINIMUM_SCALE = LEAST_SCALE


@contextmanager
def _apply_constraints(flag: bool) -> Iterator[None]:
    """Says for a while whether any op ties grids; scripts call it by this name."""
    global _tie_qtzrs
    before = _tie_qtzrs
    try:
        _tie_qtzrs = flag
        yield
    finally:
        _tie_qtzrs = before


class QuantizationSimModel(RunnableModel):
    """A model with quantizers that can be asked, set, calibrated, run and exported.

    Args:
        model: the float model, or the path of one; it is not changed.
        param_type, activation_type: number formats, such as ``int8``, ``"int4"`` or ``float16``.
        quant_scheme: how the ranges of activations are found.
        config_file: name of a configuration, such as ``htp_v73``, or a file; see ``configure-quantizers``.
        dummy_input: not needed.
        path: the folder that :meth:`save_model_graph` writes to.
        user_onnx_libs: libraries of custom operators.
        providers: where it runs, the CPU without them; see :func:`~qc.compat.providers.device_of`.
        session_options_kwargs: attributes of ONNX Runtime's session options.

    Arguments of earlier versions (default_param_bw and the like, or without names) work too, with a warning.

    Raises:
        UsageError: an option that does not exist, or that qc does not provide.
        ModelError: the model is not valid, or is quantized already.
    """

    @with_old_arguments
    def __init__(
        self,
        model: ModelProto | ONNXModel | str | Path,
        *,
        param_type: qtype | str = int8,
        activation_type: qtype | str = int8,
        quant_scheme: QuantScheme | str = QuantScheme.min_max,
        config_file: str | None = None,
        dummy_input: Mapping[str, np.ndarray] | None = None,
        user_onnx_libs: Sequence[str] | None = None,
        providers: Providers | None = None,
        path: str | None = None,
        session_options_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        device = device_of(providers)
        use_custom_ops(user_onnx_libs or ())
        self._scheme = QuantScheme.from_str(quant_scheme)
        activation = qtype.as_qtype(activation_type)
        sign = "u" if activation.kind is QuantizationDataType.int and activation.bits < 32 else ""
        config, parameter = str(config_file or "default"), qtype.as_qtype(param_type)
        untied, tied = ties_of(_tie_qtzrs, op_types_to_tie_qtzrs, op_outputs_to_ignore)
        # What float32 is for is placed as float16.
        placed, weights = (str(float16 if one == float32 else one) for one in (activation, parameter))
        placing = ConfigureQuantizers(config, f"{sign}{placed}", weights, untied=untied, tied=tied)
        source = model.model if isinstance(model, ONNXModel) else model
        if isinstance(source, ModelProto):
            source = with_names(source)
        steps = Pipeline([ConvertToFloat32(), FoldConstants(max_megabytes=0.0), placing])
        compiled = qc.compile(source, steps, allow_unquantized=True)
        super().__init__(compiled.ir, placement_of(compiled.ir, placing), session_options_kwargs, device)
        for one, names in ((activation, self.activation_names), (parameter, self.param_names)):
            if one == float32:
                self._place_float32(names)
        self._arguments = arguments_of(config, self._scheme, parameter, activation)
        self._path = path

    def _place_float32(self, names: Collection[str]) -> None:
        for name in names:
            if self._placement.ops[name].precision() == float16:
                self._placement.ops[name].set_precision(float32)

    # -- calibration --------------------------------------------------------------------------------

    def compute_encodings(self, *args: Any, **kwargs: Any) -> None:
        """Finds the numbers of all quantizers that are not frozen.

        Args:
            args, kwargs: an iterable of ``{input name: array}`` (``inputs``), which is streamed; or a
                function that runs the session that it is given (``forward_pass_callback``). What such a
                function feeds is kept in memory until it returns.

        Raises:
            TypeError: something else was given.
            DataError: there is no data, or it does not fit the model.
        """
        inputs, callback = calibration_of(*args, **kwargs)
        if callback is not None:
            with compute_encodings(self):
                callback(self.session)
        elif inputs is not None:
            self._calibrate(inputs)

    @raised_as_in_aimet()
    def _calibrate(self, feeds: Iterable[Feed]) -> None:
        with self._ir.transaction.atomic():  # what a failure takes back
            for op in self._placement.ops.values():
                op.begin_calibration()
            for quantizer in self._ir.quant.quantizers():
                self._ir.quant.reopen(quantizer, "calibrated again")
            self._run(CALIBRATIONS[self._scheme], data=feeds)

    def _calibrate_parameters(self) -> None:
        calibrate_parameters(self, CALIBRATIONS[self._scheme])

    def _settle_weights(self, step: Pass, feeds: Iterable[Feed], names: Collection[str]) -> None:
        """Runs a pass that chooses the grids or the codes of the weights of layers, and freezes these.

        What has no numbers is calibrated before; of activations that is forgotten again.

        Args:
            names: of the ops; all layers if there are none.
        """
        table = self._ir.quant
        with self._ir.transaction.atomic():
            activations = {op.quantizer for op in self.get_all_quantizers()[1] if op.rounds}
            opened = [quantizer for quantizer in activations if quantizer.encoding is None]
            self._run(CALIBRATIONS[self._scheme], data=feeds)
            self._run(step, data=feeds)
            for layer in named_layers(self._ir, names):
                quantizer = layer.weight.quantizer
                if quantizer is not None and quantizer.encoding is not None:
                    table.freeze(quantizer)
            for quantizer in opened:
                table.reopen(quantizer, "calibrated for the weights alone")
        self.connected_graph.take_parameters(self._float_model())

    build_session = staticmethod(build_session)

    # -- files --------------------------------------------------------------------------------------

    @raised_as_in_aimet()
    def export(
        self,
        path: str | Path,
        filename_prefix: str,
        export_model: bool = True,
        *,
        export_int32_bias: bool | None = None,
        encoding_version: str | None = None,
        force_activation_as: str | None = "unsigned",
    ) -> None:
        """Writes the float model, ``PREFIX.onnx``, and the grids, ``PREFIX.encodings``.

        Args:
            path: the folder; it is made if it is not there.
            export_model: whether to write the model.
            export_int32_bias: whether to list biases, as 32-bit integers; default: from version 2.0.0 on.
            encoding_version: 0.6.1, 1.0.0, 2.0.0 or 2.1.0; default: what ``aimet_common.quantsim`` has as
                ``encoding_version``, which is the environment variable AIMET_ENCODING_VERSION, else 1.0.0.
            force_activation_as: whether activations have ``unsigned`` or ``signed`` codes; None for signed
                ones of symmetric grids alone.
        """
        codes = codes_of(force_activation_as)
        version = version_of(encoding_version)
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        has_biases = version.startswith("2") if export_int32_bias is None else export_int32_bias
        text = dump_encodings(self._document(version, has_biases, codes))
        if export_model:
            save_model(self._float_model(), folder / f"{filename_prefix}.onnx", self._ir.base_dir)
        with atomic_write(folder / f"{filename_prefix}.encodings") as file:
            file.write(text.encode())

    def save_model_graph(self, filename_prefix: str) -> None:
        """Writes the simulation, with qc's ops, to ``PREFIX.onnx`` in the folder ``path``.

        Raises:
            UsageError: the simulation was made without ``path``.
        """
        if self._path is None:
            raise ArgumentError("there is no folder for save_model_graph; give path to QuantizationSimModel")
        Path(self._path).mkdir(parents=True, exist_ok=True)
        save_model(self._simulation(), Path(self._path) / f"{filename_prefix}.onnx", self._ir.base_dir)

    def encodings(self, version: str = "1.0.0") -> Document:
        """What an encodings file of a version would say."""
        return self._document(version, has_biases=False)

    def _document(self, version: str, has_biases: bool, codes: ActivationCodes = "unsigned") -> Document:
        refuse_unrounded(self)
        step = ToEncodings(version=version, activations=codes)  # type: ignore[arg-type]
        document = parse_encodings(str(self._lowered(step, "encodings", has_biases)))
        return ordered(document, self, self._arguments)

    def to_onnx_qdq(
        self,
        *,
        export_int32_bias: bool = False,
        prequantize_constants: bool = False,
        force_activation_as: str | None = "unsigned",
    ) -> ModelProto:
        """The model with QuantizeLinear and DequantizeLinear, in a newer opset if its grids need one.

        Args:
            export_int32_bias: whether biases are 32-bit integers.
            prequantize_constants: whether weights are stored as codes, or in float to be quantized.
            force_activation_as: whether activations have ``unsigned`` or ``signed`` codes; None for signed
                ones of symmetric grids alone.
        """
        refuse_unrounded(self)
        lowering = qdq_lowering(prequantize_constants, force_activation_as)
        self._calibrate_parameters()
        found = self._lowered(lowering, "qdq", export_int32_bias)
        assert isinstance(found, ModelProto)
        return with_names_of_codes(found)

    @classmethod
    def from_onnx_qdq(
        cls, model: ModelProto | str | Path, strict: bool = False, **arguments: Any
    ) -> QuantizationSimModel:
        """The simulation of a QDQ model, whose grids are taken and kept.

        Calibration finds those of the tensors that have none there.

        Args:
            strict: raise if a tensor has a grid there that the simulation does not quantize; else such grids
                are left out, with a warning.
            arguments: of the constructor.
        """
        source, document = read_qdq(model)
        simulation = cls(source, **arguments)
        freeze_grids(simulation, document, strict)
        return simulation

    def set_and_freeze_param_encodings(self, encoding_path: str | Path) -> None:
        """Takes the grids of parameters from a file, and keeps calibration from changing them.

        Args:
            encoding_path: an encodings file of any version, or only its part about parameters.
        """
        document = param_document(encoding_path, self.param_names)
        load_document(self, document, strict=False, allow_overwrite=False, disable_missing=False)

    def fold_param_quantizers(self) -> None:
        """Rounds the parameters of the model itself, and freezes their quantizers.

        The session runs rounded parameters anyhow; this is for the exported model. It cannot be undone.
        """
        fold_parameters(self._ir, self._placement)
        self._is_folded = True
