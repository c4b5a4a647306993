"""The text of a model: readable, complete, stable, and equal for equal models."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse
from support.text import MODEL, trip

from qc.ir import lift
from qc.ir.graph import Region
from qc.ir.onnx.lower import lower
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.text import print_model

TEXT = """model ir 10 opset "" 21, "my" 2 blank domain
graph g(%x: float[N,4], %c: bool[]) {
  const %w: float[4,2] = [1.375, -1.375, 0.625, 0.5, -0.25, 0.625, -0.5, -2.0]
  %a: float[N,2] = MatMul(%x, %w)
  %y: float[N,2] = my::scaled(%a) {slope=0.25}
  %z: float[N,2] = If(%c) {
    then_branch=graph t() {
      %r: float[N,2] = Clip(%a, _, %w)
      return %r
    },
    else_branch=graph e() {
      %u: float[N,2] = Cast(%y) {to=1}
      return %u
    }
  }
  return %y, %z
}
function my::scaled<slope>(%v: ?) {
  opset "" 21
  %s: ? = LeakyRelu(%v) {alpha=@slope float}
  return %s
}
region all(scale=%w): %a, %y
quantizer q1 on %x: uint8 asymmetric calibrated scale=0.5 zero_point=3
quantizer q2 on %w into %a[1]: int8 asymmetric channel(1) calibrated scale=[1.0, 0.1] zero_point=[0, 1]
quantizer q3 on %a, %u in else_branch of %z: float16 open
float %z: "nobody quantizes an If"
float %s in my::scaled: "a function"
"""


def test_the_whole_text() -> None:
    model = lift(parse(MODEL))
    graph, quant = model.graph, model.quant
    matmul, scaled, choice = graph.ops()
    x, w, a = (graph.value_named(name) for name in ("x", "w", "a"))
    z = choice.outputs[0]
    u = choice.subgraphs["else_branch"].outputs[0]
    s = model.functions["my", "scaled", ""].outputs[0]
    assert x and w and a and z and u and s
    model.add_region(Region("all", graph, (matmul, scaled), {"scale": w}), "test")
    activation = quant.place(Site(x), QuantSpec.of("uint8"), "test")
    quant.calibrate(activation, Encoding(activation.spec, np.asarray(0.5), np.asarray(3)), "test")
    weight = quant.place(Site(w, matmul, 1), QuantSpec.of("int8", granularity=PerChannel(1)), "test")
    quant.calibrate(weight, Encoding(weight.spec, np.asarray([1, 0.1]), np.asarray([0, 1])), "test")
    inner = quant.place(Site(a), QuantSpec.of("float16"), "test")
    quant.place(Site(u), inner, "test")
    quant.skip(z, "nobody quantizes an If")
    quant.skip(s, "a function")
    assert print_model(model) == TEXT
    trip(model)


def test_equal_models_have_equal_text() -> None:
    first, second = lift(parse(MODEL)), lift(parse(MODEL))
    assert print_model(first) == print_model(second) == print_model(lift(lower(first)))


def text_of(model: ModelProto) -> str:
    """The text, after a check that nothing is lost."""
    ir = lift(model)
    trip(ir)
    return print_model(ir)


def line_of(text: str, word: str) -> str:
    """The only line with that word, without its indent."""
    (line,) = (line.strip() for line in text.splitlines() if word in line)
    return line


def magic(**attributes: object) -> ModelProto:
    node = helper.make_node("Magic", ["x"], ["y"], domain="vendor", **attributes)
    return model_of([node], [floats("x")], ["y"], domains=["vendor"])


ATTRIBUTES = {
    "-3": -3,
    "0.1": 0.1,
    "-0.0": -0.0,
    "1e-09": 1e-9,
    "2.0": 2.0,
    "inf": float("inf"),
    '"a \\"b\\" ü"': 'a "b" ü',
    '"two\\nlines\\u0007"': "two\nlines\a",
    'raw {"s": "/wA=", "type": "STRING"}': b"\xff\x00",
    "[1, -2]": [1, -2],
    "[0.1, 1e-09, 3.0]": [0.1, 1e-9, 3.0],
    '["a", ""]': ["a", ""],
    'tensor "t" float[2,1] {2.0, 3.5}': helper.make_tensor("t", TensorProto.FLOAT, [2, 1], [2.0, 3.5]),
    "tensor int64[] 7": numpy_helper.from_array(np.asarray(7, np.int64)),
    "tensor bool[2] [true, false]": numpy_helper.from_array(np.asarray([True, False])),
    'tensor "s" string[2] {"a", "b"}': helper.make_tensor("s", TensorProto.STRING, [2], [b"a", b"b"]),
    'raw {"tp": {"optional_type": {"elem_type": {"tensor_type": {"elem_type": 1}}}}, "type": "TYPE_PROTO"}': (
        helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    ),
}


@pytest.mark.parametrize("text", ATTRIBUTES)
def test_attributes(text: str) -> None:
    assert line_of(text_of(magic(it=ATTRIBUTES[text])), "Magic") == (
        f"%y: ? = vendor::Magic(%x) {{it={text}}}"
    )


@pytest.mark.parametrize("kind", ["ints", "floats", "strings", "tensors"])
def test_empty_lists_have_a_type(kind: str) -> None:
    model = magic()
    number = AttributeProto.AttributeType.Value(kind.upper())
    model.graph.node[0].attribute.append(AttributeProto(name="it", type=number))
    assert f"{{it={kind}[]}}" in text_of(model)


def test_what_an_attribute_has_besides_its_value_stands_before_it() -> None:
    model = magic(it=3)
    model.graph.node[0].attribute[0].doc_string = "described"
    assert '{it=raw {"doc_string": "described"} 3}' in text_of(model)


def test_fields_of_a_later_onnx_are_kept_as_bytes() -> None:
    model = magic(it=3)
    later = b"\xa2\x06\x05later"  # a field of number 100
    model.graph.node[0].MergeFromString(later)
    model.graph.node[0].attribute[0].MergeFromString(later)
    text = text_of(model)
    assert '{it=raw {"": "ogYFbGF0ZXI="} 3}' in text
    assert line_of(text, "    raw") == 'raw {"": "ogYFbGF0ZXI="}'


def test_a_sparse_attribute() -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [0, 3])
    sparse = helper.make_sparse_tensor(values, indices, [2, 2])
    text = text_of(magic(it=sparse))
    assert '{it=sparse [2, 2] ("v" float[2] {1.0, 2.0}, "i" int64[2] {0, 3})}' in text


CONSTANTS = {
    "float[2] = [0.1, -2.0]": np.asarray([0.1, -2], np.float32),
    "double[1] = [0.1]": np.asarray([0.1]),
    "float16[2] = [0.5, inf]": np.asarray([0.5, np.inf], np.float16),
    "uint64[] = 18446744073709551615": np.asarray(2**64 - 1, np.uint64),
    "bool[0] = []": np.zeros(0, bool),
    "float[4,4] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]": (
        np.arange(16, dtype=np.float32).reshape(4, 4)
    ),
    "float[17]": np.arange(17, dtype=np.float32),
}


@pytest.mark.parametrize("text", CONSTANTS)
def test_constants(text: str) -> None:
    weight = numpy_helper.from_array(CONSTANTS[text], "w")
    model = model_of([helper.make_node("Magic", ["w"], ["y"])], [], ["y"], [weight])
    assert line_of(text_of(model), "const") == f"const %w: {text}"


def test_small_types_are_numbers_too() -> None:
    weight = helper.make_tensor("w", TensorProto.INT4, [3], [-8, 7, 1])
    weight.raw_data = b"\x78\x01"
    del weight.int32_data[:]
    eighth = helper.make_tensor("v", TensorProto.FLOAT8E4M3FN, [2], b"\x38\x40", raw=True)
    text = text_of(model_of([helper.make_node("Magic", ["w", "v"], ["y"])], [], ["y"], [weight, eighth]))
    assert "const %w: int4[3] = [-8, 7, 1]" in text
    assert "const %v: float8e4m3fn[2] = [1.0, 2.0]" in text


def test_bits_that_no_number_stands_for_are_kept() -> None:
    odd = {
        "nan": (TensorProto.FLOAT, b"\x01\x00\xc0\x7f"),  # not the usual NaN
        "bool": (TensorProto.BOOL, b"\x02"),
        "half": (TensorProto.INT4, b"\xf1"),  # something in the unused half of the byte
        "short": (TensorProto.FLOAT, b"\x01"),  # damaged
    }
    weights = [
        TensorProto(name=name, dims=[1], data_type=kind, raw_data=raw) for name, (kind, raw) in odd.items()
    ]
    text = text_of(model_of([helper.make_node("Magic", list(odd), ["y"])], [], ["y"], weights))
    for name, (_, raw) in odd.items():
        assert line_of(text, f"%{name}:").endswith(f'= {{}} raw {{"raw_data": "{b64encode(raw).decode()}"}}')


def test_odd_names_are_quoted_and_equal_ones_numbered() -> None:
    nodes = [
        helper.make_node("Neg", ["x y"], ["a%b"], name='say "hi"'),
        helper.make_node("Abs", ["a%b"], ["/layer/out:0"], name="/layer/Abs"),
    ]
    text = text_of(model_of(nodes, [floats("x y", "batch size", "n")], [floats("/layer/out:0")]))
    assert 'graph test(%"x y": float["batch size",n]) {' in text
    assert '%"a%b": float["batch size",n] = Neg(%"x y") @"say \\"hi\\""' in text
    assert '%/layer/out:0: float[] = Abs(%"a%b") @/layer/Abs' in text
    ir = lift(
        parse(
            "g (float[2] x, bool c) => (float[2] y) { a = Neg(x) y = If(c) <"
            "then_branch = t () => (float[2] r) { b = Abs(x) r = Neg(b) },"
            "else_branch = e () => (float[2] a) { } > }"
        )
    )
    inner = ir.graph.ops()[1].subgraphs["then_branch"].value_named("b")
    assert inner is not None
    inner.name = "a"
    assert "%a#1: float[2] = Abs(%x)" in print_model(ir)
    trip(ir)


def test_what_a_pass_made_tells_where_it_came_from() -> None:
    ir = lift(parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(a) }"))
    rewriter = Rewriter(ir)
    first, second = ir.graph.ops()
    with rewriter.action("double", first):
        twice = rewriter.add_op(ir.graph, "Add", [first.inputs[0]] * 2, ["twice"])
        factor = rewriter.add_constant(ir.graph, np.asarray([0.5, 2], np.float32), "factor")
        result = rewriter.add_op(ir.graph, "Mul", [twice.outputs[0], factor], ["result"])
        rewriter.set_input(second, 0, result.outputs[0])
        rewriter.erase_op(first)
    assert print_model(ir).splitlines()[1:-1] == [
        "graph g(%x: float[2]) {",
        "  new const %factor: float[2] = [0.5, 2.0]",
        '  %twice: ? = Add(%x, %x) @twice/Add by "double" "Neg of \'a\'" at 0.0',
        '  %result: ? = Mul(%twice, %factor) @result/Mul by "double" "Neg of \'a\'" at 0.1',
        "  %y: float[2] = Abs(%result)",
        "  return %y",
        "  later %twice, %factor, %result",
    ]
    trip(ir)


def test_what_the_model_has_besides_is_the_residue_of_each_thing() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }")
    model.producer_name = "someone"
    helper.set_model_props(model, {"key": "value"})
    model.graph.doc_string = "the graph"
    model.graph.node[0].doc_string = "the node"
    model.graph.node[1].metadata_props.add(key="namespace", value="here")
    model.graph.input[0].doc_string = "the input"
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]))
    model.graph.value_info.append(helper.make_tensor_value_info("nowhere", TensorProto.FLOAT, None))
    assert (
        text_of(model)
        == """model ir 10 opset "" 21 blank domain
