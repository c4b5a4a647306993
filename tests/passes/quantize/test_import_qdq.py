"""QDQ models come in and go out again: ours, ONNX Runtime's, and odd ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from support.folders import FIXTURES
from support.models import parse, random_feeds
from support.placement import of_value

import qc
from qc.diff.wiring import Wiring
from qc.ir import lift
from qc.ir.onnx.save import serialize

MODEL, DATA = FIXTURES / "digits_cnn.onnx", FIXTURES / "digits_calibration.npz"
IN_AND_OUT = "import-qdq,insert-qdq{products=standard}"


def again(model: ModelProto | Path, target: str = "ort-cpu") -> qc.Compiled:
    return qc.compile(model, IN_AND_OUT, target=target, threads=1, allow_unquantized=True)


def run(model: ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: list[np.ndarray] = session.run(None, feed)
    return found


def quantize_ops(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if "uantizeLinear" in node.op_type]


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16", "w4a8"])
def test_what_qc_wrote_comes_out_as_the_same_bytes(pipeline: str, target: str) -> None:
    first = qc.compile(MODEL, pipeline, data=DATA, target=target, threads=1)
    second = again(first.model, target)
    assert serialize(second.model) == serialize(first.model)
    assert quantize_ops(second.float_model) == []
    names = {tensor.name for tensor in first.float_model.graph.initializer}
    assert {tensor.name for tensor in second.float_model.graph.initializer} == names


def test_what_qc_wrote_in_bodies_comes_out_as_the_same_bytes() -> None:
    model = parse("""g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
        h = MatMul(x, w)
        y = If(c) <
            then_branch = a () => (float[2, 4] p) { p = MatMul(h, w) },
            else_branch = b () => (float[2, 4] q) { r = MatMul(h, w)  q = MatMul(r, w) }
        >
    }""")
    both_ways = [{**feed, "c": np.array(i == 0)} for i, feed in enumerate(random_feeds(model, 2))]
    first = qc.compile(model, "w8a8", data=both_ways, target="ort-cpu", threads=1)
    second = again(first.model)
    assert serialize(second.model) == serialize(first.model)
    graphs = list(second.ir.graphs())
    assert not [op for graph in graphs for op in graph.ops() if "uantizeLinear" in op.op_type]
    assert [tensor.name for tensor in second.float_model.graph.initializer] == ["w"]
    products = [op for graph in graphs for op in graph.ops() if op.is_type("MatMul")]
    weights = {second.ir.quant.of_use(w, op, 1) for op in products if (w := op.inputs[1])}
    assert len(products) == 4 and len(weights) == 1


class Reader(CalibrationDataReader):
    """Some images for ONNX Runtime's own quantizer."""

    def __init__(self) -> None:
        images = np.load(DATA)["image"]
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(
            [{"image": images[i : i + 8]} for i in range(0, 32, 8)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dedicated", [False, True])
def test_what_onnx_runtime_wrote(tmp_path: Path, per_channel: bool, dedicated: bool) -> None:
    path = tmp_path / "ort.onnx"
    options = {"DedicatedQDQPair": dedicated}
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(MODEL, path, Reader(), per_channel=per_channel, extra_options=options, **kinds)
    theirs, ours = onnx.load(path), again(path)
    feed = {"image": np.load(DATA)["image"][:8]}
    np.testing.assert_array_equal(run(theirs, feed)[0], run(ours.model, feed)[0])
    assert quantize_ops(ours.float_model) == []
    assert serialize(again(ours.model).model) == serialize(ours.model)
    assert all(quantizer.frozen for quantizer in ours.ir.quant.quantizers())


QDQ = """g (float[2, 4] x) => (float[2, 3] y, float[2, 4] z)
<int8[4, 3] w_q = {1,-2,3,-4,5,-6,7,-8,9,-10,11,-12}, float ws = {0.5}, float s = {0.25}, uint8 o = {7},
 float t = {0.125}, int8 zero = {0}> {
    xq = QuantizeLinear(x, s, o)
    xd = DequantizeLinear(xq, s, o)
    w = DequantizeLinear(w_q, ws, zero)
    y = MatMul(xd, w)
    zq = QuantizeLinear(x, t, o)
    zd = DequantizeLinear(zq, t, o)
    z = Relu(zd)
}"""


def test_two_readers_with_grids_of_their_own() -> None:
    model = parse(QDQ)
    result = again(model)
    assert [op.op_type for op in result.ir.graph.ops()] == ["MatMul", "Relu"]
    assert of_value(result.ir, "x") is None and len(result.ir.quant) == 3
    feed = random_feeds(model, 1)[0]
    for a, b in zip(run(model, feed), run(result.model, feed), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xd = DequantizeLinear(xq, s, o)", "xd = DequantizeLinear(xq, t, o)"),  # another grid
        ("y = MatMul(xd, w)", "y = MatMul(xd, w) c = Cast<to = 6>(xq)"),  # somebody else reads the codes
        (
            "xq = QuantizeLinear(x, s, o)",
            "sc = Abs(s) xq = QuantizeLinear(x, sc, o)",
        ),  # a grid that is computed
    ],
)
def test_what_is_no_pair_stays(old: str, new: str) -> None:
    model = parse(QDQ.replace(old, new))
    result = again(model)
    assert sorted(quantize_ops(result.float_model)) == ["DequantizeLinear", "QuantizeLinear"]
    feed = random_feeds(model, 1)[0]
    for a, b in zip(run(model, feed), run(result.model, feed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_float_weights_behind_a_pair_are_stored_as_codes() -> None:
    text = QDQ.replace("int8[4, 3] w_q = {1,-2,3,-4,5,-6,7,-8,9,-10,11,-12}", "float[4, 3] w_f").replace(
        "w = DequantizeLinear(w_q, ws, zero)",
        "w_q = QuantizeLinear(w_f, ws, zero) w = DequantizeLinear(w_q, ws, zero)",
    )
    model = parse(text)
    result = again(model)
    assert len(result.model.graph.node) == len(model.graph.node) - 1
    feed = random_feeds(model, 1)[0]
    for a, b in zip(run(model, feed), run(result.model, feed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_quantized_output_keeps_its_name() -> None:
    text = QDQ.replace("z = Relu(zd)", "").replace("zd = ", "z = ").replace("float[2, 3] y, ", "")
    for part in ("xq = QuantizeLinear(x, s, o)", "xd = DequantizeLinear(xq, s, o)", "y = MatMul(xd, w)"):
        text = text.replace(part, "")
    model = parse(
        text.replace("QuantizeLinear(x, t, o)", "QuantizeLinear(r, t, o)", 1).replace(
            "{\n", "{ r = Relu(x)\n", 1
        )
    )
    result = again(model)
    assert [value.name for value in result.float_model.graph.output] == ["z"]
    assert of_value(result.ir, "z") is not None


def quantizers(model: ModelProto | Path) -> dict[str, str]:
    """The specs of all quantizers by the tensor that they are on."""
    ir = again(model).ir
    return {site.value.name: str(q.spec) for site in ir.quant.sites() if (q := ir.quant.get(site))}


def read_by_diff(model: ModelProto) -> dict[str, str]:
    """What `qc diff` and `qc view` take the quantizations of tensors for."""
    wiring = Wiring(lift(model))
    reads = (read for scope in wiring.scopes.values() for op in scope.ops for read in scope.reads[op])
    return {
        read.value.name: str(one.spec) for read in reads if read is not None for one in read.quantizations
    }


GRIDS = """g (float[2, 1, 4] x) => (float[2, 1, 4] y) <{scale}, {zero}> {{
    xq = QuantizeLinear<axis = {axis}>(x, s, z)
    xd = DequantizeLinear<axis = {axis}>(xq, s, z)
    y = Relu(xd)
}}"""


@pytest.mark.parametrize(
    ("scale", "zero", "axis", "spec"),
    [
        ("float s = {0.5}", "uint8 z = {128}", 1, "uint8 symmetric"),
        ("float s = {0.5}", "uint8 z = {7}", 1, "uint8 asymmetric"),
        ("float s = {0.5}", "int8 z = {0}", 1, "int8 symmetric"),
        ("float[1] s = {0.5}", "int8[1] z = {0}", 1, "int8 symmetric channel(1)"),
        ("float[1] s = {0.5}", "int8[1] z = {0}", -2, "int8 symmetric channel(1)"),
        ("float[1] s = {0.5}", "int8[1] z = {0}", 2, "int8 symmetric"),
        ("float[1] s = {0.5}", "int8 z = {0}", 1, "int8 symmetric"),
        (
            "float[4] s = {0.5, 1.0, 2.0, 4.0}",
            "uint16[4] z = {0, 1, 2, 3}",
            -1,
            "uint16 asymmetric channel(2)",
        ),
    ],
)
def test_all_that_read_grids_read_the_same(scale: str, zero: str, axis: int, spec: str) -> None:
    model = parse(GRIDS.format(scale=scale, zero=zero, axis=axis))
    assert read_by_diff(model) == {"x": spec}
    assert quantizers(model) == {"x": spec}


@pytest.mark.parametrize(("scales", "axis"), [(4, 7), (4, -5), (3, 2), (2, 1)])
def test_grids_that_do_not_fit_the_tensor_are_not_read(scales: int, axis: int) -> None:
    numbers = ", ".join(["1"] * scales)
    scale, zero = f"float[{scales}] s = {{{numbers}}}", f"int8[{scales}] z = {{{numbers}}}"
    model = parse(GRIDS.format(scale=scale, zero=zero, axis=axis))
    assert read_by_diff(model) == {} and quantizers(model) == {}


def test_grids_in_constant_ops_are_read_and_leave_nothing_behind() -> None:
    model = parse("""g (float[2, 4] x) => (float[2, 3] y) {
        s = Constant<value = float {0.5}>()
        z = Constant<value = uint8 {7}>()
        c = Constant<value = int8[4, 3] {1,-2,3,-4,5,-6,7,-8,9,-10,11,-12}>()
        xq = QuantizeLinear(x, s, z)
        xd = DequantizeLinear(xq, s, z)
        w = DequantizeLinear(c, s)
        y = MatMul(xd, w)
    }""")
    result = again(model)
    assert [op.op_type for op in result.ir.graph.ops()] == ["MatMul"]
    assert list(read_by_diff(model).values()) == list(quantizers(model).values())
    feed = random_feeds(model, 1)[0]
    np.testing.assert_array_equal(run(model, feed)[0], run(result.model, feed)[0])


def test_a_tensor_that_is_rounded_twice_keeps_both_grids() -> None:
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { a = Neg(x)  y = Neg(a) }")
    passes = "insert-quantizers,set-precision{rules=['tensor:a=a16']},calibrate,insert-qdq"
    feeds = random_feeds(model)
    made = qc.compile(model, passes, data=feeds, target="qnn-htp").model
    assert quantize_ops(made) == ["QuantizeLinear", "DequantizeLinear"] * 5, "each Neg in one width"
    assert serialize(again(made, "qnn-htp").model) == serialize(made)
