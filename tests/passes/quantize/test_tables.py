"""Large tables whose rows are looked up, beside activations in integers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse
from support.pipelines import QUANTIZE, apply, artifact, check, run_model
from support.placement import axis, of_value, of_weight, placed, reason, value

import qc
from qc.ir.facts.weights import weights_of

# Rows of 50 numbers: the last of their blocks is shorter than the others.
TEXT = """g (int64[2, 9] ids) => (float[2, 9, 24] y)
<float[6000, 50] table, float[50, 24] w> {
    rows = Gather(table, ids)
    m = MatMul(rows, w)
    y = Relu(m)
}"""
TARGETS = ["ort-cpu", "ort-cpu-arm", "openvino"]


def feeds(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"ids": rng.integers(0, 6000, (2, 9))} for _ in range(count)]


def with_large_rows() -> onnx.ModelProto:
    """The model with a tenth of the rows a hundred times as large as the others."""
    model = parse(TEXT)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "table")
    rows = numpy_helper.to_array(tensor) * np.where(np.arange(6000) % 10, 0.01, 1)[:, None]
    tensor.CopyFrom(numpy_helper.from_array(rows.astype(np.float32), "table"))
    return model


@pytest.mark.parametrize("target", TARGETS)
def test_a_scale_for_each_row(target: str) -> None:
    model = placed(TEXT, target)
    table = of_weight(model, "rows", 0)
    assert table is not None and str(table.spec) == "int8 symmetric narrow channel(0)"
    assert axis(of_weight(model, "m")) == 1, "the product has a grid for its data, and codes for its weight"
    data = of_weight(model, "m", 0)
    assert data is not None and data is not table


def test_small_tables_and_those_of_integer_targets_are_as_they_were() -> None:
    small = TEXT.replace("6000", "5000")
    assert of_weight(placed(small), "rows", 0) is None
    assert "numbers" not in (reason(placed(small), "table") or "")
    assert of_value(placed(TEXT, "npu"), "rows") is not None
    assert str(of_value(placed(TEXT, "npu"), "rows").spec) == "uint8 asymmetric"


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ("rows = Gather(table, ids)", "{skip_ops=[Gather]}"),
        ("rows = Gather(table, ids)  other = Neg(table)  z = Gather(other, ids)", ""),
    ],
    ids=["left-out", "another-reader"],
)  # fmt: skip
def test_a_table_stays_float(changed: str, options: str) -> None:
    text = TEXT.replace("rows = Gather(table, ids)", changed)
    text = text.replace("24] y)", "24] y, float[2, 9, 50] z)") if "z =" in changed else text
    model = placed(text, pipeline=f"match-supergroups,insert-quantizers{options},annotate-per-channel")
    assert model.quant.sites_on(value(model, "table")) == []


def test_those_of_bodies_stay_float_where_rows_are_dequantized_in_front_of_lookups() -> None:
    model = placed(BRANCHES, "openvino")
    assert model.quant.sites_on(value(model, "table")) == []


def test_its_format_is_that_of_the_target() -> None:
    model = placed(TEXT, pipeline="match-supergroups,insert-quantizers{weight=int4},annotate-per-channel")
    assert [str(of_weight(model, *at).spec.format) for at in (("rows", 0), ("m", 1))] == ["int8", "int4"]


@pytest.mark.parametrize("target", TARGETS)
def test_the_rows_that_are_looked_up_are_those_of_the_simulation(target: str) -> None:
    source, (feed, *data) = with_large_rows(), feeds(5)
    _, context, _ = apply(f"{QUANTIZE},to-simulation,insert-qdq", source, target, data)
    made = artifact(context, "qdq")
    check(made)
    kinds = Counter(node.op_type for node in made.graph.node)
    assert kinds["Gather"] == (1 if target == "openvino" else 2), "its scales are looked up as its codes are"
    assert {node.op_type for node in made.graph.node if node.domain} <= {"QuantizeLinear", "DequantizeLinear"}
    # The float table has 1,200,000 bytes.
    assert made.ByteSize() < 400_000
    for model in (made, artifact(context, "simulation")):
        with_rows = onnx.ModelProto()
        with_rows.CopyFrom(model)
        with_rows.graph.output.append(onnx.ValueInfoProto(name="rows"))
        error = run_model(with_rows, feed)["rows"] - run_model(source_with_rows(), feed)["rows"]
        largest = np.abs(run_model(source_with_rows(), feed)["rows"]).max(-1)
        assert (np.abs(error).max(-1) <= largest / 254 * 1.001).all(), "half a step of each row's own grid"


def source_with_rows() -> onnx.ModelProto:
    model = with_large_rows()
    model.graph.output.append(onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, None))
    return model


def test_it_is_read_back() -> None:
    ir, context, _ = apply(f"{QUANTIZE},insert-qdq", parse(TEXT), feeds=feeds(3))
    again, _, _ = apply("import-qdq", artifact(context, "qdq"))
    found, before = weights_of(again)["table"], weights_of(ir)["table"]
    np.testing.assert_array_equal(found.dequantize(), before.dequantize())
    assert found.granularity == before.granularity


def test_the_whole_compilation_with_four_bits_beside() -> None:
    result = qc.compile(parse(TEXT), "w4a8", data=feeds(4), target="ort-cpu")
    assert {name: weight.bits for name, weight in result.weights.items()} == {"table": 8, "w": 4}


BRANCHES = TEXT.replace(
    "rows = Gather(table, ids)",
    """rows = If(c) <then_branch = t () => (float[2, 9, 50] p) { p = Gather(table, ids) },
       else_branch = e () => (float[2, 9, 50] q) { o = Gather(table, ids) q = Neg(o) }>""",
).replace("int64[2, 9] ids", "int64[2, 9] ids, bool c")


@pytest.mark.parametrize("data", ["", "{activation=float}"], ids=["beside-integers", "alone"])
def test_rows_are_looked_up_in_bodies_as_well(data: str) -> None:
    """A DequantizeLinear there would run for the whole table in every iteration."""
    body, samples = BRANCHES, [feed | {"c": np.array(False)} for feed in feeds(3)]
    _, context, _ = apply(
        f"insert-quantizers{data},annotate-per-channel,calibrate,insert-qdq", parse(body), feeds=samples
    )
    made, feed = artifact(context, "qdq"), samples[0]
    check(made)
    assert made.ByteSize() < 400_000
    for branch in next(node for node in made.graph.node if node.op_type == "If").attribute:
        assert "DequantizeLinear" not in {node.op_type for node in branch.g.node}
    wanted = run_model(parse(body), feed)["y"]
    np.testing.assert_allclose(run_model(made, feed)["y"], wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize("granularity", ["annotate-per-channel,", ""])
def test_it_is_float_again(granularity: str) -> None:
    passes = f"insert-quantizers{{activation=float}},{granularity}calibrate,to-simulation,insert-qdq"
    _, context, _ = apply(passes, parse(TEXT))
    made, (feed,) = artifact(context, "qdq"), feeds(1)
    again = qc.compile(made, "dequantize", allow_unquantized=True).float_model
    assert {node.op_type for node in again.graph.node} == {"Gather", "MatMul", "Relu"}
    assert {tuple(tensor.dims) for tensor in again.graph.initializer} == {(6000, 50), (50, 24)}
    wanted = run_model(artifact(context, "simulation"), feed)["y"]
    np.testing.assert_allclose(run_model(again, feed)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_floats_of_16_bits_are_stored_so() -> None:
    """A table took twice as much as its numbers need, and with it half of a small language model."""
    compiled = qc.compile(parse(TEXT), "fp16")
    stored = {tensor.name: tensor for tensor in compiled.model.graph.initializer if tensor.dims}
    assert {tensor.data_type for tensor in stored.values()} == {onnx.TensorProto.FLOAT16}
    assert sum(np.prod(tensor.dims) for tensor in stored.values()) == 6000 * 50 + 50 * 24
    (feed,) = feeds(1)
    np.testing.assert_allclose(
        run_model(compiled.model, feed)["y"], run_model(parse(TEXT), feed)["y"], rtol=5e-3, atol=5e-3
    )
