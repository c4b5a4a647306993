"""A model that no pass touches comes out byte for byte as it went in, on the way through text as well."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from support.corpus import operator_samples
from support.folders import FIXTURES
from support.models import floats, model_of, parse
from support.text import trip

from qc.ir import lift
from qc.ir.onnx.lower import lower, serialize
from qc.ir.verifier import verify

BACKEND = Path(onnx.__file__).parent / "backend" / "test" / "data"


def is_unharmed(model: ModelProto) -> bool:
    before = serialize(model)
    ir = lift(model)
    if not serialize(lower(ir)) == before == serialize(model):
        return False
    return serialize(lower(trip(ir))) == before


def harmed(models: Iterable[tuple[str, ModelProto]]) -> tuple[int, list[str]]:
    names, bad = 0, []
    for name, model in models:
        names += 1
        if not is_unharmed(model):
            bad.append(name)
    return names, bad


def file_models(folder: Path) -> Iterator[tuple[str, ModelProto]]:
    for path in sorted(folder.rglob("*.onnx")):
        yield str(path.relative_to(folder)), onnx.load(str(path), load_external_data=False)


def test_all_operators_of_onnx() -> None:
    count, bad = harmed((sample.name, sample.model) for sample in operator_samples())
    assert count > 1500
    assert not bad


def test_all_models_that_come_with_onnx() -> None:
    count, bad = harmed(file_models(BACKEND))
    assert count > 100
    assert not bad


@pytest.mark.parametrize("folder", [FIXTURES, os.environ.get("QC_MODELS")])
def test_real_models(folder: str | Path | None) -> None:
    if folder is None:
        pytest.skip("QC_MODELS names no folder of models")
    count, bad = harmed(file_models(Path(folder)))
    assert count
    assert not bad


TEXTS = {
    "unnamed nodes": "g (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }",
    "an output given twice": "g (float[2] x) => (float[2] y, float[2] y) { y = Neg(x) }",
    "an input that is an output": "g (float[2] x) => (float[2] x, float[2] y) { y = Neg(x) }",
    "a constant that is an output": "g (float[2] x) => (float[2] w) <float[2] w = {1, 2}> { y = Neg(x) }",
    "dead nodes and constants": "g (float[2] x) => (float[2] y) <int64 u = {1}> { a = Abs(x) y = Neg(x) }",
    "an input with a default": """g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> {
        y = Add(x, w)
    }""",
    "an unused input": "g (float[2] x, int64 unused) => (float[2] y) { y = Neg(x) }",
    "no inputs": "g () => (float[2] y) <float[2] w = {1, 2}> { y = Neg(w) }",
    "no nodes": "g (float[2] x) => (float[2] x) { }",
    "symbolic dimensions": """g (float[N, 3, M] x) => (float[N, 3, M] y) <float[N, 3, M] a> {
        a = Abs(x)
        y = Neg(a)
    }""",
    "unknown shapes": "g (float[] s, float x) => (float y) { y = Add(x, s) }",
    "values captured at several levels": """g (float[2] x, bool c) => (float[2] y) {
        a = Abs(x)
        y = If(c) <
            then_branch = t () => (float[2] r) {
                b = Neg(a)
                r = If(c) <
                    then_branch = tt () => (float[2] s) { s = Add(a, b) },
                    else_branch = te () => (float[2] u) { u = Add(x, b) }
                >
            },
            else_branch = e () => (float[2] a) { }
        >
    }""",
    "a loop": """g (int64 n, float[2] x) => (float[2] y, float[K, 2] all) {
        c = Constant<value = bool {1}>()
        y, all = Loop(n, c, x) <
            body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] out) {
                on = Identity(go)
                w = Add(v, x)
                out = Neg(w)
            }
        >
    }""",
    "the same names in two branches": """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] r) { a = Neg(x) r = Neg(a) },
            else_branch = e () => (float[2] r) { a = Abs(x) r = Abs(a) }
        >
    }""",
    "a branch constant that is an output": """g (bool c) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] w) <float[2] w = {1, 2}> { },
            else_branch = e () => (float[2] v) { v = Constant<value = float[2] {3, 4}>() }
        >
    }""",
    "local functions": """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (float[2] x) => (float[2] y) { a = my.outer<slope = 0.5>(x) y = Neg(a) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]>
        inner <slope> (x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]>
        outer <slope> (x) => (y) { a = my.inner<slope: float = @slope>(x) y = Abs(a) }""",
    "ops of an unknown domain": """<ir_version: 10, opset_import: ["" : 21, "vendor" : 3]>
        g (float[2] x) => (float[2] y) { y = vendor.Magic<power = 2>(x) }""",
    "the standard domain by its other name": """<ir_version: 10, opset_import: ["ai.onnx" : 21]>
        g (float[2] x) => (float[2] y) { y = Neg(x) }""",
    "an old version": """<ir_version: 3, opset_import: ["" : 8]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_constructs(name: str) -> None:
    model = parse(TEXTS[name])
    assert is_unharmed(model)
    verify(lift(model))


