"""What a device wants of norms and products holds as well where a script changes formats later on."""

from __future__ import annotations

import numpy as np
import pytest
from support.graph_text import build_model

from qc.compat.aimet_onnx.defs import int4, int8, int16
from qc.compat.aimet_onnx.lite_mp import flip_layers_to_higher_precision
from qc.compat.aimet_onnx.mixed_precision import analyze_mixed_precision_sensitivity, apply_amp
from qc.compat.aimet_onnx.quantsim import QuantizationSimModel

from .networks import Feed, typed


def simulation(config: str = "htp_v73") -> QuantizationSimModel:
    """A product by a weight, a norm, and a product of two results."""
    random = np.random.default_rng(0)
    body = """
    p = MatMul(x, w)
    n = LayerNormalization<axis=-1>(p, scale, shift)
    t = Transpose<perm=[0, 2, 1]>(x)
    e = Exp(t)
    y = MatMul(n, e)
    """
    constants = {"w": random.normal(size=(8, 8)), "scale": random.normal(size=8), "shift": np.zeros(8)}
    model = typed(build_model(body, inputs="float[1,4,8] x", constants=constants))
    for node in model.graph.node:
        node.name = node.output[0]
    return QuantizationSimModel(model, config_file=config)


def feeds() -> list[Feed]:
    return [{"x": np.random.default_rng(i).normal(size=(1, 4, 8)).astype(np.float32)} for i in range(2)]


def test_parameters_of_norms_keep_8_bits_in_candidates_of_4() -> None:
    sim = simulation()
    found = analyze_mixed_precision_sensitivity(sim, [(int8, int8), (int4, int8)], lambda _: 0.0, feeds())
    _, grids = found["int4,int8"]
    assert (grids["w"]["bw"], grids["scale"]["bw"]) == (4, 8)
    apply_amp(sim, found, lambda _: True)
    bits = {name: one.bitwidth for name, one in sim.qc_quantize_op_dict.items() if one.enabled}
    assert (bits["w"], bits["scale"]) == (4, 8)
    assert sim.qc_quantize_op_dict["scale"].is_initialized()


def test_a_second_factor_of_16_bits_has_a_first_one_of_16_bits() -> None:
    sim = simulation()
    flip_layers_to_higher_precision(sim, {"e": 0.0, "p": 1.0}, 50, (int8, int16))
    first, second = sim.qc_quantize_op_dict["n"], sim.qc_quantize_op_dict["e"]
    assert (first.bitwidth, second.bitwidth) == (16, 16) and second.use_symmetric_encodings


@pytest.mark.parametrize("config, expected", [("htp_v69", 8), ("default", 16)])
def test_rules_are_those_of_the_device(config: str, expected: int) -> None:
    sim = simulation(config)
    second = sim.qc_quantize_op_dict["e"]
    second.set_bitwidth(16)
    sim._apply_exception_rules()
    assert second.bitwidth == expected


def test_what_is_frozen_stays() -> None:
    sim = simulation()
    scale = sim.qc_quantize_op_dict["scale"]
    scale.set_bitwidth(4)
    sim.compute_encodings(feeds())
    scale.freeze_encodings()
    sim._apply_exception_rules()
    assert scale.bitwidth == 4
