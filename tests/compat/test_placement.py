"""What AIMET does on small graphs, and its known defects, seen through ``QuantizationSimModel``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graph_text import build_model
from support.models import random_feeds
from support.pipelines import run_model
from support.quantsim import as_aimet_writes

from qc.compat.aimet_onnx import QuantizationSimModel, load_encodings_to_sim
from qc.compat.aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight
from qc.passes.quantize.quantsim.reading import load_config

from .networks import typed

IMAGE = "float[1,4,8,8] x"
RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "W": RANDOM.normal(size=(4, 4, 3, 3)),
    "W1": RANDOM.normal(size=(4, 1, 3, 3)),
    "V": RANDOM.normal(size=(4, 4, 1, 1)),
    "A": RANDOM.normal(size=(8, 8)),
    "b": RANDOM.normal(size=8),
    "b2": RANDOM.normal(size=(1, 8)),
    "gamma": RANDOM.normal(size=8),
    "beta": RANDOM.normal(size=8),
    "WT": RANDOM.normal(size=(4, 2, 3, 3)),
    "table": RANDOM.normal(size=(5, 8)),
    "mask": np.array([[True, False] * 4]),
    "far": np.float32(-1e9),
    "LW": RANDOM.normal(size=(1, 16, 8)),
    "LR": RANDOM.normal(size=(1, 16, 4)),
    "ax": np.array([-1]),
    "g": RANDOM.normal(size=4),
    "h": RANDOM.normal(size=4),
    "mean": RANDOM.normal(size=4),
    "v": np.abs(RANDOM.normal(size=4)) + 0.5,
    "W3": RANDOM.normal(size=(4, 4, 1, 3, 3)),
    "slope": np.full(8, 0.1),
    "pads": np.zeros(6, np.int64),
    "sizes": np.array([1, 1, 2, 2], np.float32),
    "flat": np.array([2, 4, 4]),
    "two": np.float32(2),
    "eps": np.float32(1e-5),
    "lo": np.float32(-1),
    "hi": np.float32(1),
}
LAYER_NORM = """mu = ReduceMean<axes=[-1]>(x); d = Sub(x, mu); sq = Pow(d, two)
var = ReduceMean<axes=[-1]>(sq); ve = Add(var, eps); std = Sqrt(ve); nrm = Div(d, std)
sc = Mul(nrm, gamma); y = Add(sc, beta)"""


def simulation(
    body: str,
    config: str = "htp_v73",
    outputs: str = "y",
    inputs: str = "float[2,4,8] x",
    opset: int = 17,
    **options: Any,
) -> QuantizationSimModel:
    """The simulation of some nodes, calibrated on random data."""
    proto = typed(build_model(body, outputs, inputs, opset, CONSTANTS))
    sim = QuantizationSimModel(proto, config_file=config, **options)
    sim.compute_encodings(random_feeds(proto))
    return sim


def enabled(sim: QuantizationSimModel) -> set[str]:
    return {name for name, op in sim.qc_quantize_op_dict.items() if op.enabled}


def tied(sim: QuantizationSimModel, *names: str) -> bool:
    return len({sim.qc_quantize_op_dict[name] for name in names}) == 1


@pytest.mark.parametrize(
    "body, config, expected",
    [
        (LAYER_NORM, "htp_v73", "x gamma y"),
        (LAYER_NORM, "default", "x two eps gamma beta mu d sq var ve std nrm sc y"),
        ("m = MatMul(x, A); s = Add(m, b); y = Relu(s)", "htp_v73", "x A y"),
        ("m = MatMul(x, A); s = Add(m, b); y = Relu(s)", "default", "x A y"),
        ("m = MatMul(x, A); y = Add(m, b2)", "htp_v73", "x A m b2 y"),
        ("c = Clip(x, lo, hi); y = Relu(c)", "htp_v73", "x lo hi c y"),
        ("t = Transpose<perm=[1,0]>(A); y = MatMul(x, t)", "htp_v73", "x A y"),
        ("a = Flatten(x); y = Relu(a)", "htp_v73", "x y"),
    ],
)
def test_which_tensors_are_quantized(body: str, config: str, expected: str) -> None:
    assert enabled(simulation(body, config)) == set(expected.split())


def test_more_rows_of_the_table() -> None:
    """Where AIMET's quantizers are on, as it was measured."""
    chain = "c = Clip(x, lo, hi); p = PRelu(c, slope); q = Pad(p, pads, two)"
    chain += "; e = Greater(q, eps); y = Where(e, q, b2)"
    assert {"lo", "hi", "slope", "two", "eps", "b2"} <= enabled(simulation(chain))
    moved = "a = Cast<to=10>(x); c = Cast<to=1>(a); f = Flatten(c); y = Relu(f)"
    assert enabled(simulation(moved)) == {"x", "y"}
    pooled = simulation("r = Relu(x); y = MaxPool<kernel_shape=[2,2]>(r)", "enpu_v6", inputs=IMAGE)
    assert {"r", "y"} <= enabled(pooled) and not tied(pooled, "r", "y")
    resized = simulation('r = Resize<mode="nearest">(x, none, sizes); y = Relu(r)', inputs=IMAGE)
    assert tied(resized, "x", "r") and "sizes" not in enabled(resized)
    deep = simulation("c = Conv(x, W3); y = Relu(c)", inputs="float[1,4,2,8,8] x")
    assert tied(deep, "c", "y")
    plain = LAYER_NORM.partition("sc =")[0].replace("nrm", "y")
    assert enabled(simulation(plain)) == {"x", "mu", "d", "y"}


