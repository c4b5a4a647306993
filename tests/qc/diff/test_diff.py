"""The comparison of models: what it finds, and that it takes nothing for something else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper
from support.diffs import CHAIN, diff, groups, lines, rename
from support.folders import FIXTURES
from support.graphs import float_models
from support.models import parse
from support.pipelines import apply

from qc.diff import ChangeCount, diff_models
from qc.ir import lift

# Padded channels are taken away before models are compared, by "qc diff".
QDQ = "insert-qdq{pad_channels=false}"


# -- ops ------------------------------------------------------------------------------------------------


def test_equal_models() -> None:
    found = diff(CHAIN, CHAIN)
    assert found.equal and str(found) == "" and found.document()["differences"] == []


def test_the_order_of_ops_and_who_made_the_model_do_not_count() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Neg(x) b = Relu(x) y = Add(a, b) }"
    other = parse("g (float[2] x) => (float[2] y) { b = Relu(x) a = Neg(x) y = Add(a, b) }")
    other.producer_name, other.graph.doc_string = "somebody", "a description"
    assert diff(text, other).equal


@pytest.mark.parametrize("renamed", [False, True])
def test_an_inserted_op(renamed: bool) -> None:
    other = parse(CHAIN.replace("c = Conv(b, v)", "i = Identity(b) c = Conv(i, v)"))
    found = diff(CHAIN, rename(other) if renamed else other)
    before, made, after = ("t2", "t3", "t4") if renamed else ("b", "i", "c")
    assert lines(found, "ops") == [f"+ Identity of '{made}': behind '{before}', before Conv of '{after}'"]
    assert groups(found) == (["ops", "names"] if renamed else ["ops"])


def test_a_removed_op() -> None:
    found = diff(CHAIN, CHAIN.replace("b = Relu(a)", "").replace("Conv(b, v)", "Conv(a, v)"))
    assert lines(found, "ops") == ["- Relu of 'b': behind 'a', before Conv of 'c'"]
    assert found.count("ops") == ChangeCount(removed=1)


def test_an_op_that_became_another() -> None:
    found = diff(CHAIN, CHAIN.replace("b = Relu(a)", "s = Sigmoid(a) b = Mul(s, a)"))
    assert lines(found, "ops") == ["~ Relu of 'b': became Sigmoid of 's', Mul of 'b'"]
    assert found.count("ops") == ChangeCount(added=2, removed=1)


def test_many_ops_that_became_one() -> None:
    written_out = """g (float[2,4] x) => (float[2,4] y)
    <float[4] s, float[4] b, float two = {2.0}, float e = {0.1}> {
        m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) p = Pow(d, two) v = ReduceMean<axes=[-1]>(p)
        w = Add(v, e) r = Sqrt(w) n = Div(d, r) k = Mul(n, s) y = Add(k, b)
    }"""
    fused = "g (float[2,4] x) => (float[2,4] y) <float[4] s, float[4] b> { y = LayerNormalization(x, s, b) }"
    header = '<ir_version: 10, opset_import: ["" : 17]>\n'
    (line,) = lines(diff(header + written_out, header + fused), "ops")
    assert line.startswith("~ 9 ops ending in Add of 'y' (")
    assert line.endswith("became LayerNormalization of 'y'")


def test_rewiring() -> None:
    found = diff(CHAIN, CHAIN.replace("y = Add(c, x)", "y = Add(c, b)"))
    assert lines(found, "ops") == ["~ Add of 'y': input 1 was 'x', is 'b'"]


def test_an_output_that_comes_from_elsewhere() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Relu(y) }"
    swapped = "g (float[2] x) => (float[2] y, float[2] z) { z = Neg(x) y = Relu(z) }"
    assert lines(diff(text, swapped), "ops") == [
        "~ output 'y': was 'y', is 'y'",
        "~ output 'z': was 'z', is 'z'",
    ]


def test_attributes() -> None:
    before = CHAIN.replace("Conv(x, w)", "Conv<group=1, pads=[0,0,0,0]>(x, w)")
    after = CHAIN.replace("Conv(x, w)", 'Conv<pads=[1,1,1,1], auto_pad="VALID">(x, w)')
    assert lines(diff(before, after), "ops") == [
        "~ Conv of 'a': attribute group=1 removed; pads [0, 0, 0, 0] -> [1, 1, 1, 1]; "
        "attribute auto_pad='VALID' added"
    ]


def test_a_bias_that_came() -> None:
    found = diff(CHAIN, CHAIN.replace("v> {", "v, float[2] n> {").replace("Conv(b, v)", "Conv(b, v, n)"))
    assert lines(found, "ops") == ["~ Conv of 'c': input 2 added: the constant 'n'"]
    assert lines(found, "constants") == ["+ 'n': float[2]"]


def test_branches_of_one_kind_are_told_apart_by_their_weights() -> None:
    text = """g (float[2,4] x) => (float[2,4] y) <float[4,4] q, float[4,4] k, float[4,4] v> {
        a = MatMul(x, q) b = MatMul(x, k) c = MatMul(x, v) d = Sub(a, b) y = Sub(d, c)
    }"""
    other = rename(
        parse(text.replace("a = MatMul(x, q) b = MatMul(x, k)", "b = MatMul(x, k) a = MatMul(x, q)"))
    )
    assert groups(diff(text, other)) == ["names"]


def test_a_layer_more_is_not_all_layers_changed() -> None:
    def layers(count: int) -> ModelProto:
        ops = "".join(f"h{i} = MatMul(r{i}, w{i}) r{i + 1} = Relu(h{i})" for i in range(count))
        weights = ", ".join(f"float[4,4] w{i}" for i in range(count))
        return parse(f"g (float[2,4] r0) => (float[2,4] y) <{weights}> {{ {ops} y = Neg(r{count}) }}")

    shorter = layers(5)
    del shorter.graph.node[4:6]
    shorter.graph.node[4].input[0] = "r2"
    del shorter.graph.initializer[2]
    found = diff(layers(5), rename(shorter))
    assert lines(found, "ops") == ["- MatMul of 'h2', Relu of 'r3': behind 'r2', before MatMul of 'h3'"]


def test_names_that_moved_on_mean_nothing() -> None:
    model = onnx.load(FIXTURES / "digits_cnn.onnx")
    longer = ModelProto()
    longer.CopyFrom(model)
    longer.graph.node.insert(2, helper.make_node("Abs", [longer.graph.node[1].output[0]], ["abs"]))
    longer.graph.node[3].input[0] = "abs"
    before, after = rename(model), rename(longer)  # both number all their tensors
    shared = {name for node in before.graph.node for name in node.output} & {
        name for node in after.graph.node for name in node.output
    }
    assert len(shared) >= 10
    assert diff(before, after).count("ops") == ChangeCount(added=1)
    assert set(groups(diff(before, after))) == {"ops", "names"}


# -- constants ------------------------------------------------------------------------------------------


def test_how_much_constants_differ() -> None:
    other = parse(CHAIN)
    weight = onnx.numpy_helper.to_array(other.graph.initializer[0]).copy()
    weight[0, 0] += 0.25
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    found = diff(CHAIN, other)
    (line,) = lines(found, "constants")
    assert line.startswith("~ 'w': 1 of 4 values differ, by at most 0.25, SQNR ")
    numbers = found.differences[0].numbers
    assert (numbers["size"], numbers["different"], numbers["max_error"]) == (4, 1, 0.25)


def test_numbers_that_are_none() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] c = {1.0, %s}> { y = Add(x, c) }"
    nan = parse(text % 2)
    nan.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([1, np.nan], np.float32), "c"))
    assert diff(nan, nan).equal
    found = diff(text % 2, nan)
    assert lines(found, "constants") == ["~ 'c': 1 of 2 values differ, by at most nan"]
    assert found.differences[0].numbers == {"size": 2, "different": 1}


def test_shapes_and_forms_of_constants() -> None:
    text = "g (float[1,2] x) => (float[1,2] y) <float[2] c = {1.0, 2.0}> { y = Add(x, c) }"
    reshaped = text.replace("float[2] c", "float[1,2] c")
    assert lines(diff(text, reshaped), "constants") == ["~ 'c': float[2] -> float[1,2]"]
    moved = text.replace("<float[2] c = {1.0, 2.0}>", "").replace(
        "{ y", "{ c = Constant<value_floats=[1.0, 2.0]>() y"
    )
    assert lines(diff(text, moved), "constants") == ["~ 'c': was an initializer, is a Constant op"]


def test_folded_constants() -> None:
    text = "g (float[1,2] x) => (float[1,2] y) <float[2,1] c = {1.0, 2.0}> { t = Transpose(c) y = Add(x, t) }"
    folded = "g (float[1,2] x) => (float[1,2] y) <float[1,2] t = {1.0, 2.0}> { y = Add(x, t) }"
    found = diff(text, folded)
    assert lines(found, "ops") == ["- Transpose of 't': before Add of 'y'"]
    assert groups(found) == ["ops", "constants"]


# -- everything else ------------------------------------------------------------------------------------


def test_interface_and_opsets() -> None:
    first = parse("g (float[N] x, float[2] old) => (float[N] y) { y = Neg(x) }")
    second = parse(
        '<ir_version: 8, opset_import: ["" : 18, "d" : 1]>\ng (float[2] x) => (float[N] y) { y = Neg(x) }'
    )
    second.metadata_props.add(key="k", value="v")
    found = diff(first, second)
    assert lines(found, "model") == [
        "~ IR version: 10 -> 8",
        "~ opset: 21 -> 18",
        "+ opset d: 1",
        "+ metadata 'k': 'v'",
    ]
    assert lines(found, "interface") == [
        "~ input 'x': float[N] -> float[2]",
        "- input 'old': float[2]",
        "~ output 'y': float[N] -> float[2]",
    ]


def test_types_that_onnx_does_not_know_are_not_compared() -> None:
    declared = parse("g (float[N] x) => (float[N] y) <float[N] a> { a = Neg(x) y = Relu(a) }")
    other = parse("g (float[N] x) => (float[N] y) <float[unk__7] a> { a = Neg(x) y = Relu(a) }")
    assert diff(declared, other).equal


def test_branches_and_functions() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
    g (float[2] x, bool c) => (float[2] y) {
        h = f.twice(x)
        y = If (c) <
            then_branch = t () => (float[2] a) { a = Relu(h) },
            else_branch = e () => (float[2] b) { b = Neg(h) }
        >
    }
    <domain: "f", opset_import: ["" : 21]> twice (p) => (q) { q = Add(p, p) }"""
    found = diff(
        text, text.replace("b = Neg(h)", "n = Neg(h) b = Abs(n)").replace("q = Add(p, p)", "q = Mul(p, p)")
    )
    assert lines(found, "ops") == [
        "~ function f::twice: Add of 'q': became Mul of 'q'",
        "+ else_branch of If of 'y': Abs of 'b': behind 'n', before output 'b'",
    ]


