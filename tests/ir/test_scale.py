"""Large graphs: nothing recurses over depth, and nothing takes quadratic time."""

from __future__ import annotations

import onnx
from onnx import ModelProto, helper
from support.models import floats, model_of
from support.pipelines import PLACE, PREPARE, apply

from qc.ir import lift
from qc.ir.onnx.lower import lower, serialize
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site
from qc.ir.text import print_model
from qc.ir.verifier import verify


def chain(length: int) -> ModelProto:
    names = ["x", *(f"v{i}" for i in range(length - 1)), "y"]
    kinds = ("Relu", "Neg", "Identity")
    nodes = [helper.make_node(kinds[i % 3], [names[i]], [names[i + 1]]) for i in range(length)]
    return model_of(nodes, [floats("x", 4)], [floats("y", 4)])


def star(readers: int) -> ModelProto:
    """One value that many read."""
    nodes = [helper.make_node("Neg", ["x"], ["a"])]
    nodes += [helper.make_node("Relu", ["a"], [f"y{i}"]) for i in range(readers)]
    return model_of(nodes, [floats("x", 4)], [floats(f"y{i}", 4) for i in range(readers)])


def test_a_chain_of_50000_ops() -> None:
    model = chain(50_000)
    lifted = lift(model)
    assert serialize(lower(lifted)) == serialize(model)
    assert len(print_model(lifted).splitlines()) == 50_004
    verify(lifted)
    assert lifted.graph.values()[-1].type.shape == (4,)


def test_a_value_with_20000_readers() -> None:
    model = star(20_000)
    lifted = lift(model)
    assert serialize(lower(lifted)) == serialize(model)
    assert len(lifted.graph.values()[1].uses) == 20_000
    verify(lifted)


def test_passes_on_a_chain() -> None:
    ir, _, _ = apply(f"{PREPARE},{PLACE}", chain(3_000), target="npu")
    assert len(ir.graph.ops()) == 2_000
    assert len(ir.quant) == 2_001
    assert onnx.checker.check_model(lower(ir)) is None


def test_passes_on_a_star() -> None:
    ir, _, _ = apply(f"{PREPARE},{PLACE}", star(2_000), target="npu")
    assert len(ir.quant) == 2_002


def test_one_grid_at_5000_readers_of_a_value() -> None:
    ir = lift(star(5_000))
    value = ir.graph.values()[1]
    for use in value.uses:
        shared = next(ir.quant.quantizers_on(value), None)
        ir.quant.place(Site(value, use.op, use.port), shared or QuantSpec.of("uint8"), "read in integers")
    assert len(ir.quant) == len(ir.quant.sites_on(value)) == 5_000
    assert len(ir.quant.quantizers()) == 1
