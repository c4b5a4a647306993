"""Printing and parsing gives the same IR again: quantized ones, odd ones, and any attributes and names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from support.folders import FIXTURES, GOLDEN
from support.golden import GoldenFile
from support.graphs import float_models
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PREPARE, QUANTIZE, apply
from support.text import check_same, trip, trip_through_files

from qc.ir import lift
from qc.ir.errors import QcError
from qc.ir.model import Model
from qc.ir.onnx.lower import lower, serialize
from qc.ir.onnx.save import save_model
from qc.ir.text import load_text, parse_model, print_model, print_parts, save_text

GOLDEN_FILES = sorted(GOLDEN.rglob("*.golden"))


def digits() -> tuple[Model, list[dict[str, np.ndarray]]]:
    images = np.load(FIXTURES / "digits_calibration.npz")["image"]
    return lift(FIXTURES / "digits_cnn.onnx"), [{"image": images[:8]}]


# -- quantized models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_the_passes_make(path: Path, tmp_path: Path) -> None:
    file = GoldenFile.read(path)
    model = parse(file.model)
    feeds = random_feeds(model, int(file.run["data"])) if "data" in file.run else None
    try:
        ir, context, _ = apply(file.run["pipeline"], model, file.run.get("target", "ort-cpu"), feeds)
    except QcError:
        pytest.skip("the pipeline is an error")
    trip(ir)
    trip_through_files(ir, tmp_path)
    for artifact in context.artifacts.values():
        if isinstance(artifact.payload, ModelProto):
            trip(lift(artifact.payload))


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
def test_a_calibrated_model(target: str, tmp_path: Path) -> None:
    ir, feeds = digits()
    quantized, _, _ = apply(QUANTIZE, ir, target, feeds)
    again = trip_through_files(quantized, tmp_path)
    assert [str(q) for q in again.quant.quantizers()] == [str(q) for q in quantized.quant.quantizers()]
    assert again.journal.remarks == []


def test_passes_go_on_as_if_there_had_been_no_text() -> None:
    first, second = (
        f"{PREPARE},match-supergroups",
        ("insert-quantizers,annotate-per-channel,tie-quantizers,calibrate,insert-qdq,to-simulation"),
    )
    ir, feeds = digits()
    half, _, _ = apply(first, ir)
    again = trip(half)
    straight, context, _ = apply(second, half, feeds=feeds)
    resumed, other, _ = apply(second, again, feeds=feeds)
    check_same(straight, resumed, print_model(straight))
    assert list(context.artifacts) == list(other.artifacts) == ["qdq", "simulation"]
    for name, artifact in context.artifacts.items():
        assert serialize(artifact.payload) == serialize(other.artifacts[name].payload)  # type: ignore[arg-type]


@given(float_models(max_steps=6), st.sampled_from(["ort-cpu", "npu"]))
@settings(max_examples=20)
def test_random_quantized_models(model: ModelProto, target: str) -> None:
    ir, _, _ = apply(QUANTIZE, model, target, random_feeds(model))
    trip(ir)


# -- odd models -----------------------------------------------------------------------------------------


def test_two_functions_that_differ_in_the_overload() -> None:
    model = parse("""<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (float[2] x) => (float[2] y) { y = my.f(x) }
        <domain: "my", opset_import: ["" : 21]>
        f <slope, other: float = 0.5> (x) => (y) { y = LeakyRelu<alpha: float = @other>(x) }""")
    other = model.functions.add()
    other.CopyFrom(model.functions[0])
    other.overload, other.doc_string = "fast", "the other one"
    other.value_info.append(floats("y", 2))
    model.graph.node[0].overload = "fast"
    ir = trip(lift(model))
    assert list(ir.functions) == [("my", "f", ""), ("my", "f", "fast")]
    assert ir.graph.ops()[0].overload == "fast"


def test_ops_without_results_are_named_by_their_place() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "b", [], [floats("r")])
    nodes = [
        helper.make_node("Print", ["x"], [], domain="vendor", table=numpy_helper.from_array(np.ones(99))),
        helper.make_node("Print", ["x"], [""], domain="vendor", body=body, doc_string="the second"),
    ]
    ir = lift(model_of(nodes, [floats("x")], ["x"], domains=["vendor"]))
    assert list(print_parts(ir).left_out) == ["table of op 0"]
    assert "_ = vendor::Print(%x)" in print_model(ir)
    trip(ir)


def test_lists_of_graphs() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "b", [], [floats("r")])
    weight = numpy_helper.from_array(np.arange(20), "w")
    other = helper.make_graph([helper.make_node("Add", ["x", "w"], ["r"])], "c", [], [floats("r")], [weight])
    node = helper.make_node("Choose", ["x"], ["y"], domain="vendor", bodies=[body, other], number=3)
    ir = lift(model_of([node], [floats("x")], ["y"], domains=["vendor"]))
    assert list(print_parts(ir).left_out) == ["%w in bodies:1 of %y"]
    trip(ir)


def test_an_old_model_whose_constants_are_inputs() -> None:
    model = parse("""<ir_version: 3, opset_import: ["" : 8]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) y = Neg(a) }""")
    ir, _, _ = apply(f"{PREPARE},insert-quantizers", model)
    trip(ir)
    assert serialize(lower(trip(lift(model)))) == serialize(model)


def test_graphs_of_an_op_that_a_pass_made_are_lowered() -> None:
    ir = parse_model("""model ir 10 opset "" 21
