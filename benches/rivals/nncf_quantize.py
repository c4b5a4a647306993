"""Quantizes a model by NNCF, in a Python of its own: ``python nncf_quantize.py JOB.json``.

The job names the model, an ``.npz`` file with the feeds (``0/name``, ``1/name`` and so on), where to write
the result, and the share of the cosine with float that may be lost, 0 for no control of the accuracy. Prints
the seconds that NNCF took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import nncf
import numpy as np
import onnx
import onnxruntime

Feed = dict[str, np.ndarray]


def main() -> None:
    """Does the job."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    model = onnx.load(job["model"])
    feeds = read_feeds(job["feeds"])
    data = nncf.Dataset(feeds)
    if not job["max_drop"]:
        start = time.perf_counter()
        made = nncf.quantize(model, data, subset_size=len(feeds))
    else:
        expected = [run(model, feed) for feed in feeds]

        def cosine(candidate: onnx.ModelProto, items: Iterable[Feed]) -> tuple[float, list[float]]:
            found = [similarity(expected[index], run(candidate, feed)) for index, feed in enumerate(items)]
            return float(np.mean(found)), found

        start = time.perf_counter()
        made = nncf.quantize_with_accuracy_control(
            model, data, data, cosine, max_drop=job["max_drop"], subset_size=len(feeds)
        )
    seconds = time.perf_counter() - start
    onnx.save(made, job["output"])
    print(json.dumps({"seconds": seconds}))


def read_feeds(path: str) -> list[Feed]:
    """The feeds in their order."""
    found: dict[int, Feed] = {}
    with np.load(path) as archive:
        for key in archive.files:
            index, _, name = key.partition("/")
            found.setdefault(int(index), {})[name] = archive[key]
    return [found[index] for index in sorted(found)]


def run(model: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    """The outputs of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    key = id(model)
    if key not in SESSIONS:
        SESSIONS.clear()
        SESSIONS[key] = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    return list(SESSIONS[key].run(None, feed))


def similarity(expected: list[np.ndarray], found: list[np.ndarray]) -> float:
    """The lowest cosine of an output."""
    values = []
    for one, other in zip(expected, found, strict=True):
        x, y = (array.astype(np.float64).reshape(-1) for array in (one, other))
        length = np.linalg.norm(x) * np.linalg.norm(y)
        values.append(float(x @ y / length) if length else float(np.array_equal(x, y)))
    return min(values)


SESSIONS: dict[int, onnxruntime.InferenceSession] = {}

if __name__ == "__main__":
    main()