raw {"producer_name": "someone", "metadata_props": [{"key": "key", "value": "value"}]}
graph g(%x: float[2] raw {"doc_string": "the input"}) {
  raw {"doc_string": "the graph"}
  %a: float[2] = Neg(%x)
    raw {"doc_string": "the node"}
  %y: float[2] = Neg(%a)
    raw {"metadata_props": [{"key": "namespace", "value": "here"}]}
  return %y
  value_info %a, raw {"name": "nowhere", "type": {"tensor_type": {"elem_type": 1}}}
}
"""
    )


def test_declared_types_are_told_where_they_say_something_else() -> None:
    model = parse("g (float[2] x) => (float[?] z) { a = Neg(x) b = Neg(a) y = Neg(b) z = Abs(b) }")
    model.graph.output.insert(0, helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    for name in ("a", "b"):
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
    model.graph.output.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    model.graph.node.append(helper.make_node("SequenceConstruct", ["a"], ["s"], domain=""))
    text = text_of(model)
    any_rank = '{"tensor_type": {"elem_type": 1}}'
    assert line_of(text, "return") == (
        f'return %y raw {{"type": {any_rank}}}, '
        '%z raw {"type": {"tensor_type": {"elem_type": 1, "shape": {"dim": [{}]}}}}, '
        f'%s raw {{"type": {{"sequence_type": {{"elem_type": {any_rank}}}}}}}'
    )
    assert line_of(text, "value_info") == "value_info %a .. %b"


def test_long_scales_are_complete_and_equal_zero_points_told_once() -> None:
    ir = lift(parse("g (float[9, 1] x) => (float[9, 1] y) { y = Neg(x) }"))
    spec = QuantSpec.of("int8", granularity=PerChannel(0), fixed_range=(-0.1, 1 / 3))
    quantizer = ir.quant.place(Site(ir.graph.inputs[0]), spec, "test")
    ir.quant.calibrate(quantizer, Encoding(spec, np.arange(1, 10) / 10, np.full(9, 5)), "test")
    assert print_model(ir).splitlines()[-1] == (
        "quantizer q1 on %x: int8 asymmetric channel(0) range(-0.1, 0.3333333333333333) calibrated "
        "scale=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9] zero_point=5"
    )
    trip(ir)


def test_scales_of_blocks_have_a_shape_and_very_many_stand_elsewhere() -> None:
    ir = lift(parse("g (float[4, 3] x) => (float[4, 3] y) { y = Neg(x) }"))
    spec = QuantSpec.of("int4", symmetric=True, narrow=True, one_sided=True, granularity=PerBlock(0, 2))
    quantizer = ir.quant.place(Site(ir.graph.inputs[0]), spec, "test")
    ir.quant.calibrate(quantizer, Encoding(spec, np.ones((2, 3)), np.zeros((2, 3))), "test")
    ir.quant.freeze(quantizer)
    line = print_model(ir).splitlines()[-1]
    assert line.endswith("block(0,2) frozen scale=float[2,3] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0] zero_point=0")
    trip(ir)
    quantizer.encoding = Encoding(spec, np.ones((2, 3000)), np.zeros((2, 3000)))
    assert print_model(ir).splitlines()[-1].endswith("scale=float[2,3000] zero_point=0")
    trip(ir)
