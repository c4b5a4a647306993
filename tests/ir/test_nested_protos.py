"""Tensors and graphs wherever ONNX allows them: in nested graphs and functions, sparse ones and lists."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from google.protobuf.message import EncodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of

from qc.ir import lift
from qc.ir.errors import ModelError
from qc.ir.onnx import protos
from qc.ir.onnx.lower import lower, serialize
from qc.ir.onnx.protos import model_tensors, without_weights
from qc.ir.onnx.save import external_files, save_model
from qc.ir.text import parse_model, print_model

X = np.arange(4, dtype=np.float32)
WEIGHT = np.float32([[1, 2], [3, 4]]).reshape(4)


def in_file(name: str, array: np.ndarray, folder: Path) -> TensorProto:
    """A tensor whose data lies in a file of its own."""
    tensor = numpy_helper.from_array(array, name)
    place = f"{name}.bin"
    (folder / place).write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    return tensor


def calling_a_function(folder: Path) -> ModelProto:
    body = [
        helper.make_node("Constant", [], ["w"], value=in_file("in_function", WEIGHT, folder)),
        helper.make_node("Add", ["a", "w"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "AddWeight", ["a"], ["b"], body, opsets)
    model = model_of(
        [helper.make_node("AddWeight", ["x"], ["y"], domain="local")], [floats("x", 4)], [floats("y", 4)]
    )
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    return model


def with_sparse_initializer(folder: Path) -> ModelProto:
    values = in_file("w", WEIGHT, folder)
    indices = in_file("places", np.arange(4, dtype=np.int64), folder)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [floats("x", 4)], [floats("y", 4)])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return model


def with_listed_tensors(folder: Path) -> ModelProto:
    """ONNX Runtime has no op with such attributes; what it reads is the Constant beside it."""
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [floats("x", 4)], [floats("y", 4)])
    node = model.graph.node[0]
    node.attribute.add(name="many", type=AttributeProto.TENSORS, tensors=[in_file("listed", WEIGHT, folder)])
    sparse = helper.make_sparse_tensor(
        in_file("values", WEIGHT, folder), numpy_helper.from_array(np.arange(4)), [4]
    )
    node.attribute.add(name="sparse", type=AttributeProto.SPARSE_TENSORS, sparse_tensors=[sparse])
    return model


@pytest.mark.parametrize("make", [calling_a_function, with_sparse_initializer])
def test_external_data_is_saved_wherever_it_is(tmp_path: Path, make: Callable[[Path], ModelProto]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    origin = make(tmp_path / "old")
    model = lift(origin, tmp_path / "old")
    written = save_model(lower(model), tmp_path / "new" / "model.onnx", tmp_path / "old")
    assert [path.name for path in written] == ["model.onnx", "model.onnx.data"]
    session = ort.InferenceSession(tmp_path / "new" / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + WEIGHT)


def test_listed_tensors_are_saved(tmp_path: Path) -> None:
    origin = with_listed_tensors(tmp_path)
    assert {path.name for path in external_files(origin, tmp_path)} == {"listed.bin", "values.bin"}
    (tmp_path / "new").mkdir()
    save_model(lower(lift(origin, tmp_path)), tmp_path / "new" / "model.onnx", tmp_path)
    saved = onnx.load(tmp_path / "new" / "model.onnx")
    many, sparse = saved.graph.node[0].attribute
    np.testing.assert_array_equal(numpy_helper.to_array(many.tensors[0], str(tmp_path / "new")), WEIGHT)
    values = numpy_helper.to_array(sparse.sparse_tensors[0].values, str(tmp_path / "new"))
    np.testing.assert_array_equal(values, WEIGHT)


def nested(depth: int, weight: np.ndarray) -> ModelProto:
    """``y = x + weight`` inside of Ifs within each other; the weight is in the innermost one."""
    body = GraphProto(name="inner", output=[floats("r0", 4)])
    body.initializer.append(numpy_helper.from_array(weight, "w"))
    body.node.append(helper.make_node("Shape", ["w"], ["s"]))
    body.node.append(helper.make_node("Identity", ["x"], ["r0"]))
    for level in range(1, depth + 1):
        outer = GraphProto(name=f"level{level}", output=[floats(f"r{level}", 4)])
        node = helper.make_node("If", ["c"], [f"r{level}"])
        for branch in ("then_branch", "else_branch"):
            attribute = node.attribute.add(name=branch, type=AttributeProto.GRAPH)
            if branch == "then_branch":
                attribute.g.CopyFrom(body)
            else:
                attribute.g.output.append(floats(f"e{level}", 4))
                attribute.g.node.append(helper.make_node("Identity", ["x"], [f"e{level}"]))
        outer.node.append(node)
        body = outer
    model = model_of(list(body.node), [floats("x", 4)], [floats(f"r{depth}", 4)])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return model


def test_a_copy_without_weights_has_none_at_any_depth(tmp_path: Path) -> None:
    weight = np.zeros(100_000, np.float32)
    model = nested(3, weight)
    constant = helper.make_node("Constant", [], ["f"], value=numpy_helper.from_array(weight))
    model.functions.append(
        helper.make_function("local", "F", [], ["f"], [constant], [helper.make_opsetid("", 17)])
    )
    indices = numpy_helper.from_array(np.arange(100_000))
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(weight, "s"), indices, [100_000])
    model.graph.sparse_initializer.append(sparse)
    before = serialize(model)
    light = without_weights(model)
    assert light.ByteSize() < 4000 and serialize(model) == before
    shapes = [(t.data_type, list(t.dims)) for t in model_tensors(model)]
    assert [(t.data_type, list(t.dims)) for t in model_tensors(light)] == shapes


def test_types_are_known_beside_large_nested_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    infer = onnx.shape_inference.infer_shapes

    def limited(model: ModelProto, **options: bool) -> ModelProto:
        if model.ByteSize() > 100_000:  # as protobuf refuses 2 GiB
            raise EncodeError("Failed to serialize proto")
        return infer(model, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", limited)
    model = lift(nested(2, np.zeros(100_000, np.float32)))
    types = {
        v.name: str(v.type) for graph in model.graphs() for v in graph.values() if v.name in ("s", "r0", "r2")
    }
    assert types == {"s": "int64[1]", "r0": "float[4]", "r2": "float[4]"}


def test_a_model_too_large_to_infer_types_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(model: ModelProto, **options: bool) -> ModelProto:
        raise EncodeError("Failed to serialize proto")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", too_large)
    with pytest.raises(ModelError, match="even without its weights it is larger than 2 GiB"):
        lift(nested(1, WEIGHT))


def test_lowering_copies_a_body_once_however_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the initializers, which are put where they belong, next to nothing is copied."""
    copied = []

    def counting(source: Message, target: Message, leave_out: Collection[str] = ()) -> None:
        protos.copy_fields(source, target, leave_out)
        copied.append(target.ByteSize())

    monkeypatch.setattr("qc.ir.onnx.lower.copy_fields", counting)
    model = nested(4, np.zeros(1000, np.float32))
    ir = lift(model)
    assert serialize(lower(ir)) == serialize(model)
    assert len(copied) > 8 and sum(copied) < 1000


def test_bodies_of_an_op_that_a_pass_made_are_lowered() -> None:
    ir = lift(nested(1, WEIGHT))
    (op,) = (op for op in ir.graph.ops() if op.op_type == "If")
    text = print_model(ir)
    made = text.replace("\n  }", '\n  } by "me"', 1)
    assert made != text
    parsed = parse_model(made)
    assert print_model(parsed) == made
    (node,) = lower(parsed).graph.node
    assert [attribute.name for attribute in node.attribute] == ["then_branch", "else_branch"]
    expected = {a.name: serialize_graph(a.g) for a in lower(ir).graph.node[0].attribute}
    assert {a.name: serialize_graph(a.g) for a in node.attribute} == expected
    assert op.subgraphs.keys() == expected.keys()


def serialize_graph(graph: GraphProto) -> bytes:
    return graph.SerializeToString(deterministic=True)