def test_document() -> None:
    found = diff(CHAIN, CHAIN.replace("b = Relu(a)", "b = Neg(a)"))
    assert found.document() == {
        "equal": False,
        "counts": {"ops": {"added": 1, "removed": 1, "changed": 0}},
        "differences": [
            {
                "sign": "~",
                "group": "ops",
                "subject": "Relu of 'b'",
                "detail": "became Neg of 'b'",
                "added": ("Neg of 'b'",),
                "removed": ("Relu of 'b'",),
            }
        ],
    }


# -- properties -----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(float_models())
def test_a_model_equals_itself_whatever_it_calls_its_tensors(model: ModelProto) -> None:
    assert diff(model, model).equal
    assert groups(diff(model, rename(model))) in ([], ["names"])


@settings(max_examples=30)
@given(float_models(), st.data())
def test_inserted_ops_and_nothing_else_are_found(model: ModelProto, data: st.DataObject) -> None:
    longer, count = ModelProto(), 0
    longer.CopyFrom(model)
    for position in range(len(model.graph.node) - 1, -1, -1):
        name = longer.graph.node[position].output[0]
        users = [node for node in longer.graph.node[position + 1 :] if name in node.input]
        constant = longer.graph.node[position].op_type == "Constant"
        if users and not constant and data.draw(st.booleans()):
            count += 1
            for node in users:
                node.input[:] = [f"{name}_abs" if one == name else one for one in node.input]
            longer.graph.node.insert(position + 1, helper.make_node("Abs", [name], [f"{name}_abs"]))
    found = diff(model, longer)
    assert found.count("ops") == ChangeCount(added=count)
    assert groups(found) == (["ops"] if count else [])
    assert diff(longer, model).count("ops") == ChangeCount(removed=count)


@settings(max_examples=15)
@given(float_models())
def test_folding_never_shows_as_a_change(model: ModelProto) -> None:
    folded, _, _ = apply("fold-constants,eliminate-identity,fold-batch-norms", model)
    found = diff_models(lift(model), folded)
    assert found.count("ops").added == 0
    assert diff_models(folded, folded).equal


def test_a_long_chain_and_a_value_with_many_readers() -> None:
    names = ["x", *(f"v{i}" for i in range(2_999)), "y"]
    nodes = [helper.make_node(("Relu", "Neg")[i % 2], [names[i]], [names[i + 1]]) for i in range(3_000)]
    nodes += [helper.make_node("Abs", ["v5"], [f"z{i}"]) for i in range(2_000)]
    graph = parse("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    found = diff(graph, rename(graph))
    assert groups(found) == ["names"]
    assert found.count("names") == ChangeCount(changed=2_999 + 2_000)