def test_left_out_inputs_and_outputs() -> None:
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["a"]),
        helper.make_node("Clip", ["a", "", ""], ["b"]),
        helper.make_node("LSTM", ["s", "w", "r", ""], ["", "h", ""], hidden_size=2),
        helper.make_node("Dropout", ["b"], ["y", ""]),
    ]
    inputs = [floats(name) for name in ("x", "high", "s", "w", "r")]
    assert is_unharmed(model_of(nodes, inputs, ["y", "h"]))


def test_every_element_type() -> None:
    kinds = [kind for name, kind in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]
    assert TensorProto.INT4 in kinds and TensorProto.FLOAT8E4M3FN in kinds
    dtypes = {kind: helper.tensor_dtype_to_np_dtype(kind) for kind in kinds}
    ones = np.asarray([[1, 0, 1]])
    raw = [numpy_helper.from_array(ones.astype(dtype), f"w{kind}") for kind, dtype in dtypes.items()]
    listed = [
        helper.make_tensor("floats", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("halves", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("packed", TensorProto.UINT4, [3], [1, 2, 3]),
        helper.make_tensor("text", TensorProto.STRING, [2], [b"a", "ü".encode()]),
        helper.make_tensor("empty", TensorProto.FLOAT, [0, 4], []),
    ]
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [floats("x")], ["y"], [*raw, *listed])
    assert is_unharmed(model)
    ir = lift(model)
    for tensor in model.graph.initializer:
        value = ir.graph.value_named(tensor.name)
        assert value is not None and value.const is not None
        assert (value.type.elem_type, value.type.shape) == (tensor.data_type, tuple(tensor.dims))
        array, expected = value.const.numpy(), numpy_helper.to_array(tensor)
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes() or array.tolist() == expected.tolist()


def test_sparse_constants() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("places", TensorProto.INT64, [2], [0, 3])
    sparse = helper.make_sparse_tensor(values, indices, [2, 2])
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [floats("x", 1, 2)], ["y"])
    model.graph.sparse_initializer.append(sparse)
    assert is_unharmed(model)
    verify(lift(model))


def test_types_that_are_no_tensors() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    optional = helper.make_value_info(
        "o", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        helper.make_node("Optional", ["x"], ["o"]),
    ]
    assert is_unharmed(model_of(nodes, [floats("x", 2)], [sequence, optional]))


def test_attributes_that_are_lists_of_graphs_and_tensors() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "b", [], [floats("r")])
    node = helper.make_node("Choose", ["c"], ["y"], domain="vendor", bodies=[body, body])
    node.attribute.append(
        AttributeProto(
            name="tables", type=AttributeProto.TENSORS, tensors=[helper.make_tensor("t", 1, [1], [1.0])]
        )
    )
    model = model_of([node], [floats("x"), floats("c")], ["y"], domains=["vendor"])
    assert is_unharmed(model)
    op = lift(model).graph.ops()[0]
    assert list(op.subgraphs) == ["bodies:0", "bodies:1"]
    assert [value.name for value in lift(model).graph.ops()[0].captures] == ["x", "x"]


def test_metadata_documentation_and_training() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }")
    model.producer_name, model.doc_string, model.model_version = "someone", "what it is", 7
    helper.set_model_props(model, {"key": "value"})
    model.graph.doc_string = "the graph"
    model.graph.node[0].doc_string, model.graph.node[0].name = "the node", "first"
    model.graph.node[0].metadata_props.add(key="origin", value="here")
    model.graph.metadata_props.add(key="author", value="me")
    model.graph.input[0].doc_string = "the input"
    model.graph.value_info.append(helper.make_tensor_value_info("nowhere", TensorProto.FLOAT, [1]))
    annotation = model.graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="k", value="v")
    model.training_info.add().algorithm.name = "sgd"
    assert is_unharmed(model)


def test_nodes_in_an_order_that_is_not_sorted_are_sorted() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Abs", ["x"], ["a"])]
    lowered = lower(lift(model_of(nodes, [floats("x", 2)], ["y"])))
    assert [node.op_type for node in lowered.graph.node] == ["Abs", "Neg"]


def test_the_order_of_independent_nodes_stays() -> None:
    nodes = [helper.make_node("Neg", [f"x{i}"], [f"y{i}"], name=f"n{i}") for i in (3, 1, 2, 0)]
    model = model_of(nodes, [floats(f"x{i}") for i in range(4)], [f"y{i}" for i in range(4)])
    assert [op.name for op in lift(model).graph.ops()] == ["n3", "n1", "n2", "n0"]


def test_the_lowered_model_shares_nothing_with_the_one_it_came_from() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    before = serialize(model)
    lowered = lower(lift(model))
    lowered.graph.node[0].op_type = "Sub"
    lowered.graph.initializer[0].name = "other"
    lowered.opset_import[0].version = 1
    assert serialize(model) == before
