"""Loops written as their iterations, for a target without loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto
from support.decomposed import agree, types
from support.models import parse
from support.pipelines import apply

from qc.ir.model import Model
from qc.ir.onnx.lower import lower

HEAD = """g (float[2, 4] x) => (float[2, 4] y)
<float[4, 4] w, int64 one = {1}, int64 three = {3}, bool yes = {1}>"""


def unrolled(model: ModelProto, target: str = "qnn-htp") -> Model:
    """What the pass makes of a model, which computes what the model does."""
    ir, _, _ = apply("fold-constants,unroll-loops,eliminate-dead-code", model, target)
    agree(lower(ir), model)
    return ir


def looped(body: str, call: str = "y = Loop(three, , x)", behind: str = "") -> ModelProto:
    """A model with one Loop."""
    return parse(f"{HEAD} {{ {call} <body = step {body}> {behind} }}")


def test_a_limit_says_how_many_iterations_there_are() -> None:
    model = looped(
        "(int64 i, bool c, float[2, 4] h) => (bool d, float[2, 4] n) {"
        " d = Identity(c) m = MatMul(h, w) n = Tanh(m) }"
    )
    ir = unrolled(model)
    assert types(lower(ir)).count("MatMul") == 3
    assert "Loop" not in types(lower(ir))
    assert [value.name for value in ir.graph.values() if value.const is not None] == ["w"]
    made = [value for op in ir.graph.ops() for value in op.outputs if value is not None]
    assert all(value.type.shape == (2, 4) for value in made)


def test_a_counter_that_the_condition_asks_says_it() -> None:
    """As TensorFlow's exporters write a while loop: the limit is the largest number."""
    model = looped(
        "(int64 i, bool c, int64 k, float[2, 4] h) => (bool d, int64 l, float[2, 4] n) {"
        " l = Add(k, one) d = Less(l, three) n = MatMul(h, w) }",
        call="begin = Constant<value = int64 {0}>() most = Constant<value = int64 {9223372036854775807}>()"
        " last, y = Loop(most, yes, begin, x)",
    )
    assert types(lower(unrolled(model))) == ["MatMul"] * 3


def test_a_condition_of_the_number_of_the_iteration() -> None:
    model = looped(
        "(int64 i, bool c, float[2, 4] h) => (bool d, float[2, 4] n) { d = Less(i, one) n = MatMul(h, w) }",
        call="y = Loop(, yes, x)",
    )
    assert types(lower(unrolled(model))) == ["MatMul"] * 2


def test_stacks_rows_and_numbers_that_an_iteration_takes() -> None:
    model = parse(
        """g (float[3, 4] x) => (float[3, 4] y, int64[3, 1] numbers) <int64 three = {3}, bool yes = {1}> {
            y, numbers = Loop(three, yes) <
                body = row (int64[1] i, bool c) => (bool c, float[4] r, int64[1] j) {
                    axes = Constant<value = int64[1] {0}>()
                    taken = Gather(x, i)
                    r = Squeeze(taken, axes)
                    j = Identity(i)
                }
            >
        }"""
    )
    assert "Loop" not in types(lower(unrolled(model)))


def test_a_state_that_is_handed_on_and_one_that_becomes_another() -> None:
    model = parse(
        """g (float[4] x, float[4] z) => (float[4] y, float[4] u, float[4] v) <int64 three = {3}> {
            y, u, v = Loop(three, , x, z, x) <
                body = swap (int64 i, bool c, float[4] a, float[4] b, float[4] k)
                    => (bool c, float[4] b, float[4] a, float[4] k) { }
            >
        }"""
    )
    assert set(types(lower(unrolled(model)))) <= {"Identity"}


