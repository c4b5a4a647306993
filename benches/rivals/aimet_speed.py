"""What AIMET's simulation and calibration cost, as ratios to the float model; needs a Python that has AIMET.

python aimet_speed.py MODEL.onnx THREADS ROUNDS

Takes the model of one input ``x`` to random images, and prints a JSON object with the ratios ``simulation``,
``calibration`` (min-max) and ``histogram`` (tf_enhanced), both per sample. Runs are interleaved with the
float model; time is that of the clock, or of the processor if there is one thread.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
from aimet_onnx import QuantizationSimModel

IMAGE = (1, 3, 224, 224)
_WARM = 2


def main(model: str, threads: int, rounds: int) -> None:
    """Prints the ratios."""
    clock = time.process_time if threads == 1 else time.perf_counter
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    plain = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = next(feeds(1))
    result = {}
    for name, scheme in (("calibration", "min_max"), ("histogram", "tf_enhanced")):
        simulation = QuantizationSimModel(
            onnx.load(model),
            quant_scheme=scheme,
            config_file="default",
            session_options_kwargs={"intra_op_num_threads": threads},
        )
        laps = Laps(clock, lambda: plain.run(None, feed), max(rounds, _WARM + 1))
        simulation.compute_encodings(laps)
        result[name] = laps.ratio()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        start = clock()
        plain.run(None, feed)
        middle = clock()
        simulation.session.run(None, feed)
        times[0].append(middle - start)
        times[1].append(clock() - middle)
    result["simulation"] = statistics.median(times[1][1:]) / statistics.median(times[0][1:])
    print(json.dumps(result))


def feeds(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Random images."""
    generator = np.random.default_rng(1)
    return ({"x": generator.standard_normal(IMAGE, np.float32)} for _ in range(count))


class Laps:
    """Feeds that time their reader on each, and run the float model in between."""

    def __init__(self, clock, run, count: int) -> None:  # type: ignore[no-untyped-def]
        self._clock, self._run, self._count = clock, run, count
        self._times: tuple[list[float], list[float]] = ([], [])

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for feed in feeds(self._count):
            start = self._clock()
            self._run()
            middle = self._clock()
            yield feed
            self._times[0].append(middle - start)
            self._times[1].append(self._clock() - middle)

    def ratio(self) -> float:
        """Median time per sample over that of the float model, without the first samples."""
        plain, reader = (statistics.median(times[_WARM:]) for times in self._times)
        return reader / plain


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
