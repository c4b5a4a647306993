"""The options that the commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from onnx import ModelProto

from qc import pipeline_names, resolve_pipeline
from qc.ir.errors import UsageError, nearest
from qc.ir.onnx.lift import load_model
from qc.passes import PipelineFile, parse_pipeline
from qc.passes.quantize.precision.rules import load_rules, rules_of
from qc.passes.quantize.set_precision import with_precision
from qc.runtime import Data, InputInfo, load_data, model_inputs, random_data
from qc.runtime.data.inputs import free_dimensions

from .files import FileType, InputFile, WordType, data_files, model_files, toml_files
from .option_types import MOST_WORKERS, CountType, SizeType
from .output import print_warning

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_PIPELINE = "w8a8"
DEFAULT_RANDOM_SAMPLES = 16
DEFAULT_LAYERS = 10

# Options whose number may be left out.
_NUMBERS = {"--random-data": DEFAULT_RANDOM_SAMPLES, "--layers": DEFAULT_LAYERS}


class JobCommand(click.Command):
    """A command with options that take a value or none: ``--random-data``, ``--layers`` and ``--remarks``.

    Click would take any word that follows for the value, the model included.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Writes the default where no value is given."""
        followers = [*args[1:], ""][: len(args)]
        given = [_with_value(word, next_word) for word, next_word in zip(args, followers, strict=True)]
        return super().parse_args(ctx, given)


def _with_value(word: str, next_word: str) -> str:
    if word == "--remarks":
        return "--remarks="  # fits everything
    default = _NUMBERS.get(word)
    return f"{word}={default}" if default and not next_word.removeprefix("-").isdecimal() else word


size_option = click.option(
    "--size",
    "sizes",
    type=SizeType(),
    multiple=True,
    help="Length of a free dimension of random data, such as sequence=128; may be repeated.",
)
calibration_option = click.option(
    "--calibration", metavar="SRC", type=WordType(), help="Data to calibrate on, if that is not --data."
)
labels_option = click.option(
    "--labels",
    metavar="FILE",
    type=FileType(),
    help="An .npy file with the label of each sample, for metrics that are functions.",
)
json_option = click.option(
    "--json", "json_file", metavar="FILE", type=FileType(), help="Write what was found as JSON, too."
)

_MODEL = click.argument("model", metavar="MODEL.onnx", type=WordType())
_SETTINGS = (
    click.option(
        "--passes", metavar="TEXT", help="Passes to run, such as 'fold-constants,eliminate-identity'."
    ),
    click.option(
        "--pipeline",
        metavar="NAME|FILE",
        type=WordType(),
        help=f"A pipeline of qc, or a .toml file with one.  [default: {DEFAULT_PIPELINE}]",
    ),
    click.option(
        "--set",
        "settings",
        metavar="RULE",
        type=WordType(),
        multiple=True,
        help="Another precision for some tensors, such as 'Conv=w4a8'; may be repeated, later ones win.",
    ),
    click.option(
        "--precision",
        metavar="FILE",
        type=WordType(),
        help="A .toml file with such rules, which come before those of --set.",
    ),
    click.option(
        "--data",
        metavar="SRC",
        type=WordType(),
        help="Data: an .npz or .npy file, a folder of them, a folder of test_data_set_*, or module:function.",
    ),
    click.option(
        "--random-data",
        metavar="[N]",
        type=CountType(),
        help=f"N random samples (default {DEFAULT_RANDOM_SAMPLES}) instead of data, for trying out only.",
    ),
    size_option,
    click.option(
        "--target",
        metavar="NAME|FILE",
        type=WordType(),
        help="What to compile for.  [default: the pipeline's, else ort-cpu]",
    ),
    click.option("--threads", metavar="N", type=CountType(most=MOST_WORKERS), help="Threads of the runtime."),
    click.option(
        "--device",
        metavar="NAME",
        type=WordType(),
        default="auto",
        show_default=True,
        help="Where models run: cpu, cuda, or auto: on a GPU where CUDA can be used.",
    ),
    click.option(
        "--seed",
        metavar="N",
        type=CountType(least=0),
        default=0,
        show_default=True,
        help="Seed of every random choice.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Tell nothing but warnings and errors."),
)


def chosen(kind: type[T], given: Mapping[str, Any]) -> T:
    """A dataclass whose fields are options of a command, filled with what was given for them."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: given[name] for name in names})


