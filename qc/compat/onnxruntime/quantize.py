"""``quantize_static`` with ONNX Runtime's signature."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from onnx import ModelProto
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType

import qc
from qc.compiler.compiled import refuse_overwrite
from qc.compiler.processor import default_target
from qc.ir.errors import UsageError, nearest
from qc.ir.model import Model
from qc.ir.onnx.save import save_model
from qc.ir.quant.formats import IntFormat, parse_format
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.framework.pipeline import Pipeline
from qc.passes.framework.target import Target
from qc.passes.framework.target_rules import FormatRule
from qc.passes.quantize.annotate_per_channel import AnnotatePerChannel
from qc.passes.quantize.calibrate import Calibrate
from qc.passes.quantize.insert_quantizers import InsertQuantizers
from qc.runtime import OrtExecutor, load_data, model_inputs

from ..missing import refuse
from ..providers import device_of
from .formats import format_of
from .options import ExtraOptions, read_options
from .overrides import apply_overrides

_SIMPLIFY = (
    "inline-functions, convert-to-float32, hoist-loop-invariants, fold-constants, eliminate-identity, "
    "fold-batch-norms, share-constants, eliminate-dead-code, match-supergroups"
)

_METHODS: dict[CalibrationMethod, Literal["min-max", "percentile", "entropy"]] = {
    CalibrationMethod.MinMax: "min-max",
    CalibrationMethod.Percentile: "percentile",
    CalibrationMethod.Entropy: "entropy",
}


def quantize_static(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    calibration_data_reader: Any = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Collection[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | None = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: Sequence[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
    calibration_cache_path: str | Path | None = None,
) -> None:
    """Quantizes a float model with calibration data and writes a QDQ model.

    Args:
        model_input: the float model, or its path.
        model_output: where to write.
        calibration_data_reader: a ``CalibrationDataReader``, or anything else that :func:`qc.compile` takes.
        quant_format: only ``QDQ`` is provided.
        op_types_to_quantize: leave ops of other types in float.
        per_channel: one scale for each output channel of a weight.
        reduce_range: weights have 7 bits.
        activation_type, weight_type: number formats.
        nodes_to_quantize: leave all other nodes in float.
        nodes_to_exclude: leave these nodes in float.
        use_external_data_format: weights are written beside a model that is too large without, whatever is
            given.
        calibrate_method: ``MinMax``, ``Percentile`` or ``Entropy``.
        calibration_providers: where calibration runs; see :func:`~qc.compat.providers.device_of`.
        extra_options: see docs/switching-from-onnxruntime.md.
        calibration_cache_path: not provided.

    Raises:
        UsageError: an option that does not exist, or that qc does not provide.
        ModelError: the model is not valid, or is quantized already.
        DataError: the data does not fit the model.
        CoverageError: nothing was quantized.
    """
    _refuse_unprovided(quant_format, calibrate_method, calibration_cache_path)
    device = device_of(calibration_providers)
    options = read_options(extra_options or {}, calibrate_method)
    if not isinstance(model_input, ModelProto):
        refuse_overwrite(model_input, model_output)
    target = _target(activation_type, weight_type, reduce_range, options)
    ir = qc.compile(model_input, _SIMPLIFY, target=target, allow_unquantized=True).ir
    placing = InsertQuantizers(
        skip_ops=_left_out(_op_types(ir), op_types_to_quantize, "op_types_to_quantize"),
        skip_nodes=_skipped_nodes(ir, nodes_to_quantize, nodes_to_exclude or ()),
    )
    data = load_data(_required(calibration_data_reader), model_inputs(ir.origin))
    context = PassContext(data=data, executor=OrtExecutor(provider=device), target=target)
    steps = [placing, *([AnnotatePerChannel()] if per_channel else [])]
    run_pipeline(Pipeline([*steps, *parse_pipeline("tie-quantizers").steps]), ir, context)
    apply_overrides(ir, options.overrides)
    calibrating = Calibrate(method=_METHODS[calibrate_method], percentile=options.percentile)
    run_pipeline(Pipeline([calibrating, *parse_pipeline("insert-qdq").steps]), ir, context)
    _require_quantized(ir)
    quantized = context.artifacts["qdq"].payload
    assert isinstance(quantized, ModelProto)
    save_model(quantized, model_output, ir.base_dir)


def _refuse_unprovided(
    quant_format: QuantFormat,
    method: CalibrationMethod,
    cache: str | Path | None,
) -> None:
    if quant_format is not QuantFormat.QDQ:
        refuse(f"'quant_format={quant_format}'", "qc writes QDQ models, which ONNX Runtime runs in integers")
    if method not in _METHODS:
        refuse(
            f"'calibrate_method={method}'",
            "use MinMax, Percentile or Entropy, or qc's pass calibrate{method=mse}",
        )
    if cache is not None:
        refuse("'calibration_cache_path'", "write the grids with qc's pass to-encodings and load them again")


def _target(activation: QuantType, weight: QuantType, reduce: bool, options: ExtraOptions) -> Target:
    """qc's target for ONNX Runtime, with the formats that are asked for."""
    format = parse_format(format_of(weight))
    if reduce and isinstance(format, IntFormat):
        format = IntFormat(format.bits - 1, format.signed)
    return default_target().model_copy(
        update={
            "activation": FormatRule(dtype=format_of(activation), symmetric=options.activation_symmetric),
            "weight": FormatRule(dtype=str(format), symmetric=options.weight_symmetric),
        }
    )


def _op_types(ir: Model) -> dict[str, None]:
    return dict.fromkeys(op.op_type for graph in ir.graphs() for op in graph.ops())


def _left_out(known: Iterable[str], wanted: Collection[str] | None, option: str) -> tuple[str, ...]:
    """What is known and not wanted; nothing if all is wanted. Raises UsageError for what is not known."""
    known = list(known)
    if not wanted:
        return ()
    if not set(wanted) & set(known):
        name = next(iter(wanted))
        raise UsageError(f"{option}: the model has no '{name}'{nearest(name, known)}")
    return tuple(name for name in known if name not in wanted)


def _skipped_nodes(ir: Model, wanted: Collection[str] | None, excluded: Collection[str]) -> tuple[str, ...]:
    names = [op.name for graph in ir.graphs() for op in graph.ops() if op.name]
    given = list(ir.origin.graph.node)
    for name in excluded:
        if name not in names and name not in {node.name for node in given}:
            raise UsageError(f"nodes_to_exclude: the model has no node '{name}'{nearest(name, names)}")
    left_out = _left_out(names, wanted, "nodes_to_quantize")
    return tuple(dict.fromkeys((*left_out, *(name for name in names if name in excluded))))


def _required(data: Any) -> Any:
    if data is None:
        raise UsageError("quantize_static needs calibration data; give calibration_data_reader")
    return data


def _require_quantized(ir: Model) -> None:
    coverage = qc.coverage_of(ir)
    if not coverage.formats:
        why = coverage.unquantized[0] if coverage.unquantized else None
        reason = f": '{why.name}' stays float ({why.reason})" if why else ""
        raise qc.CoverageError(f"nothing was quantized{reason}", coverage)
