"""The pattern language: how patterns are written, read back and refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qc.ir.errors import UsageError
from qc.patterns import (
    attribute,
    choice,
    constant,
    find_all,
    match_at,
    op,
    optional,
    results,
    supergroups,
    value,
)
from qc.patterns.pattern import Pattern


def is_small(data):
    return data.size < 100


def eval_pattern(text: str) -> Pattern:
    """Runs what ``repr`` of a pattern wrote."""
    *lines, last = text.split("\n")
    words = (value, constant, optional, choice, attribute, is_small, results)
    scope = {"op": op, **{word.__name__: word for word in words}}
    exec("\n".join(lines), scope)
    return eval(last, scope)


def various() -> list[Pattern]:
    x, axes = value("x"), attribute("axes")
    d = x - op.ReduceMean(x, axes=axes, keepdims=1)
    shared = op.Split(x, axis=1)
    return [
        d / op.Sqrt(op.ReduceMean(d**2 | d * d, axes=axes) + constant(1e-5, tolerance=0.5)),
        0.5 * (x * (op.Erf(x / 1.4142) + 1)),
        op.Conv(x, constant("w", where=is_small), optional(constant("b")), group=1),
        op["Conv", "ConvTranspose"](x, ...).named("y"),
        op.of("com.microsoft").Gelu(x) | (op.Relu(x) | op.Neg(x)).named("either"),
        op.Relu(choice("head", {"conv": op.Conv(x, ...), "add": op.Add(x, value("b"))})),
        shared[0] * op.Sigmoid(shared[1]),
        (x**2) ** x - (x - (x - 1)) / (x / 2),
        -(x @ constant("w")),
        op.Relu(0.5 | value("x")),
        results(op.Relu(d), op.Abs(d)),
    ]


@pytest.mark.parametrize("index", range(len(various())))
def test_repr_is_the_text_that_builds_the_pattern(index):
    text = repr(various()[index])
    assert repr(eval_pattern(text)) == text


def test_repr_of_the_whole_catalogue_can_be_read():
    for group in supergroups():
        assert repr(group.pattern)


def test_repr_shows_sharing():
    x = value("x")
    assert repr(x * op.Sigmoid(x)) == 'x = value("x")\nop.Mul(x, op.Sigmoid(x))'
    assert repr(value("x") * op.Sigmoid(value("x"))) == 'op.Mul(value("x"), op.Sigmoid(value("x")))'


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.Rellu(value()), "did you mean 'Relu'"),
        (lambda: op.Relu(value(), keepdims=1), "'keepdims', which Relu does not have"),
        (lambda: op.Conv(..., value()), "must be the last input"),
        (lambda: op.Relu("x"), "a pattern, a number or None"),
    ],
)
def test_mistakes_are_refused_where_the_pattern_is_made(make, message):
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: op[()](x), "a pattern names no op"),
        (lambda x: choice("kind", {}), "the choice 'kind' has no options"),
        (lambda x: op.Split(x)[-1], "outputs of a pattern are counted from 0, and -1 is none"),
        (lambda x: op.Neg(results(op.Relu(x), op.Abs(x))), "several results are the whole of a pattern"),
        (
            lambda x: op.Softmax(x, axis=None),
            "the attribute 'axis' with None, which is neither a number, a t",
        ),
        (lambda x: constant([1, 2]) * x, "a number or a name in a pattern, not \\[1, 2\\]"),
        (lambda x: op.Conv(x, ..., pads=[0, "a"]), r"the attribute 'pads' with \[0, 'a'\], which is neither"),
    ],
)
def test_what_could_never_match_is_refused(make: Callable[[Pattern], Pattern], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(value("x"))


def test_numbers_of_numpy_are_numbers(graph_of) -> None:
    x = value("x")
    assert repr(np.float32(2) * x) == repr(2.0 * x) and repr(x + np.int64(3)) == repr(x + 3)
    graph = graph_of("y = Softmax<axis=1>(x)")
    assert len(find_all(graph, op.Softmax(x, axis=np.int64(1)))) == 1
    assert repr(op.Conv(x, pads=np.array([1, 2]))[np.int64(1)]) == repr(op.Conv(x, pads=[1, 2])[1])
    assert repr(op.LSTM(x, layout=np.bool_(True))) == repr(op.LSTM(x, layout=1))
    assert repr(constant(np.array(0.5))) == repr(constant(0.5))


def test_patterns_match_in_a_graph(graph_of) -> None:
    model = graph_of("y = Neg(x)").model
    for given, hint in ((model, "take model.graph"), (model.origin, r"qc.ir.lift\(\) makes one")):
        with pytest.raises(UsageError, match=f"patterns match in a qc.ir.Graph, not in a .*: {hint}"):
            find_all(given, [op.Neg(value("x"))])


def test_the_root_must_be_an_op(graph_of):
    graph = graph_of("y = Relu(x)")
    with pytest.raises(UsageError, match="root of a pattern must be an op"):
        find_all(graph, [op.Relu(value()) | value()])


def test_ops_of_other_domains_are_not_checked_against_onnx():
    assert repr(op.of("com.acme").Frobnicate(value("x"), speed=3)) == (
        'op.of("com.acme").Frobnicate(value("x"), speed=3)'
    )


def test_one_object_is_one_value_and_two_objects_may_be_two(graph_of):
    same = graph_of("y = Mul(x, x)").ops()[0]
    other = graph_of("y = Mul(x, z)", inputs="float[8] x, float[8] z").ops()[0]
    x = value("x")
    assert match_at(x * x, same)
    assert not match_at(x * x, other)
    assert match_at(value() * value(), same)
    assert match_at(value() * value(), other)


def test_numbers_match_any_one_element_constant_that_is_close(graph_of):
    graph = graph_of(
        "a = Mul(x, h1); b = Mul(a, h2); y = Mul(b, pair)",
        constants={"h1": 0.5, "h2": [[0.50001]], "pair": [0.5, 0.5]},
    )
    x = value("x")
    matches = [bool(match_at(x * 0.5, each)) for each in graph.ops()]
    assert matches == [True, True, False]
    assert match_at((x * 0.5) * 0.5, graph.ops()[1]), "two numbers need not be the same constant"
    assert not match_at(x * constant(0.5, tolerance=1e-6), graph.ops()[1])


def test_constants_may_come_from_constant_ops_in_every_form(graph_of):
    for form in ("value = float[1] {2.0}", "value_float = 2.0", "value_int = 2", "value_floats = [2.0]"):
        graph = graph_of(f"c = Constant<{form}>(); y = Pow(x, c)")
        match = match_at(value("x") ** 2, graph.ops()[-1])
        assert match, form
        assert [each.op_type for each in match.ops] == ["Pow"], "the Constant op is not part of the match"


def test_a_named_constant_is_captured_and_tied(graph_of):
    graph = graph_of("a = Mul(x, g); y = Add(a, g)", constants={"g": [1.0, 2.0]})
    c = constant("g")
    assert match_at(value("x") * c + c, graph.ops()[-1])["g"].name == "g"
    graph = graph_of("a = Mul(x, g); y = Add(a, h)", constants={"g": [1.0, 2.0], "h": [1.0, 2.0]})
    assert not match_at(value("x") * c + c, graph.ops()[-1])


def test_inputs_must_be_all_there_unless_optional_or_open(graph_of):
    graph = graph_of(
        "a = Conv(x, w); y = Conv(a, w, b)",
        inputs="float[1,1,4,4] x",
        constants={"w": [[[[1.0]]]], "b": [1.0]},
    )
    without, with_bias = graph.ops()
    x, w, b = value("x"), constant("w"), constant("b")
    assert match_at(op.Conv(x, w), without)
    assert not match_at(op.Conv(x, w), with_bias)
    assert not match_at(op.Conv(x, w, b), without)
    for each in (without, with_bias):
        assert match_at(op.Conv(x, ...), each)
    assert "b" not in match_at(op.Conv(x, w, optional(b)), without).captures
    assert match_at(op.Conv(x, w, optional(b)), with_bias)["b"].name == "b"


def test_an_input_left_out_in_the_middle(graph_of):
    graph = graph_of("y = Clip(x, none, top)", constants={"top": 6.0})
    (clip,) = graph.ops()
    assert match_at(op.Clip(value("x"), None, constant("top")), clip)
    assert match_at(op.Clip(value("x"), optional(constant()), constant("top")), clip)
    assert not match_at(op.Clip(value("x"), constant(), constant("top")), clip)


def test_defaults_of_attributes_are_those_of_the_opset(graph_of):
    for opset, axis in ((12, 1), (13, 2)):
        (softmax,) = graph_of("y = Softmax(x)", opset=opset).ops()
        assert bool(match_at(op.Softmax(value(), axis=-1), softmax)) == (axis == 2)
        assert match_at(op.Softmax(value(), axis=axis), softmax)
    (gemm,) = graph_of("y = Gemm(x, w)", inputs="float[2,8] x", constants={"w": [[1.0] * 8] * 8}).ops()
    assert match_at(op.Gemm(value(), value(), alpha=1.0, beta=1.0, transB=0), gemm)
    assert not match_at(op.Gemm(value(), value(), transB=1), gemm)


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("y = ReduceMean<axes = [-1]>(x)", 13),
        ("y = ReduceMean<axes = [2], keepdims = 1>(x)", 13),
        ("y = ReduceMean(x, last)", 18),
        ("c = Constant<value_ints = [-1]>(); y = ReduceMean(x, c)", 18),
    ],
)
def test_axes_are_one_thing_as_attribute_or_input_whatever_their_sign(graph_of, body, opset):
    import numpy as np

    reduce = graph_of(body, opset=opset, constants={"last": np.array([2])}).ops()[-1]
    for axes in ([-1], [2]):
        assert match_at(op.ReduceMean(value(), axes=axes, keepdims=1), reduce)
    assert not match_at(op.ReduceMean(value(), axes=[1], keepdims=1), reduce)
    assert not match_at(op.ReduceMean(value(), axes=[2], keepdims=0), reduce)
    assert match_at(op.ReduceMean(value(), axes=attribute("axes")), reduce).attributes == {"axes": (2,)}


def test_a_reduction_without_axes_is_over_all_of_them(graph_of):
    for opset in (13, 18):
        (reduce,) = graph_of("y = ReduceMean(x)", opset=opset).ops()
        assert match_at(op.ReduceMean(value(), axes=[0, 1, 2]), reduce)


def test_axes_that_the_graph_computes_are_unknown(graph_of):
    (reduce,) = graph_of("y = ReduceMean(x, a)", inputs="float[2,4,8] x, int64[1] a", opset=18).ops()
    assert match_at(op.ReduceMean(value()), reduce)
    assert not match_at(op.ReduceMean(value(), axes=attribute("axes")), reduce)


def test_clip_bounds_are_attributes_in_every_opset(graph_of):
    (old,) = graph_of("y = Clip<min = 0.0, max = 6.0>(x)", opset=6).ops()
    (new,) = graph_of("y = Clip(x, low, high)", constants={"low": 0.0, "high": [6.0]}).ops()
    (open_top,) = graph_of("y = Clip(x, low)", constants={"low": 0.0}).ops()
    for clip in (old, new):
        assert match_at(op.Clip(value("x"), min=0, max=6), clip)
        assert not match_at(op.Clip(value("x"), min=0, max=1), clip)
    assert not match_at(op.Clip(value("x"), min=0, max=6), open_top)
    assert match_at(op.Clip(value("x"), min=0), open_top)


def test_an_attribute_may_be_a_list_of_texts(graph_of):
    body = 'y, last = GRU<hidden_size = 8, activations = ["Relu", "Tanh"]>(x, w, r)'
    (gru,) = graph_of(body, constants={"w": [[[1.0] * 8] * 24], "r": [[[1.0] * 8] * 24]}).ops()
    assert match_at(op.GRU(value("x"), ..., activations=("Relu", "Tanh")), gru)
    assert not match_at(op.GRU(value("x"), ..., activations=["Tanh", "Relu"]), gru)


def test_an_attribute_variable_demands_equality(graph_of):
    axis = attribute("axis")
    pattern = op.Softmax(op.Softmax(value("x"), axis=axis), axis=axis)
    equal = graph_of("a = Softmax<axis = 2>(x); y = Softmax<axis = -1>(a)").ops()[-1]
    unequal = graph_of("a = Softmax<axis = 1>(x); y = Softmax<axis = -1>(a)").ops()[-1]
    assert match_at(pattern, equal).attributes == {"axis": 2}
    assert not match_at(pattern, unequal)


def test_other_outputs_of_an_op(graph_of):
    split = op.Split(value("x"))
    pattern = split[0] * op.Sigmoid(split[1])
    gated = graph_of("a, b = Split<axis = 1>(x); s = Sigmoid(b); y = Mul(a, s)", opset=13).ops()[-1]
    swapped = graph_of("a, b = Split<axis = 1>(x); s = Sigmoid(a); y = Mul(b, s)", opset=13).ops()[-1]
    two = graph_of(
        "a, b = Split<axis = 1>(x); c, d = Split<axis = 1>(x); s = Sigmoid(d); y = Mul(a, s)", opset=13
    ).ops()[-1]
    assert match_at(pattern, gated)
    assert not match_at(pattern, swapped)
    assert not match_at(pattern, two), "the same object must be the same op"


def test_an_output_after_one_that_is_left_out(graph_of):
    body = "none, last = GRU<hidden_size = 8>(x, w, r); y = Relu(last)"
    graph = graph_of(body, constants={"w": [[[1.0] * 8] * 24], "r": [[[1.0] * 8] * 24]})
    relu = graph.ops()[-1]
    assert match_at(op.Relu(op.GRU(value("x"), ...)[1]), relu)
    assert not match_at(op.Relu(op.GRU(value("x"), ...)[0]), relu)
