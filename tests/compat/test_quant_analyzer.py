"""QuantAnalyzer: scores, losses and ranges by layer, and the files that AIMET writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import (
    QuantAnalyzer,
    QuantizationSimModel,
    QuantScheme,
    analyze_per_layer_sensitivity,
    float16,
)
from qc.compat.aimet_onnx.common.defs import CallbackFunc
from qc.runtime import open_session

from .networks import typed

Feed = dict[str, np.ndarray]


def network() -> onnx.ModelProto:
    """Two convolutions, a BatchNormalization, a constant that is data, and a tensor that two ops read."""
    random = np.random.default_rng(0)
    constants = {"w1": random.normal(size=(4, 3, 3, 3)), "b1": random.normal(size=4), "k": np.float32(3)}
    constants |= {name: random.uniform(0.5, 1, 4) for name in "sbmv"} | {
        "w2": random.normal(size=(4, 4, 1, 1))
    }
    body = """c = Conv<pads=[1,1,1,1]>(x, w1, b1); e = Conv(c, w2); n = BatchNormalization(e, s, b, m, v)
    g = Sigmoid(n); z = Add(g, k); q = Concat<axis=1>(z, c); y = MaxPool<kernel_shape=[2,2]>(q)"""
    model = typed(build_model(body, inputs="float[2,3,6,6] x", constants=constants))
    for node in model.graph.node:
        node.name = f"{node.op_type.lower()}/{node.output[0]}"
    return model


FEEDS = [{"x": np.random.default_rng(i).normal(size=(2, 3, 6, 6)).astype(np.float32)} for i in range(3)]


def calibrate(session: Any, feeds: list[Feed]) -> None:
    for feed in feeds:
        session.run(None, feed)


def score(session: Any) -> float:
    return float(np.mean([session.run(None, feed)[0].mean() for feed in FEEDS]))


def analyzer() -> QuantAnalyzer:
    return QuantAnalyzer(network(), FEEDS[0], CallbackFunc(calibrate, FEEDS), score)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


LAYERS = ["conv/c", "conv/e", "sigmoid/g", "add/z", "concat/q"]
# What aimet-onnx 2.42 writes for the same model and feeds.
AIMET = {
    f"per_layer_quant_{kind}.{suffix}" for kind in ("enabled", "disabled") for suffix in ("html", "json")
}
AIMET |= {"per_layer_mse_loss.html", "per_layer_mse_loss.json"}
AIMET |= {f"min_max_ranges/{name}.json" for name in ("weights", "activations")}
AIMET |= {f"min_max_ranges/{name}.html" for name in ("activations", "conv_c_weight", "conv_e_weight")}
TENSORS = [
    "conv_c_input",
    "conv_c_output",
    "conv_e_output",
    "sigmoid_g_output",
    "add_z_input",
    "add_z_output",
]
HISTOGRAMS = {f"activations_pdf/{name}_q0_0.html" for name in [*TENSORS, "concat_q_output"]}
HISTOGRAMS |= {
    f"weights_pdf/{name}/{name}_weight_{i}.html" for name in ("conv_c", "conv_e") for i in range(4)
}


@pytest.mark.parametrize("scheme", [QuantScheme.min_max, QuantScheme.post_training_tf_enhanced])
def test_the_files_are_those_of_aimet(tmp_path: Path, scheme: QuantScheme) -> None:
    asked = analyzer()
    asked.enable_per_layer_mse_loss(FEEDS, 2)
    asked.analyze(scheme, results_dir=tmp_path / "new")
    searched = scheme is QuantScheme.post_training_tf_enhanced
    assert files(tmp_path / "new") == AIMET | {"model_sensitivity.json"} | (HISTOGRAMS if searched else set())
    found = json.loads((tmp_path / "new" / "per_layer_quant_enabled.json").read_text())
    assert list(found) == LAYERS
    page = (tmp_path / "new" / "per_layer_quant_enabled.html").read_text()
    assert page.count("<circle") == 5 and f"conv/c: {found['conv/c']:.6g}" in page


def test_scores_are_those_with_quantizers_on_and_off() -> None:
    asked = analyzer()
    sim = asked.create_quantsim_and_encodings(QuantScheme.min_max, 4, 4, None)
    before = score(sim.session)
    one_on = asked.perform_per_layer_analysis_by_enabling_quantizers(sim)
    one_off = asked.perform_per_layer_analysis_by_disabling_quantizers(sim)
    exact, weights, activations = asked.check_model_sensitivity_to_quantization(sim)
    assert score(sim.session) == before, "an analysis leaves the simulation as it was"
    ops = sim.qc_quantize_op_dict
    assert exact == pytest.approx(score(open_session(network())), rel=1e-5)

    def alone(*names: str) -> float:
        fresh = analyzer().create_quantsim_and_encodings(QuantScheme.min_max, 4, 4, None)
        for name, op in fresh.qc_quantize_op_dict.items():
            if name not in names:
                op.enabled = False
        return score(fresh.session)

    assert one_on["conv/c"] == alone("x", "w1", "c")
    assert one_on["add/z"] == alone("k", "z", "q")  # a Concat joins the last two
    assert one_on["sigmoid/g"] == alone("g")
    assert weights == alone("w1", "w2")
    assert activations == alone(*(name for name in ops if name not in ("w1", "w2")))
    assert one_off["conv/e"] == alone(*(name for name in ops if name not in ("w2", "e", "n")))


def test_ranges_are_those_of_the_grids(tmp_path: Path) -> None:
    asked = analyzer()
    sim = asked.create_quantsim_and_encodings(QuantScheme.min_max, 8, 8, None)
    sim.set_tensor_precision("w2", float16)
    weights, activations = asked.export_per_layer_encoding_min_max_range(sim, tmp_path)
    folder = tmp_path / "min_max_ranges"
    assert json.loads((folder / "weights.json").read_text()).keys() == weights.keys() == {"conv_c_weight"}
    stored = json.loads((folder / "activations.json").read_text())
    assert {name: tuple(ends) for name, ends in stored.items()} == activations
    encodings = sim.qc_quantize_op_dict["w1"].get_encodings()
    assert encodings is not None
    assert weights["conv_c_weight"] == {
        f"conv_c_weight_{i}": (one.min, one.max) for i, one in enumerate(encodings)
    }
    (whole,) = sim.qc_quantize_op_dict["x"].get_encodings() or ()
    assert activations["conv_c_input_0"] == (whole.min, whole.max)
    assert (folder / "conv_c_weight.html").read_text().count('stroke-width="4"') == 4


def test_losses_are_mean_squared_errors(tmp_path: Path) -> None:
    asked = analyzer()
    sim = asked.create_quantsim_and_encodings(QuantScheme.min_max, 8, 4, None)
    with pytest.raises(qc.UsageError, match="call enable_per_layer_mse_loss before"):
        asked.export_per_layer_mse_loss(sim, tmp_path)
    asked.enable_per_layer_mse_loss([feed["x"] for feed in FEEDS], 2)  # arrays do for one input
    found = asked.export_per_layer_mse_loss(sim, tmp_path)
    assert list(found) == [*LAYERS, "maxpool/y"]
    assert json.loads((tmp_path / "per_layer_mse_loss.json").read_text()) == found
    exact, rounded = open_session(network()), sim.session
    errors = [exact.run(None, feed)[0] - rounded.run(None, feed)[0] for feed in FEEDS[:2]]
    assert found["maxpool/y"] == pytest.approx(np.square(errors).mean(), rel=1e-5)
    with pytest.raises(qc.UsageError, match="there are 3 batches, fewer than 4"):
        asked.enable_per_layer_mse_loss(FEEDS, 4)


def test_what_a_relu_takes_away_is_no_error_of_the_layer_before_it(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    constants = {"w": random.normal(size=(4, 3, 3, 3)), "v": random.normal(size=(4, 4, 1, 1))}
    body = "c = Conv(x, w); p = MaxPool<kernel_shape=[1,1]>(c); r = Relu(p); y = Conv(r, v)"
    model = typed(build_model(body, inputs="float[2,3,6,6] x", constants=constants))
    for node in model.graph.node:
        node.name = node.output[0]
    asked = QuantAnalyzer(model, None, CallbackFunc(calibrate, FEEDS), score)
    sim = asked.create_quantsim_and_encodings(QuantScheme.min_max, 8, 8, None)
    assert sim.qc_quantize_op_dict["c"] is sim.qc_quantize_op_dict["r"]  # which begins at zero
    asked.enable_per_layer_mse_loss(FEEDS, 3)
    found = asked.export_per_layer_mse_loss(sim, tmp_path)
    assert found["c"] == found["p"] == pytest.approx(found["r"], rel=1e-6)


def test_one_layer_at_a_time_of_a_simulation(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network(), param_type="int4")
    sim.compute_encodings(FEEDS)
    found = analyze_per_layer_sensitivity(sim, score, str(tmp_path / "made" / "sensitivity"))
    assert list(found) == ["conv/c", "conv/e", "batchnormalization/n", *LAYERS[2:]]
    assert "batchnormalization/n" in (tmp_path / "made" / "sensitivity.html").read_text()
    assert analyze_per_layer_sensitivity(sim, score) == found


@pytest.mark.parametrize("argument", ["forward_pass_callback", "eval_callback"])
def test_callbacks_must_be_functions(argument: str) -> None:
    given: dict[str, Any] = {"forward_pass_callback": score, "eval_callback": score, argument: FEEDS}
    with pytest.raises(qc.UsageError, match=f"{argument} must be callable, not list"):
        QuantAnalyzer(network(), None, **given)
