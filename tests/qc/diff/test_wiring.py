"""Seeing through what only rounds: pairs of ops, stored codes, simulated quantizers and those of the IR."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse

from qc.diff.wiring import GraphWiring, Read, Wiring
from qc.ir import lift
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec
from qc.ir.quant_table import Site

PAIR = """
g (float[2,3] x) => (float[2,3] y, float[2,3] z)
<float s = {0.5}, uint8 o = {128}> {
    q = QuantizeLinear(x, s, o)
    d = DequantizeLinear(q, s, o)
    y = Relu(d)
    z = Neg(x)
}
"""


def wired(text: str) -> tuple[Model, GraphWiring]:
    model = lift(parse(text))
    return model, Wiring(model).scopes[model.graph]


def first_read(scope: GraphWiring, op_type: str, port: int = 0) -> Read:
    op = next(op for op in scope.ops if op.op_type == op_type)
    found = scope.reads[op][port]
    assert found is not None
    return found


def types(ops: list[Op]) -> list[str]:
    return [op.op_type for op in ops]


def test_a_pair_is_a_quantization_on_the_tensor_it_rounds() -> None:
    _, scope = wired(PAIR)
    assert types(scope.ops) == ["Relu", "Neg"]
    read = first_read(scope, "Relu")
    (quantization,) = read.quantizations
    assert read.value.name == "x"
    assert str(quantization.spec) == "uint8 symmetric"
    assert quantization.encoding is not None and float(quantization.encoding.scale) == 0.5
    assert types(list(quantization.ops)) == ["QuantizeLinear", "DequantizeLinear"]
    assert first_read(scope, "Neg") == Read(read.value)
    assert [user.op.op_type for user in scope.users[read.value]] == ["Relu", "Neg"]


@pytest.mark.parametrize(
    ("change", "visible"),
    [
        (("DequantizeLinear(q, s, o)", "DequantizeLinear(q, t, o)"), ["QuantizeLinear", "DequantizeLinear"]),
        (("z = Neg(x)", "c = Cast<to=1>(q) z = Neg(c)"), ["QuantizeLinear", "Cast"]),
        (("uint8 o = {128}", "uint8 o"), ["QuantizeLinear", "DequantizeLinear"]),
    ],
    ids=["other grid", "codes read elsewhere", "computed zero point"],
)
def test_what_does_more_than_round_stays_an_op(change: tuple[str, str], visible: list[str]) -> None:
    text = PAIR.replace("float s = {0.5}", "float s = {0.5}, float t = {0.25}").replace(*change)
    if "uint8 o>" in text:
        text = text.replace("{\n    q", "{\n    o = Cast<to=2>(t)\n    q")
    _, scope = wired(text)
    assert [op for op in types(scope.ops) if op in visible] == visible


def test_stored_codes_are_the_constant_they_stand_for() -> None:
    model, scope = wired(
        """g (float[2,3] x) => (float[2,2] y)
        <int8[3,2] w = {1,2,3,4,5,6}, float[2] s = {0.5, 0.25}, int8[2] o = {0, 0}> {
            d = DequantizeLinear<axis=-1>(w, s, o)
            y = MatMul(x, d)
        }"""
    )
    read = first_read(scope, "MatMul", 1)
    assert read.value.name == "w" and read.quantizations[0].stored
    assert read.quantizations[0].spec.granularity == PerChannel(1)
    assert [value.name for value in scope.constants] == ["w"]
    assert scope.constants == [value for value in model.graph.values() if value.name == "w"]


def test_blocks() -> None:
    _, scope = wired(
        """g (float[2,4] x) => (float[2,2] y) <int4[4,2] w = {1,2,3,4,5,6,7,-8}, float[2,2] s = {1,2,3,4}> {
            d = DequantizeLinear<axis=0, block_size=2>(w, s)
            y = MatMul(x, d)
        }"""
    )
    (quantization,) = first_read(scope, "MatMul", 1).quantizations
    assert (str(quantization.spec.format), quantization.spec.granularity) == ("int4", PerBlock(0, 2))


def test_constant_ops_are_constants() -> None:
    _, scope = wired(
        "g (float[2] x) => (float[2] y) { c = Constant<value_floats=[1.0, 2.0]>() y = Add(x, c) }"
    )
    assert types(scope.ops) == ["Add"]
    assert [value.name for value in scope.constants] == ["c"]


def test_an_output_behind_a_pair_is_what_was_rounded() -> None:
    model, scope = wired(
        """g (float[2] x) => (float[2] y) <float s = {0.5}, uint8 o = {0}> {
            a = Relu(x) q = QuantizeLinear(a, s, o) y = DequantizeLinear(q, s, o)
        }"""
    )
    read = scope.outputs[model.graph.outputs[0]]
    assert read.value.name == "a" and len(read.quantizations) == 1


def test_a_tensor_of_an_enclosing_graph_is_seen_through_its_rounding() -> None:
    model = lift(
        parse(
            """g (float[2] x, bool c) => (float[2] y) <float s = {0.5}, uint8 o = {0}> {
                q = QuantizeLinear(x, s, o)
                d = DequantizeLinear(q, s, o)
                y = If (c) <
                    then_branch = t () => (float[2] a) { a = Relu(d) },
                    else_branch = e () => (float[2] b) { b = Neg(d) }
                >
            }"""
        )
    )
    wiring = Wiring(model)
    main, *branches = wiring.scopes.values()
    x = model.graph.inputs[0]
    assert [first_read(scope, types(scope.ops)[0]).value for scope in branches] == [x, x]
    assert list(main.captured.values()) == [(x,)]
    assert main.users[x][0].port is None


def test_a_quantizer_of_the_ir_is_a_quantization() -> None:
    model = lift(parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Add(a, a) y = Mul(a, b) }"))
    a = next(value for value in model.graph.values() if value.name == "a")
    spec = QuantSpec.of("int8", symmetric=True)
    quantizer = model.quant.place(Site(a), spec, "for the test")
    assert first_read(Wiring(model).scopes[model.graph], "Add").quantizations[0].grid == spec
    model.quant.calibrate(quantizer, Encoding(spec, np.asarray(0.5), np.asarray(0)), "for the test")
    (quantization,) = first_read(Wiring(model).scopes[model.graph], "Mul").quantizations
    assert quantization.quantizer is quantizer and quantization.encoding is quantizer.encoding
