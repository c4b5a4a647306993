"""Compare a model with its quantized form on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto

from qc.compiler.compiled import Compiled
from qc.compiler.notes import of_this_processor
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.onnx.load import load_model, model_folder
from qc.ir.onnx.protos import holds_quantizers
from qc.layers import LayerErrors, evaluation_page, layer_document, layer_errors, layer_plot, layer_table
from qc.options import option
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.conformance import violations
from qc.passes.framework.made_for import target_in
from qc.passes.framework.target import load_target
from qc.processor import saturates_here
from qc.progress import RichProgress
from qc.reading import read_model
from qc.rendering.evaluation import (
    accuracy_table,
    comparison_notes,
    evaluation_document,
    latency_note,
    latency_table,
    metric_table,
)
from qc.rendering.words import count
from qc.runtime import Evaluation, Metric, Runnable, evaluate, parse_metric
from qc.runtime.devices.device import Device
from qc.runtime.execution.saturation import sums_saturate
from qc.runtime.speed.latency import LATENCY_SECONDS
from qc.saturation import SaturationCounter

from ..command import Command
from ..devices import chosen_device, on_option
from ..files import InputFile, judging_files, model_files, write_json, writing
from ..jobs import StartedJob, candidates, chosen_labels, refuse_compile_options, start
from ..options import (
    DEFAULT_THREADS,
    Job,
    calibration_option,
    device_options_option,
    json_option,
    labels_option,
)
from ..output import print_note, print_written, standard_error, standard_output

DEFAULT_LAYERS = 10


@dataclass(frozen=True, kw_only=True)
class Eval(Command):
    """Compares MODEL.onnx, run in float, with what qc makes of it, and times them side by side.

    "simulation" computes in float and rounds every quantized tensor to its grid, for qnn-htp to the codes of
    the HTP; "integer" is the result for the target, run by ONNX Runtime, and with --on by a device as well.
    Runs are pinned to one thread unless --threads says otherwise.

    Examples:
        qc eval model.onnx --data test.npz --calibration train.npz --layers
        qc eval model.onnx --data test.npz --quantized model.q.onnx --metric top-1
    """

    if_quantized = (
        "'qc eval FLOAT.onnx --quantized MODEL.onnx' compares it with the model that it was made of"
    )

    job: Job
    quantized: Path | None = option(
        None, "Compare with this model instead of compiling MODEL.onnx.", metavar="FILE"
    )
    calibration: str | None = calibration_option()
    on: str | None = on_option()
    device_options: tuple[tuple[str, str], ...] = device_options_option()
    latency_seconds: float = option(LATENCY_SECONDS, "Time to spend on timing; 0 for none.", metavar="S")
    metrics: tuple[str, ...] = option(
        (),
        "sqnr, cosine, max-error, equal, top-K, expected-accuracy, likelihood, ctc-K or expected-iou, of one "
        "output as in 'sqnr(logits)', or a function as module:function or file.py:function; may be repeated.",
        "--metric",
        metavar="TEXT",
    )
    labels: Path | None = labels_option()
    layers: int | None = option(
        None,
        f"List the N quantized tensors (default {DEFAULT_LAYERS}) that lose most.",
        metavar="[N]",
        bare=DEFAULT_LAYERS,
    )
    plot: bool = option(False, "Draw the error of every quantized tensor in the terminal.")
    html_file: Path | None = option(
        None,
        "Write a page for the browser with all scores and the error of every quantized tensor.",
        "--html",
        metavar="FILE",
    )
    json_file: Path | None = json_option()

    def run(self) -> None:
        self._check()
        device = chosen_device(self.on, self.device_options, self.job.chosen["target"])
        task = start(
            self.job,
            [self.json_file, self.html_file],
            self._inputs(),
            calibration=self.calibration,
            compiles=self.quantized is None,
            on=self.on,
            role="the data to compare on",
            purpose="to compare on",
        )
        assert task.data is not None
        metrics, labels = self._metrics(task)
        models, compiled = self._models(task)
        runnables: dict[str, ModelProto | Path | Runnable] = dict(models)
        if device is not None:
            runnables[device.name] = _on_device(device, list(models.values())[-1], task)
        saturation = self._saturation(task, compiled)
        with RichProgress(standard_error()) as progress:
            context = PassContext(progress=progress)
            result = evaluate(
                task.compilation.reference(),
                runnables,
                saturation.watch(context.track(task.data, "comparing", task.data.length)),
                base_dir=task.compilation.base_dir,
                threads=task.compilation.threads or DEFAULT_THREADS,
                latency_seconds=self.latency_seconds,
                metrics=metrics,
                labels=labels,
                provider=task.compilation.device,
                untimed=[device.name] if device is not None and device.emulated else (),
            )
            errors = self._layer_errors(task, compiled, context)
        self._write(result, errors)
        self._show(result, errors)
        if not self.job.quiet:
            print_written([self.json_file, self.html_file])
        for note in [*saturation.notes(), *self._notes(task, compiled)]:
            print_note(note)

    def _layer_errors(
        self, task: StartedJob, compiled: Compiled | None, context: PassContext
    ) -> LayerErrors | None:
        """The errors of single tensors, if they are wanted."""
        if not self._asks_layers or compiled is None:
            return None
        assert task.data is not None
        length = task.data.length
        return layer_errors(
            compiled,
            task.data,
            threads=task.compilation.threads or DEFAULT_THREADS,
            device=task.compilation.device,
            track=lambda feeds: context.track(feeds, "comparing tensors", length),
        )

    def _notes(self, task: StartedJob, compiled: Compiled | None) -> list[str]:
        """What is to be known of the models that were compared."""
        if self.quantized is None:
            return _of_integers(compiled)
        sides = _of_sides(self.job.model, task.compilation.proto(), self.quantized)
        return [*sides, *_of_codes(self.quantized)]

    @property
    def _asks_layers(self) -> bool:
        """Whether the errors of single tensors are wanted."""
        return self.layers is not None or self.plot or self.html_file is not None

    def _check(self) -> None:
        if self.quantized is not None:
            if self._asks_layers:
                raise UsageError(
                    "--layers, --plot and --html are about compiling, which --quantized leaves out"
                )
            refuse_compile_options(self.job, {"--calibration": self.calibration})
        if self.labels is not None and not any(":" in text for text in self.metrics):
            raise UsageError(
                "--labels is for functions of --metric, and none is given; others need no labels"
            )

    def _inputs(self) -> list[InputFile]:
        """The files that are read besides those of the job."""
        found = judging_files(self.metrics, self.labels)
        if self.quantized is not None:
            found += model_files(self.quantized, load_model(self.quantized), "the quantized model")
        return found

    def _metrics(self, task: StartedJob) -> tuple[list[Metric], np.ndarray | None]:
        """The metrics and labels, which are looked at before any work."""
        labels = chosen_labels(self.labels, task.data)
        metrics = [parse_metric(text, labels is not None) for text in self.metrics]
        proto = task.compilation.proto()
        for metric in metrics:
            metric.check(proto)
        task.try_metrics(metrics, labels)
        return metrics, labels

    def _models(self, task: StartedJob) -> tuple[Mapping[str, ModelProto | Path], Compiled | None]:
        """The models to compare with, by name, and what was compiled."""
        if self.quantized is not None:
            return {"quantized": self.quantized}, None
        compiled = task.compile()
        return candidates(compiled) | {"simulation": compiled.device_simulation}, compiled

    def _saturation(self, task: StartedJob, compiled: Compiled | None) -> SaturationCounter:
        """What counts inputs beyond their grids."""
        if compiled is not None:
            return SaturationCounter(compiled.ir, is_calibration=self.calibration is None)
        assert self.quantized is not None
        return SaturationCounter(read_model(self.quantized))

    def _write(self, result: Evaluation, errors: LayerErrors | None) -> None:
        """The files that were asked for."""
        if self.json_file is not None:
            document = evaluation_document(result)
            if errors is not None:
                document["layers"] = layer_document(errors)
            write_json(self.json_file, document)
        if self.html_file is not None and errors is not None:
            page = evaluation_page(self.job.label, _subject(result), result, errors)
            with writing(self.html_file), atomic_write(self.html_file) as file:
                file.write(page.encode())

    def _show(self, result: Evaluation, errors: LayerErrors | None) -> None:
        console = standard_output()
        console.show(f"{self.job.label}: {_subject(result)}", "", accuracy_table(result))
        for note in comparison_notes(result):
            print_note(note)
        if result.metrics:
            console.show("", metric_table(result))
        if result.rounds:
            console.show("", latency_table(result), "", latency_note(result))
        if errors is None:
            return
        if self.layers is not None and errors.layers:
            console.show(
                "", f"{count(len(errors.layers), 'quantized tensor')}, those first that lose most", ""
            )
            console.show(layer_table(errors, self.layers))
        if self.plot and errors.layers:
            console.show("", "SQNR in the order of the graph: the longer the bar, the less is lost", "")
            console.show(layer_plot(errors))
        if errors.left_out:
            print_note(f"left out {errors.left_out}")


def _on_device(device: Device, model: ModelProto | Path, task: StartedJob) -> Runnable:
    """A model on a device."""
    threads = task.compilation.threads or DEFAULT_THREADS
    if isinstance(model, Path):
        return device.open(load_model(model), base_dir=model_folder(model), threads=threads)
    return device.open(model, base_dir=task.compilation.base_dir, threads=threads)


def _of_integers(compiled: Compiled | None) -> list[str]:
    """A note on integers of ONNX Runtime that are worse than those of the target."""
    if compiled is None or "qdq" not in compiled.artifacts:
        return []
    if compiled.target.without_vnni or not saturates_here(compiled.ir, compiled.target):
        return of_this_processor(compiled.ir, compiled.target)
    return [
        "'integer' is what ONNX Runtime computes on this processor, which has no VNNI, so that sums of 8-bit "
        f"products saturate: it says nothing of {compiled.target.name}"
    ]


def _of_sides(model: str, proto: ModelProto, quantized: Path) -> list[str]:
    """Notes on a reference that is quantized, and on a model beside it that is not."""
    found = []
    if holds_quantizers(proto):
        found.append(f"'{model}' is quantized itself: what is told is beside it, and not beside float")
    beside = load_model(quantized)
    if not holds_quantizers(beside) and not target_in(beside):
        found.append(f"nothing in '{quantized}' is quantized: it may be another float model")
    return found


def _of_codes(quantized: Path) -> list[str]:
    """A note on sums of a quantized model, whoever made it, that saturate on this processor."""
    if not sums_saturate():
        return []
    ir, target = read_model(quantized), load_target("ort-cpu-avx2")
    run_pipeline(parse_pipeline("import-qdq,match-supergroups"), ir, PassContext(target=target))
    if not any(one.rule == "saturation" for one in violations(ir, target)):
        return []
    return [
        "'quantized' is what ONNX Runtime computes on this processor, which has no VNNI, so that sums of "
        "8-bit products saturate: it says nothing of processors that have it, or of other devices"
    ]


def _subject(result: Evaluation) -> str:
    return f"float against quantized on {count(result.feeds, 'sample')}"