def test_widths_that_norms_and_computed_weights_need() -> None:
    wide = simulation(LAYER_NORM, param_type="int16").qc_quantize_op_dict["gamma"]
    assert wide.bitwidth == 16 and wide.use_symmetric_encodings
    rms = LAYER_NORM.replace(
        "mu = ReduceMean<axes=[-1]>(x); d = Sub(x, mu); sq = Pow(d, two)", "sq = Mul(x, x)"
    )
    rms = rms.replace("Div(d, std)", "Div(x, std)").replace(
        "sc = Mul(nrm, gamma); y = Add(sc, beta)", "y = Mul(nrm, gamma)"
    )
    sim = simulation(rms, activation_type="int16")
    assert enabled(sim) == {"x", "gamma", "y"}
    assert sim.qc_quantize_op_dict["gamma"].bitwidth == 16
    behind = simulation("t = Transpose<perm=[1,0]>(A); y = MatMul(x, t)", param_type="int16")
    assert behind.qc_quantize_op_dict["x"].bitwidth == 16


@pytest.mark.parametrize("config", ["htp_v66", "htp_v73", "default", "enpu_v7"])
def test_products_without_a_grid_of_their_own_are_no_failure(config: str) -> None:
    """Rules for computed factors meet products that a bias or a Relu belongs to."""
    body = "t = Transpose<perm=[0,2,1]>(x); m = MatMul(x, t); r = Reshape(m, flat); n = MatMul(r, x)"
    sim = simulation(f"{body}; a = MatMul(n, A); s = Add(a, b); y = Relu(s)")
    assert {"x", "m", "n", "A", "y"} <= enabled(sim) and not {"t", "r", "a", "s"} & enabled(sim)


@pytest.mark.parametrize(
    "body, together",
    [
        ("c = Conv<group=4>(x, W1); y = Relu(c)", "c y"),
        ("y = AveragePool<kernel_shape=[2,2]>(x)", "x y"),
        ("a = Mul(x, x); s = Sigmoid(x); y = Concat<axis=1>(a, s)", "a y"),
    ],
)
def test_which_tensors_share_a_grid(body: str, together: str) -> None:
    assert tied(simulation(body, inputs=IMAGE), *together.split())


def test_convolution_with_batch_norm_and_relu() -> None:
    body = "c = Conv(x, W); n = BatchNormalization(c, g, h, mean, v); y = Relu(n)"
    assert enabled(simulation(body, inputs=IMAGE)) == {"x", "W", "g", "y"}


