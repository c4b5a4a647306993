"""Convolutions on few channels: padded for devices that want more, with the same results, and back."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, check, run_model

from qc.ir.onnx.lower import serialize


def network(
    channels: int, group: int = 1, opset: int = 17, outputs: str = "float[2, 8, 7, 7] y"
) -> ModelProto:
    return parse(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2, {channels}, 7, 7] x) => ({outputs}) <float[8, {channels // group}, 3, 3] w, float[8] b> {{
            y = Conv<pads = [1, 1, 1, 1], group = {group}>(x, w, b)
            z = Relu(x)
        }}"""
    )


def lowered(model: ModelProto, target: str = "ort-cpu", options: str = "") -> ModelProto:
    context = apply(f"{QUANTIZE},insert-qdq{options}", model, target, random_feeds(model))[1]
    made = artifact(context, "qdq")
    check(made)
    return made


def added(model: ModelProto) -> list[int]:
    """The channels that each Gather adds."""
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    taken = [arrays[node.input[1]] for node in model.graph.node if node.op_type == "Gather"]
    return [indices.size - np.unique(indices).size for indices in taken]


@needs_exact_sums
@pytest.mark.parametrize(("channels", "expected"), [(1, []), (2, []), (3, [1]), (4, []), (5, [])])
@pytest.mark.parametrize("opset", [10, 13, 21])
def test_results_stay_the_same(channels: int, expected: list[int], opset: int) -> None:
    model = network(channels, opset=opset)
    padded = lowered(model)
    assert added(padded) == expected
    plain = lowered(model, options="{pad_channels=false}")
    assert not added(plain)
    for feed in random_feeds(model, 3, seed=4):
        for optimize in (False, True):
            np.testing.assert_array_equal(
                run_model(padded, feed, optimize)["y"], run_model(plain, feed, optimize)["y"]
            )


def test_it_comes_back_with_its_own_channels() -> None:
    padded = lowered(network(3))
    ir, context, _ = apply("import-qdq,insert-qdq", padded, "ort-cpu")
    assert serialize(artifact(context, "qdq")) == serialize(padded)
    weight = ir.graph.value_named("w")
    assert weight is not None and weight.type.shape == (8, 3, 3, 3)
    assert all(op.op_type == "Conv" for op in ir.graph.ops())
    names = [site.value.name for site in ir.quant.sites()]
    assert sorted(names) == ["b", "w", "x", "y"]


def test_only_where_it_helps() -> None:
    assert not added(lowered(network(3), "npu"))
    assert not added(lowered(network(2, group=2)))


def test_another_reader_sees_the_tensor_as_it_is() -> None:
    model = network(3, outputs="float[2, 8, 7, 7] y, float[2, 3, 7, 7] z")
    made = lowered(model)
    for feed in random_feeds(model):
        results, expected = run_model(made, feed), run_model(model, feed)
        assert results["z"].shape == (2, 3, 7, 7)
        np.testing.assert_allclose(results["z"], expected["z"], atol=0.05)
        np.testing.assert_allclose(results["y"], expected["y"], atol=0.3)


def test_a_gather_that_is_the_models_own_stays() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3, 7, 7] x) => (float[2, 8, 7, 7] y) <
            float[8, 4, 3, 3] w, int64[4] channels = {0, 1, 2, 0}
        > {
            p = Gather<axis = 1>(x, channels)
            y = Conv<pads = [1, 1, 1, 1]>(p, w)
        }"""
    )
    made = lowered(model)
    ir, context, _ = apply("import-qdq,insert-qdq", made, "ort-cpu")
    assert [op.op_type for op in ir.graph.ops()].count("Gather") == 1
    assert serialize(artifact(context, "qdq")) == serialize(made)
