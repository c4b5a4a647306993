"""Compiling a model: lift, run a pipeline, lower."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from onnx import ModelProto, version_converter

from qc.ir.errors import ModelError, UsageError
from qc.ir.executor import Executor
from qc.ir.files import atomic_write
from qc.ir.lift import lift, load_model
from qc.ir.lower import FREE_INITIALIZERS, lower
from qc.ir.model import Model
from qc.ir.save import external_files, stage_model
from qc.ir.screening import screen_model
from qc.ir.verify import verify, verify_input
from qc.ir.weights import Weights, weights_of
from qc.passes import (
    Artifact,
    Instrument,
    NullProgress,
    PassContext,
    Pipeline,
    PipelineFile,
    PipelineReport,
    Progress,
    Stage,
    run_pipeline,
)
from qc.passes.conformance import violations
from qc.passes.lower.insert_qdq import OLDEST_OPSET
from qc.passes.lower.to_simulation import ToSimulation, WeightRounding
from qc.passes.quantize.insert_quantizers import InsertQuantizers
from qc.passes.quantize.precision_rules import Rule, rules_of
from qc.passes.quantize.set_precision import with_precision
from qc.passes.target import Target, load_target
from qc.runtime import (
    Data,
    ModelStatistics,
    OrtExecutor,
    RecordedExecutor,
    choose_provider,
    load_data,
    model_inputs,
)

from .coverage import Coverage, CoverageError, coverage_of
from .named_pipelines import resolve_pipeline
from .simulation import Simulation
from .view import Crop, html_page

DEFAULT_TARGET = "ort-cpu"


@dataclass(repr=False)
class Compiled:
    """What a pipeline made of a model.

    Attributes:
        ir: the model after all passes, quantizers included.
        artifacts: what the lowering passes made, by name (``qdq``, ``simulation``, ``encodings``).
        report: steps, times and numbers of actions.
        coverage: what is quantized and what is not, and why.
        target: the target that was compiled for.
        source: the file that the model was read from, if any.
        notes: sentences for the user.
    """

    ir: Model
    artifacts: dict[str, Artifact]
    report: PipelineReport
    coverage: Coverage
    target: Target
    source: Path | None = None
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        of = self.coverage.quantized + len(self.coverage.unquantized)
        return f"<Compiled for {self.target.name}: {self.coverage.quantized} of {of} float tensors quantized>"

    @functools.cached_property
    def float_model(self) -> ModelProto:
        """The rewritten float model without quantizers."""
        return lower(self.ir)

    @functools.cached_property
    def weights(self) -> Weights:
        """The quantized weights and biases by name, with their codes and grids."""
        return weights_of(self.ir)

    @property
    def model(self) -> ModelProto:
        """The main result: the QDQ model, else the simulation, else the rewritten float model."""
        for name in ("qdq", "simulation"):
            if name in self.artifacts:
                return self._proto(name)
        return self.float_model

    @functools.cached_property
    def simulation(self) -> ModelProto:
        """The simulation model, made now if the pipeline did not."""
        if "simulation" in self.artifacts:
            return self._proto("simulation")
        return self._simulated(ToSimulation())

    def open_simulation(self, *, settable_weights: bool = False, threads: int | None = None) -> Simulation:
        """Opens the simulation once, to run it under any settings of its quantizers.

        Args:
            settable_weights: whether the grids of weights can be set too, not only those of activations. Then
                weights are rounded at every run, ties to even; those on shifted grids stay as they are.
            threads: threads within an op; None for one per physical core.
        """
        model = self.simulation
        if settable_weights:
            model = self._simulated(ToSimulation(weights=WeightRounding.SETTABLE))
        return Simulation(model, base_dir=self.ir.base_dir, threads=threads, origin=self.ir)

    def view(self, path: str | Path, around: str | None = None, radius: int = 6) -> None:
        """Writes a page for the browser that shows the model with its quantizers and their reasons.

        Args:
            path: the file, ``.html``.
            around: a tensor, to show only the ops that are at most ``radius`` ops away from it.

        Raises:
            UsageError: there are too many ops for a page, no such tensor, or the file cannot be written.
        """
        title = self.source.name if self.source is not None else self.ir.graph.name
        page = html_page(self.ir, title, Crop(around, radius) if around is not None else None)
        self._refuse_sources([Path(path)])
        with atomic_write(path) as file:
            file.write(page.encode())

    def save(self, path: str | Path) -> list[Path]:
        """Writes the main result to ``path`` and every other artifact beside it, with its own suffix.

        Either all files are written or none.

        Raises:
            UsageError: a path is that of the source model or of its data, or cannot be written to.
        """
        path = Path(path)
        main = self.model
        payloads: dict[Path, object] = {path: main}
        for artifact in self.artifacts.values():
            if artifact.payload is not main:
                payloads[path.with_name(path.stem + artifact.suffix)] = artifact.payload
        written = []
        with ExitStack() as stack:
            for place, payload in payloads.items():
                if isinstance(payload, ModelProto):
                    written += stage_model(stack, payload, place, self.ir.base_dir)
                else:
                    stack.enter_context(atomic_write(place)).write(str(payload).encode("utf-8"))
                    written.append(place)
            self._refuse_sources(written)
        return written

    def _simulated(self, lowering: ToSimulation) -> ModelProto:
        context = PassContext(target=self.target)
        lowering.run(self.ir, context)
        payload = context.artifacts["simulation"].payload
        assert isinstance(payload, ModelProto)
        return payload

    def _refuse_sources(self, files: list[Path]) -> None:
        """Raises UsageError if one of the files is the source model, or holds data of it."""
        if self.source is not None:
            for file in files:
                refuse_overwrite(self.source, file)
        for data in external_files(self.ir.origin, self.ir.base_dir):
            for file in files:
                if file.exists() and data.exists() and file.samefile(data):
                    raise UsageError(f"'{file}' holds data of the input model; write under another name")

    def _proto(self, name: str) -> ModelProto:
        payload = self.artifacts[name].payload
        assert isinstance(payload, ModelProto)
        return payload


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
    if quantizes and "" in ir.opset_imports and opset < OLDEST_OPSET:
        ir = _converted(ir)
    executor = executor or OrtExecutor(threads=threads, provider=choose_provider(device))
    if statistics is not None:
        executor = RecordedExecutor.of(executor, statistics)
        data = () if data is None else data
    context = PassContext(
        data=_as_data(data, ir),
        executor=executor,
        target=chosen_target(target, file),
        seed=seed,
        verify=verify if verify_each else None,
        check_analyses=check_analyses,
        progress=progress or NullProgress(),
        instruments=instruments,
    )
    ir.journal.limit = action_limit
    report = run_pipeline(file.pipeline, ir, context)
    assert context.target is not None
    coverage = coverage_of(ir)
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
    return Compiled(ir, context.artifacts, report, coverage, context.target, source, context.notes)


def _broken_rules(ir: Model, target: Target) -> list[str]:
    """A note on what the target cannot do with formats, granularities and shapes, if there is any such."""
    found = [one for one in violations(ir, target) if not one.is_placement]
    if not found:
        return []
    first = found[0]
    where = f"{first.op.label}: " if first.op is not None else ""
    more = f", and {len(found) - 1:,} more, which 'qc check' lists" if len(found) > 1 else ""
    return [f"{target.name} does not run in integers what was asked for: {where}{first.text}{more}"]


def chosen_target(target: str | Path | Target | None, file: PipelineFile) -> Target:
    """The target of a compilation: the one that is given, else the pipeline's, else ort-cpu.

    Raises:
        UsageError: there is no such target.
    """
    chosen = target if target is not None else file.target or DEFAULT_TARGET
    return chosen if isinstance(chosen, Target) else load_target(str(chosen))


def read_model(model: ModelProto | str | Path) -> Model:
    """Reads, checks and lifts a model.

    Raises:
        UsageError: it is neither a model nor a path.
        ModelError: it cannot be read, fails the ONNX checker, or its graph is inconsistent.
    """
    if not isinstance(model, ModelProto | str | Path):
        raise UsageError(f"a model is an onnx.ModelProto or the path of a file, not {type(model).__name__}")
    if isinstance(model, ModelProto):
        screen_model(model)
        _check(model, "the model")
        ir = lift(model)
    else:
        proto = load_model(model)
        _check(str(model), f"model '{model}'")
        ir = lift(proto, Path(model).resolve().parent)
    verify_input(ir)
    return ir


def _converted(ir: Model) -> Model:
    """The model with the first opset that has quantize ops.

    Raises:
        ModelError: ONNX cannot convert it.
    """
    try:
        proto = version_converter.convert_version(ir.origin, OLDEST_OPSET)
        onnx.checker.check_model(proto)
        reason = "" if _interface(proto) == _interface(ir.origin) else "its inputs or outputs would change"
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        reason = " ".join(str(error).split())
    if reason:
        raise ModelError(
            f"the model has opset {ir.opset}, quantized models need {OLDEST_OPSET}, and ONNX cannot convert "
            f"it ({reason}): convert it first"
        )
    return lift(proto, ir.base_dir)


def _interface(proto: ModelProto) -> list[tuple[str, onnx.TypeProto]]:
    return [(value.name, value.type) for value in (*proto.graph.input, *proto.graph.output)]


def _check(model: ModelProto | str, label: str) -> None:
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        reason = " ".join(str(error).partition("==> Context")[0].split())
        raise ModelError(f"{label} fails the ONNX checker: {reason}") from error
    except ValueError as error:  # the checker serializes a ModelProto, which cannot exceed 2 GiB
        raise ModelError(
            f"{label} cannot be checked in memory: {error}; save it and give its path"
        ) from error
    except Exception as error:  # its C++ library raises what the file system or protobuf say, as it is
        raise ModelError(f"{label} cannot be checked: {' '.join(str(error).split())}") from error


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
        raise CoverageError(f"nothing was quantized{reason}; allow it with --allow-unquantized", coverage)
    if strict and coverage.unquantized:
        first = coverage.unquantized[0]
        count = len(coverage.unquantized)
        kind = "float tensor is" if count == 1 else "float tensors are"
        sentence = f"{count} {kind} not quantized; the first is '{first.name}': {first.reason}"
        raise CoverageError(sentence, coverage)


def refuse_overwrite(source: str | Path, output: str | Path) -> None:
    """Raises UsageError if writing ``output`` would replace the model being read."""
    if Path(output).exists() and Path(output).samefile(source):
        raise UsageError(f"'{output}' is the input model; write to another file")