def test_scales_of_weights() -> None:
    grouped = simulation("y = ConvTranspose<group=2>(x, WT)", inputs=IMAGE)
    assert len(grouped.qc_quantize_op_dict["WT"].get_encodings()) == 1
    behind = simulation("t = Transpose<perm=[1,0]>(A); y = MatMul(x, t)")
    assert len(behind.qc_quantize_op_dict["A"].get_encodings()) == 8


def test_a_table_is_an_activation() -> None:
    sim = simulation("g1 = Gather(table, i); y = Relu(g1)", inputs="int64[2] i")
    assert enabled(sim) == {"table", "y"} and "table" in sim.activation_names


def test_states_of_a_recurrent_op() -> None:
    sim = simulation("y, h1 = LSTM<hidden_size=4>(x, LW, LR)", outputs="y h1")
    assert tied(sim, "x", "y", "h1") and {"LW", "LR"} <= enabled(sim)


def test_b3_a_recurrent_op_without_first_output() -> None:
    sim = simulation("none, h1 = LSTM<hidden_size=4>(x, LW, LR); y = Tanh(h1)")
    assert tied(sim, "x", "h1")


def test_b10_a_norm_of_opset_18() -> None:
    body = LAYER_NORM.replace("ReduceMean<axes=[-1]>(x)", "ReduceMean(x, ax)")
    body = body.replace("ReduceMean<axes=[-1]>(sq)", "ReduceMean(sq, ax)")
    assert enabled(simulation(body, opset=18)) == {"x", "gamma", "y"}


def test_b11_a_mask_does_not_ruin_a_range() -> None:
    sim = simulation("s = Where(mask, x, far); y = Softmax(s)")
    assert "far" not in enabled(sim)
    assert {"x", "s", "y"} <= enabled(sim)
    grid = sim.qc_quantize_op_dict["s"].get_encodings()[0]
    assert -40 < grid.min < 0 < grid.max < 10


def test_every_convolution_around_an_output_has_channels_and_the_output_a_grid() -> None:
    sim = simulation("c1 = Conv(x, W); r = Relu(c1); y = Conv(r, V)", outputs="c1 y", inputs=IMAGE)
    ops = sim.qc_quantize_op_dict
    assert len(ops["W"].get_encodings()) == len(ops["V"].get_encodings()) == 4
    assert ops["c1"].enabled


def test_outputs_whose_names_begin_alike() -> None:
    body = "hidden_output = Conv(x, W); hidden_output_1 = Conv(x, V); y_updated = Relu(x); y = Tanh(x)"
    sim = simulation(body, outputs="hidden_output hidden_output_1 y y_updated", inputs=IMAGE)
    assert {"hidden_output", "hidden_output_1", "y", "y_updated"} <= enabled(sim)
    assert [output.name for output in sim.session.get_outputs()] == [
        "hidden_output",
        "hidden_output_1",
        "y",
        "y_updated",
    ]


def test_b1_a_relu_does_not_clip_an_output() -> None:
    sim = simulation("m = Mul(x, two); y = Relu(m)", outputs="m y")
    (m, _) = sim.session.run(["m", "y"], {"x": np.full((2, 4, 8), -0.25, np.float32)})
    np.testing.assert_allclose(m, -0.5, atol=0.05)


@pytest.mark.parametrize(
    "body",
    [
        "a = Sigmoid(x); y = Relu(a)",
        "a = Tanh(x); y = Relu(a)",
        "a = Tanh(x); p = MaxPool<kernel_shape=[2,2]>(a); y = Relu(p)",
        "a = Sigmoid(x); s = Softmax(x); c = Concat<axis=1>(a, s); y = Relu(c)",
    ],
)
def test_b2_fixed_ranges_that_meet(body: str) -> None:
    sim = simulation(body, inputs=IMAGE)
    assert sim.qc_quantize_op_dict["y"].get_encodings()[0].min == 0.0


def test_b4_a_join_that_is_off_leaves_its_inputs_on(tmp_path: Path) -> None:
    config = load_config("htp_v73").config.plain()
    config["op_type"]["Concat"] = {"is_output_quantized": False}
    (tmp_path / "config.json").write_text(json.dumps(as_aimet_writes(config)))
    body = "a = Mul(x, x); b1 = Add(x, x); y = Concat<axis=1>(a, b1)"
    sim = simulation(body, str(tmp_path / "config.json"), inputs=IMAGE)
    assert {"a", "b1"} <= enabled(sim)


