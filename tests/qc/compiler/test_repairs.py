"""What ONNX Runtime does not mind in a model and ONNX's checker does is mended, and told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models import parse

import qc as package
from qc.ir.errors import ModelError, UsageError
from qc.ir.onnx.lower import serialize

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
ODD = b"\xffdd"  # in no text of UTF-8


def healthy() -> ModelProto:
    return parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w> {
            product = MatMul(x, w)
            positive = Relu(product)
            y = Sigmoid(positive)
        }"""
    )


def turn_around(model: ModelProto) -> None:
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def list_a_capture_late(model: ModelProto) -> None:
    """A body reads what a later node makes."""
    branch = helper.make_graph(
        [helper.make_node("Relu", ["product"], ["inside"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, [2, 3])],
    )
    model.graph.node[1].CopyFrom(
        helper.make_node("If", ["yes"], ["positive"], then_branch=branch, else_branch=branch)
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    turn_around(model)


def leave_out_output_shape(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.ClearField("shape")


def declare_one_number(model: ModelProto) -> None:
    del model.graph.output[0].type.tensor_type.shape.dim[:]


def leave_out_output_type(model: ModelProto) -> None:
    model.graph.output[0].ClearField("type")


def import_only_another_domain(model: ModelProto) -> None:
    model.opset_import[0].CopyFrom(helper.make_opsetid("com.microsoft", 1))


def use_a_domain_without_import(model: ModelProto) -> None:
    model.graph.node[1].op_type, model.graph.node[1].domain = "Gelu", "com.microsoft"


def use_the_other_name_of_the_domain(model: ModelProto) -> None:
    model.graph.node[0].domain = "ai.onnx"


def use_it_and_import_it(model: ModelProto) -> None:
    model.graph.node[0].domain = model.opset_import[0].domain = "ai.onnx"


def repeat_metadata(model: ModelProto) -> None:
    for value in ("first", "last"):
        model.metadata_props.add(key="author", value=value)


def leave_out_the_name_of_the_graph(model: ModelProto) -> None:
    model.graph.ClearField("name")


def claim_an_old_format(model: ModelProto) -> None:
    model.ir_version = 3  # in which every initializer is an input as well


def claim_no_format(model: ModelProto) -> None:
    model.ir_version = 0


def repeat_an_initializer(model: ModelProto) -> None:
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])


def add_a_nameless_initializer(model: ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(2)))


def name_all_nodes_alike(model: ModelProto) -> None:
    for node in model.graph.node:
        node.name = "node"


