"""Statistics of tensors inside the bodies of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import GraphProto, ModelProto
from support.bodies import all_numbers, models_with_bodies
from support.models import parse, random_feeds

from qc.ir import lift
from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Observation
from qc.ir.facts.scopes import name_apart
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter
from qc.runtime import OrtExecutor, TensorStatistics, add_observers
from qc.runtime.observers.insert import Group

SINGLE = OrtExecutor(threads=1)
HISTOGRAM = Observation("histogram")
LOOP = """g (float[N, 3] x, int64 n, bool c) => (float[N, 3] y) <float[3] w = {1, 2, 3}> {
    y = Loop(n, , x) <
        body = step (int64 i, bool k, float[N, 3] s) => (bool d, float[N, 3] t) {
            d = Identity(k)
            t = If(c) <
                then_branch = a () => (float[N, 3] p) { p = Add(s, w) },
                else_branch = b () => (float[N, 3] q) { q = Sub(s, w) }
            >
        }
    >
}"""


def with_unique_names(model: ModelProto) -> ModelProto:
    ir = lift(model)
    rewriter = Rewriter(ir)
    with rewriter.trial():
        name_apart(rewriter)
        return lower(ir)


def feed(trips: int, flag: bool) -> dict[str, np.ndarray]:
    return {"x": np.ones((2, 3), np.float32), "n": np.asarray(trips), "c": np.asarray(flag)}


@settings(
    max_examples=settings.default.max_examples // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(model=models_with_bodies())
def test_statistics_are_those_of_all_runs_of_a_body(model: ModelProto) -> None:
    model = with_unique_names(model)
    feeds = random_feeds(model, 3)
    ir = lift(model)
    names = [v.name for graph in ir.graphs() for v in graph.values() if v.is_float and v.producer]
    observed = SINGLE.observe(model, dict.fromkeys(names, (HISTOGRAM,)), feeds)
    expected = all_numbers(model, feeds)
    for name in names:
        numbers, got = expected.get(name, np.zeros(0)), observed[name, HISTOGRAM]
        assert got.count == numbers.size == got.histogram()[1].sum()
        if numbers.size:
            ends = [got.minimum, got.maximum]
            np.testing.assert_allclose(ends, [numbers.min(), numbers.max()], rtol=1e-4, atol=1e-5)


def test_channels_inside_bodies() -> None:
    model = parse(LOOP)
    channels = Observation(axis=1)
    requests = {name: [channels, HISTOGRAM] for name in ("p", "q", "s")}
    observed = SINGLE.observe(model, requests, [feed(2, True), feed(0, False), feed(3, True)])
    p = observed["p", channels]
    assert p.maximum.tolist() == [4, 7, 10] and p.minimum.tolist() == [2, 3, 4]
    assert p.count == observed["p", HISTOGRAM].count == 30 and observed["q", channels].count == 0
    assert observed["s", channels].maximum.tolist() == [3, 5, 7]
    assert observed["q", HISTOGRAM].histogram()[1].size == 0


def test_moments_inside_bodies() -> None:
    requests = {
        "p": [Observation("gram", axis=1)],
        "q": [Observation("moments")],
        "s": [Observation("moments")],
    }
    found = SINGLE.observe(parse(LOOP), requests, [feed(2, True), feed(0, False), feed(3, True)])
    observed = {name: statistics for (name, _), statistics in found.items()}
    rows = np.array([[2, 3, 4], [3, 5, 7], [2, 3, 4], [3, 5, 7], [4, 7, 10]], np.float64).repeat(2, 0)
    assert observed["p"].mean().tolist() == rows.mean(0).tolist()
    np.testing.assert_allclose(observed["p"].second_moment(), rows.T @ rows / len(rows), rtol=1e-15)
    before = np.array([[1, 1, 1], [2, 3, 4], [1, 1, 1], [2, 3, 4], [3, 5, 7]])
    assert observed["s"].mean() == before.mean() and observed["q"].count == 0
    assert observed["s"].second_moment() == np.square(before).mean()
    assert observed["p"].feeds.tolist() == [2, 2, 2]
    low, high = observed["p"].average_range()
    assert low.tolist() == [2, 3, 4] and high.tolist() == [3.5, 6, 8.5]


def test_a_body_that_runs_later_joins_in() -> None:
    model = parse(LOOP)
    requests = {"q": [HISTOGRAM]}
    parts = [
        SINGLE.observe(model, requests, [one])["q", HISTOGRAM] for one in (feed(1, True), feed(1, False))
    ]
    whole = SINGLE.observe(model, requests, [feed(1, True), feed(1, False)])["q", HISTOGRAM]
    merged = parts[0].merge(parts[1])
    assert isinstance(merged, TensorStatistics) and merged.count == whole.count == 6
    assert (whole.minimum, whole.maximum) == (-2, 0)


def names_of(groups: list[Group]) -> list[str]:
    return [name for group in groups for name in group.names.values()]


def outputs_of_all_sizes(model: ModelProto, trips: int) -> int:
    """The numbers of all summaries together."""
    observed, groups = add_observers(model, [(name, HISTOGRAM) for name in "stpq"])
    results = next(SINGLE.run(observed, [feed(trips, True)], names_of(groups)))
    return sum(np.size(array) for array in results.values())


def test_summaries_do_not_grow_with_the_iterations() -> None:
    model = parse(LOOP)
    assert outputs_of_all_sizes(model, 2) == outputs_of_all_sizes(model, 200)


def test_nan_inside_a_body_names_the_tensor() -> None:
    model = parse(LOOP.replace("q = Sub(s, w)", "r = Sub(s, s)  q = Div(r, r)"))
    with pytest.raises(DataError, match="tensor 'q' holds 6 NaN or infinite values on feed 1"):
        SINGLE.observe(model, {"p": [Observation()], "q": [Observation()]}, [feed(1, True), feed(1, False)])


SCAN = """g (float[3, 2] rows, float[2] x) => (float[2] y) {
    y = Scan(x, rows) <
        num_scan_inputs = 1,
        body = step (float[2] s, float[2] r) => (float[2] t) { t = Add(s, r) }
    >
}"""


def test_a_scan_backwards_along_another_axis() -> None:
    text = """g (float[2, 5] rows, float[2] x) => (float[2] y, float[2, 5] sums) {
        y, sums = Scan(x, rows) <
            num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
            scan_output_axes = [1], scan_output_directions = [1],
            body = step (float[2] s, float[2] r) => (float[2] t, float[2] shown) {
                t = Add(s, r)
                shown = Neg(t)
            }
        >
    }"""
    model = parse(text)
    feeds = random_feeds(model, 3)
    observed = SINGLE.observe(model, dict.fromkeys("str", (HISTOGRAM,)), feeds)
    sums = [one["x"][:, None] + np.cumsum(one["rows"][:, ::-1], axis=1) for one in feeds]
    before = [
        np.concatenate([one["x"][:, None], found[:, :-1]], 1) for one, found in zip(feeds, sums, strict=True)
    ]
    for name, arrays in {"s": before, "t": sums, "r": [one["rows"] for one in feeds]}.items():
        ends = [observed[name, HISTOGRAM].minimum, observed[name, HISTOGRAM].maximum]
        np.testing.assert_allclose(ends, [np.min(arrays), np.max(arrays)], rtol=1e-5)
        assert observed[name, HISTOGRAM].count == np.size(arrays)


def test_what_cannot_be_observed_is_explained() -> None:
    feeds = random_feeds(parse(SCAN))
    with pytest.raises(
        UsageError, match="'t' is inside a Scan, where tensors can only be observed as a whole"
    ):
        SINGLE.observe(parse(SCAN), {"t": [Observation(axis=0)]}, feeds)
    with pytest.raises(UsageError, match=r"the model has no tensor 'tt' \(did you mean 't'\?\)"):
        SINGLE.observe(parse(SCAN), {"tt": [Observation()]}, feeds)
    same = parse(LOOP.replace("float[N, 3] q) { q =", "float[N, 3] p) { p ="))
    with pytest.raises(UsageError, match="several graphs have a tensor 'p'"):
        SINGLE.observe(same, {"p": [Observation()]}, [feed(1, True)])


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)


def test_the_model_is_not_changed_and_the_rest_is_left_out() -> None:
    model = parse(
        LOOP.replace("y = Loop", "z = Exp(x)  y = Loop").replace("(float[N, 3] y)", "(float[N, 3] z)")
    )
    before = model.SerializeToString()
    observed, groups = add_observers(model, [("p", Observation())])
    assert model.SerializeToString() == before
    assert [output.name for output in observed.graph.output] == names_of(groups)
    kinds = [node.op_type for graph in graphs_of(observed.graph) for node in graph.node]
    assert kinds.count("Observe") == 1 and "Exp" not in kinds
