"""Steps of AIMET's methods by themselves: scaling of layers, folding of biases, samples, integer scales."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import QuantizationSimModel
from qc.compat.aimet_onnx.adaround.activation_sampler import ActivationSampler
from qc.compat.aimet_onnx.batch_norm_fold import BNLayer
from qc.compat.aimet_onnx.cross_layer_equalization import CrossLayerScaling, HighBiasFold
from qc.compat.aimet_onnx.defs import TfEncoding
from qc.compat.aimet_onnx.layer_output_utils import LayerOutput
from qc.compat.aimet_onnx.lpbq_utils import compress_encoding_scales, grouped_dynamic_quantize
from qc.compat.aimet_onnx.meta.connectedgraph import ConnectedGraph
from qc.runtime import open_session

from .networks import feeds, network, typed

_RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "W": _RANDOM.normal(size=(8, 4, 3, 3)) * np.exp(_RANDOM.normal(scale=2, size=(8, 1, 1, 1))),
    "b": _RANDOM.normal(size=8),
    "D": _RANDOM.normal(size=(8, 1, 3, 3)),
    "V": _RANDOM.normal(size=(4, 8, 1, 1)),
    "v": _RANDOM.normal(size=4),
    "T": _RANDOM.normal(size=(8, 1, 2, 2)),
    "Z": _RANDOM.normal(size=(4, 8, 1, 1)),
    "p": _RANDOM.uniform(size=(8, 1, 1)),
}
FEED = {"x": _RANDOM.normal(size=(2, 4, 8, 8)).astype(np.float32)}


def model_of(body: str, outputs: str = "y") -> ModelProto:
    model = typed(build_model(body, outputs, "float[2,4,8,8] x", constants=CONSTANTS))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def weight_of(model: ModelProto, name: str) -> np.ndarray:
    return next(numpy_helper.to_array(one) for one in model.graph.initializer if one.name == name)


@pytest.mark.parametrize(
    ("body", "sets"),
    [
        ("c = Conv(x, W, b); r = Relu(c); y = Conv(r, V, v)", [["c", "y"]]),
        ("c = Conv(x, W, b); r = PRelu(c, p); y = ConvTranspose(r, T)", [["c", "y"]]),
        ("c = ConvTranspose(x, Z, b); y = Conv(c, V)", [["c", "y"]]),
        ("c = Conv(x, W, b); d = Conv<group=8>(c, D); r = Relu(d); y = Conv(r, V)", [["c", "d", "y"]]),
        ("c = Conv(x, W, b); r = Relu(c); y = Conv<group=8>(r, D)", []),  # the depthwise one is the last
        ("c = Conv(x, W, b); d = Sigmoid(c); y = Conv(d, V)", []),
        ("c = Conv(x, W, b); r = Relu(c); d = Conv(r, V); e = Conv(r, V); y = Add(d, e)", []),
        ("c = Conv(x, W); d = Conv(c, V); e = Conv(d, W); y = Conv(e, V)", []),  # they share their weights
    ],
)
def test_layers_are_scaled_in_pairs_and_triples(body: str, sets: list[list[str]]) -> None:
    model = model_of(body)
    (before,) = open_session(model).run(None, FEED)
    found = [info.cls_pair_info_list for info in CrossLayerScaling(model).scale_model()]
    assert [[pairs[0].layer1.name, *(pair.layer2.name for pair in pairs)] for pairs in found] == sets
    (after,) = open_session(model).run(None, FEED)
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-3)


def test_ranges_of_scaled_layers_are_equal() -> None:
    model = model_of("c = Conv(x, W, b); r = Relu(c); y = Conv(r, V, v)")
    ((pair,),) = (info.cls_pair_info_list for info in CrossLayerScaling(model).scale_model())
    made, read = np.abs(weight_of(model, "W")).max((1, 2, 3)), np.abs(weight_of(model, "V")).max((0, 2, 3))
    np.testing.assert_allclose(made, read, rtol=1e-5)
    ranges = np.abs(CONSTANTS["W"]).max((1, 2, 3)), np.abs(CONSTANTS["V"]).max((0, 2, 3))
    np.testing.assert_allclose(pair.scale_factor, np.sqrt(ranges[0] / ranges[1]), rtol=1e-5)
    assert pair.relu_activation_between_layers


def test_outputs_of_the_model_are_not_scaled() -> None:
    model = model_of("c = Conv(x, W, b); r = Relu(c); y = Conv(r, V)", "c,y")
    assert CrossLayerScaling(model).scale_model() == []


@pytest.mark.parametrize(("pads", "moved"), [("", True), ("<pads=[1,1,1,1]>", False)])
def test_high_biases_are_moved_unless_zeros_are_read_beside(pads: str, moved: bool) -> None:
    model = model_of(f"c = Conv(x, W, b); r = Relu(c); y = Conv{pads}(r, V, v)")
    infos = CrossLayerScaling(model).scale_model()
    scaled, (before,) = weight_of(model, "b"), open_session(model).run(None, FEED)
    norm = BNLayer(model.graph.node[0], gamma=np.zeros(8), beta=np.full(8, 1e-3))  # all results are 0.001
    HighBiasFold(model).bias_fold(infos, {"c": norm})
    assert np.any(weight_of(model, "b") != scaled) == moved
    (after,) = open_session(model).run(None, FEED)
    np.testing.assert_allclose(after, before, rtol=1e-2, atol=1e-1)


def test_samples_of_a_layer() -> None:
    sim = QuantizationSimModel(network())
    sim.compute_encodings(feeds())
    sampler = ActivationSampler("r", "x_updated", sim, network())
    read, made = sampler.sample_and_place_all_acts_on_cpu(feeds(2))
    scale = sim.qc_quantize_op_dict["x"].get_encodings()[0].delta
    assert len(read) == len(made) == 2 and read[0].shape == (1, 3, 4, 4) and made[0].shape == (1, 4, 4, 4)
    assert 0 < np.abs(read[0] - feeds(1)[0]["x"]).max() <= scale * 0.51
    as_given = ActivationSampler("r", "x", sim, network()).sample_acts(feeds(1)[0])[0]
    np.testing.assert_array_equal(as_given, feeds(1)[0]["x"])


def test_scales_as_integers() -> None:
    integers, steps = grouped_dynamic_quantize(np.array([[8.0, 1.0], [2.0, 0.01]]), (-1, 1), 4)
    assert steps.shape == (1, 1, 2, 1) and steps.ravel().tolist() == [0.5, 0.0625]
    assert integers.tolist() == [[16, 16], [4, 1]] and integers.dtype == np.uint32
    given = [TfEncoding(-8 * delta, 7 * delta, delta, -8, 4) for delta in (8.0, 1.0, 2.2, 0.01)]
    found = compress_encoding_scales(given, (2, 2), (2, 1), 4)
    assert [one.delta for one in found] == [8.0, 1.0, 2.0, 0.0625]
    assert [(one.min, one.max, one.offset, one.bw) for one in found][2] == (-16.0, 14.0, -8, 4)


def test_one_node_without_a_name_keeps_none() -> None:
    model = typed(build_model("c = Relu(x); y = Neg(c)", "y"))
    model.graph.node[0].name, model.graph.node[1].name = "", "last"
    assert list(ConnectedGraph(model).get_all_ops()) == ["", "last"]
    model.graph.node[1].name = ""
    ops = ConnectedGraph(model).get_all_ops()
    assert list(ops) == ["/Relu", "/Neg"]
    assert ops["/Neg"].model_module.get_module() is ops["/Neg"].get_module()
    assert (ops["/Neg"].num_in_channels, ops["/Neg"].is_anonymous) == (None, False)
    names = LayerOutput.get_activation_names(model)
    LayerOutput.register_activations(model, names[1:2])
    assert model.graph.output[-1].name == names[1] == model.graph.node[0].output[0]


def test_missing_files_are_told_as_such() -> None:
    for call in (
        lambda: QuantizationSimModel(network(), config_file="none.json"),
        lambda: QuantizationSimModel(network(), config_file="htp_v1"),
        lambda: QuantizationSimModel(network()).set_and_freeze_param_encodings("none.encodings"),
        lambda: qc.compat.aimet_onnx.encodings_to_onnx_qdq(network(), "none.encodings"),
    ):
        with pytest.raises(FileNotFoundError, match=r"^there is no ") as caught:
            call()
        assert isinstance(caught.value, qc.UsageError)
