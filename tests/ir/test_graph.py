"""Reading the graph: order, readers, producers, captures, attributes and types."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper
from support.models import floats, model_of, parse

from qc.ir.errors import ModelError
from qc.ir.graph import Graph, Op, Value
from qc.ir.onnx.lift import MAX_NESTING, lift
from qc.ir.onnx.lower import lower, serialize
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType


def named(graph: Graph, name: str) -> Value:
    value = graph.value_named(name)
    assert value is not None
    return value


def producer(graph: Graph, name: str) -> Op:
    op = named(graph, name).producer
    assert op is not None
    return op


def test_readers_are_ordered_by_op_and_port() -> None:
    nodes = [
        helper.make_node("Concat", ["x"] * 12, ["a"], axis=0),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    graph = lift(model_of(nodes, [floats("x", 2)], ["a", "y"])).graph
    uses = [(use.op.op_type, use.port) for use in named(graph, "x").uses]
    assert uses == [*(("Concat", port) for port in range(12)), ("Neg", 0), ("Add", 1)]


def test_a_graph_output_is_no_use_but_an_output() -> None:
    graph = lift(parse("g (float[2] x) => (float[2] a, float[2] y) { a = Neg(x) y = Neg(a) }")).graph
    a, y = named(graph, "a"), named(graph, "y")
    assert a.is_output and len(a.uses) == 1
    assert y.is_output and not y.uses
    assert named(graph, "x").is_input and named(graph, "x").producer is None


def test_left_out_inputs_are_none() -> None:
    nodes = [helper.make_node("Clip", ["x", "", "h"], ["y"]), helper.make_node("Dropout", ["y"], ["z", ""])]
    graph = lift(model_of(nodes, [floats("x"), floats("h")], ["z"])).graph
    clip, dropout = graph.ops()
    assert [value and value.name for value in clip.inputs] == ["x", None, "h"]
    assert [value and value.name for value in dropout.outputs] == ["z", None]


CAPTURES = """g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
    a = Abs(x)
    y = If(c) <
        then_branch = t () => (float[2] r) {
            r = If(c) <
                then_branch = tt () => (float[2] s) { s = Add(a, w) },
                else_branch = te () => (float[2] a) { }
            >
        },
        else_branch = e () => (float[2] u) { u = Neg(x) }
    >
}"""


def test_captured_values() -> None:
    graph = lift(parse(CAPTURES)).graph
    outer = producer(graph, "y")
    assert [value.name for value in outer.captures] == ["c", "a", "w", "x"]
    middle = outer.subgraphs["then_branch"]
    inner = middle.ops()[0].subgraphs["then_branch"]
    inside = named(inner, "a")
    assert inside.captured is named(middle, "a")
    assert inside.original is named(graph, "a") and inside.name == "a"
    assert inside.producer is None
    const = named(inner, "w").original.const
    assert const is not None
    np.testing.assert_array_equal(const.numpy(), [1, 2])
    assert [use.op for use in named(graph, "a").uses] == [outer]


def test_walking_visits_outer_graphs_first() -> None:
    model = lift(parse(CAPTURES))
    assert [graph.name for graph in model.graphs()] == ["g", "t", "tt", "te", "e"]


def test_attributes_as_python_values() -> None:
    node = helper.make_node(
        "Magic",
        ["x"],
        ["y"],
        domain="vendor",
        number=3,
        real=0.5,
        word="ü",
        numbers=[1, 2],
        reals=[0.5],
        words=["a", "b"],
        table=helper.make_tensor("t", TensorProto.FLOAT, [1], [2.0]),
    )
    op = lift(model_of([node], [floats("x")], ["y"], domains=["vendor"])).graph.ops()[0]
    assert (op.attribute("number"), op.attribute("real"), op.attribute("word")) == (3, 0.5, "ü")
    assert (op.attribute("numbers"), op.attribute("reals"), op.attribute("words")) == (
        [1, 2],
        [0.5],
        ["a", "b"],
    )
    assert op.attribute("table").float_data == [2.0]
    assert op.attribute("missing") is None and op.attribute("missing", 7) == 7
    assert not op.is_type("Magic")


def test_labels() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"], name="first"), helper.make_node("Abs", ["a"], ["y"])]
    first, second = lift(model_of(nodes, [floats("x")], ["y"])).graph.ops()
    assert (first.label, second.label) == ("Neg 'first'", "Abs of 'y'")


def test_types_are_inferred() -> None:
    text = """g (float[N, 3] x, bool c) => (float[] y) <float[3, 4] w> {
        a = MatMul(x, w)
        s = Shape(x)
        k = Cast<to = 16>(a)
        y = If(c) <
            then_branch = t () => (float[] r) { r = Neg(a) },
            else_branch = e () => (float[] u) { u = Abs(a) }
        >
    }"""
    graph = lift(parse(text)).graph
    assert named(graph, "a").type == ValueType(TensorProto.FLOAT, ("N", 4))
    assert str(named(graph, "a").type) == "float[N,4]"
    assert named(graph, "s").type == ValueType(TensorProto.INT64, (2,))
    assert named(graph, "k").type.elem_type == TensorProto.BFLOAT16 and named(graph, "k").is_float
    assert not named(graph, "s").is_float and not named(graph, "c").is_float
    branch = producer(graph, "y").subgraphs["then_branch"]
    assert named(branch, "r").type == ValueType(TensorProto.FLOAT, ("N", 4))
    assert named(branch, "a").type == named(graph, "a").type


def test_unknown_ops_leave_types_unknown() -> None:
    node = helper.make_node("Magic", ["x"], ["y"], domain="vendor")
    graph = lift(model_of([node], [floats("x", 2)], ["y"], domains=["vendor"])).graph
    assert named(graph, "y").type == ValueType() and str(named(graph, "y").type) == "?"


def test_reading_types_does_not_read_large_constants() -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[1 << 20, 1 << 20], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere.bin")
    graph = lift(
        model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [floats("x", 2, 1 << 20)], ["y"], [tensor])
    ).graph
    assert named(graph, "y").type.shape == (2, 1 << 20)


def test_ops_are_sorted_by_data_flow_after_edits() -> None:
    model = lift(parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(x) y = Add(a, b) }"))
    graph, rewriter = model.graph, Rewriter(model)
    with rewriter.action("cross", producer(graph, "a")):
        rewriter.set_input(producer(graph, "a"), 0, named(graph, "b"))
    assert [op.op_type for op in graph.ops()] == ["Abs", "Neg", "Add"]


MALFORMED = {
    "defined twice": (["Neg:x:a", "Abs:x:a"], "'a' is defined twice"),
    "an input is computed": (["Neg:x:x"], "'x' is defined twice"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_graphs_are_refused(name: str) -> None:
    lines, message = MALFORMED[name]
    nodes: list[NodeProto] = []
    for line in lines:
        op_type, given, made = line.split(":")
        nodes.append(helper.make_node(op_type, [given], [made]))
    with pytest.raises(ModelError, match=message):
        lift(model_of(nodes, [floats("x", 2)], ["a"]))


@pytest.mark.parametrize("depth", [20, MAX_NESTING + 1])
def test_nesting_has_a_limit(depth: int) -> None:
    model = model_of([], [floats("x", 2)], ["r"])
    graph = model.graph
    for _ in range(depth):
        node = graph.node.add(op_type="Loop", input=["n", ""], output=["r"])
        body = node.attribute.add(name="body", type=AttributeProto.GRAPH).g
        body.output.add(name="r")
        graph = body
    graph.node.add(op_type="Neg", input=["x"], output=["r"])
    if depth > MAX_NESTING:
        with pytest.raises(ModelError, match="nested more than"):
            lift(model)
    else:
        assert serialize(lower(lift(model))) == serialize(model)


def test_an_op_that_was_erased_can_be_shown() -> None:
    """As what a remark is about may be."""
    model = lift(parse("g (float[2] x) => (float[2] y) { h = Abs(x) y = Neg(x) }"))
    op = next(op for op in model.graph.ops() if op.op_type == "Abs")
    assert repr(op) == "<Abs of 'h'>"
    rewriter = Rewriter(model)
    with rewriter.action("erase", op):
        rewriter.erase_op(op)
    assert repr(op) == "<Abs>"
