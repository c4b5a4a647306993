"""What scripts set on single quantizers before, between and after calibrations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from qc.compat.aimet_onnx import QSpec, QuantizationSimModel, int4, qtype
from qc.compat.aimet_onnx.defs import QuantizationDataType, float32
from qc.compat.aimet_onnx.quantsim import OpMode, set_blockwise_quantization_for_weights

from .networks import feeds, network


@pytest.fixture
def sim() -> QuantizationSimModel:
    made = QuantizationSimModel(network())
    made.compute_encodings(feeds())
    return made


def exported(sim: QuantizationSimModel, folder: Path) -> dict[str, dict]:
    sim.export(folder, "model", export_model=False)
    content = json.loads((folder / "model.encodings").read_text())
    return {one["name"]: one for one in content["activation_encodings"] + content["param_encodings"]}


# -- symmetry ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "fc.weight"])
def test_symmetry_holds_from_the_next_calibration_on(
    sim: QuantizationSimModel, tmp_path: Path, name: str
) -> None:
    op, before = sim.qc_quantize_op_dict[name], exported(sim, tmp_path)
    op.use_symmetric_encodings = asked = not op.use_symmetric_encodings
    assert op.use_symmetric_encodings == asked
    assert exported(sim, tmp_path) == before
    sim.compute_encodings(feeds())
    after = exported(sim, tmp_path)
    assert after[name]["is_sym"] == asked != before[name]["is_sym"]


@pytest.mark.parametrize(
    "flag", ["use_symmetric_encodings", "use_strict_symmetric", "use_unsigned_symmetric"]
)
def test_a_frozen_quantizer_keeps_its_symmetry_and_numbers(
    sim: QuantizationSimModel, tmp_path: Path, flag: str
) -> None:
    op, before = sim.qc_quantize_op_dict["x"], exported(sim, tmp_path)
    op.freeze_encodings()
    setattr(op, flag, not getattr(op, flag))
    assert op.is_encoding_frozen()
    sim.compute_encodings(feeds())
    assert exported(sim, tmp_path) == before


# -- granularity ------------------------------------------------------------------------------------


def test_an_activation_has_one_scale(sim: QuantizationSimModel) -> None:
    op = sim.qc_quantize_op_dict["x"]
    for ask in (lambda: op.set_qspec(QSpec.per_channel(int4)), op.enable_per_channel_quantization):
        with pytest.raises(RuntimeError, match="a tensor that is no weight has one scale; use"):
            ask()
    assert op.bitwidth == 8 and op.is_initialized()


@pytest.mark.parametrize("size", [0, None])
def test_no_blocks_are_scales_of_channels(size: int | None) -> None:
    sim = QuantizationSimModel(network())
    weight = sim.qc_quantize_op_dict["conv.weight"]
    set_blockwise_quantization_for_weights(sim, ["Conv"], 4, True, 3)
    assert weight.quant_info.blockSize == 3
    set_blockwise_quantization_for_weights(sim, ["Conv"], 4, True, size)
    info = weight.quant_info
    assert (weight.bitwidth, info.usePerChannelMode, info.blockSize) == (4, True, 0)


def test_blocks_of_a_negative_size_are_an_error() -> None:
    with pytest.raises(ValueError, match="block_size is -1; it must divide the input channels"):
        set_blockwise_quantization_for_weights(QuantizationSimModel(network()), ["Conv"], 4, True, -1)


# -- ranges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["min_max", "tf_enhanced"])
def test_a_fixed_range_is_that_of_all_channels(scheme: str) -> None:
    sim = QuantizationSimModel(network(), quant_scheme=scheme)
    weight = sim.qc_quantize_op_dict["conv.weight"]
    weight.set_fixed_encoding_range((-1.0, 1.0))
    sim.compute_encodings(feeds())
    found = weight.get_encodings()
    assert [one.max for one in found] == pytest.approx([1.0] * 4)
    weight.set_fixed_encoding_range((-2.0, 2.0))
    assert weight.get_encodings() == found  # until it is calibrated again
    weight.set_fixed_encoding_range(None)
    sim.compute_encodings(feeds())
    assert len({one.max for one in weight.get_encodings()}) == 4


def test_one_fixed_end_leaves_the_other_to_each_channel() -> None:
    sim = QuantizationSimModel(network())
    weight = sim.qc_quantize_op_dict["conv.weight"]
    weight.use_symmetric_encodings = False
    weight.set_fixed_encoding_range((-4.0, None))
    sim.compute_encodings(feeds())
    found = weight.get_encodings()
    assert [one.min for one in found] == pytest.approx([-4.0] * 4, abs=0.05)
    assert len({one.max for one in found}) == 4


# -- float32 ----------------------------------------------------------------------------------------


def test_float32_rounds_nothing() -> None:
    sim = QuantizationSimModel(network(), activation_type="float32", param_type=qtype.float(8, 23))
    sim.compute_encodings(feeds())
    op = sim.qc_quantize_op_dict["x"]
    assert (op.enabled, op.bitwidth, op.precision(), op.get_encodings()) == (True, 32, float32, None)
    found = sim.session.run(None, feeds()[0])[0]
    for one in sim.qc_quantize_op_dict.values():
        one.enabled = False
    np.testing.assert_array_equal(found, sim.session.run(None, feeds()[0])[0])


def test_float32_for_one_tensor_and_back(sim: QuantizationSimModel, tmp_path: Path) -> None:
    before, op = exported(sim, tmp_path), sim.qc_quantize_op_dict["x"]
    op.set_precision("float32")
    sim.compute_encodings(feeds())
    for refused in (lambda: sim.export(tmp_path, "model"), sim.to_onnx_qdq):
        with pytest.raises(NotImplementedError, match="tensor 'x' is quantized to float32"):
            refused()
    op.enabled = False
    assert "x" not in exported(sim, tmp_path)
    op.enabled = True
    op.set_precision("int8")
    sim.compute_encodings(feeds())
    assert exported(sim, tmp_path) == before


@pytest.mark.parametrize(("bits", "name"), [(32, "float32"), (16, "float16"), (8, "float8e4m3fn")])
def test_floats_by_their_width(bits: int, name: str) -> None:
    given = QuantizationDataType.float
    with pytest.warns(DeprecationWarning):
        sim = QuantizationSimModel(
            network(), default_data_type=given, default_param_bw=bits, default_activation_bw=bits
        )
    assert str(sim.qc_quantize_op_dict["x"].precision()) == name


# -- one quantizer by itself ------------------------------------------------------------------------


def test_a_quantizer_observes_what_the_session_computes() -> None:
    sim, whole = QuantizationSimModel(network()), QuantizationSimModel(network())
    whole.compute_encodings(feeds())
    for op in sim.qc_quantize_op_dict.values():
        op.op_mode = OpMode.updateStats
    for feed in feeds():
        sim.session.run(None, feed)
    for name in ("x", "conv.weight", "fc.weight"):
        op, other = sim.qc_quantize_op_dict[name], whole.qc_quantize_op_dict[name]
        assert op.op_mode is OpMode.updateStats
        assert op.compute_encodings() == other.get_encodings()
        assert op.op_mode is OpMode.quantizeDequantize


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounded_arrays_keep_their_type(sim: QuantizationSimModel, dtype: type) -> None:
    op, array = sim.qc_quantize_op_dict["x"], np.linspace(-1, 1, 7).astype(dtype)
    found = op.quantize_dequantize(array)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, array, atol=op.get_encodings()[0].delta)
