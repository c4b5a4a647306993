"""One model of the zoo on a device, in a process of its own: compiled, checked, run, compared.

    python benches/zoo_models/measure_on.py < REQUEST

The request is that of ``measure.py`` with the name of a device, ``on``. Free dimensions get the lengths of
the first feed, and inputs of one number its value, unless they are to stay, ``free``.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from measure import Answer, feeds_that_run, main

import qc
from qc.ir.executor import Feed
from qc.ir.onnx.load import load_model
from qc.runtime import Runnable, evaluate, model_inputs
from qc.runtime.data.inputs import free_dimensions
from qc.runtime.devices.known import open_device

CALIBRATION, EVALUATION = 6, 2  # emulators are slow
OPTIONS = {"openvino": {"INFERENCE_PRECISION_HINT": "f32"}}  # or floats may be of 16 bits
_NAMES = re.compile(r"`[^`]*`|'[^']*'")


def measure_on(answer: Answer, path: Path, request: Mapping[str, Any]) -> None:
    """Fills the answer step by step."""
    on = request["on"]
    feeds = feeds_that_run(answer, path, request)
    if feeds is None:
        return
    answer.step("compile")
    lengths, values = fixed_interface(path, feeds[0]) if not request["free"] else ((), ())
    with timed(answer, "compile_seconds"):
        compiled = qc.compile(
            path,
            request["pipeline"],
            data=feeds[:CALIBRATION],
            target=on,
            fix_shapes=lengths,
            fix_inputs=values,
            threads=1,
        )
    answer.step("check")
    with timed(answer, "check_seconds"):
        check(answer, compiled, on, path.parent)
    compare(answer, path, compiled, feeds[-EVALUATION:], on)
    answer.end("ok")


def fixed_interface(path: Path, feed: Feed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lengths that a feed has for free dimensions, and its numbers for inputs without dimensions."""
    lengths = []
    for place, name in free_dimensions(model_inputs(load_model(path))).items():
        given, _, axis = place.rstrip("]").rpartition("[")
        lengths.append(f"{name}={feed[given].shape[int(axis)]}")
    values = [f"{name}={array}" for name, array in feed.items() if not np.ndim(array)]
    return tuple(dict.fromkeys(lengths)), tuple(values)


@contextmanager
def timed(answer: Answer, name: str) -> Iterator[None]:
    """Adds the seconds of what is done within; an emulator works in another process."""
    begin = time.perf_counter()
    yield
    answer.end(answer.row["outcome"], **{name: time.perf_counter() - begin})


def check(answer: Answer, compiled: qc.Compiled, on: str, base_dir: Path) -> None:
    """What the device accepts, what it runs in integers, and why not all."""
    found = qc.check(compiled.model, on, base_dir=base_dir)
    ops = max(len(found.counted), 1)
    refused = [f"{op.op_type}: {_NAMES.sub('..', op.why)}" for op in found.counted if op.runs == "refused"]
    whole = [f"as a whole: {why}" for _, rule, why in found.broken if rule == "not opened"]
    answer.end(
        answer.row["outcome"],
        accepted=1 - len(refused) / ops if not whole else 0.0,
        integer_ops=sum(op.runs == "integer" for op in found.counted) / ops,
        refused="\n".join([*whole, *(f"{number} {why}" for why, number in Counter(refused).most_common())]),
    )


def compare(answer: Answer, reference: Path, compiled: qc.Compiled, feeds: list[Feed], on: str) -> None:
    """The worst SQNR of any output, of simulations and of the device."""

    def score(column: str, candidate: Runnable) -> None:
        sqnr = evaluate(reference, {column: candidate}, feeds, latency_seconds=0).candidates[0].worst_sqnr_db
        answer.end(answer.row["outcome"], **{column: sqnr if np.isfinite(sqnr) else None})

    answer.step("simulate")
    score("simulation_db", compiled.open_simulation(threads=1))
    if compiled.target.arithmetic:
        answer.step("simulate the device")
        simulated = qc.compile(compiled.model, f"import-qdq, to-simulation{{device={on}}}")
        score("arithmetic_db", simulated.open_simulation(threads=1))
    answer.step(f"run on {on}")
    with timed(answer, "run_seconds"):
        device = open_device(on, OPTIONS.get(on, {}))
        score("device_db", device.open(compiled.model, base_dir=reference.parent))


if __name__ == "__main__":
    main(measure_on)
