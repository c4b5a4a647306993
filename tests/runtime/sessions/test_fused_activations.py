"""Activations that quantizers compute; on the CPU, where sessions leave them alone, both must agree."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds

import qc
from qc.runtime import open_session
from qc.runtime.sessions.fused_activations import fuse_activations

NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3, 8, 8] x) => (float[2, 4, 8, 8] y, float[2, 4, 8, 8] z)
<float[4, 3, 3, 3] w, float[4, 4, 1, 1] v, float low = {0.0}, float high = {1.5}>
{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    c = Conv (b, v)
    d = Clip (c, low, high)
    e = Add (b, d)
    z = Relu (e)
    y = Conv (z, v)
}
"""


def simulation(network: ModelProto) -> ModelProto:
    return qc.compile(network, data=random_feeds(network, 4), target="ort-cpu").simulation


def activations(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type in ("Relu", "Clip")]


def test_quantizers_clamp_and_the_results_stay() -> None:
    network = parse(NETWORK)
    simulated = simulation(network)
    before = simulated.SerializeToString()
    fused = fuse_activations(simulated)
    assert simulated.SerializeToString() == before
    assert (activations(simulated), activations(fused)) == (["Relu", "Clip", "Relu"], [])
    for feed in random_feeds(network, 3, seed=1):
        assert_equal_results(simulated, fused, feed)


def test_a_quantizer_that_is_switched_off_still_clamps() -> None:
    network = parse(NETWORK)
    simulated = simulation(network)
    zero = np.zeros((), np.float32)
    off = {info.name: zero for info in simulated.graph.input if info.name.endswith("scale")}
    assert off
    assert_equal_results(simulated, fuse_activations(simulated), random_feeds(network, 1)[0] | off)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Relu (x) y = qc.FakeQuantize (a, s, p, l) z = Neg (a)",
        "z = Relu (x) y = qc.FakeQuantize (z, s, p, l)",
        "a = Relu (x) y = qc.FakeQuantize (a, s, p, l) z = If (c) <then_branch = t () => (float[n] u)"
        " { u = Neg (a) }, else_branch = e () => (float[n] v) { v = Neg (x) }>",
        "m = ReduceMax <keepdims = 0> (x) a = Clip (x, low, m) y = qc.FakeQuantize (a, s, p, l) z = Neg (y)",
        "a = Clip (x, fed) y = qc.FakeQuantize (a, s, p, l) z = Neg (y)",
        "a = LeakyRelu (x) y = qc.FakeQuantize (a, s, p, l) z = Neg (y)",
    ],
)
def test_an_activation_stays_that_is_read_elsewhere_or_does_more(nodes: str) -> None:
    model = parse(f"""
    <ir_version: 8, opset_import: ["" : 17, "qc" : 1]>
    g (float[n] x, bool c, float fed) => (float[n] y, float[n] z)
    <float low = {{-1}}, float s = {{0.1}}, int32 p = {{0}}, int32[2] l = {{-128, 127}}>
    {{ {nodes} }}""")
    assert fuse_activations(model) == model


def test_a_clip_takes_its_limits_in_every_spelling() -> None:
    for opset, nodes, limits in [
        (6, "a = Clip <min = -1.0, max = 2.0> (x)", [-1, 2]),
        (17, "a = Clip (x, low, high)", [-1, 2]),
        (17, "a = Clip (x, , high)", [-np.inf, 2]),
        (17, "a = Clip (x, low)", [-1, np.inf]),
        (17, "a = Clip (x)", [-np.inf, np.inf]),
    ]:
        model = parse(f"""
        <ir_version: 8, opset_import: ["" : {opset}, "qc" : 1]>
        g (float[n] x) => (float[n] y)
        <float low = {{-1}}, float high = {{2}},
         float s = {{0.1}}, int32 p = {{0}}, int32[2] l = {{-128, 127}}>
        {{ {nodes} y = qc.FakeQuantize (a, s, p, l) }}""")
        (quantizer,) = fuse_activations(model).graph.node
        assert [attribute.f for attribute in quantizer.attribute] == limits


def assert_equal_results(model: ModelProto, fused: ModelProto, feed: dict[str, np.ndarray]) -> None:
    results = [open_session(one, optimize=False).run(None, feed) for one in (model, fused)]
    for expected, found in zip(*results, strict=True):
        assert np.array_equal(found, expected)
