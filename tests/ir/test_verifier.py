"""The verifier: models that are right pass, and every broken invariant is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.models import parse

from qc.ir import lift
from qc.ir.errors import ModelError, VerificationError
from qc.ir.graph import Graph, Op, Region, Value, capture_port
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.verifier import verify, verify_input

MODEL = """g (float[2, 4] x, bool c, int64 i) => (float[2, 3] y, float[2, 3] z) <float[4, 3] w> {
    a = MatMul(x, w)
    b = Relu(a)
    y = Neg(b)
    z = If(c) <
        then_branch = t () => (float[2, 3] r) { r = Abs(b) },
        else_branch = e () => (float[2, 3] u) { u = Exp(a) }
    >
}"""


def value(graph: Graph, name: str) -> Value:
    found = graph.value_named(name)
    assert found is not None
    return found


def op(graph: Graph, name: str) -> Op:
    found = value(graph, name).producer
    assert found is not None
    return found


def sample() -> Model:
    model = lift(parse(MODEL))
    graph, quant = model.graph, model.quant
    quant.place(Site(value(graph, "x")), QuantSpec.of("uint8"), "test")
    spec = QuantSpec.of("int8", symmetric=True).with_granularity(PerChannel(1))
    weight = quant.place(Site(value(graph, "w"), op(graph, "a"), 1), spec, "test")
    quant.calibrate(weight, Encoding(spec, np.ones(3), np.zeros(3)), "test")
    model.add_region(Region("matmul_relu", graph, (op(graph, "a"), op(graph, "b"))), "test")
    return model


def test_a_right_model_passes() -> None:
    verify(sample())
    verify_input(sample())


Break = Callable[[Model], object]


def same_name_twice(model: Model) -> None:
    value(model.graph, "a").name = "b"


def same_name_in_a_subgraph(model: Model) -> None:
    branch = op(model.graph, "z").subgraphs["then_branch"]
    value(branch, "r").name = "b"


def two_producers(model: Model) -> None:
    model.graph._connect(op(model.graph, "b"), value(model.graph, "a"), 1)


def a_computed_input(model: Model) -> None:
    model.graph.inputs = (*model.graph.inputs, value(model.graph, "a"))


def a_reader_of_nothing(model: Model) -> None:
    model.graph.inputs = ()


def an_output_of_nothing(model: Model) -> None:
    model.graph._disconnect(op(model.graph, "y"), value(model.graph, "y"), 0)


def an_output_less(model: Model) -> None:
    model.graph.outputs = model.graph.outputs[:-1]


def an_output_of_another_name(model: Model) -> None:
    with Rewriter(model).action("rename", value(model.graph, "y")):
        Rewriter(model).rename(value(model.graph, "y"), "other")


def nothing_in_a_subgraph(model: Model) -> None:
    branch = op(model.graph, "z").subgraphs["then_branch"]
    value(branch, "b").captured = None


def a_capture_without_an_edge(model: Model) -> None:
    owner = op(model.graph, "z")
    inner = value(owner.subgraphs["then_branch"], "b")
    model.graph._disconnect(value(model.graph, "b"), owner, capture_port(inner))


def a_capture_of_another_value(model: Model) -> None:
    value(op(model.graph, "z").subgraphs["then_branch"], "b").captured = value(model.graph, "a")


def a_cycle(model: Model) -> None:
    with Rewriter(model).action("cross", op(model.graph, "a")):
        Rewriter(model).set_input(op(model.graph, "b"), 0, value(model.graph, "y"))


def a_crowded_port(model: Model) -> None:
    model.graph._connect(value(model.graph, "x"), op(model.graph, "b"), 0)


def an_input_too_many(model: Model) -> None:
    op(model.graph, "a").num_inputs = 1


def a_region_of_an_erased_op(model: Model) -> None:
    rewriter = Rewriter(model)
    with rewriter.action("add", op(model.graph, "a")):
        stray = rewriter.add_op(model.graph, "Neg", [value(model.graph, "x")], ["stray"])
    model.add_region(Region("gone", model.graph, (stray,)), "test")
    with rewriter.action("erase", stray):
        rewriter.erase_op(stray)


def overlapping_regions(model: Model) -> None:
    model.add_region(Region("relu_neg", model.graph, (op(model.graph, "b"), op(model.graph, "y"))), "test")


def a_quantizer_on_an_erased_value(model: Model) -> None:
    rewriter = Rewriter(model)
    with rewriter.action("add", op(model.graph, "a")):
        stray = rewriter.add_value(model.graph, "stray")
    model.quant.place(Site(stray), QuantSpec.of("uint8"), "test")
    model.graph._remove_node(stray)


def a_quantizer_on_a_use_that_is_not(model: Model) -> None:
    model.quant.place(Site(value(model.graph, "a"), op(model.graph, "y"), 0), QuantSpec.of("uint8"), "test")


def a_quantizer_on_another_port(model: Model) -> None:
    model.quant.place(Site(value(model.graph, "x"), op(model.graph, "a"), 1), QuantSpec.of("uint8"), "test")


def a_quantizer_on_integers(model: Model) -> None:
    model.quant.place(Site(value(model.graph, "i")), QuantSpec.of("uint8"), "test")


def an_encoding_of_another_spec(model: Model) -> None:
    model.quant.quantizers()[0].encoding = Encoding(QuantSpec.of("int8"), np.ones(()), np.zeros(()))


def an_encoding_of_another_shape(model: Model) -> None:
    weight = model.quant.quantizers()[1]
    weight.encoding = Encoding(weight.spec, np.ones(4), np.zeros(4))


def an_axis_that_is_not(model: Model) -> None:
    weight = model.quant.quantizers()[1]
    weight.spec = weight.spec.with_granularity(PerChannel(2))
    weight.encoding = Encoding(weight.spec, np.ones(3), np.zeros(3))


def blocks_that_do_not_fit(model: Model) -> None:
    weight = model.quant.quantizers()[1]
    weight.spec = weight.spec.with_granularity(PerBlock(0, 2))
    weight.encoding = Encoding(weight.spec, np.ones((4, 3)), np.zeros((4, 3)))


BROKEN: dict[Break, str] = {
    same_name_twice: "the name 'b' stands for 2 values of graph 'g'",
    same_name_in_a_subgraph: "the name 'b' stands for 2 values of graph 't'",
    two_producers: "'a' is defined 2 times in graph 'g'",
    a_computed_input: "'a' is defined 2 times in graph 'g'",
    a_reader_of_nothing: "MatMul of 'a' reads 'x', which nothing defines",
    an_output_of_nothing: "a graph output reads 'y', which nothing defines",
    an_output_less: "the interface of the model is another one: 'z' is no output of it any more",
    an_output_of_another_name: "the interface of the model is another one: 'y' is no output of it any more",
    nothing_in_a_subgraph: "If of 'z' reads 'b', which its subgraphs do not capture",
    a_capture_without_an_edge: "'b' of graph 't' captures what its op does not read",
    a_capture_of_another_value: "'a' of graph 't' captures what its op does not read",
    a_cycle: "the graph has a cycle through",
    a_crowded_port: "input 0 of Relu of 'b' is connected more than once",
    an_input_too_many: "MatMul of 'a' has an input beyond its 1",
    a_region_of_an_erased_op: "region gone holds Neg 'stray/Neg', which is no longer in the graph",
    overlapping_regions: "Relu of 'b' belongs to both matmul_relu and relu_neg",
    a_quantizer_on_an_erased_value: "a quantizer sits on 'stray', which is no longer in the graph",
    a_quantizer_on_a_use_that_is_not: "on 'a' into Neg of 'y', which is not an input of that op",
    a_quantizer_on_another_port: "on 'x' into MatMul of 'a', which is not an input of that op",
    a_quantizer_on_integers: "a quantizer sits on 'i', which is not a float tensor",
    an_encoding_of_another_spec: "the encoding of 'x' belongs to another spec than its quantizer",
    an_encoding_of_another_shape: r"the encoding of 'w' does not fit: \(4,\) channel scales",
    an_axis_that_is_not: "the encoding of 'w' does not fit: axis 2 is outside a tensor of rank 2",
    blocks_that_do_not_fit: r"the encoding of 'w' does not fit: \(4, 3\) block scales",
}


@pytest.mark.parametrize("damage", BROKEN, ids=lambda damage: damage.__name__)
def test_a_broken_invariant_is_named(damage: Break) -> None:
    model = sample()
    damage(model)
    with pytest.raises(VerificationError, match=BROKEN[damage]):
        verify(model)


def test_a_broken_input_is_the_model_s_fault() -> None:
    model = lift(parse("g (float[2] x) => (float[2] y) { y = Add(x, nowhere) }"))
    with pytest.raises(
        ModelError, match="model is invalid: Add of 'y' reads 'nowhere', which nothing defines"
    ):
        verify_input(model)


def test_a_cycle_in_the_input() -> None:
    with pytest.raises(ModelError, match="the model is invalid: the graph has a cycle through Add of 'a'"):
        lift(parse("g (float[2] x) => (float[2] y) { a = Add(x, y) y = Neg(a) }"))


def test_values_that_nothing_reads_may_be_anything() -> None:
    model = lift(parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(x) }"))
    verify(model)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "said"),
    [
        ("ReduceMean", 1, {"axes": [1]}, "has the attribute 'axes', which its operator has not in opset 21"),
        ("Relu", 2, {}, "has 2 inputs, its operator 1 to 1 in opset 21"),
        ("Gemm", 1, {}, "has 1 inputs, its operator 2 to 3 in opset 21"),
        ("Swish", 1, {}, "is of an operator that opset 21 has not"),
    ],
)
def test_an_op_that_a_pass_made_has_the_form_of_its_operator(
    op_type: str, inputs: int, attributes: dict[str, object], said: str
) -> None:
    model = lift(parse(MODEL.replace("g (", '<ir_version: 10, opset_import: ["" : 21]> g (', 1)))
    x = value(model.graph, "x")
    rewriter = Rewriter(model)
    with rewriter.action("test", x):
        rewriter.add_op(model.graph, op_type, [x] * inputs, ["made"], attributes)
    with pytest.raises(VerificationError, match=said):
        verify(model)
