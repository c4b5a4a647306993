"""Conversion to newer opsets keeps what a model computes, judged by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper, version_converter
from support.models import parse, random_feeds
from support.pipelines import run_model

from qc.ir.onnx.conversion import converted

OLDER = """<ir_version: 7, opset_import: ["" : {opset}]>
    g (float[1, 4, 6, 8] x) => (float[{shape}] y) <float[4] s = {{{scales}}}> {{ {nodes} }}"""


def older(opset: int, nodes: str, scales: tuple[float, ...] = (1, 1, 2, 2)) -> ModelProto:
    shape = [int(length * scale) for length, scale in zip((1, 4, 6, 8), scales, strict=True)]
    named = {"shape": ", ".join(map(str, shape)), "scales": ", ".join(map(str, scales))}
    return parse(OLDER.format(opset=opset, nodes=nodes, **named))


@pytest.mark.parametrize("newer", [11, 13, 23])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 1.5, 2.5), (1, 1, 0.5, 1)])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_a_resize_keeps_its_places(mode: str, scales: tuple[float, ...], newer: int) -> None:
    nodes = {10: f'y = Resize<mode = "{mode}">(x, s)'}
    if min(scales) >= 1:
        nodes[9] = f'y = Upsample<mode = "{mode}">(x, s)'
    for opset, text in nodes.items():
        model = older(opset, text, scales)
        made = converted(model, newer)
        (feed,) = random_feeds(model, 1)
        assert made.opset_import[0].version == newer
        np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-6)


def test_a_resize_in_a_body_keeps_its_places_too() -> None:
    branch = 'g () => (float[1, 4, 12, 16] b) { b = Resize<mode = "linear">(x, s) }'
    model = older(
        10, f"c = Constant<value = bool {{1}}>() y = If(c) <then_branch = {branch}, else_branch = {branch}>"
    )
    (feed,) = random_feeds(model, 1)
    np.testing.assert_allclose(
        run_model(converted(model, 13), feed)["y"], run_model(model, feed)["y"], atol=1e-6
    )


def test_a_resize_of_a_newer_opset_stays_as_it_is() -> None:
    model = older(11, 'r = Constant<value = float[0] {}>() y = Resize<mode = "linear">(x, r, s)')
    (node,) = [node for node in converted(model, 13).graph.node if node.op_type == "Resize"]
    assert {one.name for one in node.attribute} == {"mode"}


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_a_pad_that_fills_with_no_number_has_none(mode: str) -> None:
    pad = f'y = Pad<mode = "{mode}", pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 0.5>(x)'
    model = older(10, pad, (1, 1, 8 / 6, 10 / 8))
    made = converted(model, 13)
    onnx.checker.check_model(made)
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


def test_models_too_old_for_constants_that_are_no_inputs_get_none() -> None:
    model = older(7, "y = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 1]>(x)", (1, 1, 8 / 6, 10 / 8))
    model.ir_version = 3
    del model.graph.initializer[:]
    made = converted(model, 13)
    onnx.checker.check_model(made)
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


def test_a_hardmax_of_several_axes_is_refused() -> None:
    one = (1, 1, 1, 1)
    with pytest.raises(ValueError, match="Hardmax '' is of all axes from 1 on"):
        converted(older(11, "y = Hardmax(x)", one), 13)
    model = older(11, "y = Hardmax<axis = -1>(x)", one)
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(converted(model, 13), feed)["y"], run_model(model, feed)["y"])


FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w = {1, 0, 2, -1, 1, 0, 3, 1, -2, 0, 1, 1}> {
        y = my.layer(x, w)
    }
    <domain: "my", opset_import: ["" : $, "my" : 1]>
    layer (x, w) => (y) { m = MatMul(x, w) y = LeakyRelu(m) }"""


def test_functions_are_written_out_in_the_newer_opset() -> None:
    model = parse(FUNCTION.replace("$", "17"))
    made = converted(model, 23)
    assert [node.op_type for node in made.graph.node] == ["MatMul", "LeakyRelu"]
    (feed,) = random_feeds(model, 1)
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-6)
    assert [node.op_type for node in model.graph.node] == ["layer"]


def test_a_function_of_another_opset_is_not_lost() -> None:
    with pytest.raises(ValueError, match="function 'layer' is of another opset than the model"):
        converted(parse(FUNCTION.replace("$", "18")), 23)


def test_large_weights_are_kept_and_not_shown_to_the_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    model = parse(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[1, 64] x) => (float[1, 64] y) <float b = {1}> { p = MatMul(x, w)  y = Add(p, b) }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    shown: list[int] = []
    convert = version_converter.convert_version

    def spied(light: ModelProto, opset: int) -> ModelProto:
        shown.append(light.ByteSize())
        return convert(light, opset)

    monkeypatch.setattr(version_converter, "convert_version", spied)
    made = converted(model, 21)
    assert shown[0] < weight.nbytes / 4
    assert {one.name: one.SerializeToString() for one in made.graph.initializer} == {
        one.name: one.SerializeToString() for one in model.graph.initializer
    }