def job_options(function: F) -> F:
    """Adds the argument and the options of :class:`Job` to a command."""
    return _MODEL(settings_options(function))


def settings_options(function: F) -> F:
    """Adds the options of :class:`Job` without its model, for a command on several models."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Job:
    """A model, a pipeline, data and a target, as they were given on the command line."""

    model: str
    passes: str | None
    pipeline: str | None
    settings: tuple[str, ...]
    precision: str | None
    data: str | None
    random_data: int | None
    sizes: tuple[tuple[str, int], ...]
    target: str | None
    threads: int | None
    device: str
    seed: int
    quiet: bool

    def compile_options(self) -> dict[str, object]:
        """The options that say how to compile, with what was given for them; None where nothing was."""
        return {
            "--passes": self.passes,
            "--pipeline": self.pipeline,
            "--set": self.settings or None,
            "--precision": self.precision,
            "--target": self.target,
        }

    def chosen_pipeline(self) -> PipelineFile:
        """The pipeline, with the rules of --precision and --set; raises UsageError if something is wrong."""
        file = self._named_pipeline()
        rules = load_rules(self.precision) if self.precision is not None else []
        rules += rules_of(self.settings, "--set")
        return replace(file, pipeline=with_precision(file.pipeline, rules))

    def _named_pipeline(self) -> PipelineFile:
        """The pipeline; raises UsageError if there is no such pipeline, pass or option."""
        if self.passes is not None and self.pipeline is not None:
            raise UsageError("give --passes or --pipeline, not both")
        if self.passes is not None:
            if self.passes.strip() in pipeline_names() or self.passes.endswith(".toml"):
                raise UsageError(
                    f"'{self.passes}' is a pipeline, not a pass; give it as --pipeline {self.passes.strip()}"
                )
            return PipelineFile(parse_pipeline(self.passes), "--passes")
        name = self.pipeline or DEFAULT_PIPELINE
        if not name.endswith(".toml") and name not in pipeline_names():
            known = pipeline_names()
            raise UsageError(
                f"unknown pipeline '{name}'{nearest(name, known)}; known: {', '.join(known)}, or a file "
                "(passes are given with --passes)"
            )
        return resolve_pipeline(name)

    def read(self) -> ModelProto:
        """The model, without its external data; raises ModelError if it cannot be read."""
        return load_model(self.model)

    def inputs(self, proto: ModelProto, pipeline: PipelineFile | None, data_role: str) -> list[InputFile]:
        """The files that the job reads: model, data, pipeline and target."""
        target = self.target or (pipeline.target if pipeline is not None else None)
        return [
            *model_files(self.model, proto, "the input model"),
            *data_files(self.data, data_role),
            *toml_files(self.pipeline, "the pipeline"),
            *([InputFile(Path(self.precision), "the precision file")] if self.precision is not None else []),
            *toml_files(target, "the target"),
        ]

    def feeds(self, proto: ModelProto) -> Data | None:
        """The data for the model, if any is given; warns of random data.

        Raises:
            UsageError: options that contradict each other or the model.
            DataError: there is no such data.
        """
        if self.data is not None and self.random_data is not None:
            raise UsageError("give --data or --random-data, not both")
        if self.sizes and self.random_data is None:
            raise UsageError("--size is for --random-data, which is not given")
        inputs = model_inputs(proto)
        if self.data is not None:
            return load_data(self.data, inputs)
        if self.random_data is None:
            return None
        check_sizes(self.sizes, inputs)
        data = random_data(inputs, self.random_data, self.seed, dict(self.sizes))
        print_warning(
            "--random-data makes meaningless ranges: the result is good for trying out and timing only"
        )
        return data

    @property
    def label(self) -> str:
        """The file name of the model."""
        return Path(self.model).name


def check_sizes(sizes: Sequence[tuple[str, int]], inputs: Sequence[InputInfo]) -> None:
    """Raises UsageError if ``--size`` names what is no free dimension."""
    free = free_dimensions(inputs)
    listed = ", ".join(dict.fromkeys(free.values())) or "none"
    for name, _ in sizes:
        if name not in free and name not in free.values():
            raise UsageError(
                f"--size names '{name}', which no input has{nearest(name, list(free.values()))}; "
                f"free dimensions: {listed}"
            )
