"""Models of old versions of ONNX, whose rules were different."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.machine import needs_exact_sums
from support.models import floats, parse, random_feeds
from support.pipelines import run_model

import qc
from qc.ir import lift
from qc.ir.errors import ModelError
from qc.runtime import open_session, run_session

Feed = dict[str, np.ndarray]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def old_model(
    nodes: list, inputs: list, outputs: list, weights: dict[str, np.ndarray], opset: int, ir: int
) -> ModelProto:
    """A model; below version 4 of the format every weight is an input as well."""
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    if ir < 4:
        inputs = inputs + [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    graph = helper.make_graph(nodes, "old", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def run(model: ModelProto, feed: Feed, optimize: bool) -> list[np.ndarray]:
    return run_session(open_session(model, optimize=optimize, threads=1), feed)


@needs_exact_sums
@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13])
def test_every_opset_runs_in_integers(opset: int, target: str) -> None:
    """Below opset 10, ONNX Runtime fused the model to operators that such opsets do not have."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"]),
    ]
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4), "flat": np.asarray([1, -1]), "w2": normal(64, 5)}
    proto = old_model(
        nodes, [floats("x", 1, 3, 6, 6)], [floats("y", 1, 5)], weights, opset, 3 if opset < 9 else 7
    )
    feed = {"x": normal(1, 3, 6, 6)}
    compiled = qc.compile(proto, data=[feed], target=target, threads=1)
    assert any("converted from opset" in note for note in compiled.notes) == (opset < 10)
    plain, optimized = (run(compiled.model, feed, optimize)[0] for optimize in (False, True))
    np.testing.assert_allclose(plain, optimized, atol=np.abs(plain).max() / 50)
    np.testing.assert_allclose(plain, run(proto, feed, False)[0], atol=np.abs(plain).max() / 10)


@pytest.mark.parametrize("opset", [7, 10, 12])
def test_float_biases_of_an_old_model_can_be_rounded_by_onnx_runtime(opset: int) -> None:
    """Quantsim leaves biases float, which ONNX Runtime rounds with ops of which the newest is of opset 13."""
    proto = old_model(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"])],
        [floats("x", 1, 3, 6, 6)],
        [floats("y", 1, 4, 4, 4)],
        {"w": normal(4, 3, 3, 3), "b": normal(4)},
        opset,
        3 if opset < 9 else 7,
    )
    feed = {"x": normal(1, 3, 6, 6)}
    compiled = qc.compile(proto, "quantsim-qdq", data=[feed], threads=1)
    plain, optimized = (run(compiled.model, feed, optimize)[0] for optimize in (False, True))
    np.testing.assert_allclose(plain, optimized, atol=np.abs(plain).max() / 50)


def test_a_model_that_cannot_be_converted() -> None:
    """The converter turns Scan of opset 8 into another operator without a word."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["o"]), helper.make_node("Identity", ["o"], ["p"])],
        "body",
        [floats("s", 2), floats("e", 2)],
        [floats("o", 2), floats("p", 2)],
    )
    nodes = [helper.make_node("Scan", ["", "i", "x"], ["y", "z"], num_scan_inputs=1, body=body)]
    inputs, outputs = [floats("i", 1, 2), floats("x", 1, 3, 2)], [floats("y", 1, 2), floats("z", 1, 3, 2)]
    proto = old_model(nodes, inputs, outputs, {}, 8, 3)
    with pytest.raises(ModelError, match=r"opset 8.*convert it first"):
        qc.compile(proto, data=[{"i": normal(1, 2), "x": normal(1, 3, 2)}], threads=1)


def test_a_model_with_an_op_that_onnx_gave_up() -> None:
    """Models made for Windows in ONNX's first years have such ops, which the converter fails of."""
    nodes = [helper.make_node("ImageScaler", ["x"], ["y"], bias=[1.0, 2.0, 3.0])]
    image = [1, 3, 4, 4]
    proto = old_model(nodes, [floats("x", *image)], [floats("y", *image)], {}, 7, 3)
    with pytest.raises(ModelError, match=r"opset 7, .* ONNX has no op ImageScaler: write it as others first"):
        qc.compile(proto, data=[{"x": normal(*image)}], threads=1)


def branches() -> list[onnx.GraphProto]:
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(normal(4)))
    return [
        helper.make_graph(
            [constant, helper.make_node("Add", ["a", "k"], ["t"])], "then", [], [floats("t", 3, 4)]
        ),
        helper.make_graph([helper.make_node("Neg", ["a"], ["e"])], "else", [], [floats("e", 3, 4)]),
    ]


