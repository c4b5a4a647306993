"""Where AIMET's placement alone is not enough: what is left of a signal, beside what AIMET leaves of it.

AIMET's numbers were measured with aimet-onnx 2.42 on the same models and feeds. They are measured again where
``QC_AIMET_PYTHON`` names a Python that has it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx import ModelProto
from support.benches import import_bench
from support.graph_text import build_model
from support.pipelines import run_model

from qc.compat.aimet_onnx import QuantizationSimModel

from .networks import typed

Feed = dict[str, np.ndarray]
Decibels = dict[str, float]

_RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "W": _RANDOM.normal(size=(4, 4, 3, 3)),
    "W1": _RANDOM.normal(size=(4, 1, 3, 3)),
    "LW": _RANDOM.normal(size=(1, 16, 8)),
    "LR": _RANDOM.normal(size=(1, 16, 4)),
    "flat": np.array([6, 4]),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "small": np.float32(0.05),
    "large": np.float32(5),
    "numbers": 5 * _RANDOM.normal(size=(1, 4, 8, 8)),
}
AVERAGE = "c = Conv(x, W); a = AveragePool<kernel_shape=[3,3]>(c); y = Relu(a)"
LINEAR = 'c = Conv(x, W); a = Resize<mode="linear">(c, none, twice); y = Relu(a)'
CUBIC = 'c = Conv(x, W); s = Sigmoid(c); a = Resize<mode="cubic">(s, none, twice); y = Mul(a, a)'
MOVED = "c = Conv(x, W); t = Transpose<perm=[0,2,3,1]>(c); y = Relu(t)"
SPLIT = "c = Conv(x, W); a, b = Split<axis=1>(c); y = Relu(a)"
STATES = "s = LSTM<hidden_size=4>(q, LW, LR); t = Reshape(s, flat); y = Relu(t)"
DEPTHWISE = "c = Conv<group=4>(x, W1); y = Relu(c)"
SMALL_FIRST = "a = Mul(x, small); b = Mul(x, large); y = Concat<axis=0>(a, b)"
LARGE_FIRST = "b = Mul(x, large); a = Mul(x, small); y = Concat<axis=0>(a, b)"
WITH_CONSTANT = "a = Mul(x, small); y = Concat<axis=0>(a, numbers)"


@dataclass(frozen=True)
class Case:
    """A model with a configuration, and what is left of its outputs.

    Attributes:
        aimet: signal over noise of the outputs of AIMET's simulation, in dB.
        least: what qc must reach, where that is not what AIMET does.
        size: of the input, as a standard deviation.
    """

    body: str
    config: str
    aimet: Decibels
    least: Decibels = field(default_factory=dict)
    scheme: str = "min_max"
    size: float = 1.0

    def __str__(self) -> str:
        return f"{self.body} ({' '.join(self.aimet)}, {self.config}, {self.scheme})"

    @property
    def model(self) -> ModelProto:
        """The float model."""
        inputs = "float[3,2,8] q" if "q" in self.body else "float[1,4,8,8] x"
        return typed(build_model(self.body, " ".join(self.aimet), inputs, constants=CONSTANTS))

    def feeds(self) -> list[Feed]:
        """Random inputs."""
        name, shape = ("q", (3, 2, 8)) if "q" in self.body else ("x", (1, 4, 8, 8))
        random = np.random.default_rng(1)
        return [{name: (self.size * random.normal(size=shape)).astype(np.float32)} for _ in range(4)]


CASES = [
    # what a Relu needs is what its input needs only where nothing else reads it, or computes in between
    Case(AVERAGE, "default", {"y": 31.3}),
    Case(AVERAGE, "default", {"y": 31.3, "c": 38.3}),
    Case(AVERAGE, "htp_v66", {"y": -2.2}, {"y": 31.3}),
    Case(AVERAGE, "htp_v73", {"y": -2.2, "c": 3.0}, {"y": 31.2, "c": 38.3}),
    Case(AVERAGE, "htp_v73", {"y": -2.2, "a": -2.0}, {"y": 31.2, "a": 32.7}),
    Case(LINEAR, "default", {"y": 35.6}),
    Case(LINEAR, "htp_v73", {"y": 7.6}, {"y": 35.2}),
    Case(MOVED, "default", {"y": 38.3, "c": 38.3}),
    Case(MOVED, "default", {"y": 38.3}, {"y": 39.6}),
    Case(MOVED, "htp_v66", {"y": 39.7, "c": 3.0}, {"y": 38.1, "c": 38.3}),  # c is rounded, too, and in range
    Case(SPLIT, "default", {"y": 39.3, "b": 37.9}),
    Case(SPLIT, "htp_v73", {"y": 40.2, "b": 3.1}, {"y": 38.7, "b": 37.9}),
    Case(STATES, "default", {"y": 31.5}),
    Case(STATES, "htp_v73", {"y": 1.3}, {"y": 31.5}),
    # a cubic curve leaves the fixed range of the numbers that it goes through
    Case(CUBIC, "htp_v73", {"y": 18.6, "a": 23.0}, {"y": 35.8, "a": 38.1}),
    # activations far below 0.01
    Case(DEPTHWISE, "default", {"y": 38.0}, {"y": 39.9}, size=2.6e-5),
    Case(DEPTHWISE, "htp_v73", {"y": 16.4}, {"y": 39.9}, size=2.6e-5),
    # tensors of different sizes that share a grid
    Case(SMALL_FIRST, "default", {"y": 38.9}, scheme="tf_enhanced"),
    Case(SMALL_FIRST, "default", {"y": 38.9}, scheme="percentile"),
    Case(LARGE_FIRST, "default", {"y": 0.6}, {"y": 38.9}, scheme="tf_enhanced"),
    Case(LARGE_FIRST, "default", {"y": 0.6}, {"y": 38.9}, scheme="percentile"),
    Case(WITH_CONSTANT, "default", {"y": 0.5}, {"y": 40.0}, scheme="tf_enhanced"),
    Case(WITH_CONSTANT, "default", {"y": 0.5}, {"y": 40.0}, scheme="percentile"),
]


def decibels(outputs: Sequence[Mapping[str, np.ndarray]], case: Case) -> Decibels:
    """Signal over noise of each output, over all feeds."""
    model = case.model
    expected = [run_model(model, feed) for feed in case.feeds()]
    found = {}
    for name in case.aimet:
        exact, given = (np.concatenate([one[name].ravel() for one in group]) for group in (expected, outputs))
        found[name] = 10 * float(np.log10(np.sum(exact**2) / np.sum((exact - given) ** 2)))
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_less_is_left_than_aimet_leaves(case: Case) -> None:
    sim = QuantizationSimModel(case.model, config_file=case.config, quant_scheme=case.scheme)
    sim.compute_encodings(case.feeds())
    names = list(case.aimet)
    outputs = [dict(zip(names, sim.session.run(names, feed), strict=True)) for feed in case.feeds()]
    for name, left in decibels(outputs, case).items():
        assert left > case.least.get(name, case.aimet[name]) - 0.1


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="QC_AIMET_PYTHON names no Python with AIMET")
def test_the_numbers_of_aimet() -> None:
    with import_bench("rivals.aimet_process").Aimet(os.environ["QC_AIMET_PYTHON"]) as aimet:
        for case in CASES:
            answer = aimet.ask(case.model, case.feeds(), config=case.config, scheme=case.scheme)
            assert decibels(answer.outputs, case) == pytest.approx(case.aimet, abs=0.1), str(case)


FORMS = [
    ("movement", "default", "w4a16"),
    ("lstm", "htp_v73", "asymmetric"),
    ("norms", "htp_v66", "float16-activations"),
    ("concat", "htp_v73", "fp8"),
    ("transposed", "default", "lpbq"),
    ("product", "dsp", "block"),
]


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="QC_AIMET_PYTHON names no Python with AIMET")
def test_all_forms_of_a_simulation_are_those_of_aimet() -> None:
    process, combinations, operators = (
        import_bench(f"rivals.aimet_{name}") for name in ("process", "combinations", "operators")
    )
    with process.Aimet(os.environ["QC_AIMET_PYTHON"]) as aimet:
        for name, config, setting in FORMS:
            error, found = combinations.compared(aimet, operators.operators()[name], config, setting)
            assert not error and not [finding for finding in found if not finding.documented]