def test_loops_and_branches_inside_of_a_loop() -> None:
    model = looped(
        """(int64 i, bool c, float[2, 4] h) => (bool d, float[2, 4] n) {
            d = Identity(c)
            k = Loop(three, , h) <
                body = inner (int64 j, bool e, float[2, 4] s) => (bool f, float[2, 4] t) {
                    f = Identity(e)
                    p = MatMul(s, w)
                    q = Add(p, h)
                    t = Tanh(q)
                }
            >
            is_first = Less(i, one)
            n = If(is_first) <
                then_branch = first () => (float[2, 4] a) { a = Neg(k) },
                else_branch = later () => (float[2, 4] b) { b = Relu(k) }
            >
        }"""
    )
    made = types(lower(unrolled(model)))
    assert made.count("MatMul") == 9
    assert (made.count("Neg"), made.count("Relu"), made.count("If")) == (1, 2, 0)


def test_a_branch_that_data_decides_is_there_for_each_iteration() -> None:
    model = looped(
        """(int64 i, bool c, float[2, 4] h) => (bool d, float[2, 4] n) {
            d = Identity(c)
            total = ReduceSum<keepdims = 0>(h)
            zero = Constant<value = float {0}>()
            high = Greater(total, zero)
            n = If(high) <
                then_branch = up () => (float[2, 4] a) { a1 = MatMul(h, w) a = Tanh(a1) },
                else_branch = down () => (float[2, 4] b) { b = MatMul(h, w) }
            >
        }"""
    )
    ir = unrolled(model)
    assert types(lower(ir)).count("If") == 3
    assert sum(value.const is not None and value.name == "w" for value in ir.graph.values()) == 1


def test_what_data_decides_stays_with_a_reason() -> None:
    model = parse(
        """g (float[2, 4] x, int64 n) => (float[2, 4] y) <float[4, 4] w> {
            y = Loop(n, , x) <
                body = step (int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] k) { k = MatMul(h, w) }
            >
        }"""
    )
    ir, _, _ = apply("unroll-loops", model, "qnn-htp")
    assert types(lower(ir)) == ["Loop"]
    assert any("data decides how often it runs" in remark.reason for remark in ir.journal.remarks)


def test_what_one_loop_tells_of_the_next_is_known() -> None:
    model = parse(
        f"""{HEAD} {{
            begin = Constant<value = int64 {{0}}>()
            k, u, all = Loop(three, , begin, x) <
                body = a (int64 i, bool c, int64 j, float[2, 4] h)
                    => (bool c, int64 l, float[2, 4] n, float[2, 4] o) {{
                        l = Add(j, one) n = MatMul(h, w) o = Identity(n)
                    }}
            >
            v = Loop(k, , u) <
                body = b (int64 i2, bool c2, float[2, 4] h2) => (bool c2, float[2, 4] n2) {{ n2 = Tanh(h2) }}
            >
            y, seen = Scan(v, all) <
                num_scan_inputs = 1,
                body = s (float[2, 4] p, float[2, 4] q) => (float[2, 4] r, float[2, 4] t) {{
                    r = Add(p, q) t = Neg(r)
                }}
            >
        }}"""
    )
    made = types(lower(unrolled(model)))
    assert not {"Loop", "Scan"} & set(made)
    assert (made.count("MatMul"), made.count("Tanh"), made.count("Add")) == (3, 3, 3)


def test_two_scanned_inputs_and_a_state_that_begins_as_another() -> None:
    model = parse(
        """g (float[4] s, float[3, 4] x, float[4, 3] z) => (float[4] y, float[4] u) {
            y, u = Scan(s, s, x, z) <
                num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1],
                body = step (float[4] a, float[4] b, float[4] p, float[4] q) => (float[4] c, float[4] d) {
                    c = Add(a, p)
                    d = Mul(b, q)
                }
            >
        }"""
    )
    assert "Scan" not in types(lower(unrolled(model)))


