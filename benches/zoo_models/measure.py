"""One model of the zoo, in a process of its own: compiled, opened, compared, read back.

    python benches/zoo_models/measure.py < REQUEST

The request is JSON: the model, the pipeline, the seconds for timing, the file of the answer, and what the
inputs are fed with. The answer is written after each step, so that it names the one that the process did not
survive.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from feeds import Content, kinds_of

import qc
from qc.ir.executor import Feed
from qc.ir.onnx.save import external_files
from qc.runtime import evaluate, model_inputs

CALIBRATION, EVALUATION = 16, 8
_SEED = 20
_MEMORY = 10 << 30
_ROUNDS = 11, 200  # at least, and at most


def main(measuring: Callable[[Answer, Path, Mapping[str, Any]], None]) -> None:
    """Does what the request says: ``measuring`` gets the answer to fill, the model and the request."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    answer = Answer(Path(request["answer"]))
    try:
        measuring(answer, Path(request["model"]), request)
    except qc.QcError as error:
        answer.end(f"refused: {error}".replace(f"{Path(request['model']).parent}/", ""))
    except Exception as error:  # whatever it is, it is a line of the table
        traceback.print_exc()
        answer.end(f"defect: {type(error).__name__}: {error}")


class Answer:
    """What is known so far, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.row: dict[str, Any] = {}

    def step(self, name: str) -> None:
        """Says what is being done now."""
        self.end(f"killed while it was to {name}")

    def end(self, outcome: str, **numbers: float | str | None) -> None:
        """Says how it came out."""
        self.row |= {"outcome": outcome, **numbers}
        self.path.write_text(json.dumps(self.row))


def feeds_that_run(answer: Answer, path: Path, request: Mapping[str, Any]) -> list[Feed] | None:
    """Feeds for a float model; None if ONNX Runtime does not run it, which the answer says."""
    answer.step("run the float model")
    data, feeds = make_feeds(path, request)
    answer.end("", data=data)
    try:
        run_plainly(path, feeds[0])
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        answer.end(f"ONNX Runtime does not run it: {error}"[:200])
        return None
    return feeds


def measure(answer: Answer, path: Path, request: Mapping[str, Any]) -> None:
    """Fills the answer step by step."""
    feeds = feeds_that_run(answer, path, request)
    if feeds is None:
        return
    calibration, rest = feeds[:-EVALUATION], feeds[-EVALUATION:]
    if request["times_only"]:
        calibration = calibration[:2]
    answer.step("compile")
    begin = time.process_time()
    compiled = qc.compile(path, request["pipeline"], data=calibration, threads=1)
    answer.end("", compile_seconds=time.process_time() - begin)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.onnx")
        compiled.save(result)
        answer.end("", size_ratio=size_of(result) / size_of(path))
        answer.step("run the result")
        run_plainly(result, feeds[0])
        answer.step("time")
        answer.end("", latency_ratio=time_ratio(path, result, rest[0], request["seconds"]))
        if not request["times_only"]:
            answer.step("compare")
            compare(answer, path, result, rest)
            answer.step("check")
            check(answer, result, rest)
    answer.end("ok")


def make_feeds(path: Path, request: Mapping[str, Any]) -> tuple[str, list[Feed]]:
    """What the feeds show, and the feeds: those of calibration, then those to compare on."""
    inputs = [info for info in model_inputs(onnx.load(path, load_external_data=False)) if not info.optional]
    contents = {name: Content.parse(text) for name, text in request["inputs"].items()}
    for info in inputs:
        sizes = tuple(size if isinstance(size, int) else 1 for size in info.shape or ())
        contents.setdefault(info.name, Content("zeros", sizes))
    random = np.random.default_rng(_SEED)
    feeds: list[Feed] = [
        {info.name: contents[info.name].draw(random, info.dtype or np.dtype(object)) for info in inputs}
        for _ in range(CALIBRATION + EVALUATION)
    ]
    return kinds_of(contents), feeds


def run_plainly(path: Path, feed: Feed) -> None:
    """Opens and runs a model as any application does."""
    opened(path).run(None, dict(feed))


def opened(path: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """A session; 0 threads are as many as ONNX Runtime takes by itself."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def size_of(path: Path) -> int:
    """Bytes of a model with its external data."""
    proto = onnx.load(path, load_external_data=False)
    return sum(file.stat().st_size for file in (path, *external_files(proto, path.parent)))


def time_ratio(path: Path, result: Path, feed: Feed, seconds: float) -> float:
    """The processor time of the result over that of float: one thread, in turns, the median of rounds."""
    sessions = [opened(path, threads=1), opened(result, threads=1)]
    for session in sessions:
        session.run(None, dict(feed))
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < _ROUNDS[0] or (len(ratios) < _ROUNDS[1] and time.perf_counter() < end):
        taken = [0, 0]
        for index in (0, 1) if len(ratios) % 2 else (1, 0):
            begin = time.thread_time_ns()
            sessions[index].run(None, dict(feed))
            taken[index] = time.thread_time_ns() - begin
        ratios.append(taken[1] / taken[0])
    return float(np.median(ratios))


def compare(answer: Answer, path: Path, result: Path, feeds: list[Feed]) -> None:
    """The worst SQNR of any output."""
    score = evaluate(path, {"result": result}, feeds, latency_seconds=0).candidates[0]
    sqnr = score.worst_sqnr_db
    answer.end("", sqnr_db=sqnr if np.isfinite(sqnr) else None)


def check(answer: Answer, result: Path, feeds: list[Feed]) -> None:
    """The shares that run in integers."""
    checked = qc.check(result, feeds=feeds)
    timed = {op.runs_as: op.seconds for op in checked.ops if op.runs == "integer"}
    of_time = sum(timed.values()) / checked.seconds if checked.seconds else None
    answer.end("", integer_operations=checked.share, integer_time=of_time)


if __name__ == "__main__":
    main(measure)
