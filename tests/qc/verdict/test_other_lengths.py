"""Models whose outputs have lengths that depend on the data: what cannot be compared is told of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.models import parse

import qc
from qc.auto import Judge, MaxDrop
from qc.ir.errors import DataError
from qc.runtime import load_data, model_inputs, parse_metric
from qc.runtime.metrics.metric import Sample
from qc.verdict.measure import measure_verdict
from qc.verdict.words import verdict_facts

MODEL = """g (float[32, 8] x) => (float[kept, 4] y)
    <float[8, 8] w, float[8, 4] v, float zero = {0}, int64[1] one = {1}> {
        a = MatMul(x, w)  s = ReduceMean<keepdims = 0>(a, one)  c = Greater(s, zero)
        k = Compress<axis = 0>(a, c)  y = MatMul(k, v)
    }"""


def samples(shares: list[float]) -> list[dict[str, np.ndarray]]:
    """Of rows of which a share is so near to the threshold that rounding decides about them."""
    random = np.random.default_rng(0)
    made = []
    for share in shares:
        x = random.normal(size=(32, 8)).astype(np.float32)
        x[: int(share * 32)] *= 1e-5
        made.append({"x": x})
    return made


@pytest.fixture(scope="module")
def compiled() -> qc.Compiled:
    return qc.compile(parse(MODEL), "w8a8", data=samples([0.0] * 8), target="ort-cpu", threads=1)


def accuracy(compiled: qc.Compiled, shares: list[float]) -> str:
    return dict(verdict_facts(measure_verdict(compiled, samples(shares), with_costs=False)))["accuracy"]


def test_a_verdict_tells_on_how_many_samples_it_is(compiled: qc.Compiled) -> None:
    assert accuracy(compiled, [0, 0, 0]).endswith("on 3 samples")
    told = accuracy(compiled, [0, 0.5, 0, 0.5, 0.5])
    assert told.endswith(
        "on 2 of 5 samples, as on the others outputs are empty, or of other lengths than in float"
    )
    told = accuracy(compiled, [0.5, 0.5])
    assert told == "not comparable, as outputs are empty, or of other lengths than in float, on 2 samples"


@pytest.mark.parametrize("name", ["sqnr", "max-error", "cosine", "expected-accuracy", "top-1", "equal"])
def test_a_metric_is_of_the_others_and_nan_without_any(name: str) -> None:
    tally = parse_metric(name).start()
    two, three = (np.eye(length, 4, dtype=np.float32) for length in (2, 3))
    tally.add(Sample(0, {"y": two}, {"y": three}, {}, None))
    assert math.isnan(tally.value())
    tally.add(Sample(1, {"y": three}, {"y": three}, {}, None))
    assert tally.value() in (1, 0, math.inf)


def test_sensitivity_is_measured_where_something_can_be_compared(compiled: qc.Compiled) -> None:
    found = qc.measure_sensitivity(compiled, samples([0.5, 0, 0, 0.5]), threads=1)
    assert math.isfinite(found.whole_db)
    with pytest.raises(DataError, match="nothing can be compared on 2 samples: outputs have other lengths"):
        qc.measure_sensitivity(compiled, samples([0.5, 0.5]), threads=1)


def test_a_recipe_is_found_though_a_tenth_of_the_samples_tells_nothing() -> None:
    data = samples([0.5, *[0.0] * 14])
    found = qc.find_recipe(parse(MODEL), data=data, eval_data=data, max_drop=0.5, metric="cosine", threads=1)
    assert found.is_accepted


def test_samples_without_rows_leave_the_sampling_error_to_the_others() -> None:
    model = parse("g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { m = MatMul(x, w)  y = Relu(m) }")
    random = np.random.default_rng(0)
    rows = [0, 4, 4, 0, 4, 4, 4, 4]
    data = [{"x": random.normal(size=(count, 4)).astype(np.float32)} for count in rows]
    judge = Judge(model, load_data(data, model_inputs(model)), MaxDrop.parse("5%"), parse_metric("top-1"))
    found = judge(qc.compile(model, data=data, threads=1).model)
    assert found.samples == len(rows) and math.isfinite(found.score) and math.isfinite(found.error)


def test_a_verdict_on_nothing_says_so() -> None:
    model = parse("g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { m = MatMul(x, w)  y = Relu(m) }")
    full, empty = ({"x": np.ones((count, 4), np.float32)} for count in (4, 0))
    made = qc.compile(model, data=[full], threads=1)
    found = dict(verdict_facts(measure_verdict(made, [empty, empty], with_costs=False)))
    assert (
        found["accuracy"]
        == "not comparable, as outputs are empty, or of other lengths than in float, on 2 samples"
    )
