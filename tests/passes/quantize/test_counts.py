"""Places and lengths that are floats for a while stay the whole numbers that they are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from support.models import parse
from support.pipelines import run_model
from support.placement import placed, reason

import qc

# Every second place of a row, looked up, as TensorFlow computes with places.
HALVED = """g (float[4, 8] x, int64[4] place) => (float[4, 3] y)
<float[4100, 8] table, float[8, 3] w, float half = {0.5}> {
    f = Cast<to = 1>(place)
    h = Mul(f, half)
    i = Floor(h)
    p = Cast<to = 7>(i)
    row = Gather(table, p)
    s = Add(x, row)
    y = MatMul(s, w)
}"""


@pytest.mark.parametrize(("pipeline", "target"), [("fp16", "npu"), ("w8a8", "npu"), ("w8a8", "qnn-htp")])
def test_places_stay_what_they_are(pipeline: str, target: str) -> None:
    model = parse(HALVED)
    rng = np.random.default_rng(3)
    table = np.eye(8, dtype=np.float32)[np.arange(4100) % 8]  # the rows of neighbours are far apart
    (stored,) = (tensor for tensor in model.graph.initializer if tensor.name == "table")
    stored.CopyFrom(numpy_helper.from_array(table, "table"))
    places = np.asarray([4099, 8191, 5001, 7777])
    feeds = [{"x": rng.normal(size=(4, 8)).astype(np.float32), "place": places - i} for i in range(4)]
    compiled = qc.compile(model, pipeline, data=feeds, target=target, threads=1)
    for feed in feeds:
        expected, made = (run_model(one, feed)["y"] for one in (model, compiled.model))
        np.testing.assert_allclose(made, expected, atol=0.05 * np.abs(expected).max())


def test_why_a_place_stays_float() -> None:
    model = placed(HALVED, "npu")
    assert reason(model, "h") == "Mul of 'h' computes it from integers, and integers are made of it"


def test_integers_that_become_data_get_a_grid() -> None:
    head = "g (int64[4, 8] n) => (float[4, 3] y) <float[8, 3] w>"
    model = placed(f"{head} {{ f = Cast<to = 1>(n) y = MatMul(f, w) }}", "npu")
    (found,) = (value for value in model.graph.values() if value.name == "f")
    assert model.quant.touches(found)


# A tree of decisions as a product: a leaf is reached where as many decisions hold as lead to it.
TREE = """g (float[16, 2] x) => (float[16, 3] y)
<float[2] threshold = {0.1, -0.3}, float[2, 4] ways = {1, 1, -1, 0, 0, 1, 0, 1},
 float[4] reached = {1, 2, 0, 1}, float[4, 3] leaves = {1, 2, 3, -4, 5, 6, 7, -8, 9, 2, 2, 1}> {
    l = Less(x, threshold)
    f = Cast<to = 1>(l)
    n = MatMul(f, ways)
    e = Equal(n, reached)
    t = Cast<to = 1>(e)
    y = MatMul(t, leaves)
}"""


@pytest.mark.parametrize(
    ("pipeline", "target"),
    [("w8a8", "openvino"), ("w8a8", "npu"), ("w8a16", "qnn-htp"), ("w4-block32", "ort-cpu")],
)
def test_counts_that_are_compared_are_exact(pipeline: str, target: str) -> None:
    """Products of grids gave numbers near them, so that no leaf was ever reached."""
    model = parse(TREE)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(size=(16, 2)).astype(np.float32)} for _ in range(4)]
    data = None if pipeline == "w4-block32" else feeds
    compiled = qc.compile(model, pipeline, data=data, target=target, threads=1, allow_unquantized=True)
    expected, made = (run_model(one, feeds[0])["y"] for one in (model, compiled.model))
    np.testing.assert_allclose(made, expected, atol=0.7)
    told = "read by MatMul of 'n', which counts truth values, and an Equal compares the count"
    assert reason(compiled.ir, "ways") == told
