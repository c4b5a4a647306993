"""The options that commands share. Imports nothing that takes time: the help of ``qc`` shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from qc.compiler import MOST_WORKERS, Compilation
from qc.ir.base.fix_shape import named_length
from qc.options import Given, argument, option, single, some_of

from .preparing import Preparing

DEFAULT_PIPELINE = "w8a8"
DEFAULT_RANDOM_SAMPLES = 16
DEFAULT_THREADS = 1  # where time is measured


def size(text: str) -> tuple[str, int]:
    """``NAME=N``: the length of a free dimension."""
    return named_length(single(text))


def memory_size(text: str) -> int:
    """``2GB``, ``1.5 GiB`` or a number of bytes."""
    match = re.fullmatch(r"(\d{1,30}(?:\.\d+)?) ?(?:([KMGT])(i?)B?|B)?", text, re.IGNORECASE)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is not a size such as 500MB or 2GB")
    power = " KMGT".index((match[2] or " ").upper())
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def key_and_value(text: str) -> tuple[str, str]:
    """``KEY=VALUE``: an option in somebody else's words."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def device_options_option() -> Any:
    """``--device-option``."""
    return option(
        (),
        "An option of the device itself, such as htp_arch=75 of qnn-htp; may be repeated.",
        "--device-option",
        metavar="KEY=VALUE",
        parse=key_and_value,
    )


def size_option() -> Any:
    """``--size``."""
    return option(
        (),
        "Length of a free dimension of random data, such as sequence=128; may be repeated.",
        "--size",
        metavar="NAME=N",
        parse=size,
    )


def json_option() -> Any:
    """``--json``."""
    return option(None, "Write what was found as JSON, too.", "--json", metavar="FILE")


def quiet_option() -> Any:
    """``--quiet``."""
    return option(False, "Tell nothing but warnings and errors.", "-q")


def labels_option() -> Any:
    """``--labels``."""
    return option(
        None, "An .npy file with the label of each sample, for metrics that are functions.", metavar="FILE"
    )


def calibration_option() -> Any:
    """``--calibration``."""
    return option(None, "Data to calibrate on, if that is not --data.", metavar="SRC")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to do with a model, whichever it is.

    Attributes:
        chosen: options of :class:`qc.Compilation`, by name.
    """

    passes: str | None = option(
        None, "Passes to run, such as 'fold-constants,eliminate-identity'.", metavar="TEXT", parse=str
    )
    pipeline: str | None = option(
        None,
        f"A pipeline of qc, or a .toml file with one.  [default: {DEFAULT_PIPELINE}]",
        metavar="NAME|FILE",
    )
    options: tuple[str, ...] = option(
        (),
        "Set an option of a pass of the pipeline, such as calibrate.method=percentile; may be repeated.",
        "--opt",
        metavar="PASS.OPTION=VALUE",
    )
    append: str | None = option(
        None, "Passes to run behind those of the pipeline, such as to-encodings.", metavar="TEXT"
    )
    config: str | None = option(
        None,
        "Another configuration of AIMET for a pipeline that takes one, such as quantsim: htp_v73, or a file.",
        metavar="NAME|FILE",
    )
    rules: tuple[str, ...] = option(
        (),
        "Another precision for some tensors, such as 'Conv=w4a8'; may be repeated, later ones win.",
        "--set",
        metavar="RULE",
    )
    precision: str | None = option(
        None, "A .toml file with such rules, which come before those of --set.", metavar="FILE"
    )
    data: str | None = option(
        None,
        "Data: an .npz or .npy file, a picture, text, audio, .csv or .parquet, a folder of such files or of "
        "test_data_set_*, or module:function or file.py:function.",
        metavar="SRC",
    )
    preparing: Preparing
    random_data: int | None = option(
        None,
        f"N random samples (default {DEFAULT_RANDOM_SAMPLES}) instead of data, for trying out only.",
        metavar="[N]",
        bare=DEFAULT_RANDOM_SAMPLES,
    )
    sizes: tuple[tuple[str, int], ...] = size_option()
    chosen: Given = some_of(Compilation, "target", "fix_shapes", "fix_inputs", "threads", "device", "seed")
    quiet: bool = quiet_option()


@dataclass(frozen=True, kw_only=True)
class Job(Settings):
    """A model, a pipeline, data and a target, as they were given on the command line."""

    model: str = argument("MODEL.onnx")

    @property
    def label(self) -> str:
        """The file name of the model."""
        return Path(self.model).name


@dataclass(frozen=True, kw_only=True)
class Collecting:
    """How statistics are collected."""

    jobs: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = option(
        None, "Calibrate in so many processes.", metavar="N"
    )
    cache: Path | None = option(
        None,
        "Keep statistics in a folder, to go on after a kill and not to collect them twice.",
        metavar="DIR",
        envvar="QC_CACHE",
    )

    memory: int | None = option(
        None,
        "About how much memory statistics may take, such as 2GB; beyond it the data is read again.",
        metavar="SIZE",
        parse=memory_size,
    )


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is wanted of the result of a compilation."""

    output: Path | None = option(
        None,
        "Where to write the result.  [default: MODEL.q.onnx in the current folder]",
        "-o",
        metavar="FILE",
    )
    also_for: tuple[str, ...] = option(
        (),
        "Compile for this target, too, with the same calibration; may be repeated.",
        metavar="NAME|FILE",
    )
    emit: Literal["qnn-context", "qnn-dlc", "rknn"] | None = option(
        None,
        "Also write what the device's compiler makes of the result: for Qualcomm's HTP a context binary, "
        "or the graph as a DLC; for Rockchip's NPUs a model of theirs.",
        metavar="KIND",
    )
    device_options: tuple[tuple[str, str], ...] = device_options_option()
    verbose: bool = option(False, "List every tensor that stays float, and why.", "-v")
    coverage: Path | None = option(None, "Write the whole coverage as JSON.", metavar="FILE")
    no_verdict: bool = option(
        False,
        "Leave out the comparison with the float model, which takes a few seconds.",
        envvar="QC_NO_VERDICT",
    )
    chosen: Given = some_of(Compilation, "fail_if_unquantized", "allow_unquantized", "statistics")


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What is kept of a defect of qc."""

    reproducer: Path | None = option(
        None,
        "Where to keep what shows a defect of qc again.  [default: MODEL.reproducer]",
        metavar="DIR",
    )
    no_reproducer: bool = option(False, "Keep nothing of a defect of qc.")


@dataclass(frozen=True, kw_only=True)
class Instrumentation:
    """What is to be seen of a compilation: what each pass saw, did and decided, and how long it took."""

    print_before: tuple[str, ...] = option(
        (), "Print the model before a pass; may be repeated.", metavar="PASS|all"
    )
    print_after: tuple[str, ...] = option(
        (),
        "Print the model after a pass, or after each one that changed it; may be repeated.",
        metavar="PASS|all|changed",
    )
    print_diff: bool = option(False, "Print the lines that each pass changed.")
    dump_dir: Path | None = option(None, "Write the model after every pass into a folder.", metavar="DIR")
    checks: Given = some_of(Compilation, "verify_each", "check_analyses")
    time: bool = option(False, "Show time, memory and analyses of every pass.")
    stats: bool = option(False, "Show how often each rule was applied.")
    remarks: str | None = option(
        None,
        "Show what was done and decided, and why; all of it, or what fits.",
        metavar="[=REGEX]",
        parse=str,
        bare="",  # fits everything
    )
    remarks_out: Path | None = option(None, "Write all remarks, as JSON, one on a line.", metavar="FILE")
    limit: Given = some_of(Compilation, "action_limit")
