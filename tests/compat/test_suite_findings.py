"""What AIMET's own tests found: each is a small model of what was different."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import QuantizationSimModel, analyze_per_layer_sensitivity, load_encodings_to_sim
from qc.compat.aimet_onnx.batch_norm_fold import find_all_batch_norms_to_fold, fold_all_batch_norms_to_weight
from qc.compat.aimet_onnx.meta.connectedgraph import ConnectedGraph
from qc.compat.aimet_onnx.quantsim import set_blockwise_quantization_for_weights
from qc.compat.aimet_onnx.utils import make_dummy_input, make_psnr_eval_fn

from .networks import feeds, network, typed


def test_the_dictionary_of_quantizers_can_be_set() -> None:
    sim = QuantizationSimModel(network())
    ops = sim.qc_quantize_op_dict
    ops["y"] = ops["x"]
    assert sim.qc_quantize_op_dict["y"] is sim.qc_quantize_op_dict["x"]
    del ops["y"]
    assert not ops["y"].enabled and ops["x"].enabled
    sim.qc_quantize_op_dict = {"x": ops["x"]}
    assert [name for name, op in sim.qc_quantize_op_dict.items() if op.enabled] == ["x"]


def test_nodes_are_left_out_by_the_older_name_of_the_argument() -> None:
    sim = QuantizationSimModel(network())
    with pytest.warns(DeprecationWarning, match="excluded_nodes is deprecated"):
        set_blockwise_quantization_for_weights(sim, ["Gemm"], 4, True, 4, excluded_nodes=["fc"])
    assert sim.qc_quantize_op_dict["fc.weight"].bitwidth == 8
    with (
        pytest.raises(ValueError, match="excluded_nodes is the older name"),
        pytest.warns(DeprecationWarning),
    ):
        set_blockwise_quantization_for_weights(
            sim, ["Gemm"], 4, True, 4, nodes_to_exclude=["fc"], excluded_nodes=["fc"]
        )


def test_blocks_of_a_kernel_count_once() -> None:
    constants = {"W": np.random.default_rng(0).normal(size=(4, 8, 3, 3))}
    model = typed(build_model("y = Conv(x, W)", "y", "float[1,8,8,8] x", constants=constants))
    sim = QuantizationSimModel(model)
    set_blockwise_quantization_for_weights(sim, ["Conv"], 4, True, 4)
    sim.compute_encodings([make_dummy_input(model)])
    quantizer = sim.qc_quantize_op_dict["W"]
    encodings = quantizer.get_encodings() or []
    assert len(encodings) == 4 * 2
    quantizer.load_encodings(encodings)
    assert quantizer.get_encodings() == encodings


def test_an_end_that_is_fixed_is_told_as_it_is() -> None:
    model = typed(build_model("s = Softmax(x); y = Mul(s, s)", "y"))
    sim = QuantizationSimModel(model, config_file="htp_v73")
    sim.compute_encodings([make_dummy_input(model)])
    (encoding,) = sim.qc_quantize_op_dict["s"].get_encodings() or ()
    assert (encoding.min, encoding.max) == (0.0, 1.0)


def test_floats_without_a_scale_need_no_calibration(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network(), param_type="float16", activation_type="float16")
    sim.export(tmp_path, "model")
    again = QuantizationSimModel(network(), param_type="float16", activation_type="float16")
    assert load_encodings_to_sim(again, tmp_path / "model.encodings") == []
    halves = sim.session.run(None, feeds()[0])[0]
    assert np.any(halves != qc.runtime.open_session(network()).run(None, feeds()[0])[0])
    assert (halves == halves.astype(np.float16)).all()


def test_norms_that_would_be_folded() -> None:
    constants = {"W": np.ones((3, 3, 1, 1)), **{name: np.ones(3) for name in ("g", "b", "m", "v")}}
    body = "c = Conv(x, W); n = BatchNormalization(c, g, b, m, v); y = Relu(n)"
    model = typed(build_model(body, "y", "float[1,3,4,4] x", constants=constants))
    for node in model.graph.node:
        node.name = node.op_type
    (pair,), in_front = find_all_batch_norms_to_fold(ConnectedGraph(model))
    assert pair == (model.graph.node[0], model.graph.node[1]) and in_front == []
    assert [node.op_type for node in model.graph.node] == ["Conv", "BatchNormalization", "Relu"]


def test_a_model_that_is_wrong_is_a_runtime_error() -> None:
    model = network()
    model.graph.node[1].input[0] = "nothing"
    with pytest.raises(RuntimeError, match="op 'relu' reads 'nothing', which no op makes"):
        ConnectedGraph(model)


def test_norms_on_both_sides_of_a_product() -> None:
    random = np.random.default_rng(0)
    sizes = {"W": (48, 5)} | {f"{name}{end}": (size,) for end, size in ((1, 3), (2, 5)) for name in "gbmv"}
    constants = {name: random.uniform(0.5, 1.5, size) for name, size in sizes.items()}
    body = (
        "n = BatchNormalization(x, g1, b1, m1, v1); f = Flatten(n); p = MatMul(f, W); "
        "y = BatchNormalization(p, g2, b2, m2, v2)"
    )
    model = typed(build_model(body, "y", "float[1,3,4,4] x", constants=constants))
    feed = make_dummy_input(model)
    expected = qc.runtime.open_session(model).run(None, feed)[0]
    first, _, product, second = model.graph.node
    assert find_all_batch_norms_to_fold(ConnectedGraph(model)) == ([(product, second)], [(first, product)])
    behind, in_front = fold_all_batch_norms_to_weight(model)
    assert [node.op_type for node in model.graph.node] == ["Flatten", "Gemm"]
    assert [[op.op_type, norm.bn_layer.op_type] for op, norm in (*behind, *in_front)] == [
        ["Gemm", "BatchNormalization"]
    ] * 2
    assert "W" in [tensor.name for tensor in model.graph.initializer]
    found = qc.runtime.open_session(model).run(None, feed)[0]
    scale = np.abs(expected).max()  # the data is random: some of what is summed up nearly cancels
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * scale)


def test_a_fixed_range_needs_no_arrays() -> None:
    sim = QuantizationSimModel(typed(build_model("y = Tanh(x)", "y")), config_file="htp_v73")
    sim.compute_encodings([make_dummy_input(sim.model.model)])
    quantizer = sim.qc_quantize_op_dict["y"]
    quantizer.set_bitwidth(16)
    (encoding,) = quantizer.compute_encodings() or ()
    assert encoding.bw == 16 and (encoding.min, encoding.max) == pytest.approx((-1, 1), abs=encoding.delta)


def test_what_holds_for_symmetric_grids_is_kept_while_a_grid_is_not(tmp_path: Path) -> None:
    params = {"is_quantized": "True", "is_symmetric": "True"}
    defaults = {"ops": {"is_output_quantized": "True"}, "params": params, "strict_symmetric": "True"}
    defaults["unsigned_symmetric"] = "True"
    sections = {name: {} for name in ("params", "op_type", "model_input", "model_output")}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"defaults": defaults, "supergroups": [], **sections}))
    sim = QuantizationSimModel(network(), config_file=str(config))
    assert all(
        op.use_strict_symmetric and op.use_unsigned_symmetric for op in sim.qc_quantize_op_dict.values()
    )
    result = sim.qc_quantize_op_dict["r"]
    assert not result.spec.narrow and not result.spec.one_sided  # it is not symmetric
    result.use_symmetric_encodings = True
    assert result.spec.narrow and result.spec.one_sided
    result.use_symmetric_encodings = result.use_strict_symmetric = False
    result.use_symmetric_encodings = True
    assert not result.spec.narrow and result.spec.one_sided


def test_layers_are_told_apart_before_calibration() -> None:
    model = network()
    reference = qc.runtime.open_session(model)
    score = make_psnr_eval_fn(reference, feeds())
    scores = analyze_per_layer_sensitivity(QuantizationSimModel(model, param_type="int4"), eval_fn=score)
    assert max(scores["conv"], scores["fc"]) < 60 < scores["relu"]  # weights are rounded, results are not


def test_the_model_of_a_simulation_has_the_inputs_of_the_float_model() -> None:
    sim = QuantizationSimModel(network())
    before = make_dummy_input(sim.model)
    sim.compute_encodings(feeds())
    assert list(before) == list(make_dummy_input(sim.model)) == ["x"]
    sim.session.run(None, before)


def test_wrong_arguments_and_data_are_value_errors() -> None:
    for name, value, said in (
        ("param_type", "int99", "16 bits"),
        ("config_file", "nowhere.json", "nowhere"),
        ("quant_scheme", "none", "none"),
    ):
        with pytest.raises(ValueError, match=said):
            QuantizationSimModel(network(), **{name: value})
    with pytest.raises(ValueError, match="has no input"):
        QuantizationSimModel(network()).compute_encodings([{"y": feeds()[0]["x"]}])


def test_a_bias_may_hold_nan() -> None:
    model = network()
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "conv.bias")
    bias.CopyFrom(numpy_helper.from_array(np.array([np.nan, 1, 1, 1], np.float32), bias.name))
    sim = QuantizationSimModel(model)
    with pytest.warns(UserWarning, match="NaN"):
        sim.compute_encodings(feeds())
    assert all(op.is_initialized() for op in sim.qc_quantize_op_dict.values() if op.enabled)
