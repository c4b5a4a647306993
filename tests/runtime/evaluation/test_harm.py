"""Groups of quantizers are turned off, on or to other formats in one session, by any metric."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime as ort
import pytest
from support.models import parse, random_feeds

import qc
from qc.runtime import OpenModel, Simulation, evaluate, harm, parse_metric
from qc.search import bisect, parse_oracle

MODEL = parse("""g (float[4, 8] x) => (float[4, 6] y) <float[8, 8] a, float[8, 8] b, float[8, 6] c> {
    p = MatMul(x, a)
    q = Relu(p)
    r = MatMul(q, b)
    s = Tanh(r)
    y = MatMul(s, c)
}""")
FEEDS = random_feeds(MODEL, 3)
GROUPS = {"first": ["a", "x"], "second": ["q"], "third": ["b", "c", "s"]}


@functools.cache
def simulation() -> Simulation:
    return qc.compile(MODEL, "w8a8", data=FEEDS, threads=1).open_simulation(settable_weights=True, threads=1)


@pytest.mark.parametrize("text", ["sqnr", "max-error", "cosine(y)", "top-1"])
def test_every_group_is_measured_as_its_setting_is(text: str) -> None:
    whole, metric = simulation(), parse_metric(text)
    off = whole.with_encodings(dict.fromkeys(whole.quantizers, "off"))
    reference = OpenModel(MODEL, threads=1)

    def value(variant: Simulation) -> float:
        found = evaluate(MODEL, {"variant": variant}, FEEDS, latency_seconds=0, metrics=[text])
        return found.metrics[0].candidates[0]

    for setting in ("off", 4):
        found = harm(whole, GROUPS, metric, FEEDS, setting=setting, alone=True, reference=reference)
        assert (found.feeds, found.whole) == (3, value(whole))
        for group, tensors in GROUPS.items():
            assert found.changed[group] == value(whole.with_encodings(dict.fromkeys(tensors, setting)))
            assert found.alone[group] == value(off.with_encodings(dict.fromkeys(tensors, "on")))


def test_labels_and_progress() -> None:
    runs = []
    metric = parse_metric("sqnr")
    harm(simulation(), GROUPS, metric, FEEDS, on_run=lambda: runs.append(1))
    assert len(runs) == len(FEEDS) * (1 + len(GROUPS)), "the reference is not counted"
    with pytest.raises(qc.DataError, match="there are 2 labels for at least 3 feeds"):
        harm(simulation(), GROUPS, metric, FEEDS, labels=[1, 2])
    with pytest.raises(qc.UsageError, match="no quantizer or rounded tensor 'absent'"):
        harm(simulation(), {"group": ["absent"]}, metric, FEEDS)


def test_a_search_for_the_best_removal_opens_no_session_for_each_quantizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = 0

    class Counted(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, *arguments: object, **options: object) -> None:
            nonlocal opened
            opened += 1
            super().__init__(*arguments, **options)

    monkeypatch.setattr(ort, "InferenceSession", Counted)
    counts = []
    compilation = qc.Compilation(MODEL, "w8a8", data=FEEDS, threads=1, allow_unquantized=True)
    finding = bisect(
        compilation, parse_oracle("sqnr < 200"), on_probe=lambda probe, actions: counts.append(opened)
    )
    assert finding.removals == 6 and finding.best_removal is not None
    assert opened - counts[-1] <= 2, "the float model and one simulation"
    assert finding.without is not None and finding.without.is_bad
    best = finding.best_removal
    assert best.verdict.value is not None and np.isfinite(best.verdict.value)
    assert finding.without.value is not None and best.verdict.value >= finding.without.value
