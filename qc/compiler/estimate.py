"""How much noise quantization leaves at the outputs, estimated on a few samples right after a compilation."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

from qc.ir.errors import QcError
from qc.runtime import Data, OpenModel, parse_metric
from qc.runtime.evaluation.judge import judge

from .compilation import Compilation
from .compiled import Compiled

POOR_DECIBELS = 15.0
_SAMPLES = 4
_SHARE = 0.05  # of the time that the compilation took


def output_decibels(compilation: Compilation, compiled: Compiled, data: Data) -> float | None:
    """The SQNR at the worst output beside the float model, in dB; None where the result does not run here.

    One sample is looked at in any case, and up to four while that takes little beside the compilation.
    """
    end = time.monotonic() + _SHARE * compiled.report.seconds
    tally = parse_metric("sqnr").start()
    settings: dict[str, Any] = {"base_dir": compilation.base_dir, "threads": 1}  # more take longer to start
    try:
        reference = OpenModel(compilation.reference(), **settings)
        made = OpenModel(compiled.model, **settings)
        for number, feed in enumerate(islice(data, _SAMPLES)):
            if number and time.monotonic() > end:
                break
            judge(reference, [(made, [tally])], [feed])
        return tally.value()
    except QcError:  # another device may run what ONNX Runtime does not, and outputs may be no floats
        return None
