"""A compilation as a value: lift a model, run a pipeline, lower it; again, up to any action, or elsewhere.

What the methods need is imported in them: the command line makes its help of the fields, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from qc.ir.errors import UsageError

from ..options import check_plain, length, option, options_of, path, plain_types, single, word
from .given import check_names, normalized

if TYPE_CHECKING:
    from onnx import ModelProto

    from qc.ir.executor import Executor
    from qc.passes import Instrument, PassContext, Pipeline, PipelineFile, Progress
    from qc.passes.framework.target import Target
    from qc.passes.quantize.precision.rules import Rule
    from qc.runtime import InputInfo, OrtExecutor, Recording

    from .compiled import Compiled

MOST_WORKERS = 1024  # threads or processes: more than any machine has use for


@dataclass(frozen=True)
class Compilation:
    """What to compile, and how.

    Args:
        model: an ONNX model or the path of one; not changed.
        pipeline: a name (``w8a8``), a path of a TOML file, pipeline text, or an object.
        data: calibration data: anything :func:`qc.runtime.load_data` takes, such as a path, an iterable of
            ``{input name: array}``, a function that returns one, or an ONNX Runtime CalibrationDataReader.
        target: a name, a path of a TOML file, or an object; default: the pipeline's, else this processor.
        precision: what differs from what the pipeline says: rules such as ``Conv=w4a8``, ``Softmax=off`` or
            ``op:norm1=float16``, a dictionary of them, or the path of a ``.toml`` file with them, see the
            pass ``set-precision``.
        fix_shapes: lengths of free dimensions, such as ``N=1``; data must have them. See ``fix-shapes``.
        fix_inputs: values of inputs of one number, such as ``sr=16000``, see the pass ``fix-inputs``.
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
    """

    model: ModelProto | str | Path
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8"
    _: KW_ONLY
    data: object = None
    target: str | Path | Target | None = option(
        None,
        "What to compile for.  [default: the pipeline's, else this processor]",
        metavar="NAME|FILE",
        parse=word,
    )
    precision: str | Path | Rule | Iterable[str | Rule] | Mapping[str, str] = ()
    fix_shapes: tuple[str, ...] = option(
        (),
        "Give a free dimension a length for good, such as N=1, for devices that take none; may be repeated.",
        "--fix-shape",
        metavar="NAME=N",
        parse=length,
    )
    fix_inputs: tuple[str, ...] = option(
        (),
        "Give an input of one number a value for good, such as sr=16000; may be repeated.",
        "--fix-input",
        metavar="NAME=NUMBER",
        parse=single,
    )
    allow_unquantized: bool = option(False, "Accept a result in which nothing is quantized.")
    fail_if_unquantized: bool = option(False, "Fail if any float tensor stays unquantized.")
    verify_each: bool = option(True, "Verify the model after every pass.  [default: do]")
    check_analyses: bool = option(
        False,
        "Compute every analysis again after every pass and compare, to find a pass that changes the model "
        "unseen.",
    )
    threads: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = option(
        None, "Threads of the runtime.", metavar="N"
    )
    device: str = option(
        "auto", "Where models run: cpu, cuda, or auto: on a GPU where CUDA can be used.", metavar="NAME"
    )
    progress: Progress | None = None
    instruments: Sequence[Instrument] = ()
    action_limit: Annotated[int, Ge(0)] | None = option(
        None, "Stop after action N, to find the one that does harm.", "--bisect-limit", metavar="N"
    )
    seed: Annotated[int, Ge(0)] = option(0, "Seed of every random choice.", metavar="N")
    executor: Executor | None = None
    statistics: Recording | str | Path | None = option(
        None, "Calibrate on what qc observe wrote, without data.", metavar="FILE", parse=path
    )

    def __post_init__(self) -> None:
        vars(self).update(normalized(vars(self)))  # assignments are refused: the class is frozen
        check_plain(self)

    def compile(self) -> Compiled:
        """Does it.

        Raises:
            UsageError: a pipeline, pass, option or target that does not exist or does not fit.
            ModelError: a model that cannot be read, is invalid, or cannot be run.
            DataError: data that does not fit the model.
            CoverageError: nothing, or not everything, was quantized.
            QcError: CUDA is asked for but cannot be used.
        """
        from onnx import ModelProto

        from qc.passes import Stage, run_pipeline

        from ..coverage import coverage_of
        from ..reading import read_model
        from . import notes
        from .compiled import Compiled
        from .opset import in_opset_of

        file, target = self.chosen_pipeline(), self.chosen_target()
        quantizes = any(step.stage is not Stage.FLOAT for step in file.pipeline.passes())
        ir = read_model(self.model)
        opset, said = ir.opset, list(ir.repairs)
        if quantizes:
            notes.refuse_quantized_again(ir, file.pipeline)
            ir = in_opset_of(target, ir, file.pipeline)
        inputs = self.fed_inputs()
        context = self._context(inputs, target)
        said += notes.missing_samples(context.executor)
        ir.journal.limit = self.action_limit
        with notes.naming_lengths(self.fix_shapes):
            report = run_pipeline(file.pipeline, ir, context, self.instruments)
        coverage = coverage_of(ir, target, context.dynamic)
        said += notes.of_another_opset(opset, ir, target)
        if quantizes:
            coverage.check(self.allow_unquantized, self.fail_if_unquantized)
            said += notes.of_target(ir, target, file.pipeline)
            said += notes.missing_lowering(context.artifacts)
            said += notes.of_samples(ir, context)
        if ir.journal.stopped:
            said.append(f"stopped after action {self.action_limit}, as asked: the result is not complete")
        said += [*notes.lost_inputs(ir), *notes.unused_data(context.data)]
        context.notes += said
        source = None if isinstance(self.model, ModelProto) else Path(self.model)
        made = ir, context.artifacts, report, coverage, target
        return Compiled(*made, inputs, source, context.notes, context.grids, context.warnings)

    def _context(self, inputs: Sequence[InputInfo], target: Target) -> PassContext:
        """What the passes get, with data for these inputs."""
        from qc.ir.verifier import verify
        from qc.passes import PassContext
        from qc.runtime import Data, RecordedExecutor, load_data

        from ..progress import progress_here

        executor, data = self.executor or self.ort_executor(), self.data
        if self.statistics is not None:
            executor = RecordedExecutor.of(executor, self.statistics)
            data = () if data is None else data
        return PassContext(
            data=data if data is None or isinstance(data, Data) else load_data(data, inputs),
            executor=executor,
            target=target,
            seed=self.seed,
            verify=verify if self.verify_each else None,
            check_analyses=self.check_analyses,
            progress=self.progress or progress_here(),
        )

    def compile_for(self, targets: Iterable[str | Path | Target]) -> dict[str, Compiled]:
        """Compiles for several targets that share one calibration, see :func:`qc.compile_for`."""
        from qc.passes.framework.target import load_target

        found = [load_target(target) for target in targets]
        check_names([target.name for target in found])
        return compile_together([replace(self, target=target) for target in found])

    def observe(self, also_for: Iterable[str | Path | Target] = ()) -> Recording:
        """Runs the pipeline up to its calibration, and gives back the statistics that are collected there.

        See :func:`qc.observe`.
        """
        from qc.runtime import Recorder

        from ..named_pipelines import until_calibration

        file = self.chosen_pipeline()
        until = replace(file, pipeline=until_calibration(file))
        recorder = Recorder(self.executor or self.ort_executor(identify_feeds=True), widens=True)
        first = replace(
            self, pipeline=until, precision=(), allow_unquantized=True, executor=recorder, statistics=None
        )
        compile_together([first, *(replace(first, target=other) for other in also_for)])
        if not recorder.recording.models:
            raise UsageError(
                f"pipeline '{file.name}': the calibration asks for no statistics; it has nothing to calibrate"
            )
        return recorder.recording

    def dump(self, folder: str | Path) -> None:
        """Writes the compilation into an empty folder, so that :meth:`load` has all that it takes.

        Beyond 64 MB of weights the largest become zeros that take no room on the disk, and of the data, if a
        pass reads it, 4 samples or 16 MB are kept. Executors and what watches are left out.

        Raises:
            UsageError: the folder is not there, holds something, or cannot be written to.
            ModelError, DataError: the model or the statistics cannot be read.
        """
        from .folder import write

        write(
            Path(folder),
            model=(self.proto(), self.base_dir),
            pipeline=self.chosen_pipeline(),
            target=self.chosen_target(),
            inputs=self.fed_inputs(),
            data=self.data if self.reads_data else None,
            statistics=self.statistics,
            settings={name: getattr(self, name) for name in plain_types(Compilation)},
        )

    @classmethod
    def load(cls, folder: str | Path) -> Compilation:
        """Reads what :meth:`dump` wrote. Nothing in the folder is trusted, and nothing outside is read.

        Raises:
            UsageError: the folder holds no compilation, or needs a pass that is not installed.
            DataError: its data cannot be read.
        """
        from .folder import read

        defaults = {name: field.default for name, field in options_of(Compilation).items()}
        settings = {name: (kind, defaults[name]) for name, kind in plain_types(Compilation).items()}
        return cls(**read(Path(folder), settings))

    def chosen_pipeline(self) -> PipelineFile:
        """The pipeline as an object, with what ``precision``, ``fix_shapes`` and ``fix_inputs`` change."""
        from qc.passes.quantize.precision.rules import rules_of
        from qc.passes.quantize.set_precision import with_precision
        from qc.passes.simplify.fix_inputs import with_fixed_interface

        from ..named_pipelines import resolve_pipeline

        file = resolve_pipeline(self.pipeline)
        pipeline = with_precision(file.pipeline, rules_of(self.precision))
        return replace(file, pipeline=with_fixed_interface(pipeline, self.fix_shapes, self.fix_inputs))

    def chosen_target(self) -> Target:
        """The target as an object: the one that is given, else the pipeline's, else that of the processor."""
        from qc.passes.framework.target import load_target

        from ..processor import default_target

        if self.target is None:
            return self.chosen_pipeline().own_target() or default_target()
        return load_target(self.target)

    def for_device(self, name: str | None) -> Compilation:
        """The same for the target that is named as a device, where no target is given and one would count.

        A pipeline for ort-cpu, or for a target that no runtime runs, gives way.

        Args:
            name: the name of a device, such as ``qnn-htp``; None, or one without a target, changes nothing.

        Raises:
            UsageError: the pipeline is for a target that another runtime runs.
        """
        from qc.passes.framework.target import load_target, target_names

        from ..processor import DEFAULT_TARGET, on_this_processor

        if self.target is not None or not self._counts_target() or name not in target_names():
            return self
        own, other = self.chosen_target(), on_this_processor(load_target(name))
        file = self.chosen_pipeline()
        if own.provider == other.provider:
            return self
        if own.provider and file.target not in (None, DEFAULT_TARGET):
            raise UsageError(
                f"pipeline '{file.name}' is for target '{own.name}', which {name} does not run: give "
                f"--target {name}, or run it elsewhere"
            )
        return replace(self, target=other.name)

    def _counts_target(self) -> bool:
        """Whether a pass asks for the target."""
        passes = self.chosen_pipeline().pipeline.passes()
        return any("target" in step.needs | step.uses for step in passes)

    def check_target(self) -> None:
        """Raises UsageError if a target is given that would change nothing."""
        file = self.chosen_pipeline()
        if self.target is None or self._counts_target():
            return
        raise UsageError(
            f"pipeline '{file.name}' is the same for every target, so '{self.chosen_target().name}' would "
            "change nothing: leave it out, or choose a pipeline with insert-quantizers, such as w8a8"
        )

    def ort_executor(self, **settings: Any) -> OrtExecutor:
        """ONNX Runtime in this process; ``settings`` are further ones of :class:`qc.runtime.OrtExecutor`."""
        from qc.runtime import OrtExecutor, choose_provider

        return OrtExecutor(threads=self.threads, provider=choose_provider(self.device), **settings)

    @property
    def reads_data(self) -> bool:
        """Whether a pass may read data."""
        passes = self.chosen_pipeline().pipeline.passes()
        return any("data" in step.needs | step.uses for step in passes)

    def proto(self) -> ModelProto:
        """The model, without its external data."""
        from onnx import ModelProto

        from qc.ir.onnx.load import load_model

        return self.model if isinstance(self.model, ModelProto) else load_model(self.model)

    def fed_inputs(self) -> tuple[InputInfo, ...]:
        """The inputs to feed, with fixed lengths and values; those with a default become constants."""
        from qc.passes.simplify.fix_inputs import fixed_values
        from qc.passes.simplify.fix_shapes import FixShapes
        from qc.runtime import model_inputs
        from qc.runtime.data.inputs import with_lengths, with_values

        required = [info for info in model_inputs(self.proto()) if not info.optional]
        fed = with_lengths(required, FixShapes(lengths=self.fix_shapes).as_numbers())
        return with_values(fed, fixed_values(self.chosen_pipeline().pipeline.passes()))

    def reference(self) -> ModelProto | str | Path:
        """What results are compared with: the model, in float32 where it cannot run as it is."""
        from ..reading import runnable_form, with_fixed_inputs

        passes = self.chosen_pipeline().pipeline.passes()
        return with_fixed_inputs(runnable_form(self.model), self.base_dir, passes)

    @property
    def base_dir(self) -> Path | None:
        """The folder that external data of the model is relative to."""
        from qc.ir.onnx.load import model_folder

        return model_folder(self.model) if isinstance(self.model, str | Path) else None


def compile_together(
    compilations: Sequence[Compilation],
    compile: Callable[[Compilation], Compiled] = lambda one: one.compile(),
) -> dict[str, Compiled]:
    """Compiles one model for several targets with one pass over the data.

    Args:
        compilations: they differ in nothing but what does not change what is observed.
        compile: how one of them is done.

    Returns:
        The results by the name of the target.
    """
    from qc.runtime import Recorder

    executor = compilations[0].executor or compilations[0].ort_executor()
    executor = executor if isinstance(executor, Recorder) else Recorder(executor)
    compilations = [replace(one, executor=executor) for one in compilations]
    for compilation in compilations if len(compilations) > 1 else ():
        executor.plan(replace(compilation, instruments=(), progress=None).compile)
    results: dict[str, Compiled] = {}
    for compilation in compilations:
        before = executor.passes
        compiled = compile(compilation)
        name = compiled.target.name
        if results and executor.passes > before:
            compiled.notes.append(
                f"the data was read again for {name}, as no statistics kept were what it needs"
            )
        results[name] = compiled
    return results
