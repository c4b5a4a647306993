"""What is kept apart for OpenVINO goes again, and what models have themselves stays."""

from __future__ import annotations

import onnx
from support.models import parse

import qc
from qc.ir import lift
from qc.passes.framework.target import load_target

PAIR = "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)"
GRID = "float s = {0.1}, uint8 z = {100}"


def again(text: str, target: str = "openvino") -> onnx.ModelProto:
    model = parse(text)
    made = qc.compile(model, "import-qdq, insert-qdq", target=target, threads=1, allow_unquantized=True).model
    onnx.checker.check_model(made, full_check=True)
    return made


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if "uantizeLinear" not in node.op_type]


def test_a_maximum_of_lengths_stays() -> None:
    made = again(f"""g (float[N, 4] x) => (float[A, B] y) <{GRID}, int64 one = {{1}}> {{
        {PAIR}  l = Shape(d)  m = Max(l, one)  y = ConstantOfShape(m)
    }}""")
    assert "Max" in ops(made)


def test_a_maximum_with_the_least_number_that_no_reduction_reads_stays() -> None:
    """As OPT has it in front of a Softmax, so that no row is of -infinity alone."""
    made = again(f"""g (float[1, 4] x) => (float[1, 4] y) <{GRID}, float least = {{-3.4028235e38}}> {{
        {PAIR}  m = Max(d, least)  y = Softmax(m)
    }}""")
    assert ops(made) == ["Max", "Softmax"]


def test_a_mean_of_random_numbers_stays() -> None:
    made = again(f"""g (float[1, 4] x) => (float[1, 4] y) <{GRID}, int64[1] one = {{1}}> {{
        {PAIR}  r = RandomNormal<shape = [1, 4]>()  m = ReduceMean(r, one)  y = Add(d, m)
    }}""")
    assert ops(made) == ["RandomNormal", "ReduceMean", "Add"]


def test_codes_that_are_joined_are_read_as_they_are() -> None:
    made = again(f"""g (uint8[2, 4] x, uint8[2, 4] z2) => (float[4, 2] y)
        <{GRID}, int8[4, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float v = {{0.5}}, int8 o = {{0}}> {{
        c = Concat<axis = 0>(x, z2)  d = DequantizeLinear(c, s, z)  e = DequantizeLinear(w, v, o)
        y = MatMul(d, e)
    }}""")
    assert ops(made) == ["Concat", "MatMul"]


def test_a_rule_of_products_ends_on_squares_of_squares() -> None:
    squares = " ".join(f"t{place + 1} = Mul(t{place}, t{place})" for place in range(40))
    graph = lift(
        parse(f"""g (float[1, 4, 4] x) => (float[1, 4, 4] t40) {{
            u = Transpose<perm = [0, 2, 1]>(x)  t0 = MatMul(x, u)  {squares}
        }}""")
    ).graph
    rule = load_target("openvino").rule_for("MatMul")
    (product,) = [op for op in graph.ops() if op.is_type("MatMul")]
    assert rule.barred_by(product) is None


def test_a_long_chain_of_sums_is_followed_to_its_vector() -> None:
    sums = " ".join(f"t{place + 1} = Add(t{place}, one)" for place in range(1500))
    graph = lift(
        parse(f"""g (float[1, 4, 4] x) => (float[1, 4, 4] y)
            <float one = {{1}}, float[4] v = {{1, 2, 3, 4}}> {{
            u = Transpose<perm = [0, 2, 1]>(x)  t0 = MatMul(x, u)  {sums}  y = Mul(t1500, v)
        }}""")
    ).graph
    rule = load_target("openvino").rule_for("MatMul")
    (product,) = [op for op in graph.ops() if op.is_type("MatMul")]
    assert rule.barred_by(product) == "numbers for each channel behind a product of data"