def test_b9_strict_symmetry_has_no_lowest_code(tmp_path: Path) -> None:
    config = load_config("htp_v73").config.plain()
    config["defaults"]["strict_symmetric"] = True
    (tmp_path / "config.json").write_text(json.dumps(as_aimet_writes(config)))
    sim = simulation("y = MatMul(x, A)", str(tmp_path / "config.json"))
    for grid in sim.qc_quantize_op_dict["A"].get_encodings():
        assert (grid.offset, grid.min) == (-127, pytest.approx(-grid.max))


def test_b12_and_b13_batch_norms_that_cannot_be_folded() -> None:
    shown = "c = Conv(x, W); y = BatchNormalization(c, g, h, mean, v)"
    padded = 'n = BatchNormalization(x, g, h, mean, v); y = Conv<auto_pad="SAME_UPPER">(n, W)'
    for body, outputs in ((shown, "y c"), (padded, "y")):
        proto = typed(build_model(body, outputs, IMAGE, constants=CONSTANTS))
        feed = random_feeds(proto)[0]
        before = run_model(proto, feed)
        fold_all_batch_norms_to_weight(proto)
        for name, array in run_model(proto, feed).items():
            np.testing.assert_allclose(array, before[name], atol=1e-4)


def test_b5_a_residual_is_no_bias() -> None:
    body = LAYER_NORM.replace("y = Add(sc, beta)", "y = Add(sc, x)")
    assert "sc" in enabled(simulation(body))


def test_b6_an_exposed_normalized_tensor_keeps_its_grid() -> None:
    assert "nrm" in enabled(simulation(LAYER_NORM, outputs="y nrm"))


def test_b7_a_relu_has_no_negative_half() -> None:
    sim = simulation("c = Conv<group=4>(x, W1); y = Relu(c)", "default", inputs=IMAGE)
    assert sim.qc_quantize_op_dict["y"].get_encodings()[0].min == 0.0


def test_b8_every_version_can_be_exported_and_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    sim = simulation("c = Conv(x, W); y = Relu(c)", inputs=IMAGE)
    for version in ("0.6.1", "1.0.0", "2.0.0", "2.1.0"):
        sim.export(tmp_path, version, encoding_version=version)
        again = QuantizationSimModel(str(tmp_path / f"{version}.onnx"), config_file="htp_v73")
        assert load_encodings_to_sim(again, tmp_path / f"{version}.encodings") == []


@pytest.mark.parametrize("weight", ["const", "made", "given"])
def test_a_convolution_in_three_dimensions_is_no_group_with_its_relu(weight: str) -> None:
    body = {"const": "c = Conv(x, W); y = Relu(c)", "made": "w = Mul(W, s); c = Conv(x, w); y = Relu(c)"}
    inputs = "float[1,2,3,3,3] x" + (", float[2,2,1,1,1] v" if weight == "given" else "")
    constants = {"W": np.ones((2, 2, 1, 1, 1)), "s": np.float32(2)}
    text = body.get(weight, "c = Conv(x, v); y = Relu(c)")
    sim = QuantizationSimModel(typed(build_model(text, inputs=inputs, constants=constants)))
    assert sim.qc_quantize_op_dict["c"].enabled


def test_results_that_no_default_asks_for_stay_float(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    sections = {"params": {}, "supergroups": [], "model_input": {}, "model_output": {}}
    asked = {"op_type": {"Tanh": {"is_output_quantized": "True"}}}
    defaults = {"ops": {"is_symmetric": "True"}, "params": {"is_quantized": "True"}}
    file.write_text(json.dumps({"defaults": defaults, **sections, **asked}))
    model = build_model("c = MatMul(x, w); t = Tanh(c); y = Relu(t)", constants={"w": np.ones((8, 8))})
    ops = QuantizationSimModel(typed(model), config_file=str(file)).qc_quantize_op_dict
    assert [name for name, op in ops.items() if op.enabled] == ["w", "t"]