@pytest.mark.parametrize(
    ("body", "call", "why"),
    [
        ("(int64 i, bool c, float b, float[2, 4] h) => (bool d, float e, float[2, 4] n) {"
         " k = Cast<to = 1>(i) f = Sub(b, k) e = Min(f, b) d = Greater(e, nought) n = MatMul(h, w) }",
         "q, y = Loop(three, yes, without, x)", "data decides"),
        ("(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n) {"
         " r = RandomUniformLike<seed = 3.0>(h) n = Add(h, r) }", "y = Loop(three, , x)", "random numbers"),
        ("(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n) { n = MatMul(h, w) }",
         "y = Loop(none, , x)", "it never runs"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_or_repeated_stays(body: str, call: str, why: str) -> None:
    constants = "nought = Constant<value = float {0}>() none = Constant<value = int64 {0}>()"
    model = looped(
        body, call=f"{constants} far = Constant<value = float {{1e38}}>() without = Mul(far, far) {call}"
    )
    ir, _, _ = apply("fold-constants,unroll-loops", model, "qnn-htp")
    assert "Loop" in types(lower(ir))
    assert any(why in remark.reason for remark in ir.journal.remarks)


def test_loops_in_loops_are_counted_together() -> None:
    body = "(int64 j, bool e, float[2, 4] s) => (bool e, float[2, 4] t) { t = Tanh(s) }"
    inner = f"k = Loop(three, , h) < body = b {body} >"
    model = looped(f"(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n) {{ {inner} n = Neg(k) }}")
    ir, _, _ = apply("unroll-loops{most_ops=14}", model, "qnn-htp")
    assert types(lower(ir)) == ["Loop"], "the inner one fits, and both do not"
    assert types(lower(apply("unroll-loops{most_ops=15}", model, "qnn-htp")[0])).count("Tanh") == 9


def test_a_loop_that_would_become_too_large_stays() -> None:
    body = "(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n) { n = MatMul(h, w) }"
    ir, _, _ = apply("unroll-loops{most_ops=2}", looped(body), "qnn-htp")
    assert types(lower(ir)) == ["Loop"]


def test_a_loop_without_an_end_stays() -> None:
    body = "(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n) { n = MatMul(h, w) }"
    ir, _, _ = apply("unroll-loops", looped(body, call="y = Loop(, yes, x)"), "qnn-htp")
    assert types(lower(ir)) == ["Loop"]


def test_a_target_that_runs_loops_keeps_them() -> None:
    body = "(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n) { n = MatMul(h, w) }"
    ir, _, _ = apply("unroll-loops", looped(body), "openvino")
    assert types(lower(ir)) == ["Loop"]


@given(
    axes=st.tuples(st.sampled_from([-2, -1, 0, 1]), st.sampled_from([-2, -1, 0, 1])),
    backward=st.tuples(st.integers(0, 1), st.integers(0, 1)),
)
def test_a_scan_in_any_order_along_any_axis(axes: tuple[int, int], backward: tuple[int, int]) -> None:
    scanned = "4, 3" if axes[0] in (-1, 1) else "3, 4"
    stacked = "4, 3" if axes[1] in (-1, 1) else "3, 4"
    model = parse(
        f"""g (float[4] s, float[{scanned}] x) => (float[4] y, float[{stacked}] all) {{
            y, all = Scan(s, x) <
                num_scan_inputs = 1,
                scan_input_axes = [{axes[0]}], scan_input_directions = [{backward[0]}],
                scan_output_axes = [{axes[1]}], scan_output_directions = [{backward[1]}],
                body = step (float[4] h, float[4] row) => (float[4] n, float[4] shown) {{
                    n1 = Add(h, row)
                    n = Tanh(n1)
                    shown = Neg(n)
                }}
            >
        }}"""
    )
    assert "Scan" not in types(lower(unrolled(model)))


@pytest.mark.parametrize("opset", [11, 13])
def test_any_opset(opset: int) -> None:
    model = looped(
        "(int64 i, bool c, float[2, 4] h) => (bool c, float[2, 4] n, float[2, 4] n) { n = MatMul(h, w) }",
        call="last, all = Loop(three, , x)",
        behind="y = ReduceMax<axes = [0], keepdims = 0>(all)",
    )
    model.opset_import[0].version = opset
    assert "Loop" not in types(lower(unrolled(model)))