SPOILT: dict[Callable[[ModelProto], None], str] = {
    turn_around: "Sigmoid 'y' is listed before a node",
    list_a_capture_late: "Sigmoid 'y' is listed before a node",
    leave_out_output_shape: "the output 'y' has no shape",
    leave_out_output_type: "the output 'y' has no shape",
    declare_one_number: "the output 'y' is declared as one number, and is none",
    import_only_another_domain: "imports no version of 'ai.onnx' (now 14)",
    use_a_domain_without_import: "imports no version of 'com.microsoft' (now 1)",
    use_the_other_name_of_the_domain: "MatMul 'product' is of the domain 'ai.onnx'",
    use_it_and_import_it: "MatMul 'product' is of the domain 'ai.onnx'",
    repeat_metadata: "the key 'author' 2 times; the last one counts",
    leave_out_the_name_of_the_graph: "its graph has no name",
    claim_an_old_format: "version 3, but what it holds needs version 4",
    claim_no_format: "version 0, but what it holds needs version 4",
    repeat_an_initializer: "the initializer 'w' is there twice",
    add_a_nameless_initializer: "an initializer has no name",
    name_all_nodes_alike: "several nodes have the name 'node'",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_it_is_mended_and_told(tmp_path: Path, spoil: Callable[[ModelProto], None]) -> None:
    model = healthy()
    spoil(model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    before = path.read_bytes()
    for source in (path, model):
        same = package.compile(source, "fold-batch-norms", allow_unquantized=True)
        assert serialize(same.model) == before, "what no pass changes comes out as it was"
        assert [SPOILT[spoil] in note for note in same.notes] == [True], same.notes
    runs = spoil is not name_all_nodes_alike  # which newer versions of ONNX Runtime do mind
    expected = run(before if runs else healthy().SerializeToString())
    compiled = package.compile(path, data=[{"x": X}])
    assert SPOILT[spoil] in compiled.notes[0]
    onnx.checker.check_model(compiled.model, full_check=True)
    np.testing.assert_allclose(run(compiled.model.SerializeToString()), expected, atol=0.05)
    assert path.read_bytes() == before == model.SerializeToString()


def run(model: bytes) -> np.ndarray:
    return ort.InferenceSession(model).run(None, {"x": X})[0]


def test_a_group_normalization_that_onnx_took_back_is_mended() -> None:
    """That of opset 18 to 20 has a scale for each group; ONNX's checker refuses it, ONNX Runtime runs it."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 8, 5, 5] x, bool c) => (float[2, 8, 5, 5] y)
        <float[8, 8, 1, 1] w, float[4] s, float[4] b, float n_lengths = {1}> {
            p = Conv(x, w)
            y = If (c) <
                then_branch = t () => (float[2, 8, 5, 5] n) {
                    n = GroupNormalization <num_groups = 4, epsilon = 0.1> (p, s, b) },
                else_branch = e () => (float[2, 8, 5, 5] r) { r = Relu(p) }>
        }"""
    )
    noise = np.random.default_rng(0).normal(size=(2, 8, 5, 5)).astype(np.float32)
    feed = {"x": noise, "c": np.array(True)}
    compiled = package.compile(model, data=[feed])
    assert "GroupNormalization 'n' of opset 18 is deprecated" in compiled.notes[0]
    onnx.checker.check_model(compiled.model, full_check=True)
    runs = [
        ort.InferenceSession(one.SerializeToString()).run(None, feed)[0] for one in (model, compiled.model)
    ]
    np.testing.assert_allclose(runs[1], runs[0], atol=0.1)


def test_the_last_value_of_metadata_counts() -> None:
    model = healthy()
    repeat_metadata(model)
    session = ort.InferenceSession(model.SerializeToString())
    assert session.get_modelmeta().custom_metadata_map == {"author": "last"}
    compiled = package.compile(model, data=[{"x": X}], target="ort-cpu")
    kept = {entry.key: entry.value for entry in compiled.model.metadata_props}
    assert kept == {"author": "last", "qc.target": "ort-cpu"} and len(compiled.model.metadata_props) == 2


TEXTS: dict[str, Callable[[ModelProto], None]] = {
    "a node": lambda model: setattr(model.graph.node[0], "name", "oddodd"),
    "a tensor": lambda model: rename(model, "product", "oddodd"),
    "an initializer": lambda model: rename(model, "w", "oddodd"),
    "an output": lambda model: rename(model, "y", "oddodd"),
    "a description": lambda model: setattr(model.graph, "doc_string", "oddodd"),
    "metadata": lambda model: model.metadata_props.add(key="k", value="oddodd") and None,
}


def rename(model: ModelProto, old: str, new: str) -> None:
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for one in (*model.graph.initializer, *model.graph.output):
        one.name = new if one.name == old else one.name


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_not_utf8_is_written_with_escapes(tmp_path: Path, name: str) -> None:
    model = healthy()
    TEXTS[name](model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString().replace(b"oddodd", ODD * 2))
    same = package.compile(path, "fold-batch-norms", allow_unquantized=True)
    assert serialize(same.model) == path.read_bytes()
    assert r"'\xffdd\xffdd' is not text in UTF-8" in same.notes[0]
    compiled = package.compile(path, data=[{"x": X}])
    np.testing.assert_allclose(
        run(compiled.model.SerializeToString()), run(healthy().SerializeToString()), atol=0.05
    )


def test_a_model_that_is_read_says_what_it_is() -> None:
    model = package.read_model(healthy())
    assert re.fullmatch(r"<Model '.*': \d+ ops, 0 quantizers>", repr(model))
    with pytest.raises(UsageError, match=r"qc\.ir\.lower\(model\)"):
        package.compile(model)  # type: ignore[arg-type]


def test_escapes_that_are_taken_are_refused(tmp_path: Path) -> None:
    model = healthy()
    rename(model, "product", "oddodd")
    rename(model, "positive", r"\xffdd\xffdd")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString().replace(b"oddodd", ODD * 2))
    with pytest.raises(ModelError, match="not in UTF-8"):
        package.read_model(path)


def repeat_an_initializer_with_other_numbers(model: ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((3, 3), np.float32), "w"))


def import_two_versions(model: ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("", 13))


def use_an_unknown_domain(model: ModelProto) -> None:
    model.graph.node[1].domain = "acme"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (repeat_an_initializer_with_other_numbers, "w initializer name is not unique"),
        (import_two_versions, "in version 17 and in version 13"),
        (use_an_unknown_domain, "No opset import for domain 'acme'"),
    ],
)
def test_what_could_mean_two_things_is_refused(spoil: Callable[[ModelProto], None], message: str) -> None:
    model = healthy()
    spoil(model)
    with pytest.raises(ModelError, match=message):
        package.read_model(model)


def test_an_input_without_a_shape_is_taken_as_it_is() -> None:
    model = healthy()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    compiled = package.compile(model, data=[{"x": X}])
    assert compiled.coverage.quantized and not any("shape" in note for note in compiled.notes)
    np.testing.assert_allclose(
        run(compiled.model.SerializeToString()), run(model.SerializeToString()), atol=0.05
    )


def test_inspect_tells_what_was_mended(qc) -> None:
    model = healthy()
    turn_around(model)
    Path("odd.onnx").write_bytes(model.SerializeToString())
    result = qc("inspect", "odd.onnx")
    assert result.code == 0
    assert "is listed before a node" in result.err
