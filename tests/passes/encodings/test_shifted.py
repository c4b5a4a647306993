"""Two-bit weights on a grid that is shifted by half a step: as many codes below as above zero."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folders import AIMET
from support.models import parse, random_feeds
from support.pipelines import apply, artifact, run_model

import qc
from qc.ir.errors import ModelError, UsageError
from qc.ir.facts.weights import weights_of
from qc.ir.quant.arithmetic import Rounding, dequantize, fake_quantize, quantize
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec
from qc.ir.text import parse_model, print_model
from qc.passes import parse_pipeline
from qc.passes.encodings.files import converted, dump_encodings, parse_encodings
from qc.passes.encodings.grid import encoding_of
from qc.passes.quantize.aimet.arithmetic import grid_of_weight
from qc.passes.quantize.calibration.ranges import weight_encoding
from qc.runtime.native import kernels

SPEC = QuantSpec(IntFormat(2, signed=True), symmetric=True, shifted=True)
SHIFTED = "insert-quantizers{weight=int2},annotate-per-channel{shift_int2=true}"
MODEL = """g (float[2, 3] x) => (float[2, 2] y)
<float[3, 2] w = {1.5, -2.0, 0.0, 0.625, -0.5, 0.25}> {
    y = MatMul(x, w)
}"""


def encoding(scale: float) -> Encoding:
    return Encoding(SPEC, np.float32(scale), np.int32(0))


def test_the_four_numbers() -> None:
    grid = encoding(2)
    np.testing.assert_array_equal(dequantize(np.asarray([-2, -1, 0, 1]), grid), [-3, -1, 1, 3])
    np.testing.assert_array_equal(
        quantize(np.asarray([-9, -1.9, -0.1, 0.1, 2.1, np.nan]), grid), [-2, -1, -1, 0, 1, -2]
    )
    assert (float(grid.minimum), float(grid.maximum)) == (-3, 3)


@given(st.lists(st.floats(-10, 10, width=32), min_size=1), st.floats(0.0625, 4, width=32))
def test_rounds_to_the_nearest(numbers: list[float], scale: float) -> None:
    x, grid = np.asarray(numbers, np.float32), encoding(scale)
    codes = dequantize(np.arange(-2, 2), grid)
    for rounding in Rounding:
        rounded = fake_quantize(x, grid, rounding)
        assert np.isin(rounded, codes).all()
        nearest = np.abs(x[:, None] - codes).min(axis=1)
        np.testing.assert_allclose(np.abs(x - rounded), nearest, rtol=1e-5, atol=1e-6)


def test_grids_are_those_of_aimet() -> None:
    """Of the default configuration, with int2 weights, per channel for Conv and blocks of 4 for MatMul."""
    wanted = {
        e["name"]: e for e in json.loads((AIMET / "shifted_1.0.0.encodings").read_text())["param_encodings"]
    }
    weights = {
        t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(AIMET / "model.onnx").graph.initializer
    }
    for name, granularity in {"w1": PerChannel(0), "w2": PerBlock(0, 4)}.items():
        spec = SPEC.with_granularity(granularity)
        for found in (
            grid_of_weight(spec, weights[name]).encoding(spec),
            weight_encoding(spec, weights[name]),
        ):
            scale = found.scale if name == "w1" else found.scale.T
            np.testing.assert_array_equal(scale.ravel(), np.asarray(wanted[name]["scale"], np.float32))
            assert not found.zero_point.any()


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
def test_files_of_aimet_go_in_and_out(version: str) -> None:
    file = AIMET / f"shifted_{version}.encodings"
    pipeline = f"load-encodings{{file={file}}},to-encodings{{version={version}}}"
    model, context, _ = apply(pipeline, onnx.load(AIMET / "model.onnx"), "npu")
    assert [held.encoding.spec.shifted for name, held in weights_of(model).items() if name != "b1"] == [
        True,
        True,
    ]
    made, wanted = (
        json.loads(text) for text in (str(context.artifacts["encodings"].payload), file.read_text())
    )
    if version == "2.0.0":
        listed, expected = (
            {e["name"]: e for e in one["encodings"] if e["name"] in ("w1", "w2")} for one in (made, wanted)
        )
        for name, entry in listed.items():
            np.testing.assert_allclose(entry.pop("y_scale"), expected[name].pop("y_scale"), rtol=1e-7)
        assert listed == expected
    elif version == "1.0.0":
        for entry, expected in zip(made["param_encodings"], wanted["param_encodings"], strict=True):
            np.testing.assert_allclose(entry.pop("scale"), expected.pop("scale"), rtol=1e-7)
            assert entry == expected


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0"])
def test_one_grid_for_a_tensor_comes_back(version: str) -> None:
    entry = {"name": "w", "enc_type": "PER_TENSOR", "dtype": "INT", "bw": 2, "is_sym": True}
    entry |= {"zero_point_shift": [0.5], "scale": [0.1], "offset": [-2.0]}
    text = json.dumps({"version": "1.0.0", "activation_encodings": [], "param_encodings": [entry]})
    (record,) = parse_encodings(dump_encodings(converted(parse_encodings(text), version))).records
    grid = encoding_of(record, (3, 2))
    assert grid.spec.shifted and grid.scale.shape == grid.zero_point.shape == ()


def test_every_form_says_the_same() -> None:
    source = parse(MODEL)
    feeds = random_feeds(source, 3)
    passes = f"{SHIFTED},calibrate,to-simulation,insert-qdq{{storage=packed}}"
    model, context, _ = apply(passes, source, "ort-cpu", feeds)
    weight = weights_of(model)["w"]
    assert str(weight.encoding.spec) == "int2 symmetric shifted channel(1)"
    np.testing.assert_array_equal(weight.zero_point, [-0.5, -0.5])
    np.testing.assert_allclose(weight.dequantize(), [[1.5, -2], [0.5, 2 / 3], [-0.5, 2 / 3]], rtol=1e-6)
    np.testing.assert_array_equal((weight.qdata - weight.zero_point) * weight.scale, weight.dequantize())
    stored = artifact(context, "qdq")
    codes = next(t for t in stored.graph.initializer if t.name == "w_quantized")
    assert codes.data_type == onnx.TensorProto.INT4
    outputs = [run_model(one, feeds[0])["y"] for one in (artifact(context, "simulation"), stored)]
    np.testing.assert_array_equal(*outputs)
    text = print_model(model)
    assert print_model(parse_model(text)) == text


def test_sessions_keep_it_as_it_is_stored() -> None:
    """The kernels know no shifted grid, so that none is set in a session."""
    source = parse(MODEL)
    feeds = random_feeds(source, 3)
    compiled = qc.compile(source, f"{SHIFTED},calibrate,to-simulation", data=feeds)
    stored, settable = compiled.open_simulation(), compiled.open_simulation(settable_weights=True)
    np.testing.assert_array_equal(stored.run(feeds[0])["y"], settable.run(feeds[0])["y"])
    assert "w" not in {name for one in settable.quantizers.values() for name in one.tensors}
    with pytest.raises(UsageError, match="'x' cannot be rounded to a shifted grid in a session: int2"):
        settable.with_encodings({"x": encoding(1)})
    with pytest.raises(UsageError, match="the kernels know no shifted grids"):
        kernels.fake_quantize(np.zeros(3, np.float32), encoding(1))


@pytest.mark.parametrize(
    ("rule", "spec"),
    [
        ("w=w4", "int4 symmetric channel(1)"),
        ("w=w2", "int2 symmetric shifted channel(1)"),
        ("MatMul=weight:uint4", "uint4 asymmetric channel(1)"),
    ],
)
def test_another_width_or_format_is_not_shifted(rule: str, spec: str) -> None:
    source = parse(MODEL)
    compiled = qc.compile(
        source, f"{SHIFTED},calibrate,to-simulation", data=random_feeds(source, 3), precision=rule
    )
    assert str(compiled.weights["w"].encoding.spec) == spec


def test_what_cannot_be(tmp_path: Path) -> None:
    for fields in (
        {"format": IntFormat(4, True)},
        {"format": IntFormat(2, False)},
        {"symmetric": False},
        {"narrow": True},
    ):
        with pytest.raises(UsageError, match="only a symmetric grid of int2 is shifted"):
            QuantSpec(**{"format": IntFormat(2, True), "symmetric": True, "shifted": True} | fields)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="shift_int2 is not for blocks with scale_bits"):
        parse_pipeline("annotate-per-channel{block_size=4 scale_bits=4 shift_int2=true}")
    text = print_model(apply(SHIFTED, parse(MODEL))[0]).replace(
        "int2 symmetric shifted", "int3 symmetric shifted"
    )
    with pytest.raises(ModelError, match="only a symmetric grid of int2 is shifted"):
        parse_model(text)
    document = json.loads((AIMET / "shifted_2.0.0.encodings").read_text())
    next(e for e in document["encodings"] if e["name"] == "x").update(output_dtype="int2", y_zero_point=-0.5)
    (tmp_path / "x.encodings").write_text(json.dumps(document))
    with pytest.raises(
        UsageError, match="'x' is computed; only a constant can have the grid int2 symmetric shifted"
    ):
        apply(
            f"load-encodings{{file={tmp_path}/x.encodings}},to-simulation",
            onnx.load(AIMET / "model.onnx"),
            "npu",
        )


def test_of_the_compatibility_layer(tmp_path: Path) -> None:
    from qc.compat.aimet_onnx import QSpec, QuantizationSimModel, int2, int4
    from qc.compat.aimet_onnx.quantsim import set_param_type

    sim = QuantizationSimModel(onnx.load(AIMET / "model.onnx"), param_type=int4)
    set_param_type(sim, QSpec.blockwise(int2, 4, symmetric=True, shift_zero_point=True), op_types="MatMul")
    set_param_type(sim, QSpec.per_channel(int2, symmetric=True, shift_zero_point=True), op_types="Conv")
    feeds = [{"x": np.random.default_rng(i).normal(size=(1, 8, 2, 2)).astype("f")} for i in range(4)]
    sim.compute_encodings(feeds)
    quantizer = sim.qc_quantize_op_dict["w1"]
    assert quantizer.get_zero_point_shift() == 0.5
    assert {one.offset for one in quantizer.encodings or ()} == {-1.5}
    sim.export(tmp_path, "sim", export_model=False)
    made, wanted = (
        json.loads(p.read_text())["param_encodings"]
        for p in (tmp_path / "sim.encodings", AIMET / "shifted_1.0.0.encodings")
    )
    for entry, expected in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(*(np.asarray(e.pop("scale"), np.float32) for e in (entry, expected)))
        assert entry == expected
    quantizer.load_encodings(quantizer.encodings or ())
    assert quantizer.get_zero_point_shift() == 0.5
    quantizer.set_zero_point_shift(0.0)
    sim.compute_encodings(feeds)
    assert {one.offset for one in quantizer.encodings or ()} == {-2}
    with pytest.raises(qc.UsageError, match="shift_zero_point is for int2 with symmetric=True only"):
        QSpec.per_channel(int4, symmetric=True, shift_zero_point=True)
