"""Equal constants are one constant: weights that layers share, in one graph and across bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PREPARE, QUANTIZE, apply, artifact, check, run_model

import qc
from qc.ir.onnx.lower import lower
from qc.ir.tensor_ref import TensorRef

SIZE = 64


def shared_through_identity(layers: int = 6) -> ModelProto:
    """Layers of one weight and bias, as TorchScript exports them: through an Identity but for the first."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.2, (SIZE, SIZE)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.normal(0, 0.2, SIZE).astype(np.float32), "b"),
    ]
    nodes = []
    for layer in range(layers):
        own = {"w": "w", "b": "b"} if layer == 0 else {"w": f"w{layer}", "b": f"b{layer}"}
        nodes += [helper.make_node("Identity", [name], [copy]) for name, copy in own.items() if name != copy]
        source = f"h{layer - 1}" if layer else "x"
        nodes.append(helper.make_node("MatMul", [source, own["w"]], [f"m{layer}"]))
        nodes.append(helper.make_node("Add", [f"m{layer}", own["b"]], [f"a{layer}"]))
        nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"h{layer}"]))
    return model_of(nodes, [floats("x", 4, SIZE)], [floats(f"h{layers - 1}", 4, SIZE)], weights)


def stored(model: ModelProto, kinds: tuple[int, ...]) -> list[TensorProto]:
    return [tensor for tensor in model.graph.initializer if tensor.data_type in kinds]


def test_a_weight_that_layers_share_is_stored_once() -> None:
    model = shared_through_identity()
    compiled = qc.compile(model, data=random_feeds(model), threads=1)
    codes = [tensor for tensor in stored(compiled.model, (TensorProto.INT8,)) if len(tensor.dims) == 2]
    assert len(codes) == 1
    assert compiled.model.ByteSize() < 1.02 * model.ByteSize()


def test_copies_of_a_weight_are_stored_once() -> None:
    """As an exporter that knows nothing of sharing writes them: each copy is an initializer of its own."""
    model = shared_through_identity()
    for node in [node for node in model.graph.node if node.op_type == "Identity"]:
        (source,) = [tensor for tensor in model.graph.initializer if tensor.name == node.input[0]]
        model.graph.initializer.add().CopyFrom(source)
        model.graph.initializer[-1].name = node.output[0]
        model.graph.node.remove(node)
    ir, _, report = apply("share-constants{least_bytes=0}", model)
    assert report.actions == 10
    assert [value.name for value in ir.graph.values() if value.const is not None] == ["w", "b"]
    for feed in random_feeds(model):
        np.testing.assert_array_equal(run_model(lower(ir), feed)["h5"], run_model(model, feed)["h5"])


def test_a_removed_name_leads_to_the_one_that_stays() -> None:
    model = parse(
        """g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] a = {1, 2, 3, 4}, float[2, 2] b = {1, 2, 3, 4}> {
            h = MatMul(x, a)
            y = MatMul(h, b)
        }"""
    )
    ir, _, _ = apply("share-constants{least_bytes=0}", model)
    assert ir.journal.successors["b"].name == "a"


def test_weights_read_along_different_axes_stay_apart() -> None:
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["h"]),
        helper.make_node("Gemm", ["h", "b"], ["y"], transB=1),
    ]
    weights = [numpy_helper.from_array(weight, name) for name in "ab"]
    model = model_of(nodes, [floats("x", 4, 16)], [floats("y", 4, 16)], weights)
    ir, _, _ = apply(QUANTIZE, model, feeds=random_feeds(model))
    axes = [str(ir.quant.get(site).spec.granularity) for site in ir.quant.sites() if site.value.name in "ab"]  # type: ignore[union-attr]
    assert axes == ["channel(1)", "channel(0)"]


LSTM_IN_BRANCHES = """g (float[3, 1, 4] x, bool c) => (float[3, 1, 1, 8] y)
<float[32, 4] w, float[32, 8] r, int64[1] zero = {0}> {
    y = If(c) <
        then_branch = t () => (float[3, 1, 1, 8] p) {
            w1 = Unsqueeze(w, zero)
            r1 = Unsqueeze(r, zero)
            p = LSTM<hidden_size = 8>(x, w1, r1)
        },
        else_branch = e () => (float[3, 1, 1, 8] q) {
            n = Neg(x)
            w2 = Unsqueeze(w, zero)
            r2 = Unsqueeze(r, zero)
            q = LSTM<hidden_size = 8>(n, w2, r2)
        }
    >
}"""


def test_what_each_branch_computes_of_a_weight_is_stored_once() -> None:
    model = parse(LSTM_IN_BRANCHES)
    ir, _, _ = apply(PREPARE, model)
    lowered = lower(ir)
    check(lowered)
    assert sorted(tuple(tensor.dims) for tensor in lowered.graph.initializer) == [(1, 32, 4), (1, 32, 8)]
    branches = [attribute.g for attribute in lowered.graph.node[0].attribute]
    assert [len(branch.initializer) for branch in branches] == [0, 0]
    for feed in random_feeds(model):
        for chosen in (True, False):
            given = {**feed, "c": np.array(chosen)}
            expected = run_model(model, given)["y"]
            for optimize in (False, True):
                np.testing.assert_allclose(run_model(lowered, given, optimize)["y"], expected, atol=1e-6)


def test_external_weights_are_compared_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qc.ir.tensor_ref._PIECE", 64)
    model = shared_through_identity(3)
    for copy, change in (("v", 0.0), ("u", 1.0)):  # u differs in its last element
        array = numpy_helper.to_array(model.graph.initializer[0]).copy()
        array[-1, -1] += change
        model.graph.initializer.append(numpy_helper.from_array(array, copy))
        model.graph.node.append(helper.make_node("MatMul", ["x", copy], [f"y_{copy}"]))
        model.graph.output.append(floats(f"y_{copy}", 4, SIZE))
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    monkeypatch.setattr(
        TensorRef, "numpy", lambda self: pytest.fail(f"'{self.proto.name}' is read as a whole")
    )
    ir, _, report = apply("share-constants", qc.read_model(path))
    assert report.actions == 1
    assert {value.name for value in ir.graph.values() if value.const is not None} == {"w", "b", "u"}


def test_grids_that_only_look_alike_come_back_apart() -> None:
    """Zero points are stored once; a scale is not, as it tells import-qdq what is tied."""
    model = parse(
        """g (float[4] x, float[4] z) => (float[4] y) <float[4] a = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}> {
            p = Add(x, a)
            q = Add(z, b)
            y = Mul(p, q)
        }"""
    )
    feeds = [{"x": np.ones(4, np.float32) * 2, "z": np.ones(4, np.float32) * 2}]
    made = artifact(apply(f"{QUANTIZE},insert-qdq", model, "npu", feeds)[1], "qdq")
    points = [
        tensor
        for tensor in made.graph.initializer
        if tensor.data_type == TensorProto.UINT8 and not tensor.dims
    ]
    assert len(points) == len({tensor.raw_data for tensor in points})
    ir, context, _ = apply("import-qdq,insert-qdq", made, "npu")
    values = {site.value.name: ir.quant.get(site) for site in ir.quant.sites()}
    assert values["x"] is not values["z"]
    assert artifact(context, "qdq").SerializeToString() == made.SerializeToString()