graph g(%x: float[2], %c: bool[]) {
  %y: float[2] = If(%c) {
    then_branch=graph t() { %r: float[2] = Neg(%x) return %r },
    else_branch=graph e() { %s: float[2] = Abs(%x) return %s }
  } by "me"
  %z: float[2] = vendor::Choose(%y) {bodies=graphs[graph b() { return %x }, graph d() { return %y }]} by "me"
  return %z
}
""")
    choice, other = lower(trip(ir)).graph.node
    branches = {attribute.name: attribute.g.node[0].op_type for attribute in choice.attribute}
    assert branches == {"then_branch": "Neg", "else_branch": "Abs"}
    assert [body.output[0].name for body in other.attribute[0].graphs] == ["x", "y"]


# -- files ----------------------------------------------------------------------------------------------


def test_the_model_that_comes_back_from_files_is_the_same_to_the_byte(tmp_path: Path) -> None:
    source = FIXTURES / "digits_cnn.onnx"
    assert save_text(lift(source), tmp_path / "m.qcir") == [tmp_path / "m.qcir", tmp_path / "m.qcir.data"]
    save_model(lower(load_text(tmp_path / "m.qcir")), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == source.read_bytes()


def test_a_text_without_large_constants_is_one_file(tmp_path: Path) -> None:
    ir = lift(parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"))
    assert save_text(ir, tmp_path / "m.qcir") == [tmp_path / "m.qcir"]
    check_same(ir, load_text(tmp_path / "m.qcir"), print_model(ir))


def external_model(folder: Path) -> Path:
    weights = {"w": np.arange(24, dtype=np.float32).reshape(4, 6), "small": np.ones(6, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "small"], ["y"])]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    table = helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(np.arange(40.0), "t"))
    model = model_of([*nodes, table], [floats("x", 2, 4)], ["y"], tensors)
    path = folder / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, convert_attribute=True)
    return path


def test_external_data_stay_external_and_are_mapped_from_the_file_beside_the_text(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    ir = lift(external_model(tmp_path / "from"))
    trip(ir)
    again = trip_through_files(ir, tmp_path / "to")
    value = again.graph.value_named("w")
    assert value is not None and value.const is not None and value.const.is_external
    assert isinstance(value.const.numpy().base, np.memmap)
    written = save_model(lower(ir), tmp_path / "from" / "m.onnx", ir.base_dir)
    others = save_model(lower(again), tmp_path / "to" / "m.onnx", again.base_dir)
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in others]


def test_a_text_without_its_file_takes_the_data_from_the_model_it_was_printed_from(tmp_path: Path) -> None:
    ir = lift(external_model(tmp_path))
    (tmp_path / "m.qcir").write_text(print_model(ir))
    check_same(ir, load_text(tmp_path / "m.qcir", ir), print_model(ir))


# -- anything at all ------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAME = TEXT.filter(bool)
INT = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(width=32)
STRING = st.binary(max_size=6) | TEXT.map(str.encode)
KINDS = sorted(kind for name, kind in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING"))


@st.composite
def tensors(draw: st.DrawFn) -> TensorProto:
    """Small and large, raw and typed, whole and damaged."""
    kind = draw(st.sampled_from([*KINDS, TensorProto.STRING]))
    tensor = TensorProto(data_type=kind, dims=draw(st.lists(st.integers(0, 3), max_size=3)))
    if draw(st.booleans()):
        tensor.name = draw(TEXT)
    if draw(st.integers(0, 9)) == 0:
        tensor.doc_string = draw(TEXT)
    size = int(np.prod(tensor.dims))
    form = draw(st.sampled_from(["raw", "raw", "fields", "any", "none"]))
    if form == "raw" and kind != TensorProto.STRING:
        width = helper.tensor_dtype_to_np_dtype(kind).itemsize
        tensor.raw_data = draw(st.binary(min_size=size * width, max_size=size * width))
    elif form == "any":
        tensor.raw_data = draw(st.binary(max_size=9))
        tensor.int32_data.extend(draw(st.lists(st.integers(-9, 9), max_size=3)))
    elif form == "fields":
        tensor.float_data.extend(draw(st.lists(FLOAT, max_size=3)))
        if kind != TensorProto.FLOAT:
            del tensor.float_data[:]
            tensor.int64_data.extend(draw(st.lists(INT, max_size=3)))
            tensor.string_data.extend(draw(st.lists(STRING, max_size=3)))
    return tensor


DIM = st.none() | st.integers(0, 9) | TEXT
TENSOR_TYPE = st.builds(
    helper.make_tensor_type_proto, st.sampled_from(KINDS), st.none() | st.lists(DIM, max_size=3)
)
TYPE = st.recursive(
    TENSOR_TYPE,
    lambda inner: (
        st.builds(helper.make_sequence_type_proto, inner)
        | st.builds(helper.make_optional_type_proto, inner)
        | st.builds(helper.make_map_type_proto, st.just(TensorProto.INT64), inner)
    ),
    max_leaves=3,
)
VALUES = {
    "i": INT,
    "f": FLOAT,
    "s": STRING,
    "t": tensors(),
    "tp": TYPE,
    "ints": st.lists(INT, max_size=3),
    "floats": st.lists(FLOAT, max_size=3),
    "strings": st.lists(STRING, max_size=3),
    "tensors": st.lists(tensors(), max_size=2),
    "type_protos": st.lists(TYPE, max_size=2),
}
NUMBERS = {"i": "INT", "f": "FLOAT", "s": "STRING", "t": "TENSOR", "tp": "TYPE_PROTO"}


@st.composite
def attributes(draw: st.DrawFn) -> AttributeProto:
    """Attributes of every kind but graphs, a few of them with more than belongs there."""
    field = draw(st.sampled_from(sorted(VALUES)))
    attribute = AttributeProto(name=draw(NAME), **{field: draw(VALUES[field])})
    attribute.type = AttributeProto.AttributeType.Value(NUMBERS.get(field, field.upper()))
    if draw(st.integers(0, 9)) == 0:
        attribute.doc_string = draw(TEXT)
    return attribute


@given(st.lists(attributes(), max_size=3, unique_by=lambda attribute: attribute.name))
@settings(max_examples=150)
def test_any_attributes(given_attributes: list[AttributeProto]) -> None:
    node = helper.make_node("Magic", ["x"], ["y"], domain="vendor")
    node.attribute.extend(given_attributes)
    trip(lift(model_of([node], [floats("x")], ["y"], domains=["vendor"])))


@given(st.lists(tensors(), min_size=1, max_size=3))
@settings(max_examples=100)
def test_any_constants(given_tensors: list[TensorProto]) -> None:
    for index, tensor in enumerate(given_tensors):
        tensor.name = f"w{index}"
    node = helper.make_node("Magic", [tensor.name for tensor in given_tensors], ["y"], domain="vendor")
    trip(lift(model_of([node], [], ["y"], given_tensors, domains=["vendor"])))


@given(st.lists(NAME, min_size=4, max_size=4, unique=True), st.lists(TEXT, min_size=6, max_size=6))
@settings(max_examples=150)
def test_any_names(names: list[str], words: list[str]) -> None:
    x, a, b, y = names
    nodes = [
        helper.make_node("Neg", [x], [a], name=words[0], doc_string=words[1]),
        helper.make_node(words[2] or "Op", [a, "", x], [b, ""], domain=words[3]),
        helper.make_node("Abs", [b], [y], domain=""),
    ]
    model = model_of(nodes, [floats(x, words[4] or "n", 2)], [floats(y)], domains=[words[3]] * bool(words[3]))
    model.graph.name = words[5]
    model.graph.value_info.append(floats(b, "m"))
    trip(lift(model))
