"""Measure time, memory and size of a model's forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from annotated_types import Gt
from onnx import ModelProto

from qc.ir.base.files import temporary_folder
from qc.ir.errors import QcError, UsageError
from qc.ir.onnx.load import load_model, model_folder
from qc.ir.onnx.protos import holds_quantizers
from qc.ir.onnx.save import save_model
from qc.options import argument, option
from qc.passes import PassContext
from qc.progress import RichProgress
from qc.rendering.evaluation import REFERENCE, bench_document, bench_table, latency_note
from qc.rendering.words import printable
from qc.runtime import Benchmark, Runnable, bench, choose_provider, random_data
from qc.runtime.devices.device import Device
from qc.runtime.speed.latency import LATENCY_SECONDS

from ..command import Command
from ..devices import chosen_device, on_option
from ..files import InputFile, model_files, write_json
from ..jobs import StartedJob, candidates, check_sizes, compile_options, refuse_compile_options, start
from ..options import (
    DEFAULT_RANDOM_SAMPLES,
    DEFAULT_THREADS,
    Job,
    Settings,
    device_options_option,
    json_option,
)
from ..output import print_note, print_written, standard_error, standard_output


@dataclass(frozen=True, kw_only=True)
class Bench(Command):
    """Measures what every MODEL.onnx costs in float, as a simulation and in integers.

    Latency is timed in turns, with threads pinned to processors (one thread unless --threads says otherwise),
    peak memory in a process for each. With --on the last form is timed on a device, too. Without data a model
    is calibrated and timed on random numbers. A model that holds quantizers already is measured as it is.

    Examples:
        qc bench model.onnx --threads 2
        qc bench model.onnx --quantized model.q.onnx --data test.npz
    """

    if_quantized = "'qc bench MODEL.onnx' without options for compiling measures it as it is"

    models: tuple[str, ...] = argument("MODEL.onnx...")
    settings: Settings
    quantized: tuple[Path, ...] = option(
        (),
        "Measure this model beside MODEL.onnx instead of compiling it; may be repeated.",
        metavar="FILE",
    )
    on: str | None = on_option()
    device_options: tuple[tuple[str, str], ...] = device_options_option()
    seconds: Annotated[float, Gt(0)] = option(
        LATENCY_SECONDS, "Time to spend on timing each MODEL.onnx.", metavar="S"
    )
    json_file: Path | None = json_option()

    def run(self) -> None:
        jobs = [Job(model=model, **vars(self.settings)) for model in self.models]
        self._check(jobs)
        device = chosen_device(self.on, self.device_options, self.settings.chosen["target"])
        found: dict[str, Benchmark] = {}
        with RichProgress(standard_error()) as progress:
            tasks = []
            for job in jobs:
                with _about(job.model, jobs):
                    tasks.append(self._task(job))
            if not _has_data(jobs[0]) and not self.settings.quiet:
                print_note("without --data, random numbers are used, which is enough to measure costs")
            for task in tasks:
                with _about(task.job.model, jobs):
                    found[task.job.model] = self._measure(task, device, progress)
        if self.json_file is not None:
            write_json(self.json_file, bench_document(found))
        _show(found)
        if not self.settings.quiet:
            print_written([self.json_file])

    def _check(self, jobs: Sequence[Job]) -> None:
        """Refuses, before any work, what contradicts itself."""
        choose_provider(self.settings.chosen["device"])
        if self.quantized:
            refuse_compile_options(self.settings, {})
            if len(jobs) > 1:
                raise UsageError(f"--quantized is for one MODEL.onnx, and there are {len(jobs)}")
        model, number = Counter(job.model for job in jobs).most_common(1)[0]
        if number > 1:
            raise UsageError(f"'{model}' is given {number} times; give it once")

    def _task(self, job: Job) -> StartedJob:
        """The job, on random data if there is no other."""
        others: list[InputFile] = []
        for path in self.quantized:
            others += model_files(path, load_model(path), "the quantized model")
        asked = any(option is not None for option in compile_options(job).values())
        compiles = not self.quantized and (asked or not holds_quantizers(load_model(job.model)))
        plain = job if _has_data(job) else replace(job, sizes=())
        task = start(plain, [self.json_file], others, compiles=compiles, on=self.on)
        if task.data is None:
            inputs = task.compilation.fed_inputs()
            check_sizes(job.sizes, inputs)
            data = random_data(inputs, DEFAULT_RANDOM_SAMPLES, job.chosen["seed"], dict(job.sizes))
            task = replace(task, data=data, compilation=replace(task.compilation, data=data))
        return task

    def _measure(self, task: StartedJob, device: Device | None, progress: RichProgress) -> Benchmark:
        assert task.data is not None
        with temporary_folder() as folder:
            context = PassContext(progress=progress)
            files, threads = self._files(task, folder), task.compilation.threads or DEFAULT_THREADS
            others = (
                {device.name: partial(_on_device, device, [*files.values()][-1], threads)} if device else {}
            )
            return bench(
                files,
                task.data,
                threads=threads,
                others=others,
                seconds=self.seconds,
                provider=task.compilation.device,
                track=lambda names: context.track(names, "measuring memory", len(names)),
            )

    def _files(self, task: StartedJob, folder: Path) -> Mapping[str, Path]:
        """The files to measure, by a name for the report; what is compiled is written into ``folder``."""
        reference, source = task.compilation.reference(), Path(task.job.model)
        if isinstance(reference, ModelProto):
            source = folder / "float.onnx"
            save_model(reference, source, task.compilation.base_dir)
        if self.quantized:
            return {REFERENCE: source, **{str(path): path for path in self.quantized}}
        files = {"as it is" if task.is_quantized else REFERENCE: source}
        if task.compiles:
            compiled = task.compile()
            for name, model in candidates(compiled).items():
                files[name] = folder / f"{name}.onnx"
                save_model(model, files[name], compiled.ir.base_dir)
        return files


@contextmanager
def _about(model: str, jobs: Sequence[Job]) -> Iterator[None]:
    """Lets an error say which of several models it is about, if it does not."""
    try:
        yield
    except QcError as error:
        if len(jobs) > 1 and f"'{model}'" not in str(error):
            error.add_note(f"this was about '{model}'")
        raise


def _on_device(device: Device, path: Path, threads: int) -> Runnable:
    """The model of a file on a device."""
    return device.open(load_model(path), base_dir=model_folder(path), threads=threads)


def _has_data(job: Job) -> bool:
    return job.data is not None or job.random_data is not None


def _show(found: Mapping[str, Benchmark]) -> None:
    console = standard_output()
    for index, (model, result) in enumerate(found.items()):
        console.show(*([""] if index else []), printable(Path(model).name), "", bench_table(result), "")
        console.show(latency_note(result))
        if not result.pinned:
            console.show("threads were not pinned, as the operating system does not lend enough processors")
