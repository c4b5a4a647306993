"""The matcher: completeness, what may leave a match, ranking and claims, explanations, scale."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from qc.ir import lift
from qc.ir.errors import UsageError
from qc.patterns import (
    Supergroup,
    attribute,
    chain,
    choice,
    constant,
    find_all,
    match_at,
    matches_at,
    op,
    results,
    value,
)


def names(match):
    return sorted(each.op_type for each in match.ops)


def test_one_pattern_is_searched_for_like_several(graph_of):
    graph = graph_of("a = Relu(x); y = Relu(a)")
    pattern = op.Relu(value("x"))
    assert [match.root for match in find_all(graph, pattern)] == graph.ops()
    assert [match.root for match in find_all(graph, [pattern])] == graph.ops()
    with pytest.raises(TypeError, match="not iterable"):
        iter(pattern)


def test_a_model_is_no_graph():
    with pytest.raises(UsageError, match=r"take model\.graph"):
        find_all(lift(onnx.ModelProto()), op.Relu(value("x")))


# -- completeness ------------------------------------------------------------------------------------


def test_operands_of_commutative_ops_match_in_any_order(graph_of):
    x = value("x")
    pattern = 0.5 * (x * (1 + op.Erf(x / 1.4142135)))
    for left, inner, one in (("x, g", "m, h1", "e, c1"), ("g, x", "h1, m", "c1, e")):
        graph = graph_of(
            f"d = Div(x, r); e = Erf(d); g = Add({one}); m = Mul({left}); y = Mul({inner})",
            constants={"r": 1.4142135, "h1": 0.5, "c1": 1.0},
        )
        assert match_at(pattern, graph.ops()[-1])["x"].name == "x"


def test_operands_of_other_ops_do_not_swap(graph_of):
    graph = graph_of("a = Relu(x); y = Sub(a, x)")
    x = value()
    assert match_at(op.Relu(x) - x, graph.ops()[-1])
    assert not match_at(x - op.Relu(x), graph.ops()[-1])


@pytest.mark.parametrize("first_is_plain", [True, False])
def test_an_early_alternative_that_fits_does_not_hide_a_later_one(graph_of, first_is_plain):
    """The choice made at the first operand has to be taken back when the second one does not fit it."""
    graph = graph_of("a = Relu(x); y = Sub(a, x)")
    x = value("x")
    options = x | op.Relu(x) if first_is_plain else op.Relu(x) | x
    match = match_at(options - x, graph.ops()[-1])
    assert match and match["x"].name == "x"


def test_a_condition_inside_an_alternative_counts(graph_of):
    graph = graph_of("a = Relu(x); y = Neg(a)")

    def never(each):
        return False

    pattern = op.Neg(op.Relu(value("x", where=never)) | op.Sigmoid(value("x")))
    assert not match_at(pattern, graph.ops()[-1])


def test_the_order_of_shared_and_unshared_parts_does_not_matter(graph_of):
    graph = graph_of("a = Relu(x); b = Neg(x); c = Add(a, b); y = Mul(c, x)")
    x = value("x")
    for pattern in ((op.Relu(x) + op.Neg(x)) * x, x * (op.Neg(x) + op.Relu(x))):
        assert match_at(pattern, graph.ops()[-1])


def test_two_elements_may_match_the_same_op(graph_of):
    """Exporters write the centred value once or twice; a pattern with two objects covers both."""
    x, z = value("x"), value("z")
    pattern = (x - z) * (x - z)
    once = graph_of("d = Sub(x, z); y = Mul(d, d)", inputs="float[8] x, float[8] z")
    twice = graph_of("d = Sub(x, z); e = Sub(x, z); y = Mul(d, e)", inputs="float[8] x, float[8] z")
    assert names(match_at(pattern, once.ops()[-1])) == ["Mul", "Sub"]
    assert names(match_at(pattern, twice.ops()[-1])) == ["Mul", "Sub", "Sub"]


def test_all_distinct_matches_are_found(graph_of):
    graph = graph_of("a = Relu(x); b = Relu(z); y = Add(a, b)", inputs="float[8] x, float[8] z")
    pattern = op.Relu(value("x")) + value("other")
    found = {(match["x"].name, match["other"].name) for match in matches_at(pattern, graph.ops()[-1])}
    assert found == {("x", "b"), ("z", "a")}


def test_a_symmetric_tree_does_not_explode():
    """31 commutative ops whose last leaf fails: 2 to the 31 orders if each were tried."""
    width, nodes, level = 32, [], [f"x{i}" for i in range(32)]
    while len(level) > 1:
        made = [f"v{width}_{i}" for i in range(len(level) // 2)]
        nodes += [helper.make_node("Add", level[2 * i : 2 * i + 2], [name]) for i, name in enumerate(made)]
        level, width = made, width // 2
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [1]) for i in range(32)]
    outputs = [helper.make_tensor_value_info(level[0], TensorProto.FLOAT, [1])]
    graph = lift(helper.make_model(helper.make_graph(nodes, "tree", inputs, outputs))).graph

    def tree(depth, last):
        return last if not depth else tree(depth - 1, value()) + tree(depth - 1, last)

    assert match_at(tree(5, value()), graph.ops()[-1])
    assert not match_at(tree(5, constant()), graph.ops()[-1])
    assert len(list(matches_at(tree(5, value()), graph.ops()[-1]))) == 1


# -- what may leave a match --------------------------------------------------------------------------


def test_a_value_used_elsewhere_must_not_be_inside(graph_of):
    graph = graph_of("a = Conv(x, w); b = Relu(a); y = Add(b, a)", constants={"w": [[[1.0]] * 4] * 4})
    relu = graph.ops()[1]
    mismatch = match_at(op.Relu(op.Conv(value("x"), ...)), relu)
    assert not mismatch
    assert "'a' (made by Conv) should be used inside only, but is also read by Add of 'y'" in str(mismatch)


def test_a_value_used_twice_inside_is_fine(graph_of):
    graph = graph_of("a = Conv(x, w); s = Sigmoid(a); y = Mul(a, s)", constants={"w": [[[1.0]] * 4] * 4})
    a = op.Conv(value("x"), ...)
    assert names(match_at(a * op.Sigmoid(a), graph.ops()[-1])) == ["Conv", "Mul", "Sigmoid"]


def test_a_graph_output_must_not_be_inside(graph_of):
    graph = graph_of("a = Conv(x, w); y = Relu(a)", outputs="y a", constants={"w": [[[1.0]] * 4] * 4})
    mismatch = match_at(op.Relu(op.Conv(value("x"), ...)), graph.ops()[-1])
    assert "'a' (made by Conv) should be used inside only, but is an output of the graph" in str(mismatch)


def test_the_result_may_be_an_output_and_be_used(graph_of):
    graph = graph_of("a = Neg(x); b = Relu(a); y = Neg(b)", outputs="y b")
    assert match_at(op.Relu(op.Neg(value())), graph.ops()[1])


def test_other_outputs_of_an_inner_op_count_too(graph_of):
    body = "a, m = Dropout(x); b = Relu(a); y = Not(m)"
    pattern = op.Relu(op.Dropout(value("x")))
    assert not match_at(pattern, graph_of(body, outputs="y b").ops()[1])
    assert match_at(pattern, graph_of("a, m = Dropout(x); y = Relu(a)").ops()[1])


def test_a_use_inside_a_subgraph_is_a_use_outside():
    text = """<ir_version: 8, opset_import: ["" : 17]> test (float[4] x, bool c) => (float[4] y, float[4] z) {
        a = Neg(x)
        y = Relu(a)
        z = If (c) <then_branch = one () => (float[4] p) { p = Abs(a) },
                    else_branch = two () => (float[4] q) { q = Abs(x) }>
    }"""
    graph = lift(onnx.parser.parse_model(text)).graph
    relu = next(each for each in graph.ops() if each.op_type == "Relu")
    assert "also read by a subgraph of If" in str(match_at(op.Relu(op.Neg(value("x"))), relu))


def test_constants_may_be_shared_with_the_outside(graph_of):
    graph = graph_of("a = Mul(x, c); b = Add(a, c); y = Div(b, c)", constants={"c": [2.0, 3.0]})
    assert match_at(value("x") * constant("c"), graph.ops()[0])


def test_when_one_solution_leaks_the_next_one_is_tried(graph_of):
    graph = graph_of("a = Neg(x); y = Relu(a); z = Abs(a)", outputs="y z")
    relu = next(each for each in graph.ops() if each.op_type == "Relu")
    pattern = op.Relu(op.Neg(value("x")) | value("x"))
    assert names(match_at(pattern, relu)) == ["Relu"]


def test_the_solution_of_a_part_is_not_final_before_the_uses_are_known(graph_of):
    """Taking ``a`` as Relu(u) covers the second reader of ``u``; taking it as given does not."""
    graph = graph_of("u = Neg(x); a = Relu(u); m = Mul(u, c); y = Add(a, m)", constants={"c": [2.0, 3.0]})
    pattern = (value() | op.Relu(value())) + op.Neg(value()) * constant()
    assert names(match_at(pattern, graph.ops()[-1])) == ["Add", "Mul", "Neg", "Relu"]


def test_a_chain_of_op_types_is_a_pattern(graph_of):
    pattern = chain("Conv", "Add", "Relu")
    constants = {"w": [[[1.0]] * 4] * 4, "b": [[1.0]] * 4}
    linked = graph_of("a = Conv(x, w); b2 = Add(b, a); y = Relu(b2)", constants=constants)
    assert names(match_at(pattern, linked.ops()[-1])) == ["Add", "Conv", "Relu"]
    forked = graph_of("a = Conv(x, w); b2 = Add(b, a); r = Relu(b2); y = Mul(r, a)", constants=constants)
    assert not match_at(pattern, forked.ops()[2])


# -- ranking and claims ------------------------------------------------------------------------------


def group(name, pattern, **options):
    return Supergroup(name, pattern, "for the test", "activation", **options)


def test_larger_matches_win_and_claim_their_ops(graph_of):
    graph = graph_of("a = Neg(x); b = Relu(a); y = Abs(b)")
    small = group("small", op.Relu(op.Neg(value("x"))))
    large = group("large", op.Abs(op.Relu(op.Neg(value("x")))))
    for catalogue in ([small, large], [large, small]):
        assert [match.name for match in find_all(graph, catalogue)] == ["large"]


def test_among_equals_the_catalogue_then_the_graph_decides(graph_of):
    graph = graph_of("a = Neg(x); b = Relu(a); c = Neg(b); y = Relu(c)")
    one, two = group("one", op.Relu(value("x"))), group("two", op.Relu(value("x")))
    assert [match.name for match in find_all(graph, [one, two])] == ["one", "one"]
    assert [match.name for match in find_all(graph, [two, one])] == ["two", "two"]
    pairs = group("pair", op["Relu", "Neg"](op["Relu", "Neg"](value("x"))))
    assert [match.result.name for match in find_all(graph, [pairs])] == ["b", "y"]


def test_a_match_gives_way_to_its_next_solution_when_ops_are_taken(graph_of):
    graph = graph_of("a = Neg(x); b = Relu(a); y = Abs(b)")
    taken = group("taken", op.Relu(op.Neg(value("x"))))
    flexible = group("flexible", op.Abs(op.Relu(value("x")) | value("x")))
    found = find_all(graph, [taken, flexible])
    assert [(match.name, names(match)) for match in found] == [
        ("taken", ["Neg", "Relu"]),
        ("flexible", ["Abs"]),
    ]


def test_ops_that_are_taken_before_stay_so(graph_of):
    graph = graph_of("a = Neg(x); b = Relu(a); y = Abs(b)")
    flexible = group("flexible", op.Abs(op.Relu(value("x")) | value("x")))
    (found,) = find_all(graph, [flexible], taken=graph.ops()[:2])
    assert names(found) == ["Abs"]
    assert find_all(graph, [flexible], taken=graph.ops()) == []


def test_the_check_of_a_supergroup_rejects_one_solution_not_all(graph_of):
    graph = graph_of("a = Relu(x); b = Relu(z); y = Add(a, b)", inputs="float[8] x, float[8] z")

    def wants_z(match):
        return None if match["x"].name == "z" else "the operand is not z"

    picky = group("picky", op.Relu(value("x")) + value("other"), check=wants_z)
    assert match_at(picky, graph.ops()[-1])["other"].name == "a"
    (found,) = find_all(graph, [picky])
    assert found["x"].name == "z"

    def wants_nothing(match):
        return "nothing is good enough"

    assert "nothing is good enough" in str(
        match_at(group("never", op.Relu(value("x")), check=wants_nothing), graph.ops()[0])
    )


def test_a_match_is_a_region(graph_of):
    graph = graph_of(
        "a = Conv(x, w); b = Add(a, eps); y = Relu(b)", constants={"w": [[[1.0]] * 4] * 4, "eps": 1e-5}
    )
    pattern = op.Relu(op.Conv(value("x"), constant("weight")) + constant("epsilon"))
    match = match_at(group("fused", pattern, inner=frozenset({"epsilon"})), graph.ops()[-1])
    region = match.region()
    assert region.name == "fused" and region.graph is graph
    assert [each.op_type for each in region.ops] == ["Conv", "Add", "Relu"]
    assert region.root is match.root and match.result.name == "y"
    assert {name: each.name for name, each in region.captures.items()} == {
        "x": "x",
        "weight": "w",
        "epsilon": "eps",
    }
    assert [each.name for each in match.inner] == ["a", "eps", "b"]


# -- explanations ------------------------------------------------------------------------------------


def explain(pattern, graph):
    return match_at(pattern, graph.ops()[-1])


def test_a_mismatch_says_where_and_why(graph_of):
    x = value("x")
    pattern = 0.5 * (x * (1 + op.Erf(x / 1.4142135)))
    constants = {"r": 1.4142135, "h1": 0.5, "c1": 1.0, "bad": 0.25}
    body = "d = Div(x, r); e = {}(d); g = Add(e, {}); m = Mul({}, g); y = Mul(m, h1)"
    wrong_op = explain(pattern, graph_of(body.format("Tanh", "c1", "x"), constants=constants))
    assert (wrong_op.matched, wrong_op.expected, wrong_op.found) == (3, "Erf", "'e', which Tanh computes")
    assert wrong_op.reason == (
        "input 0 of Add of 'g' should be computed by Erf, but is 'e', which Tanh computes"
    )
    wrong_number = explain(pattern, graph_of(body.format("Erf", "bad", "x"), constants=constants))
    assert (wrong_number.expected, wrong_number.found) == ("the constant 1", "the constant 'bad' = 0.25")
    other = graph_of(body.format("Erf", "c1", "z"), inputs="float[8] x, float[8] z", constants=constants)
    unshared = explain(pattern, other)
    assert unshared.matched == 5
    assert str(unshared) == (
        "no match at Mul of 'y': 5 ops fit; input 0 of Div of 'd' should be 'z' (x) as elsewhere in the "
        "pattern, but is 'x', an input of the graph"
    )


def test_a_mismatch_names_attributes_and_inputs(graph_of):
    graph = graph_of("a = ReduceMean<axes = [1]>(x); y = Relu(a)")
    mismatch = explain(op.Relu(op.ReduceMean(value(), axes=[2], keepdims=1)), graph)
    assert mismatch.reason == "ReduceMean of 'a' should have axes=[2], but has axes=[1]"
    axes = attribute("axes")
    unequal = explain(
        op.ReduceMean(op.ReduceMax(value(), axes=axes), axes=axes),
        graph_of("a = ReduceMax<axes = [1]>(x); y = ReduceMean<axes = [0]>(a)"),
    )
    assert (
        unequal.reason
        == "ReduceMax of 'a' should have axes=[0] as elsewhere in the pattern, but has axes=[1]"
    )
    graph = graph_of("y = Conv(x, w, b)", constants={"w": [[[1.0]] * 4] * 4, "b": [1.0] * 4})
    assert explain(op.Conv(value(), value()), graph).reason == "Conv of 'y' should have 2 inputs, but has 3"
    assert explain(op.Relu(value()), graph).expected == "Relu"


def test_a_mismatch_tells_what_a_condition_asks_for(graph_of):
    def is_tiny(data):
        """One element that is next to nothing."""
        return data.size == 1 and data.numpy().item() < 1e-3

    graph = graph_of("y = Add(x, c)", constants={"c": 0.5})
    assert explain(value("x") + constant("epsilon", where=is_tiny), graph).reason == (
        "input 1 of Add of 'y' should be a constant (epsilon): one element that is next to nothing, "
        "but is the constant 'c' = 0.5"
    )
    computed = graph_of("a = Neg(x); y = Add(x, a)")
    assert explain(value("x") + constant("shift"), computed).reason == (
        "input 1 of Add of 'y' should be a constant (shift), but is 'a', which Neg computes"
    )


def test_what_fits_beside_the_failure_counts_too(graph_of):
    """The first operand fails and the second fits: the attempt got further than its order tells."""
    graph = graph_of("a = Tanh(x); b = Neg(x); c = Relu(b); y = Sub(a, c)")
    mismatch = explain(op.Sub(op.Erf(value()), op.Relu(op.Neg(value()))), graph)
    assert [each.op_type for each in mismatch.ops] == ["Neg", "Relu", "Sub"]
    assert mismatch.expected == "Erf"


def test_a_mismatch_of_a_family_names_the_member_that_was_tried(graph_of):
    family = choice("head", {"conv": op.Conv(value(), value()), "neg": op.Neg(value())})
    named = group("{head}_relu", op.Relu(op.Abs(family)))
    wrong = graph_of(
        "a = Conv(x, w, b); m = Abs(a); y = Relu(m)", constants={"w": [[[1.0]] * 4] * 4, "b": [1.0] * 4}
    )
    assert explain(named, wrong).name == "conv_relu"
    assert explain(named, graph_of("a = Exp(x); y = Relu(a)")).name == "*_relu"


def test_a_mismatch_is_false_and_a_match_is_true(graph_of):
    (relu,) = graph_of("y = Relu(x)").ops()
    assert match_at(op.Relu(value()), relu)
    assert not match_at(op.Neg(value()), relu)


# -- scale -------------------------------------------------------------------------------------------


def deep_chain(length):
    nodes = [helper.make_node("Relu" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("v0", f"v{length}")]
    return lift(helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]))).graph


def test_a_deep_chain_needs_no_recursion():
    found = find_all(deep_chain(6000), [group("pair", op.Relu(op.Neg(value("x"))))])
    assert len(found) == 3000


def test_a_value_with_very_many_readers():
    count = 3000
    nodes = [helper.make_node("Neg", ["x"], ["hub"])]
    nodes += [helper.make_node("Relu", ["hub"], [f"y{i}"]) for i in range(count)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [1]) for i in range(count)]
    graph = lift(helper.make_model(helper.make_graph(nodes, "hub", inputs, outputs))).graph
    assert not find_all(graph, [group("pair", op.Relu(op.Neg(value("x"))))])
    assert len(find_all(graph, [group("alone", op.Relu(op.Neg(value("x")) | value("x")))])) == count


def test_many_equal_pairs_around_one_value():
    """Each Relu can pair with each Sigmoid; no pair shares an op with another."""
    count = 60
    nodes = [helper.make_node("Relu", ["x"], [f"a{i}"]) for i in range(count)]
    nodes += [helper.make_node("Sigmoid", ["x"], [f"b{i}"]) for i in range(count)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    names = [node.output[0] for node in nodes]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
    graph = lift(helper.make_model(helper.make_graph(nodes, "pairs", inputs, outputs))).graph
    x = value("x")
    found = find_all(graph, [group("pair", results(op.Relu(x), op.Sigmoid(x)))])
    assert len(found) == count
    assert len({each for match in found for each in match.ops}) == 2 * count


@pytest.mark.parametrize(
    ("shape", "number", "fits"),
    [("[2, 3]", "[1, 1]", True), ("[2, 3]", "[1, 1, 1]", False), ("", "[1]", False), ("[]", "[1, 1]", True)],
)
def test_a_number_that_gives_the_data_more_axes_is_none(shape: str, number: str, fits: bool) -> None:
    """Of ``[]``, in ONNX's text form, no shape is known."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float{shape} x) => (float[] y) <float{number} six = {{6}}> {{ r = Relu(x) y = Div(r, six) }}""")
    graph = lift(model).graph
    assert bool(find_all(graph, op.Relu(value("x")) / 6)) == fits
    assert bool(find_all(graph, op.Div(op.Relu(value("x")), constant("divisor")))) == fits
