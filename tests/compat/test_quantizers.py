"""``QcQuantizeOp`` and the functions that set several of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import (
    LayerOutputUtil,
    QSpec,
    QuantizationDataType,
    QuantizationSimModel,
    float16,
    int4,
    load_encodings_to_sim,
    qtype,
)
from qc.compat.aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight
from qc.compat.aimet_onnx.quantsim import (
    clamp_activation_encodings,
    set_blockwise_quantization_for_weights,
    set_grouped_blockwise_quantization_for_weights,
    set_lpbq_for_params,
    set_param_type,
)
from qc.ir.quant.spec import PerTensor
from qc.passes.encodings import read_encodings
from qc.runtime import open_session

from .networks import feeds, network, typed
from .test_simulation import float_output, output


@pytest.fixture
def sim() -> QuantizationSimModel:
    """A calibrated simulation."""
    made = QuantizationSimModel(network())
    made.compute_encodings(feeds())
    return made


def test_names_and_quantizers(sim: QuantizationSimModel) -> None:
    assert sim.param_names == ["conv.weight", "conv.bias", "fc.weight", "fc.bias"]
    assert sim.activation_names == ["x", "c", "r", "y"]
    parameters, activations = sim.get_all_quantizers()
    assert [op.enabled for op in parameters] == [True, False, True, False]
    assert [op.enabled for op in activations] == [True, False, True, True]


def test_quantizers_of_an_op(sim: QuantizationSimModel) -> None:
    ops = sim.qc_quantize_op_dict
    graph = sim.connected_graph
    assert [(op.name, op.type) for op in graph.ordered_ops] == [
        ("conv", "Conv"),
        ("relu", "Relu"),
        ("flatten", "Flatten"),
        ("fc", "Gemm"),
    ]
    conv = graph.get_all_ops()["conv"]
    names = [[product.name for product in products] for products in (conv.inputs, conv.outputs)]
    assert names == [["x", "conv.weight", "conv.bias"], ["c"]]
    assert {name: kind for name, (_, kind) in conv.parameters.items()} == {
        "conv.weight": "weight",
        "conv.bias": "bias",
    }
    for op in (conv, "conv", conv.dotted_name):
        parameters = {kind: ops[f"conv.{kind}"] for kind in ("weight", "bias")}
        assert sim.get_op_quantizers(op) == ([ops["x"]], [ops["c"]], parameters)
    node = next(node for node in network().graph.node if node.name == "relu")
    assert sim.get_op_quantizers(node) == ([], [ops["r"]], {})  # what it reads is quantized where it is made
    with pytest.raises(qc.UsageError, match=r"the model has no op 'cnov' \(did you mean 'conv'\?\)"):
        sim.get_op_quantizers("cnov")


def test_ops_that_count_as_one() -> None:
    random = np.random.default_rng(0)
    constants = {"A": random.normal(size=(8, 8)), "b": random.normal(size=8)}
    sim = QuantizationSimModel(typed(build_model("m = MatMul(x, A); y = Add(m, b)", constants=constants)))
    (op,) = sim.connected_graph.ordered_ops
    assert (op.type, [product.name for product in op.outputs]) == ("Gemm", ["y"])
    assert {name: kind for name, (_, kind) in op.parameters.items()} == {"A": "weight", "b": "bias"}


def test_without_quantizers_it_is_the_float_model(sim: QuantizationSimModel) -> None:
    for quantizer in sim.qc_quantize_op_dict.values():
        quantizer.enabled = False
    np.testing.assert_allclose(output(sim), float_output(), rtol=1e-5)


def test_off_and_on_again(sim: QuantizationSimModel) -> None:
    before = output(sim)
    quantizer = sim.qc_quantize_op_dict["r"]
    quantizer.enabled = False
    assert (output(sim) != before).any() and quantizer.get_encodings() is None
    quantizer.enabled = True
    assert (output(sim) == before).all()


def test_a_tensor_that_was_off_is_calibrated_when_it_is_on(sim: QuantizationSimModel) -> None:
    quantizer = sim.qc_quantize_op_dict["c"]
    quantizer.enabled = True
    assert not quantizer.is_initialized()
    sim.compute_encodings(feeds())
    assert len(quantizer.get_encodings()) == 1 and quantizer.get_encodings()[0].min < 0


def test_another_width_needs_another_calibration(sim: QuantizationSimModel) -> None:
    quantizer = sim.qc_quantize_op_dict["y"]
    quantizer.set_bitwidth(16)
    assert quantizer.bitwidth == 16 and quantizer.get_encodings() is None
    sim.compute_encodings(feeds())
    assert quantizer.get_encodings()[0].bw == 16
    low, high = quantizer.get_encodings()[0].min, quantizer.get_encodings()[0].max
    assert high - low == pytest.approx(65535 * quantizer.get_encodings()[0].delta)


@pytest.mark.parametrize("order", ["type first", "width first"])
def test_float16_and_back(sim: QuantizationSimModel, order: str) -> None:
    quantizer = sim.qc_quantize_op_dict["fc.weight"]
    if order == "width first":
        quantizer.set_bitwidth(16)
    quantizer.data_type = QuantizationDataType.float
    quantizer.set_bitwidth(16)
    assert (quantizer.precision(), quantizer.is_initialized()) == (float16, True)
    sim.compute_encodings(feeds())
    (entry,) = [record for record in sim.encodings().records if record.name == "fc.weight"]
    assert str(entry.format) == "float16"
    quantizer.data_type = QuantizationDataType.int
    quantizer.set_bitwidth(8)
    sim.compute_encodings(feeds())
    assert len(quantizer.get_encodings()) == 10


def test_a_frozen_width_stays_and_a_frozen_type_goes(sim: QuantizationSimModel) -> None:
    quantizer = sim.qc_quantize_op_dict["fc.weight"]
    quantizer.freeze_encodings()
    with pytest.warns(UserWarning, match="frozen"):
        quantizer.set_bitwidth(4)
    assert quantizer.bitwidth == 8
    quantizer.data_type = QuantizationDataType.float
    assert quantizer.precision() == float16 and not quantizer.is_encoding_frozen()


def test_symmetry(sim: QuantizationSimModel) -> None:
    quantizer = sim.qc_quantize_op_dict["y"]
    quantizer.use_symmetric_encodings = True
    sim.compute_encodings(feeds())
    assert quantizer.get_encodings()[0].offset == -128


def test_a_fixed_range(sim: QuantizationSimModel) -> None:
    quantizer = sim.qc_quantize_op_dict["y"]
    quantizer.set_fixed_encoding_range((0.0, 1.0))
    sim.compute_encodings(feeds())
    assert output(sim).min() == 0.0 and output(sim).max() == pytest.approx(1.0)


def test_encodings_round_as_they_say(sim: QuantizationSimModel) -> None:
    quantizer = sim.qc_quantize_op_dict["x"]
    (one,) = quantizer.get_encodings()
    x = feeds()[0]["x"]
    codes = np.round(np.clip(x, one.min, one.max) / one.delta) - one.offset
    np.testing.assert_allclose(quantizer.quantize_dequantize(x), (codes + one.offset) * one.delta, atol=1e-6)
    quantizer.load_encodings([one])
    assert quantizer.get_encodings() == [one]
    with pytest.raises(qc.UsageError, match="2 encodings do not fit"):
        quantizer.load_encodings([one, one])


# -- several at once ---------------------------------------------------------------------------------


def test_tied_quantizers(sim: QuantizationSimModel) -> None:
    sim.set_quantizers({"y": sim.qc_quantize_op_dict["x"]})
    sim.compute_encodings(feeds())
    ops = sim.qc_quantize_op_dict
    assert ops["y"] is ops["x"]
    assert ops["x"].get_encodings()[0].max >= np.max(float_output()) * 0.9
    with pytest.raises(TypeError):
        sim.set_quantizers({"y": 3})  # type: ignore[dict-item]
    with pytest.raises(qc.UsageError, match="no tensor 'z'"):
        sim.set_quantizers({"z": ops["x"]})


def test_precision_reaches_the_quantizer_that_decides(sim: QuantizationSimModel) -> None:
    sim.set_tensor_precision("f", "int16")
    assert sim.qc_quantize_op_dict["r"].bitwidth == 16
    with pytest.raises(qc.UsageError, match="'c' is not quantized"):
        sim.set_tensor_precision(["c"], "int16")
    sim.set_tensor_precision(["c"], "int16", strict=False)


def test_blocks_of_a_weight(sim: QuantizationSimModel) -> None:
    set_blockwise_quantization_for_weights(sim, ("Gemm",), 4, True, 16)
    sim.compute_encodings(feeds())
    weight = sim.qc_quantize_op_dict["fc.weight"]
    assert (weight.bitwidth, len(weight.get_encodings())) == (4, 40)
    with pytest.raises(qc.UsageError, match="blocks of 7 do not divide"):
        set_blockwise_quantization_for_weights(sim, "Gemm", 4, True, 7, strict=True)
    set_blockwise_quantization_for_weights(sim, "Gemm", 4, True, 7)
    assert len(weight.get_encodings()) == 40


def test_blocks_in_a_qdq_model(sim: QuantizationSimModel) -> None:
    set_blockwise_quantization_for_weights(sim, ("Gemm",), 4, True, 16)
    sim.compute_encodings(feeds())
    quantized = sim.to_onnx_qdq()
    assert quantized.opset_import[0].version == 21
    session = open_session(quantized, optimize=False)
    np.testing.assert_allclose(session.run(["y"], feeds()[0])[0], output(sim), atol=0.2)
    again = QuantizationSimModel.from_onnx_qdq(quantized)
    assert (output(again) == output(sim)).all()


@pytest.mark.parametrize("older", [False, True])
def test_two_level_blocks(sim: QuantizationSimModel, tmp_path: Path, older: bool) -> None:
    if older:
        set_grouped_blockwise_quantization_for_weights(sim, ["Gemm"], 4, 8, 16)
    else:
        set_lpbq_for_params(sim, 4, 16, nodes_to_include=["fc"])
    sim.compute_encodings(feeds())
    sim.export(tmp_path, "model", export_model=False)
    listed = json.loads((tmp_path / "model.encodings").read_text())["param_encodings"]
    (entry,) = [entry for entry in listed if entry["name"] == "fc.weight"]
    assert (entry["enc_type"], entry["bw"], entry["compressed_bw"]) == ("LPBQ", 8, 4)
    integers = np.reshape(entry["per_block_int_scale"], (10, 4))
    assert (integers.max(axis=1) == 16).all() and integers.min() >= 1
    used = np.reshape([one.delta for one in sim.qc_quantize_op_dict["fc.weight"].get_encodings()], (4, 10))
    np.testing.assert_allclose(used, (integers * np.reshape(entry["scale"], (10, 1))).T, rtol=1e-6)


def test_integers_of_two_levels_have_the_bits_of_the_codes(sim: QuantizationSimModel) -> None:
    for bits in (2, 8):
        set_lpbq_for_params(sim, bits, 16, nodes_to_include=["fc"])
        sim.compute_encodings(feeds())
        (entry,) = [record for record in sim.encodings().records if record.name == "fc.weight"]
        assert (entry.scale_bits, entry.format.bits) == (bits, bits)


def test_who_must_have_blocks(sim: QuantizationSimModel) -> None:
    with pytest.raises(qc.UsageError, match="blocks of 7 do not divide"):
        set_lpbq_for_params(sim, 4, 7, nodes_to_include=["fc"])
    set_lpbq_for_params(sim, 4, 7, op_types={"Gemm", "LSTM"})  # no such blocks, no such op
    set_lpbq_for_params(sim, 4, 16, op_types="LSTM")
    assert sim.qc_quantize_op_dict["fc.weight"].bitwidth == 8
    with pytest.raises(qc.UsageError, match="blocks of 7 do not divide"):
        set_lpbq_for_params(sim, 4, 7, op_types="Gemm", strict=True)
    for wrong in (
        {},
        {"nodes_to_include": ["fc"], "strict": False},
        {"op_types": "Gemm", "nodes_to_include": ["fc"]},
    ):
        with pytest.raises(qc.UsageError, match="op_types"):
            set_lpbq_for_params(sim, 4, 16, **wrong)


def test_all_weights_of_a_recurrent_op_have_the_type_that_is_asked_for() -> None:
    random = np.random.default_rng(0)
    constants = {
        "W": random.normal(size=(1, 16, 8)),
        "R": random.normal(size=(1, 16, 4)),
        "B": np.ones((1, 32)),
    }
    body = "y = LSTM<hidden_size=4>(x, W, R, B)"
    model = typed(build_model(body, inputs="float[2,4,8] x", constants=constants))
    sim = QuantizationSimModel(model)
    set_param_type(sim, "int4", op_types="LSTM")
    assert {name: sim.qc_quantize_op_dict[name].bitwidth for name in "WRB"} == {"W": 4, "R": 4, "B": 8}


def test_a_frozen_weight_keeps_its_type(sim: QuantizationSimModel) -> None:
    sim.qc_quantize_op_dict["fc.weight"].freeze_encodings()
    set_param_type(sim, "int4")
    assert [sim.qc_quantize_op_dict[name].bitwidth for name in ("conv.weight", "fc.weight")] == [4, 8]


def test_weights_in_float16_and_back() -> None:
    sim = QuantizationSimModel(network(), param_type="float16")
    sim.compute_encodings(feeds())
    weight = sim.qc_quantize_op_dict["conv.weight"]
    assert (weight.precision(), weight.get_encodings(), weight.use_symmetric_encodings) == (
        float16,
        None,
        True,
    )
    rounded = weight.quantizer.encoding
    assert rounded is not None and rounded.spec.granularity == PerTensor()
    weight.data_type = QuantizationDataType.int
    weight.set_bitwidth(8)
    sim.compute_encodings(feeds())
    assert [one.offset for one in weight.get_encodings()] == [-128] * 4


def test_types_of_weights(sim: QuantizationSimModel) -> None:
    set_param_type(sim, QSpec.per_tensor(int4), op_types="Conv")
    set_param_type(sim, "int16", nodes_to_include={"fc"})
    sim.compute_encodings(feeds())
    ops = sim.qc_quantize_op_dict
    assert (len(ops["conv.weight"].get_encodings()), ops["conv.weight"].bitwidth) == (1, 4)
    assert (len(ops["fc.weight"].get_encodings()), ops["fc.weight"].bitwidth) == (10, 16)
    with pytest.raises(qc.UsageError, match=r"the model has no node 'fd' \(did you mean 'fc'\?\)"):
        set_param_type(sim, "int4", nodes_to_include=["fd"])
    with pytest.raises(KeyError, match=r"named 'fc.weigth' \(did you mean 'fc.weight'\?\)"):
        ops["fc.weigth"]
    assert ops.get("fc.weigth") is None and "fc.weigth" not in ops and "fc.weight" in ops
    set_param_type(sim, "int4", op_types="LSTM")  # the model has none
    set_param_type(sim, "int4")
    assert [op.bitwidth for op in sim.get_all_quantizers()[0] if op.enabled] == [4, 4]


def test_clamped_activations(sim: QuantizationSimModel) -> None:
    clamp_activation_encodings(sim, 1.0)
    for quantizer in sim.get_all_quantizers()[1]:
        if quantizer.enabled:
            assert quantizer.get_encodings()[0].max <= 1.01 and quantizer.get_encodings()[0].min >= -1.01


def test_names_of_types() -> None:
    assert repr(qtype.int(6)) == "int6" and qtype.float(5, 10) == float16
    with pytest.raises(qc.UsageError, match="no float with 3 bits of exponent"):
        qtype.float(3, 2)


# -- tools -------------------------------------------------------------------------------------------


def test_batch_norms_are_folded_in_place() -> None:
    random = np.random.default_rng(0)
    constants = {"W": random.normal(size=(4, 3, 3, 3))}
    constants |= {name: np.abs(random.normal(size=4)) for name in ("g", "h", "m", "v")}
    body = "c = Conv(x, W); y = BatchNormalization(c, g, h, m, v)"
    model = typed(build_model(body, inputs="float[1,3,4,4] x", constants=constants))
    before = open_session(model).run(None, feeds()[0])[0]
    backward, forward = fold_all_batch_norms_to_weight(model)
    assert [(conv.op_type, norm.bn_layer.op_type) for conv, norm in backward] == [
        ("Conv", "BatchNormalization")
    ]
    assert forward == [] and [node.op_type for node in model.graph.node] == ["Conv"]
    assert model.graph.node[0].input[1] == "W"
    np.testing.assert_allclose(open_session(model).run(None, feeds()[0])[0], before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 17])
def test_batch_norms_in_training_mode_are_folded_as_for_inference(opset: int) -> None:
    constants = {name: np.full(4, number) for name, number in zip("ghmv", (2.0, 1.0, 3.0, 4.0), strict=True)}
    constants["W"] = np.random.default_rng(0).normal(size=(4, 3, 3, 3))
    training = "y, a, b, d, e" if opset < 14 else "y, a, b", "" if opset < 14 else "<training_mode = 1>"
    inputs, models = "float[1,3,4,4] x", []
    for results, mode in (training, ("y", "")):
        body = f"c = Conv(x, W); {results} = BatchNormalization{mode}(c, g, h, m, v)"
        models.append(typed(build_model(body, inputs=inputs, constants=constants, opset=opset)))
    with pytest.warns(UserWarning, match="'y', exported in training mode, would measure"):
        backward, _ = fold_all_batch_norms_to_weight(models[0])
    assert len(backward) == 1 and [node.op_type for node in models[0].graph.node] == ["Conv"]
    found, expected = (open_session(model).run(["y"], feeds()[0])[0] for model in models)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_batch_norms_are_folded_into_the_op_behind() -> None:
    random = np.random.default_rng(0)
    constants = {"W": random.normal(size=(4, 3, 3, 3)), "V": random.normal(size=(4, 4, 1, 1))}
    constants |= {name: np.abs(random.normal(size=4)) for name in ("g", "h", "m", "v")}
    body = """c = Conv(x, W); n1 = BatchNormalization(c, g, h, m, v); r = Relu(n1)
    n2 = BatchNormalization(r, g, h, m, v); y = Conv(n2, V)"""
    model = typed(build_model(body, inputs="float[1,3,4,4] x", constants=constants))
    before = open_session(model).run(None, feeds()[0])[0]
    backward, forward = fold_all_batch_norms_to_weight(model)
    assert [(op.output[0], norm.bn_layer.output[0]) for op, norm in backward] == [("c", "n1")]
    assert [(op.output[0], norm.bn_layer.output[0]) for op, norm in forward] == [("y", "n2")]
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu", "Conv"]
    np.testing.assert_allclose(open_session(model).run(None, feeds()[0])[0], before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("quantized", [False, True])
def test_layer_outputs(sim: QuantizationSimModel, tmp_path: Path, quantized: bool) -> None:
    model: onnx.ModelProto = sim.model.model if quantized else network()
    util = LayerOutputUtil(model, tmp_path)
    util.generate_layer_outputs(feeds()[0]["x"])
    util.generate_layer_outputs([feeds()[1]["x"]])
    folder = tmp_path / "outputs" / "layer_outputs_0"
    assert {path.name for path in folder.iterdir()} == {f"{name}.raw" for name in ("x", "c", "r", "f", "y")}
    order = json.loads((tmp_path / "layer_output_name_order.json").read_text())
    assert order == {"layer_output_names": ["x", "c", "r", "f", "y"]}
    expected = output(sim) if quantized else float_output()
    np.testing.assert_allclose(np.fromfile(folder / "y.raw", np.float32), expected.ravel(), rtol=1e-5)
    inputs = [tmp_path / "inputs" / name for name in ("input_0.raw", "input_1/0.raw")]  # as they were given
    for path, feed in zip(inputs, feeds(), strict=False):
        np.testing.assert_array_equal(np.fromfile(path, np.float32), feed["x"].ravel())


@pytest.mark.parametrize(
    ("kind", "scales"),  # what aimet-onnx 2.42 exports for the same weights, in all versions in this order
    [
        (
            "Conv",
            [0.29062885, 0.28003691, 0.28605608, 0.295663, 0.29977912, 0.33005193, 0.43800524, 0.39368681],
        ),
        (
            "ConvTranspose",
            [0.30268615, 0.4715344, 0.24150981, 0.30118408, 0.31325874, 0.48742771, 0.26095625, 0.2591408],
        ),
    ],
)
@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
def test_blocks_of_a_convolution_cover_its_kernel(
    tmp_path: Path, kind: str, scales: list[float], version: str
) -> None:
    random = np.random.default_rng(0)
    weights = {"Conv": random.normal(size=(4, 8, 3, 3)), "ConvTranspose": random.normal(size=(8, 4, 3, 3))}
    model = build_model(
        f"y = {kind}<kernel_shape=[3, 3]>(x, w)",
        inputs="float[1,8,6,6] x",
        constants={"w": weights[kind]},
    )
    model.graph.node[0].name = "conv"
    model = typed(model)
    data = [{"x": random.normal(size=(1, 8, 6, 6)).astype(np.float32)}]
    sim = QuantizationSimModel(model)
    set_blockwise_quantization_for_weights(sim, [kind], 4, True, 4, strict=True)
    sim.compute_encodings(data)
    sim.export(tmp_path, "model", encoding_version=version)
    file = tmp_path / "model.encodings"
    record = read_encodings(file).by_name()["w"]
    np.testing.assert_allclose(record.scale.ravel(), scales, rtol=1e-6)
    if version == "2.0.0":
        assert record.scale.shape == ((4, 2, 1, 1) if kind == "Conv" else (2, 4, 1, 1))

    again = QuantizationSimModel(model)
    load_encodings_to_sim(again, file, strict=False)
    for ours, loaded in zip(sim.session.run(None, data[0]), again.session.run(None, data[0]), strict=True):
        np.testing.assert_array_equal(ours, loaded)
