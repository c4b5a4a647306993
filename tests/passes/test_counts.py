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
