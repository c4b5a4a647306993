"""AIMET's automatic mixed precision on a task with labels; needs a Python that has AIMET, not qc.

    AIMET/bin/python benches/rivals/aimet_mixed.py MODELS TASK w4a8,w8a8,w8a16

For each allowed drop it prints a JSON object in a line: ``name``; ``bits`` of a weight, on average;
``operations``, bits of a weight times bits of data in the mean of all multiplications, as AIMET counts
them; ``score`` of the task, of the simulation; and ``seconds`` that the choice took. Groups are ranked by
the noise at the first output on the first feeds to calibrate on. The drop is that of the share of rows in
which the largest number stays where float has it, on more of these feeds: as qc does, AIMET sees no labels.
What the first drop ranked is used again for the others.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from aimet_onnx import QuantizationSimModel
from aimet_onnx.amp.mixed_precision_algo import GreedyMixedPrecisionAlgo
from aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight
from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType

DROPS = (0.01, 0.05, 0.2)
RANKING_FEEDS, JUDGING_FEEDS = 4, 16

Candidate = tuple[tuple[int, Any], tuple[int, Any]]


class Callbacks:
    """What AIMET asks for, beside the outputs of the float model."""

    def __init__(self, model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> None:
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.feeds = feeds
        self.expected = [session.run(None, feed)[0] for feed in feeds]

    def calibrate(self, session: ort.InferenceSession, _: object = None) -> None:
        """Runs the feeds."""
        for feed in self.feeds:
            session.run(None, feed)

    def sqnr(self, session: ort.InferenceSession, _: object) -> float:
        """The ratio of signal to noise on the first feeds, in dB."""
        signal = noise = 1e-30
        for feed, expected in islice(zip(self.feeds, self.expected, strict=True), RANKING_FEEDS):
            signal += float(np.square(expected).sum())
            noise += float(np.square(session.run(None, feed)[0] - expected).sum())
        return 10 * float(np.log10(signal / noise))

    def agreement(self, session: ort.InferenceSession, _: object) -> float:
        """The share of rows whose largest number is where float has it."""
        same = [
            (session.run(None, feed)[0].argmax(-1) == expected.argmax(-1)).ravel()
            for feed, expected in zip(self.feeds, self.expected, strict=True)
        ]
        return float(np.concatenate(same).mean())


def main() -> None:
    """Chooses for each drop; what AIMET itself prints goes to the standard error output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    models, name, candidates = Path(sys.argv[1]), sys.argv[2], list(map(candidate, sys.argv[3].split(",")))
    spec = importlib.util.spec_from_file_location("score", models / "score.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = module.TASKS[name]()
    path = models / "models" / task.model
    callbacks = Callbacks(onnx.load(path), list(islice(task.calib(), JUDGING_FEEDS)))
    with tempfile.TemporaryDirectory() as folder:
        for number, drop in enumerate(DROPS):
            start = time.perf_counter()
            sim, operations = mixed(path, candidates, callbacks, drop, folder, clean=number == 0)
            seconds = time.perf_counter() - start
            score = task.evaluate(lambda feed, sim=sim: sim.session.run(None, feed))[task.metric]
            row = {"bits": bits(sim), "operations": operations, "score": score, "seconds": seconds}
            print(json.dumps({"name": f"AMP, drop {drop:g}", **row}), file=answers, flush=True)


def candidate(text: str) -> Candidate:
    """Reads ``w4a8``; activations come first."""
    match = re.fullmatch(r"w(\d+)a(\d+)", text)
    assert match is not None, f"{text} is no candidate"
    kind = QuantizationDataType.int
    return (int(match[2]), kind), (int(match[1]), kind)


def mixed(
    path: Path, candidates: list[Candidate], callbacks: Callbacks, drop: float, folder: str, clean: bool
) -> tuple[Any, float]:
    """The simulation that AIMET chooses, and its operations."""
    model = onnx.load(path)
    fold_all_batch_norms_to_weight(model)
    sim = QuantizationSimModel(
        model, quant_scheme="min_max", config_file="default", dummy_input=callbacks.feeds[0]
    )
    sim.compute_encodings(callbacks.feeds)
    search = GreedyMixedPrecisionAlgo(  # as choose_mixed_precision does, which hides where it begins
        sim,
        candidates,
        CallbackFunc(callbacks.sqnr),
        CallbackFunc(callbacks.agreement),
        folder,
        clean,
        CallbackFunc(callbacks.calibrate),
        use_all_amp_candidates=True,
        phase1_optimize=True,
    )
    search.run(drop)
    (data, _), (weight, _) = search.baseline_candidate
    if search.pareto_list is None:  # everything has one candidate: that of least score, or that of the most
        if search.fp32_accuracy - search.min_accuracy < drop:
            (data, _), (weight, _) = search.min_candidate
        return sim, data * weight
    fitting = [relative for relative, score, *_ in search.pareto_list if score >= search.fp32_accuracy - drop]
    return sim, data * weight * (fitting[-1] if fitting else 1.0)


def bits(sim: Any) -> float:
    """Bits of a weight, on average over all elements of tensors of two and more axes; 32 for float."""
    weights = {one.name: one.dims for one in sim.model.model.graph.initializer if len(one.dims) > 1}
    total = size = 0
    for name, quantizer in sim.qc_quantize_op_dict.items():
        if name in weights:
            count = int(np.prod(weights[name]))
            size += count
            total += count * (quantizer.bitwidth if quantizer.enabled else 32)
    return total / size


if __name__ == "__main__":
    main()
