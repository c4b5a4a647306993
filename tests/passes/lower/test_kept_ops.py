"""Ops that stay float between rounded tensors, and that ONNX Runtime would break by itself."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model

import qc
from qc.ir.onnx.lower import serialize

POOL = "kernel_shape = [2, 2], strides = [2, 2]"
CASES = {
    "pads along an axis": "m = Pad(c, pads, , last)",
    "pads that are computed": "t = Mul(pads, n)  m = Pad(c, t, , last)",
    "scales along axes": 'm = Resize<mode = "linear", axes = [2, 3]>(c, , scales)',
    "lengths along axes": 'm = Resize<mode = "nearest", axes = [3, 2]>(c, , , sizes)',
    "the ratio kept": """m = Resize<mode = "linear", axes = [2, 3], keep_aspect_ratio_policy = "not_larger">
        (c, , , sizes)""",
    "cubic, fewer numbers": 'm = Resize<mode = "cubic">(c, , fewer)',
    "cubic, fewer numbers, by lengths": 'm = Resize<mode = "cubic">(c, , , lengths)',
    "windows with gaps": "m = AveragePool<kernel_shape = [2, 2], dilations = [2, 1]>(c)",
    "windows beyond the padding": f"""m = AveragePool<{POOL}, pads = [1, 0, 0, 1], ceil_mode = 1,
        count_include_pad = 1>(c)""",
    "windows beyond the picture": f"m = AveragePool<{POOL}, ceil_mode = 1, count_include_pad = 1>(c)",
}


def between_convolutions(nodes: str, batch: str = "2") -> ModelProto:
    return parse(f"""<ir_version: 9, opset_import: ["" : 19]>
    g (float[{batch}, 8, 7, 7] x, int64[1] n) => (float[B, 8, H, W] y) <
        float[8, 8, 1, 1] v, float[8, 8, 3, 3] w, int64[2] pads = {{2, 1}}, int64[1] last = {{-1}},
        float[2] scales = {{2, 1.5}}, int64[2] sizes = {{9, 12}}, float[4] fewer = {{1, 1, 1.5, 0.5}},
        int64[4] lengths = {{2, 8, 4, 9}}
    > {{ a = Conv(x, w)  b = Relu(a)  c = Conv(b, v)  {nodes}  y = Conv(m, v) }}""")


@needs_exact_sums
@pytest.mark.parametrize("batch", ["2", "N"])
@pytest.mark.parametrize("case", CASES)
def test_it_runs_and_gives_the_numbers_of_the_float_model(case: str, batch: str) -> None:
    model = between_convolutions(CASES[case], batch)
    feeds = [feed | {"n": np.array([1])} for feed in random_feeds(model, 3, size=2)]
    made = qc.compile(model, data=feeds, target="ort-cpu", threads=1).model
    for feed in feeds:
        found, expected = run_model(made, feed, optimize=True)["y"], run_model(model, feed)["y"]
        assert np.abs(found - expected).mean() < 0.05 * np.abs(expected).mean()


@pytest.mark.parametrize("case", CASES)
def test_what_keeps_it_is_made_anew_when_a_result_is_read(case: str) -> None:
    model = between_convolutions(CASES[case])
    feeds = [feed | {"n": np.array([1])} for feed in random_feeds(model, 2)]
    made = artifact(apply(f"{PLACE},calibrate,insert-qdq", model, feeds=feeds)[1], "qdq")
    kept = [node.op_type for node in made.graph.node if node.op_type in ("LeakyRelu", "SpaceToDepth")]
    assert kept == ["LeakyRelu" if "AveragePool" in CASES[case] else "SpaceToDepth"]
    again = apply("import-qdq,insert-qdq", made)[1]
    assert serialize(artifact(again, "qdq")) == serialize(made)


@pytest.mark.parametrize("nodes", ['m = Resize<mode = "cubic">(c, , double)', "m = Pad(c, all)"])
def test_what_the_runtime_moves_transposes_across_stays_as_it_is(nodes: str) -> None:
    model = parse(f"""<ir_version: 9, opset_import: ["" : 19]>
    g (float[2, 8, 7, 7] x) => (float[B, 8, H, W] y) <
        float[8, 8, 1, 1] v, float[4] double = {{1, 1, 2, 1}}, int64[8] all = {{0, 0, 1, 0, 0, 0, 0, 1}}
    > {{ c = Conv(x, v)  {nodes}  y = Conv(m, v) }}""")
    made = artifact(apply(f"{PLACE},calibrate,insert-qdq", model, feeds=random_feeds(model, 2))[1], "qdq")
    assert "SpaceToDepth" not in [node.op_type for node in made.graph.node]


@pytest.mark.parametrize(
    ("nodes", "op_type"),
    [
        (CASES["pads along an axis"], "Pad"),
        (CASES["scales along axes"], "Resize"),
        (CASES["lengths along axes"], "Resize"),
    ],
)
def test_what_is_said_of_some_axes_is_said_of_all(nodes: str, op_type: str) -> None:
    model = between_convolutions(nodes)
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    (node,) = [node for node in made.graph.node if node.op_type == op_type]
    assert "axes" not in [attribute.name for attribute in node.attribute]
    assert op_type == "Resize" or len(node.input) == 2
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


def test_an_op_that_the_opset_has_not_for_codes_is_given_none() -> None:
    """Where both grids are the same, ONNX Runtime does not look whether it has."""
    model = parse("""<ir_version: 6, opset_import: ["" : 11]>
    g (float[2, 7] x) => (float[2, 1] y) <float s = {0.01}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  m = ReduceMax<axes = [1]>(d)
        r = QuantizeLinear(m, s, z)  y = DequantizeLinear(r, s, z)
    }""")
    made = artifact(apply("import-qdq,insert-qdq", model)[1], "qdq")
    (feed,) = random_feeds(model, 1)
    found, expected = run_model(made, feed, optimize=True)["y"], run_model(model, feed)["y"]
    np.testing.assert_array_equal(found, expected)
