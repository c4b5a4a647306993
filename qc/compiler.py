"""Compiling a model: lift, run a pipeline, lower."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from qc.ir.executor import Executor
from qc.ir.model import Model
from qc.ir.onnx.lower import FREE_INITIALIZERS
from qc.ir.verify import verify
from qc.passes import (
    Instrument,
    NullProgress,
    PassContext,
    Pipeline,
    PipelineFile,
    Progress,
    Stage,
    run_pipeline,
)
from qc.passes.conformance import violations
from qc.passes.framework.target import Target, load_target
from qc.passes.quantize.insert_quantizers import InsertQuantizers
from qc.passes.quantize.precision.rules import Rule, rules_of
from qc.passes.quantize.set_precision import with_precision
from qc.report.words import count
from qc.runtime import (
    Data,
    ModelStatistics,
    OrtExecutor,
    RecordedExecutor,
    choose_provider,
    load_data,
    model_inputs,
)

from .compiled import Compiled
from .coverage import Coverage, CoverageError, coverage_of
from .named_pipelines import resolve_pipeline
from .reading import read_model, with_quantize_ops

DEFAULT_TARGET = "ort-cpu"
_NAMED = 12  # ops in a note


def compile(
    model: ModelProto | str | Path,
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8",
    *,
    data: object = None,
    target: str | Path | Target | None = None,
    precision: str | Path | Rule | Iterable[str | Rule] = (),
    allow_unquantized: bool = False,
    fail_if_unquantized: bool = False,
    verify_each: bool = True,
    check_analyses: bool = False,
    threads: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    instruments: Sequence[Instrument] = (),
    action_limit: int | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    statistics: ModelStatistics | str | Path | None = None,
) -> Compiled:
    """Compiles a float model.

    Args:
        model: an ONNX model or the path of one; not changed.
        pipeline: a name (``w8a8``), a path of a TOML file, pipeline text, or an object.
        data: calibration data: anything :func:`qc.runtime.load_data` takes, such as a path, an iterable of
            ``{input name: array}``, a function that returns one, or an ONNX Runtime CalibrationDataReader.
        target: a target's name, a path of a TOML file, or an object; default: the pipeline's, else ort-cpu.
        precision: what differs from what the pipeline says: rules such as ``Conv=w4a8``, ``Softmax=off`` or
            ``op:norm1=float16``, or the path of a ``.toml`` file with them, see the pass ``set-precision``.
        allow_unquantized: accept a result in which nothing is quantized.
        fail_if_unquantized: refuse a result in which any float tensor is not quantized.
        verify_each: verify the model after every pass.
        check_analyses: compute every analysis again after every pass and compare, to find a pass that
            changes the model unseen.
        threads: threads of the runtime; default: all cores.
        device: where models run, if there is no ``executor``: ``"cpu"``, ``"cuda"`` for a GPU of NVIDIA, or
            ``"auto"`` for a GPU if there is one, and ``onnxruntime-gpu`` and qc's library for CUDA.
        progress: where long work shows how far it is.
        instruments: what watches the passes, such as :class:`qc.passes.PrintModel`.
        action_limit: number of the last rewrite, match or decision about a quantizer that may happen.
            Quantizers without numbers are left out then. Any limit gives a valid model.
        seed: seed of every random choice.
        executor: what runs the model, such as a :class:`qc.runtime.ShardedExecutor` over many processes;
            default: ONNX Runtime in this process, with ``threads``.
        statistics: what :func:`qc.observe` collected, or its file, to calibrate on; ``data`` is needed then
            only by passes that look at tensors themselves.

    Raises:
        UsageError: a pipeline, pass, option or target that does not exist or does not fit.
        ModelError: a model that cannot be read, is invalid, or cannot be run.
        DataError: data that does not fit the model.
        CoverageError: nothing, or not everything, was quantized.
        QcError: CUDA is asked for but cannot be used.
    """
    file = resolve_pipeline(pipeline)
    file = replace(file, pipeline=with_precision(file.pipeline, rules_of(precision)))
    quantizes = any(step.stage is not Stage.FLOAT for step in file.pipeline.passes())
    ir = read_model(model)
    opset = ir.opset
    if quantizes:
        ir = with_quantize_ops(ir)
    executor = executor or OrtExecutor(threads=threads, provider=choose_provider(device))
    notes: list[str] = []
    if statistics is not None:
        executor = recorded = RecordedExecutor.of(executor, statistics)
        notes = _missing_samples(recorded.statistics)
        data = () if data is None else data
    context = PassContext(
        data=_as_data(data, ir),
        executor=executor,
        target=chosen_target(target, file),
        seed=seed,
        verify=verify if verify_each else None,
        check_analyses=check_analyses,
        progress=progress or NullProgress(),
    )
    ir.journal.limit = action_limit
    report = run_pipeline(file.pipeline, ir, context, instruments)
    assert context.target is not None
    context.notes += notes
    coverage = coverage_of(ir, context.target)
    if ir.opset != opset:
        context.notes.append(
            f"the model was converted from opset {opset} to {ir.opset}, the first with quantize ops"
        )
    if quantizes:
        _check_demands(coverage, allow_unquantized, fail_if_unquantized)
        if any(step.name == InsertQuantizers.name for step in file.pipeline.passes()):
            context.notes += _broken_rules(ir, context.target)
        if not context.artifacts:
            context.notes.append(
                "the pipeline has no lowering pass: the result is the float model; add 'insert-qdq'"
            )
    if ir.journal.stopped:
        context.notes.append(f"stopped after action {action_limit}, as asked: the result is not complete")
    context.notes += _lost_inputs(ir)
    source = None if isinstance(model, ModelProto) else Path(model)
    return Compiled(
        ir, context.artifacts, report, coverage, context.target, source, context.notes, context.grids
    )


def _broken_rules(ir: Model, target: Target) -> list[str]:
    """A note on what the target cannot do with formats, granularities and shapes, if there is any such."""
    found = [one for one in violations(ir, target) if not one.is_placement]
    if not found:
        return []
    first = found[0]
    where = f"{first.op.label}: " if first.op is not None else ""
    others = [
        label for label in dict.fromkeys(one.op.label for one in found if one.op) if f"{label}: " != where
    ]
    named = f"; nor {', '.join(others[:_NAMED])}" if others else ""
    more = f" and {len(others) - _NAMED:,} more, which 'qc check' lists" if len(others) > _NAMED else ""
    return [f"{target.name} does not run in integers what was asked for: {where}{first.text}{named}{more}"]


def _missing_samples(statistics: ModelStatistics) -> list[str]:
    """A note on statistics of one shard, or of some, of the data."""
    if not statistics.missing_feeds:
        return []
    missing = count(statistics.missing_feeds, "sample")
    return [
        f"the statistics are of {count(len(statistics.feeds), 'sample')} and lack at least {missing} of the "
        "same data, as those of a shard do; 'qc merge-statistics' puts those of all shards together"
    ]


def chosen_target(target: str | Path | Target | None, file: PipelineFile) -> Target:
    """The target of a compilation: the one that is given, else the pipeline's, else ort-cpu.

    Raises:
        UsageError: there is no such target.
    """
    chosen = target if target is not None else file.target or DEFAULT_TARGET
    return chosen if isinstance(chosen, Target) else load_target(str(chosen))


def _lost_inputs(ir: Model) -> list[str]:
    """A note on inputs that had a default and were compiled as constants."""
    left = {value.name for value in ir.graph.inputs}
    lost = [info.name for info in ir.origin.graph.input if info.name not in left]
    if not lost or ir.origin.ir_version < FREE_INITIALIZERS:
        return []
    return [f"inputs with a default, such as '{lost[0]}', were compiled as constants ({len(lost)} in all)"]


def _as_data(data: object, ir: Model) -> Iterable | None:
    if data is None or isinstance(data, Data):
        return data
    return load_data(data, model_inputs(ir.origin))


def _check_demands(coverage: Coverage, allow: bool, strict: bool) -> None:
    if not coverage.quantized and not allow:
        why = coverage.unquantized[0] if coverage.unquantized else None
        reason = f": '{why.name}' and others stay float ({why.reason})" if why else ""
        raise CoverageError(f"nothing was quantized{reason}", coverage)
    if strict and coverage.unquantized:
        first = coverage.unquantized[0]
        count = len(coverage.unquantized)
        kind = "float tensor is" if count == 1 else "float tensors are"
        sentence = f"{count} {kind} not quantized; the first is '{first.name}': {first.reason}"
        raise CoverageError(sentence, coverage)