def test_a_constant_in_a_branch_before_version_4() -> None:
    """It became an initializer of the branch, which that version does not allow."""
    then, otherwise = branches()
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
    ]
    inputs = [floats("x", 3, 4), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    proto = old_model(nodes, inputs, [floats("y", 3, 4)], {}, 10, 3)
    feed = {"x": normal(3, 4), "c": np.asarray(True)}
    compiled = qc.compile(proto, data=[feed], target="npu", allow_unquantized=True, threads=1)
    for model in (compiled.model, compiled.simulation):
        onnx.checker.check_model(model)
        np.testing.assert_allclose(run(model, feed, True)[0], run(proto, feed, True)[0], atol=0.05)


def test_constants_do_not_become_defaults() -> None:
    """A new constant needs version 4, in which the inputs of the old ones would make them overridable."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("PRelu", ["h", "slope"], ["y"])]
    weights = {"w": normal(4, 5), "slope": normal(5)}
    proto = old_model(nodes, [floats("x", 3, 4)], [floats("y", 3, 5)], weights, 10, 3)
    compiled = qc.compile(proto, data=[{"x": normal(3, 4)}], threads=1)
    assert [given.name for given in compiled.model.graph.input] == ["x"]
    session = open_session(compiled.simulation, threads=1)
    overridable = {value.name for value in session.get_overridable_initializers()}
    assert overridable and all("/" in name for name in overridable)


@pytest.mark.parametrize("opset", [9, 13])
def test_training_outputs_mean_training(opset: int) -> None:
    """Before opset 14 nothing but its further outputs tells that a batch norm normalizes by the batch."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y", "m1", "v1", "m2", "v2"]),
    ]
    weights = {
        "w": normal(4, 3, 1, 1),
        "g": normal(4),
        "b": normal(4),
        "m": normal(4) + 1,
        "v": np.abs(normal(4)),
    }
    proto = old_model(nodes, [floats("x", 2, 3, 4, 4)], [floats("y", 2, 4, 4, 4)], weights, opset, 7)
    feed = {"x": normal(2, 3, 4, 4)}
    folded = qc.compile(proto, "fold-batch-norms", threads=1).model
    np.testing.assert_allclose(run(folded, feed, False)[0], run(proto, feed, False)[0], rtol=1e-5)


def test_an_op_without_outputs_does_not_disturb() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Print", ["y"], [], domain="vendor")]
    graph = helper.make_graph(nodes, "g", [floats("x", 2)], [floats("y", 2)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("vendor", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert qc.compile(proto, "eliminate-identity,fold-batch-norms").model == lift(proto).origin


@pytest.mark.parametrize(("target", "opset"), [("qnn-htp", 17), ("qnn-htp", 21), ("ort-cpu", 17)])
def test_random_ops_stay_in_an_opset_that_onnx_runtime_runs(target: str, opset: int) -> None:
    """Of opset 22 and newer, which the HTP's normalizations need, it has none, as VITS found."""
    model = parse(f"""<ir_version: 10, opset_import: ["" : {opset}]>
    g (float[2, 8] x) => (float[2, 8] y) <float[8, 8] w> {{
        m = MatMul(x, w) noise = RandomNormalLike(m) none = Sub(noise, noise) y = Add(m, none)
    }}""")
    made = qc.compile(model, "w8a8", data=random_feeds(model, 4), target=target, allow_unquantized=True).model
    assert next(one.version for one in made.opset_import if not one.domain) <= 21
    run_model(made, random_feeds(model)[0])


@pytest.mark.parametrize(
    "pooled",
    [
        "RoiAlign <output_height = 2, output_width = 2> (m, rois, batch)",
        "MaxRoiPool <pooled_shape = [2, 2]> (m, windows)",
        "GlobalLpPool(m)",
    ],
)
def test_pools_without_a_newer_kernel_stay_in_an_opset_that_onnx_runtime_runs(pooled: str) -> None:
    """Detectors of two stages have a RoiAlign, of which ONNX Runtime has none of opset 22 and newer."""
    model = parse(f"""<ir_version: 10, opset_import: ["" : 17]>
    g (float[1, 3, 8, 8] x) => (float[K, 4, M, N] y)
    <float[4, 3, 1, 1] w, float[2, 4] rois = {{0, 0, 4, 4, 1, 1, 6, 6}}, int64[2] batch = {{0, 0}},
     float[2, 5] windows = {{0, 0, 0, 4, 4, 0, 1, 1, 6, 6}}> {{
        m = Conv(x, w)
        y = {pooled}
    }}""")
    feeds = random_feeds(model, 4)
    made = qc.compile(model, "w8a8", data=feeds, target="qnn-htp").model
    run_model(made, feeds[0])
