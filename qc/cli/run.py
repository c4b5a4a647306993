"""Running the commands, and telling in one sentence what went wrong."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from qc.ir.errors import QcError, UsageError, nearest

from .group import MainGroup, PipeClosedError
from .sections import COMMANDS
from .supervise import EndedBySignal

PIPE_CLOSED = 141
DEFECT = 6

cli = MainGroup(
    f"{__package__}.commands",
    help="qc is a quantization compiler for ONNX: it takes a float model and gives back a quantized one.",
    default="compile",
    sections=COMMANDS,
    running=[*COMMANDS["Quantize"], *COMMANDS["Judge the result"], *COMMANDS["Find what goes wrong"]],
)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit code; raises KeyboardInterrupt if it is interrupted."""
    try:
        code = cli.main(arguments, "qc", standalone_mode=False, obj=arguments)
    except PipeClosedError:
        _silence_closed_pipe()
        return PIPE_CLOSED
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except EndedBySignal:
        raise
    except SystemExit as error:
        return _tell(_ended_by_python(error))
    except Exception as error:
        asked = _end_behind(error)
        if asked is not None:
            raise asked from error
        return _tell(error)
    return code if isinstance(code, int) else 0


def _end_behind(error: BaseException | None) -> BaseException | None:
    """The interrupt, or the end by a signal, that is the cause: a library that is being imported makes it an
    ImportError."""
    if error is None or isinstance(error, KeyboardInterrupt | EndedBySignal):
        return error
    return _end_behind(error.__cause__)


def _ended_by_python(error: SystemExit) -> UsageError:
    """What to say where a Python file of the user's ends the process, as scripts do that are no modules."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "_sitebuiltins" not in one.filename]
    place = f" in line {frames[-1].lineno} of '{frames[-1].filename}'" if frames else ""
    return UsageError(
        f"Python code that was given ended qc by sys.exit({error.code!r}){place}; let only "
        "if __name__ == '__main__' run what a script does"
    )


def _tell(error: Exception) -> int:
    """Says what went wrong; the exit code."""
    from qc.coverage import CoverageError
    from qc.rendering.coverage import coverage_summary
    from qc.rendering.terminal import facts_grid

    from .output import print_error, print_note, print_traceback, standard_error

    if os.environ.get("QC_TRACEBACK"):
        print_traceback()
    if isinstance(error, CoverageError):
        standard_error().show(facts_grid(coverage_summary(error.coverage)))
    sentence, code = _explain(error)
    print_error(sentence)
    for note in getattr(error, "__notes__", ()):
        print_note(note)
    return code


def _silence_closed_pipe() -> None:
    """Keeps Python from complaining at exit that it cannot flush what nobody reads."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(devnull, stream.fileno())


def _explain(error: Exception) -> tuple[str, int]:
    """The sentence for an error and its exit code."""
    if isinstance(error, QcError):
        return str(error), error.exit_code
    if isinstance(error, click.ClickException):
        return _usage_sentence(error), QcError.exit_code
    if isinstance(error, FileNotFoundError) and error.filename is None and not _is_somewhere():
        return "the current folder does not exist any more; change to one that does", QcError.exit_code
    if isinstance(error, OSError) and error.strerror:
        place = f" at '{error.filename}'" if error.filename is not None else ""
        return f"the operating system refused{place}: {error.strerror}", QcError.exit_code
    detail = " ".join(str(error).split())
    return (
        f"qc failed with {type(error).__name__}{': ' if detail else ''}{detail}; this is a defect of qc, "
        "please report it with the command and what it prints with QC_TRACEBACK=1 in the environment"
    ), DEFECT


def _is_somewhere() -> bool:
    """Whether the current folder is still there; that of a process may be deleted."""
    try:
        return Path.cwd().is_dir()
    except FileNotFoundError:
        return False


def _hint_of_extra(message: str, context: click.Context) -> str:
    """How a word is given without an option: a pipeline, or what looks like a model or like data."""
    extra = re.match(r"Got unexpected extra arguments? \(([^\s)]+)", message)
    if extra is None:
        return ""
    from qc.named_pipelines import pipeline_names  # which imports the passes: only where it is wanted

    given = context.params.get("model")
    if given in pipeline_names():
        return f": a pipeline is given as --pipeline {given}"
    if extra[1] == "%":
        return ": a number and its % are written without a blank, as in 5%"
    if extra[1].startswith("="):
        return f": what an option gets is written right behind it, as in --OPTION{extra[1]}"
    if not (re.search(r"[./:]", extra[1]) or Path(extra[1]).exists()):  # neither a file nor a function
        return ""
    name = "quantized" if extra[1].endswith(".onnx") else "data"
    what = {"quantized": "a model to compare with is given as", "data": "data is given as"}[name]
    is_option = any(one.name == name for one in context.command.params)
    return f": {what} --{name} {extra[1]}" if is_option else ""


def _usage_sentence(error: click.ClickException) -> str:
    """Click's message in the form of qc's own: one sentence that begins small and ends without a period."""
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption):  # worded differently by every version of click
        name = error.option_name
        why = getattr(error.ctx and error.ctx.command, "elsewhere", {}).get(name)
        hint = f": {why}" if why else nearest(name, list(error.possibilities or []))
        message = f"no such option '{name}'{hint}"
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        message += _hint_of_extra(message, error.ctx)
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "qc"
    return f"{message[:1].lower()}{message[1:]}; '{path} --help' shows how it is used"
