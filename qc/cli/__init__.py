"""The command ``qc``.

What was asked for goes to standard output, everything told about the work goes to standard error. The exit
codes are those of :mod:`qc.ir.errors`, and 130 after an interrupt, 141 after a closed pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from qc.coverage import CoverageError
from qc.ir.errors import QcError, nearest
from qc.report.coverage import coverage_summary
from qc.report.terminal import facts_grid

from .benching import bench_command
from .checking import check_command
from .collecting import merge_command, observe_command
from .compilation import compile_command
from .configuring import convert_config_command, explain_config_command
from .diffing import diff_command
from .encodings import encodings_group
from .evaluation import eval_command
from .explaining import explain_match
from .group import CommandGroup, PipeClosedError
from .inspection import inspect_command
from .listing import help_command, list_passes, list_pipelines, list_supergroups, list_targets
from .output import print_error, print_note, print_traceback, silence_closed_pipe, standard_error
from .reproducing import repro_command
from .searching import bisect_command, reduce_command
from .sensitivity import sensitivity_command
from .texts import parse_command, print_command
from .viewing import view_command
from .weights import weights_command
from .why import why_command

__all__ = ["cli", "main"]

INTERRUPTED = 130
PIPE_CLOSED = 141
DEFECT = 6

cli = CommandGroup(
    "qc",
    help="qc is a quantization compiler for ONNX: it takes a float model and gives back a quantized one.",
    default=compile_command,
    sections={
        "Quantize": [compile_command, observe_command, merge_command],
        "Judge the result": [eval_command, bench_command, check_command, sensitivity_command, diff_command],
        "Look inside": [
            inspect_command,
            view_command,
            why_command,
            weights_command,
            print_command,
            parse_command,
            explain_match,
        ],
        "Encodings and configurations of AIMET": [
            encodings_group,
            explain_config_command,
            convert_config_command,
        ],
        "Find what goes wrong": [bisect_command, reduce_command, repro_command],
        "Learn": [help_command, list_passes, list_pipelines, list_targets, list_supergroups],
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; ``arguments`` default to those of the process.

    Every failure is one sentence on standard error. With ``QC_TRACEBACK=1`` in the environment the Python
    traceback comes before it.
    """
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        code = cli.main(given, "qc", standalone_mode=False, obj=given)
    except PipeClosedError:
        silence_closed_pipe()
        return PIPE_CLOSED
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("QC_TRACEBACK"):
            print_traceback()
        if isinstance(error, CoverageError):
            standard_error().show(facts_grid(coverage_summary(error.coverage)))
        sentence, code = _explain(error)
        print_error(sentence)
        for note in getattr(error, "__notes__", ()):
            print_note(note)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[str, int]:
    """The sentence for an error and its exit code."""
    if isinstance(error, QcError):
        return str(error), error.exit_code
    if isinstance(error, click.ClickException):
        return _usage_sentence(error), QcError.exit_code
    if isinstance(error, OSError) and error.strerror:
        place = f" at '{error.filename}'" if error.filename is not None else ""
        return f"the operating system refused{place}: {error.strerror}", QcError.exit_code
    detail = " ".join(str(error).split())
    return (
        f"qc failed with {type(error).__name__}{': ' if detail else ''}{detail}; this is a defect of qc, "
        "please report it with the command and what it prints with QC_TRACEBACK=1 in the environment"
    ), DEFECT


def _usage_sentence(error: click.ClickException) -> str:
    """Click's message in the form of qc's own: one sentence that begins small and ends without a period."""
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption):  # worded differently by every version of click
        name = error.option_name
        message = f"no such option '{name}'{nearest(name, list(error.possibilities or []))}"
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "qc"
    if path == f"qc {cli.default.name}":
        path = "qc"
    return f"{message[:1].lower()}{message[1:]}; '{path} --help' shows how it is used"
