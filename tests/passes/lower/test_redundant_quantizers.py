"""Which quantizers a simulation executes: none that is off, none on a tensor that is on its grid already."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model
from support.placement import of_value, op, value

from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, PerChannel, QuantSpec
from qc.ir.quant_table import Site
from qc.passes import PassContext

CARRIED = """g (float[1, 4, 4, 4] x) => (float[4, 4] y) <float[16, 4] w, int64[2] s = {4, 16}> {
    a = Exp(x)
    t = Transpose<perm = [0, 2, 3, 1]>(a)
    m = MaxPool<kernel_shape = [1, 1]>(t)
    r = Reshape(m, s)
    y = MatMul(r, w)
}"""


def simulated(text: str, target: str = "npu", pipeline: str = PLACE) -> tuple[ModelProto, Model, PassContext]:
    model = parse(text)
    ir, context, _ = apply(
        f"{pipeline},calibrate,insert-qdq,to-simulation", model, target, random_feeds(model)
    )
    return model, ir, context


def rounded(simulation: ModelProto) -> list[str]:
    return [node.input[0] for node in simulation.graph.node if node.op_type == "FakeQuantize"]


def by_hand(text: str, grids: dict[str, Encoding]) -> tuple[Model, ModelProto]:
    """A simulation with quantizers on the named tensors; equal encodings, the same object, mean tied."""
    ir = apply("", parse(text))[0]
    held = {}
    for name, encoding in grids.items():
        site = Site(value(ir, name))
        quantizer = ir.quant.place(site, held.get(encoding, encoding.spec), "by hand")
        ir.quant.calibrate(quantizer, encoding, "by hand")
        held[encoding] = quantizer
    return ir, artifact(apply("to-simulation", ir)[1], "simulation")


def grid(format: str = "uint8", scale: object = 0.05, **spec: object) -> Encoding:
    array = np.asarray(scale, np.float32)
    return Encoding(QuantSpec.of(format, **spec), array, np.full(array.shape, 3))


def test_a_chain_of_movers_is_rounded_once() -> None:
    model, ir, context = simulated(CARRIED)
    assert of_value(ir, "a") is of_value(ir, "t") is of_value(ir, "m") is of_value(ir, "r") is not None
    simulation = artifact(context, "simulation")
    assert rounded(simulation)[:2] == ["x", "a"] and len(rounded(simulation)) == 3
    for feed in random_feeds(model, seed=1):
        expected = run_model(artifact(context, "qdq"), feed)["y"]
        np.testing.assert_array_equal(run_model(simulation, feed)["y"], expected)


def test_a_join_of_tied_tensors_is_not_rounded() -> None:
    text = """g (float[1, 4] x) => (float[1, 8] y) {
        a = Neg(x)
        b = Abs(x)
        y = Concat<axis = 1>(a, b)
    }"""
    shared = grid()
    assert rounded(by_hand(text, dict.fromkeys(["a", "b", "y"], shared))[1]) == ["a", "b"]
    assert len(rounded(by_hand(text, {"a": shared, "b": grid(), "y": shared})[1])) == 3
    assert len(rounded(by_hand(text, {"a": shared, "y": shared})[1])) == 2


def test_only_what_keeps_the_grid_is_left_out() -> None:
    text = "g (float[2, 4] x) => (float[2, 4] y) {{ a = Neg(x) m = {}(a) y = Abs(m) }}"
    shared = grid()
    assert rounded(by_hand(text.format("Identity"), {"a": shared, "m": shared})[1]) == ["a"]
    assert len(rounded(by_hand(text.format("Exp"), {"a": shared, "m": shared})[1])) == 2
    assert len(rounded(by_hand(text.format("Identity"), {"a": grid(), "m": grid()})[1])) == 2
    channels = grid(scale=[0.05, 0.05, 0.05, 0.05], granularity=PerChannel(1))
    assert len(rounded(by_hand(text.format("Identity"), {"a": channels, "m": channels})[1])) == 2


@pytest.mark.parametrize(("reduction", "count"), [("none", 2), ("add", 3)])
def test_a_scatter_that_adds_leaves_the_grid(reduction: str, count: int) -> None:
    text = f"""g (float[4] x, float[4] z, int64[4] i) => (float[4] y) {{
        a = Neg(x)
        b = Neg(z)
        y = ScatterElements<reduction = "{reduction}">(a, i, b)
    }}"""
    assert len(rounded(by_hand(text, dict.fromkeys(["a", "b", "y"], grid()))[1])) == count


def test_half_precision_does_not_hold_a_grid() -> None:
    text = "g (float16[2, 4] x) => (float16[2, 4] y) { a = Neg(x) y = Identity(a) }"
    assert len(rounded(by_hand(text, dict.fromkeys(["a", "y"], grid("uint16")))[1])) == 2


def test_another_grid_at_the_reader_counts() -> None:
    text = "g (float[2, 4] x) => (float[2, 4] y) { a = Neg(x) m = Identity(a) y = Abs(m) }"
    ir = apply("", parse(text))[0]
    shared, other = grid(), grid("uint4", 0.7)
    quantizer = ir.quant.place(Site(value(ir, "a")), shared.spec, "by hand")
    ir.quant.calibrate(quantizer, shared, "by hand")
    ir.quant.place(Site(value(ir, "m")), quantizer, "by hand")
    own = ir.quant.place(Site(value(ir, "a"), op(ir, "m"), 0), other.spec, "by hand")
    ir.quant.calibrate(own, other, "by hand")
    assert len(rounded(artifact(apply("to-simulation", ir)[1], "simulation"))) == 3


def test_what_is_off_is_not_in_the_graph() -> None:
    ir, simulation = by_hand(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Neg(x) y = Abs(a) }", {"a": grid(), "y": grid()}
    )
    assert len(rounded(simulation)) == 2
    ir.quant.remove(Site(value(ir, "a")), "off")
    simulation = artifact(apply("to-simulation", ir)[1], "simulation")
    assert len(rounded(simulation)) == 1
    assert {info.name for info in simulation.graph.input} == {"x", "q2/scale", "q2/zero_point", "q2/limits"}
