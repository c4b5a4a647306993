"""Models in float16, bfloat16 and float64 are compiled in float32, with the interface that they came with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, external_data_helper, helper
from support.float_types import in_type
from support.graphs import float_models
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import apply, run_model

import qc
from qc.ir import lift
from qc.ir.errors import ModelError
from qc.ir.onnx.lower import lower, serialize
from qc.ir.tensor_ref import TensorRef

F16, BF16, F64 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
OTHERS = {"float16": F16, "bfloat16": BF16, "float64": F64}
CLASSIFIER = """
classifier (float[N, 3, 8, 8] x) => (float[N, 5] y)
    <float[8, 3, 3, 3] w, float[8] b, float[8, 5] v, float[5] c>
{
    conv = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    relu = Relu(conv)
    pooled = GlobalAveragePool(relu)
    flat = Flatten(pooled)
    logits = Gemm(flat, v, c)
    y = Softmax(logits)
}
"""
LANGUAGE = """
language (int64[N, 4] tokens) => (float[N, 4, 32] y) <float[2000, 32] table, float[48, 32] head, float[48] g>
{
    embedded = Gather(table, tokens)
    padded = Concat<axis = -1>(embedded, embedded)
    starts = Constant<value_ints = [0]>()
    ends = Constant<value_ints = [48]>()
    axes = Constant<value_ints = [-1]>()
    part = Slice(padded, starts, ends, axes)
    scaled = Mul(part, g)
    logits = MatMul(scaled, head)
    y = Softmax(logits)
}
"""


def element_types(model: ModelProto) -> list[int]:
    fed = [info for info in model.graph.input if "/" not in info.name]  # not the settings of a simulation
    return [info.type.tensor_type.elem_type for info in (*fed, *model.graph.output)]


def relative_error(exact: np.ndarray, found: np.ndarray) -> float:
    difference = np.abs(exact.astype(np.float64) - found.astype(np.float64)).max()
    return float(difference / max(np.abs(exact.astype(np.float64)).max(), 1e-9))


@pytest.mark.parametrize("elem_type", OTHERS.values(), ids=list(OTHERS))
@pytest.mark.parametrize("pipeline", ["w8a8", "w4a8", "fp16", "quantsim"])
def test_compiles_like_the_float32_model(elem_type: int, pipeline: str) -> None:
    model = in_type(parse(CLASSIFIER), elem_type)
    feeds = random_feeds(model, 4)
    wide = [{name: array.astype(np.float32) for name, array in feed.items()} for feed in feeds]
    compiled = qc.compile(model, pipeline, data=feeds, threads=1)
    expected = qc.compile(parse(CLASSIFIER), pipeline, data=wide, threads=1)
    assert compiled.coverage.formats == expected.coverage.formats
    assert compiled.coverage.ops == expected.coverage.ops
    assert any("is compiled in float32" in note for note in compiled.notes)
    for result in (compiled.model, compiled.simulation, compiled.float_model):
        onnx.checker.check_model(result)
        assert element_types(result) == [elem_type, elem_type]
        (found,) = run_model(result, feeds[0], optimize=True).values()
        (exact,) = run_model(parse(CLASSIFIER), wide[0]).values()
        assert relative_error(exact, found) < (0.15 if pipeline == "w4a8" else 0.05)


@pytest.mark.parametrize("algorithm", ["round-weights", "correct-bias"])
def test_biases_that_stay_float_can_change(algorithm: str) -> None:
    """OpenVINO has float biases, which are stored in 16 bits as long as nothing changes them."""
    model = in_type(parse(CLASSIFIER), F16)
    steps = f"convert-to-float32,insert-quantizers,annotate-per-channel,calibrate,{algorithm},insert-qdq"
    feeds = random_feeds(model, 4)
    result = qc.compile(model, steps, data=feeds, target="openvino", threads=1).model
    (found,), (exact,) = (run_model(one, feeds[0], optimize=True).values() for one in (result, model))
    assert relative_error(exact, found) < 0.05


@settings(max_examples=10, deadline=None)
@given(float_models(), st.sampled_from(list(OTHERS.values())))
def test_a_converted_model_computes_in_float32(model: ModelProto, elem_type: int) -> None:
    narrow = in_type(model, elem_type)
    ir, context, _ = apply("inline-functions, convert-to-float32", narrow)
    result = lower(ir)
    onnx.checker.check_model(result, full_check=True)
    assert serialize(lower(ir)) == serialize(result), "lowering leaves the IR as it was"
    feed = random_feeds(narrow, 1)[0]
    wide = in_type(narrow, TensorProto.FLOAT, elem_type)
    expected = run_model(wide, {name: array.astype(np.float32) for name, array in feed.items()})
    found = run_model(result, feed)
    if elem_type == F64 and not context.notes:
        return  # no product of weights: it stays as it is
    for name, exact in expected.items():
        dtype = helper.tensor_dtype_to_np_dtype(elem_type)
        np.testing.assert_array_equal(found[name].astype(np.float32), exact.astype(dtype).astype(np.float32))


def test_weights_that_stay_float_are_stored_as_they_were() -> None:
    transposed = LANGUAGE.replace("MatMul(scaled, head)", "MatMul(scaled, turned)").replace(
        "logits =", "turned = Transpose<perm = [0, 1]>(head)\n    logits ="
    )
    for text, skipped in ((LANGUAGE, "Gather"), (transposed, "Gather,MatMul")):
        model = in_type(parse(text), F16)
        types = ", ".join(skipped.split(","))
        pipeline = (
            "convert-to-float32, fold-constants, match-supergroups, "
            f"insert-quantizers{{skip_ops=[{types}]}}, annotate-per-channel, calibrate, insert-qdq"
        )
        compiled = qc.compile(model, pipeline, data=random_feeds(model, 2), threads=1, allow_unquantized=True)
        stored = {tensor.name: tensor.data_type for tensor in compiled.model.graph.initializer}
        assert stored["table_float16"] == F16
        floating = [tensor for tensor in compiled.model.graph.initializer if tensor.data_type == 1]
        assert sum(len(tensor.raw_data) for tensor in floating) < 1000
        assert len(serialize(compiled.model)) <= 1.02 * len(serialize(model)) + 2000
        assert compiled.ir.graph.value_named("table").const.data_type == TensorProto.FLOAT


def test_external_weights_are_not_read(tmp_path: Path) -> None:
    model = in_type(parse(LANGUAGE), F16)
    feed = random_feeds(model, 1)[0]
    expected = run_model(model, feed)["y"]
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    compiled = qc.compile(tmp_path / "model.onnx", "convert-to-float32", threads=1)
    table = compiled.ir.graph.value_named("table").const
    assert table.is_external and table.numpy().dtype == np.float32
    written = compiled.save(tmp_path / "out.onnx")
    assert {path.name for path in written} == {"out.onnx", "out.onnx.data"}
    assert (tmp_path / "out.onnx.data").stat().st_size == (tmp_path / "w.bin").stat().st_size
    result = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    tensors = {tensor.name: tensor for tensor in result.graph.initializer}
    assert external_data_helper.uses_external_data(tensors["table_float16"])
    found = run_model(onnx.load(tmp_path / "out.onnx"), feed)["y"]
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_other_opsets_keep_interface_and_storage() -> None:
    text = LANGUAGE.replace("language", '<ir_version: 8, opset_import: ["" : 17]>\nlanguage', 1)
    model = in_type(parse(text), F16)
    feeds = random_feeds(model, 2)
    pipeline = (
        "convert-to-float32, fold-constants, insert-quantizers{weight=int4 skip_ops=[Gather]}, "
        "annotate-per-channel{block_size=16}, calibrate, insert-qdq"
    )
    compiled = qc.compile(model, pipeline, data=feeds, threads=1)
    result = compiled.model
    assert max(entry.version for entry in result.opset_import if not entry.domain) >= 21
    assert element_types(result) == [TensorProto.INT64, F16]
    assert {t.name: t.data_type for t in result.graph.initializer}["table_float16"] == F16
    found, exact = run_model(result, feeds[0])["y"], run_model(compiled.simulation, feeds[0])["y"]
    assert relative_error(exact, found) < 0.01


def test_masks_of_float64_stay_finite() -> None:
    lowest = np.finfo(np.float64).min
    x, y = (helper.make_tensor_value_info(name, F64, [2, 2]) for name in "xy")
    weights = [
        onnx.numpy_helper.from_array(np.eye(2), "w"),
        onnx.numpy_helper.from_array(np.full((2, 2), lowest), "mask"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"]),
    ]
    model = model_of(nodes, [x], [y], weights)
    compiled = qc.compile(model, "convert-to-float32", threads=1)
    found = run_model(compiled.model, {"x": np.ones((2, 2))})["y"]
    np.testing.assert_allclose(found, np.full((2, 2), 0.5))


def test_sequences_are_refused() -> None:
    sequence = helper.make_tensor_sequence_value_info("parts", F16, None)
    x = helper.make_tensor_value_info("x", F16, [4, 2])
    model = model_of([helper.make_node("SplitToSequence", ["x"], ["parts"])], [x], [sequence])
    with pytest.raises(ModelError, match="'parts' is a sequence of 16-bit floats"):
        qc.compile(model, "convert-to-float32", threads=1)


def test_a_float32_model_is_left_alone() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [floats("x", 2)], [floats("y", 2)])
    ir, context, _ = apply("convert-to-float32", model)
    assert ir.action_count == 0 and not context.notes and serialize(lower(ir)) == serialize(model)


def test_storage_is_taken_only_if_exact() -> None:
    numbers = np.array([1.0, 0.5, np.inf, np.nan, -0.0], np.float32)
    stored = TensorRef.from_array(numbers).stored_as(F16)
    assert (stored.stored_type, stored.data_type, stored.nbytes) == (F16, TensorProto.FLOAT, 10)
    np.testing.assert_array_equal(stored.numpy(), numbers)
    inexact = TensorRef.from_array(np.array([0.1, 1e6], np.float32))
    assert inexact.stored_as(F16) is inexact


def test_lifting_reads_float16_as_it_is() -> None:
    ir = lift(in_type(parse(CLASSIFIER), F16))
    assert ir.graph.value_named("w").const.numpy().dtype == np.float16
