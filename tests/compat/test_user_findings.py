"""What scripts in the manner of AIMET's documentation found: each is a small model of what was different."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from support.graph_text import build_model

from qc.compat.aimet_onnx import QuantizationDataType, QuantizationSimModel, load_encodings_to_sim
from qc.compat.aimet_onnx.layer_output_utils import LayerOutput
from qc.compat.aimet_onnx.mixed_precision import choose_mixed_precision
from qc.compat.aimet_onnx.quantsim import clamp_activation_encodings

from .networks import feeds, network, typed

INTEGER = QuantizationDataType.int
W8A8, W8A16 = ((8, INTEGER), (8, INTEGER)), ((16, INTEGER), (8, INTEGER))


def joined() -> ModelProto:
    """What a MaxPool hands on is joined with another tensor, and read by a convolution, too."""
    body = """
    c = Conv<kernel_shape=[1,1]>(x, W)
    r = Relu(c)
    p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
    d = Conv<kernel_shape=[1,1]>(p, V)
    y = Concat<axis=1>(p, d)
    """
    random = np.random.default_rng(0)
    shapes = {"W": (4, 3, 1, 1), "V": (4, 4, 1, 1)}
    constants = {name: random.normal(size=shape) for name, shape in shapes.items()}
    return typed(build_model(body, "y", "float[1,3,4,4] x", constants=constants))


def calibrated(model: ModelProto, config: str = "htp_v73") -> QuantizationSimModel:
    sim = QuantizationSimModel(model, config_file=config)
    sim.compute_encodings(feeds())
    return sim


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
@pytest.mark.filterwarnings("ignore:encoding_version 0.6.1")
def test_the_grid_of_one_reader_is_not_that_of_the_tensor(tmp_path: Path, version: str) -> None:
    sim = calibrated(joined())
    sim.export(tmp_path, "model", encoding_version=version)
    content = json.loads((tmp_path / "model.encodings").read_text())
    if version == "2.0.0":  # lists what only hands on numbers as well
        scales = {entry["name"]: entry["y_scale"] for entry in content["encodings"]}
        assert scales["p"] == scales["r"] != scales["y"]
    else:
        listed = [one if isinstance(one, str) else one["name"] for one in content["activation_encodings"]]
        assert "p" not in listed
    assert load_encodings_to_sim(QuantizationSimModel(joined(), config_file="htp_v73"), content) == []


def test_layer_outputs_are_not_those_that_one_reader_sees(tmp_path: Path) -> None:
    found = LayerOutput(calibrated(joined()).model.model, None, tmp_path).get_outputs(feeds()[0])
    made = found["r"].reshape(1, 4, 2, 2, 2, 2).max(axis=(3, 5))
    np.testing.assert_array_equal(found["p"], made)


def test_parameters_with_one_axis_have_a_scale_for_each_number(tmp_path: Path) -> None:
    on = {"is_quantized": "True", "is_symmetric": "True"}
    rules = {
        "defaults": {
            "ops": {"is_output_quantized": "True"},
            "params": on,
            "per_channel_quantization": "True",
        },
        "params": {},
        "op_type": {"LayerNormalization": {"is_output_quantized": "True"}},
        "supergroups": [],
        "model_input": {"is_input_quantized": "True"},
        "model_output": {},
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps(rules))
    constants = {"g": np.linspace(0.5, 1, 4), "b": np.zeros(4)}
    model = typed(
        build_model("y = LayerNormalization(x, g, b)", "y", "float[1,3,4,4] x", constants=constants)
    )
    scales = calibrated(model, str(tmp_path / "config.json")).qc_quantize_op_dict["g"].get_encodings()
    assert scales is not None and len(scales) == 4


def test_a_clamped_range_has_the_grid_that_calibration_would_find() -> None:
    sim = calibrated(network())
    clamp_activation_encodings(sim, 1.0)
    (encoding,) = sim.qc_quantize_op_dict["x"].get_encodings() or ()
    assert (encoding.offset, encoding.delta) == (-128, pytest.approx(2 / 255))
    for value in (0.0, -1.0, np.nan):
        with pytest.raises(RuntimeError, match="it must be above 0"):
            clamp_activation_encodings(sim, value)
    assert sim.qc_quantize_op_dict["x"].get_encodings() == [encoding]


def test_missing_quantizers_are_told_of_whether_they_are_turned_off_or_not(tmp_path: Path) -> None:
    calibrated(network()).export(tmp_path, "model")
    content = json.loads((tmp_path / "model.encodings").read_text())
    content["activation_encodings"] = []
    sim = QuantizationSimModel(network(), config_file="htp_v73")
    with pytest.raises(AssertionError, match="enabled is True there and False in the file"):
        load_encodings_to_sim(sim, content, disable_missing_quantizers=False)
    found = load_encodings_to_sim(sim, content, strict=False, disable_missing_quantizers=False)
    assert {one.quantizer_name for one in found} == {"x", "r", "y"}
    assert sim.qc_quantize_op_dict["x"].enabled


@pytest.mark.parametrize("drop, points", [(100.0, 0), (None, 3)])
def test_mixed_precision_ends_with_the_fewest_bits(tmp_path: Path, drop: float | None, points: int) -> None:
    def run(session: object) -> float:
        for feed in feeds():
            session.run(None, feed)  # type: ignore[attr-defined]
        return 1.0

    sim = QuantizationSimModel(network())
    front = choose_mixed_precision(sim, [W8A16, W8A8], run, run, drop, str(tmp_path), True, run)
    assert front is not None and len(front) == points  # none where the fewest bits are good enough at once
    assert {op.bitwidth for op in sim.qc_quantize_op_dict.values() if op.enabled} == {8}
