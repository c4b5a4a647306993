"""Codes of few bits and of float8: what ONNX Runtime's optimizers would break computes what is simulated."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model

from qc.ir.onnx.lower import serialize

FORMATS = [
    ("int4", "int8"),
    ("uint4", "int4"),
    ("uint2", "int8"),
    ("uint8", "int2"),
    ("float8e4m3fn", "int8"),
]
NODES = {
    "a limit below": "m = Relu(c)",
    "two limits": "m = Clip(c, least, most)",
    "limits before a move": "r = Relu(c)  m = Transpose<perm = [0, 1, 3, 2]>(r)",
    "the largest numbers": "r = Relu(c)  m = MaxPool<kernel_shape = [2, 2]>(r)",
    "the least numbers": "m = ReduceMin(c, last)",
    "a product of both": "t = Transpose<perm = [0, 1, 3, 2]>(c)  p = MatMul(c, t)  m = Softmax(p)",
}


def model(nodes: str) -> ModelProto:
    return parse(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1, 4, 6, 6] x) => (float[1, 3] y) <
        float[4, 4, 3, 3] w, float[4, 3] g, int64[1] last = {{3}},
        float least = {{-0.5}}, float most = {{0.5}}
    > {{ c = Conv<pads = [1, 1, 1, 1]>(x, w)  {nodes}  p_ = GlobalAveragePool(m)  f = Flatten(p_)
         y = Gemm(f, g) }}""")


@pytest.mark.parametrize("target", ["npu", "tensorrt"])
@pytest.mark.parametrize(("activation", "weight"), FORMATS)
@pytest.mark.parametrize("nodes", NODES)
def test_the_runtime_computes_what_is_simulated(
    nodes: str, activation: str, weight: str, target: str
) -> None:
    float_model = model(NODES[nodes])
    feeds = random_feeds(float_model, 2)
    options = f"insert-quantizers{{activation={activation} weight={weight}}}"
    pipeline = f"{PLACE.replace('insert-quantizers', options)},calibrate,insert-qdq,to-simulation"
    context = apply(pipeline, float_model, target, feeds)[1]
    made = artifact(context, "qdq")
    for feed in feeds:
        simulated = run_model(artifact(context, "simulation"), feed)["y"]
        error = run_model(made, feed, optimize=True)["y"] - simulated  # products of stored weights round data
        assert np.abs(error).max() < 0.01 * np.abs(simulated).max()
    again = apply("import-qdq,insert-qdq", made, target)[1]
    assert serialize(artifact(again, "qdq")) == serialize(made)


def test_codes_of_8_bits_are_left_as_they_are() -> None:
    float_model = model(NODES["two limits"])
    made = artifact(
        apply(f"{PLACE},calibrate,insert-qdq", float_model, "npu", random_feeds(float_model, 2))[1], "qdq"
    )
    assert "LeakyRelu" not in {node.op_type for node in made.graph.node}


def test_data_of_4_bits_is_in_an_opset_that_moves_it() -> None:
    text = onnx.printer.to_text(model(NODES["limits before a move"]))
    old = onnx.parser.parse_model(text.replace('"" : 21', '"" : 20'))
    options = "insert-quantizers{activation=uint4 weight=int4}"
    pipeline = f"{PLACE.replace('insert-quantizers', options)},calibrate,insert-qdq"
    made = artifact(apply(pipeline, old, "npu", random_feeds(old, 2))[1], "qdq")
    assert made.opset_import[0].version == 21
