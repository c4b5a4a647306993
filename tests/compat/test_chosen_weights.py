"""apply_adaround and apply_seq_mse: what is chosen, that it stays, and that AIMET's limits are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from support.float_types import in_type
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import (
    QuantizationSimModel,
    analyze_per_layer_sensitivity,
    apply_adaround,
    apply_seq_mse,
    float16,
    load_encodings_to_sim,
    quantsim,
)
from qc.compat.aimet_onnx.adaround.adaround_weight import Adaround, AdaroundParameters
from qc.compat.aimet_onnx.sequential_mse.seq_mse import SeqMseParams, SequentialMse
from qc.runtime import open_session

from .networks import typed

Feed = dict[str, np.ndarray]
Apply = Callable[..., None]
_RANDOM = np.random.default_rng(0)
_SHAPES = {"W": (8, 4, 3, 3), "V": (4, 8, 3, 3), "G": (8, 2, 3, 3), "T": (4, 6, 3, 3), "L": (8, 4, 3)}
_SHAPES |= {"A": (12, 12), "B": (12, 6), "b": (6,)}
CONSTANTS = {name: _RANDOM.normal(size=shape) for name, shape in _SHAPES.items()}
CONSTANTS |= {"slopes": np.linspace(0.1, 0.5, 8).reshape(8, 1, 1)}
CONSTANTS |= {name: _RANDOM.uniform(0.5, 1.5, 8) for name in ("gamma", "beta", "mean", "variance")}
SAME = 'y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, W)'
GROUPS = "y = Conv<group=2, pads=[1,1,1,1]>(x, G)"
TRANSPOSED = "y = ConvTranspose<strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]>(x, T)"
GEMM = "y = Gemm<alpha=0.5, beta=2.0>(x, B, b)"
SLOPES = "c = Conv(x, W); y = PRelu(c, slopes)"
CHAIN = "c = Conv<pads=[1,1,1,1]>(x, W); r = Relu(c); y = Conv<pads=[1,1,1,1]>(r, V)"
SHARED = "h = MatMul(x, A); r = Relu(h); y = MatMul(r, A)"
ROW = "y = Conv<pads=[1,1]>(x, L)"
NORMED = """c = Conv<pads=[1,1,1,1]>(x, W); n = BatchNormalization(c, gamma, beta, mean, variance)
    y = Conv<pads=[1,1,1,1]>(n, V)"""


def model_of(body: str) -> ModelProto:
    """A model with nodes that are named by what they make."""
    inputs = "float[2,4,16] x" if body == ROW else "float[2,4,8,8] x" if "Conv" in body else "float[16,12] x"
    model = typed(build_model(body, inputs=inputs, constants=CONSTANTS))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def feeds_of(model: ModelProto, count: int = 6) -> list[Feed]:
    """Data whose neighbours are alike, as those of pictures are."""
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    random, made = np.random.default_rng(0), []
    for _ in range(count):
        x = random.normal(size=shape)
        for axis in range(x.ndim):
            x = x + np.roll(x, 1, axis)
        made.append({"x": (x + 0.5).astype(np.float32)})
    return made


def outputs_of(runs: Any, feeds: list[Feed]) -> np.ndarray:
    return np.array([runs.run(None, feed)[0] for feed in feeds], np.float64)


def error_of(sim: QuantizationSimModel, model: ModelProto, feeds: list[Feed]) -> float:
    """The squared error of the output."""
    return float(np.square(outputs_of(sim.session, feeds) - outputs_of(open_session(model), feeds)).sum())


def adaround(sim: QuantizationSimModel, feeds: list[Feed]) -> None:
    apply_adaround(sim, feeds, num_iterations=100)


def channels(sim: QuantizationSimModel) -> None:
    """No blocks: a scale for each channel."""


def blocks(sim: QuantizationSimModel) -> None:
    types = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
    quantsim.set_blockwise_quantization_for_weights(sim, types, 4, True, 2, strict=True)


def two_levels(sim: QuantizationSimModel) -> None:
    quantsim.set_lpbq_for_params(sim, 4, 2, op_types=["Conv", "Gemm", "MatMul"], strict=True)


CASES = [(body, channels) for body in (SAME, GROUPS, GEMM, SLOPES, CHAIN, ROW, SHARED, TRANSPOSED)]
CASES += [(body, blocks) for body in (GROUPS, CHAIN, SHARED)] + [(CHAIN, two_levels)]


@pytest.mark.parametrize(("body", "grids"), CASES)
@pytest.mark.parametrize("apply", [adaround, apply_seq_mse])
def test_what_aimet_cannot_do(
    tmp_path: Path, apply: Apply, body: str, grids: Callable[[QuantizationSimModel], None]
) -> None:
    model = model_of(body)
    feeds = feeds_of(model)
    plain, chosen = (QuantizationSimModel(model, param_type="int4", activation_type="int16") for _ in "ab")
    for sim in (plain, chosen):
        grids(sim)
    apply(chosen, feeds)
    for sim in (plain, chosen):
        sim.compute_encodings(feeds)
    assert error_of(chosen, model, feeds) < 0.97 * error_of(plain, model, feeds)

    chosen.export(tmp_path, "model")
    stored = {one.name: one for one in onnx.load(tmp_path / "model.onnx").graph.initializer}
    for name in chosen.param_names:
        op, array = chosen.qc_quantize_op_dict[name], numpy_helper.to_array(stored[name])
        assert op.is_encoding_frozen() == op.enabled
        if op.quantizer.codes is not None:  # what is exported is on the grid
            np.testing.assert_allclose(op.quantize_dequantize(array), array, rtol=1e-6, atol=1e-7)
    assert read_back(tmp_path, chosen, feeds) == 0


def read_back(folder: Path, sim: QuantizationSimModel, feeds: list[Feed]) -> float:
    """What the results of an exported simulation differ by at most."""
    again = QuantizationSimModel(folder / "model.onnx", param_type="int4", activation_type="int16")
    load_encodings_to_sim(again, folder / "model.encodings", strict=False)
    return float(np.abs(outputs_of(again.session, feeds) - outputs_of(sim.session, feeds)).max())


@pytest.mark.parametrize(
    "order", ["precision adaround", "adaround precision", "calibrate precision adaround"]
)
def test_mixed_precision_in_any_order(tmp_path: Path, order: str) -> None:
    model = model_of(NORMED)
    feeds = feeds_of(model)
    sim = QuantizationSimModel(model, param_type="int4")

    def precision() -> None:
        _, made, parameters = sim.get_op_quantizers("n")
        for quantizer in (*made, parameters["weight"]):
            quantizer.set_precision(float16)

    steps = {"precision": precision, "adaround": lambda: adaround(sim, feeds)}
    for step in order.split():
        steps.get(step, lambda: sim.compute_encodings(feeds))()
    sim.compute_encodings(feeds)
    plain = QuantizationSimModel(model, param_type="int4")
    plain.compute_encodings(feeds)
    assert error_of(sim, model, feeds) < 0.5 * error_of(plain, model, feeds)
    ops = sim.qc_quantize_op_dict
    assert {name: (op.data_type.name, op.bitwidth) for name, op in ops.items() if op.enabled} == {
        "x": ("int", 8), "W": ("int", 4), "c": ("int", 8), "gamma": ("float", 16), "n": ("float", 16),
        "V": ("int", 4), "y": ("int", 8),
    }  # fmt: skip
    assert ops["W"].quantizer.codes is not None and ops["V"].quantizer.codes is not None

    sim.export(tmp_path, "model")
    assert read_back(tmp_path, sim, feeds) == 0
    qdq = sim.to_onnx_qdq(prequantize_constants=True)
    codes = {one.name: numpy_helper.to_array(one) for one in qdq.graph.initializer}
    for name in "WV":
        np.testing.assert_array_equal(codes[f"{name}_q"].astype(int), ops[name].quantizer.codes)
    exact = outputs_of(open_session(model), feeds)
    apart = np.square(outputs_of(open_session(qdq), feeds) - exact).sum()
    assert apart < 1.05 * error_of(sim, model, feeds)


def test_what_is_learned_stays_through_calibration_and_loading(tmp_path: Path) -> None:
    model = model_of(CHAIN)
    feeds = feeds_of(model)
    sim = QuantizationSimModel(model, param_type="int4")
    adaround(sim, feeds)
    assert not sim.qc_quantize_op_dict["x"].is_initialized(), "activations are calibrated afterwards"
    codes = sim.qc_quantize_op_dict["W"].quantizer.codes
    assert codes is not None
    sim.compute_encodings(feeds)
    sim.compute_encodings(feeds[:1])
    np.testing.assert_array_equal(sim.qc_quantize_op_dict["W"].quantizer.codes, codes)
    sim.qc_quantize_op_dict["W"].set_precision("int8")  # asked for by name, it has the nearest codes again
    sim.compute_encodings(feeds)
    assert sim.qc_quantize_op_dict["W"].quantizer.codes is None
    before = error_of(sim, model, feeds)
    sim.export(tmp_path, "model")
    assert read_back(tmp_path, sim, feeds) == 0 and before == error_of(sim, model, feeds)


def test_learned_codes_when_quantizers_are_off_for_a_while_or_folded(tmp_path: Path) -> None:
    model = model_of(CHAIN)
    feeds = feeds_of(model)
    sim = QuantizationSimModel(model, param_type="int4", activation_type="int16")
    adaround(sim, feeds)
    sim.compute_encodings(feeds)
    before = outputs_of(sim.session, feeds)
    scores = analyze_per_layer_sensitivity(sim, lambda session: float(outputs_of(session, feeds).mean()))
    assert list(scores) == ["c", "r", "y"]
    weight = sim.qc_quantize_op_dict["W"]
    weight.enabled = False
    assert np.abs(outputs_of(sim.session, feeds) - before).max() > 0
    weight.enabled = True
    np.testing.assert_array_equal(outputs_of(sim.session, feeds), before)
    sim.fold_param_quantizers()
    np.testing.assert_array_equal(outputs_of(sim.session, feeds), before)
    sim.export(tmp_path, "model")
    assert read_back(tmp_path, sim, feeds) == 0


def test_a_model_in_float16(tmp_path: Path) -> None:
    model = in_type(model_of(CHAIN), TensorProto.FLOAT16)
    feeds = [{"x": feed["x"].astype(np.float16)} for feed in feeds_of(model_of(CHAIN))]
    plain, sim = (QuantizationSimModel(model, param_type="int4", activation_type="int16") for _ in "ab")
    adaround(sim, feeds)
    for one in (plain, sim):
        one.compute_encodings(feeds)
    assert error_of(sim, model, feeds) < 0.5 * error_of(plain, model, feeds)
    sim.export(tmp_path, "model")
    assert read_back(tmp_path, sim, feeds) == 0


def test_nodes_that_are_named() -> None:
    model = model_of(CHAIN)
    feeds = feeds_of(model)
    for names in ({"nodes_to_include": ["y"]}, {"node_names_to_optimize": ["y"]}):
        sim = QuantizationSimModel(model, param_type="int4")
        apply_adaround(sim, iter(feeds), 10, **names)  # type: ignore[arg-type]
        chosen = [name for name, op in sim.qc_quantize_op_dict.items() if op.quantizer.codes is not None]
        assert chosen == ["V"]
        assert [name for name in "WV" if sim.qc_quantize_op_dict[name].is_encoding_frozen()] == ["V"]
        products = sim.connected_graph.get_all_products()
        given = {tensor.name: tensor for tensor in model.graph.initializer}
        assert [name for name in "WV" if products[name].tensor != given[name]] == ["V"]
    with pytest.raises(qc.UsageError, match=r"there is no layer 'r'"):
        apply_adaround(sim, feeds, 10, ["r"])
    with pytest.raises(qc.UsageError, match="give the first alone"):
        apply_adaround(sim, feeds, 10, ["y"], node_names_to_optimize=["y"])
    with pytest.raises(qc.DataError):
        apply_adaround(sim, [])


def test_the_form_of_older_scripts(tmp_path: Path) -> None:
    model = model_of(CHAIN)
    feeds = feeds_of(model)
    batches = [feed["x"] for feed in feeds]  # arrays do for one input
    parameters = AdaroundParameters(batches, 4, default_num_iterations=100)
    rounded = Adaround.apply_adaround(
        model, parameters, str(tmp_path / "new"), "adaround", param_bw_override_list=[("V", 8)]
    )
    assert rounded is not None
    plain, sim = (
        QuantizationSimModel(model, param_type="int4"),
        QuantizationSimModel(rounded, param_type="int4"),
    )
    sim.set_and_freeze_param_encodings(tmp_path / "new" / "adaround.encodings")
    for one in (plain, sim):
        one.compute_encodings(feeds)
    assert (sim.qc_quantize_op_dict["W"].bitwidth, sim.qc_quantize_op_dict["V"].bitwidth) == (4, 8)
    assert error_of(sim, model, feeds) < 0.5 * error_of(plain, model, feeds)
    with pytest.raises(qc.UsageError, match="there are 6 batches, fewer than 7"):
        AdaroundParameters(batches, 7)
    Adaround.apply_adaround(plain, feeds, 10)  # as in newer ones
    assert plain.qc_quantize_op_dict["W"].quantizer.codes is not None


def test_sequential_mse_leaves_out_what_is_named_and_freezes_the_rest(tmp_path: Path) -> None:
    model = model_of(CHAIN)
    feeds = feeds_of(model)
    plain = QuantizationSimModel(model, param_type="int4")
    plain.compute_encodings(feeds)
    sim = QuantizationSimModel(model, param_type="int4", quant_scheme="tf_enhanced")  # AIMET has min_max only
    apply_seq_mse(sim, feeds, 5, nodes_to_exclude=["c"])
    ops = sim.qc_quantize_op_dict
    assert [name for name, op in ops.items() if op.is_encoding_frozen()] == ["V"]
    chosen = ops["V"].encoding
    assert chosen is not None and not ops["x"].is_initialized()
    sim.compute_encodings(feeds)
    assert ops["V"].encoding.equals(chosen)
    assert (chosen.scale < plain.qc_quantize_op_dict["V"].encoding.scale).any()
    apply_seq_mse(sim, feeds, nodes_to_exclude=["c", "y"])  # nothing is left to do
    with pytest.raises(qc.UsageError, match="there is no layer 'z'"):
        apply_seq_mse(sim, feeds, nodes_to_exclude=["z"])

    older = QuantizationSimModel(model, param_type="int4")
    parameters = SeqMseParams(num_batches=4, num_candidates=5)
    SequentialMse.apply_seq_mse(model, older, parameters, [feed["x"] for feed in feeds])
    newer = QuantizationSimModel(model, param_type="int4")
    apply_seq_mse(newer, feeds[:4], 5)
    for name in "WV":
        assert older.qc_quantize_op_dict[name].encoding.equals(newer.qc_quantize_op_dict[name].encoding)
    few = QuantizationSimModel(model, param_type="int4")
    apply_seq_mse(few, feeds[:4], 1)
    assert not few.qc_quantize_op_dict["W"].encoding.equals(newer.qc_quantize_op_dict["W"].encoding)
    with pytest.raises(qc.UsageError, match="loss_fn is 'l1'; qc has 'mse' alone"):
        SeqMseParams(4, loss_fn="l1")


def test_codes_are_learned_on_ranges_that_were_chosen() -> None:
    model = model_of(CHAIN)
    feeds = feeds_of(model)
    errors = []
    for steps in ((adaround,), (apply_seq_mse,), (apply_seq_mse, adaround)):
        sim = QuantizationSimModel(model, param_type="int3", activation_type="int16")
        for step in steps:
            step(sim, feeds)
        sim.compute_encodings(feeds)
        errors.append(error_of(sim, model, feeds))
    assert errors[2] < errors[1]


@pytest.mark.parametrize("apply", [adaround, apply_seq_mse])
def test_around_bodies(apply: Apply) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,4,8,8] x, bool flag) => (float[2,4,8,8] y) {
        c = Conv<pads=[1,1,1,1]>(x, W)
        r = If(flag) <
            then_branch = one () => (float[2,8,8,8] a) { a = Relu(c) },
            else_branch = two () => (float[2,8,8,8] b) { b = Neg(c) }
        >
        y = Conv<pads=[1,1,1,1]>(r, V)
    }"""
    model = onnx.parser.parse_model(text)
    for name in "WV":
        model.graph.initializer.append(numpy_helper.from_array(CONSTANTS[name].astype(np.float32), name))
    flags = [{"flag": np.array(index % 2 == 0)} for index in range(6)]
    feeds = [feed | flag for feed, flag in zip(feeds_of(model), flags, strict=True)]
    plain, sim = (QuantizationSimModel(model, param_type="int4", activation_type="int16") for _ in "ab")
    apply(sim, feeds)
    for one in (plain, sim):
        one.compute_encodings(feeds)
    assert error_of(sim, model, feeds) < 0.97 * error_of(plain, model, feeds)
    assert all(sim.qc_quantize_op_dict[name].is_encoding_frozen() for name in "WV")
