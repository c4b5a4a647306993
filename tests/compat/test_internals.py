"""What AI Hub Models and Olive call of AIMET's internals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds

import qc.compat.aimet_onnx as aimet_onnx
from qc.compat.aimet_onnx import quantsim
from qc.compat.aimet_onnx.adaround.adaround_weight import AdaroundSupportedModules, apply_adaround
from qc.compat.aimet_onnx.common.onnx._utils import (
    _convert_version_with_external_weights,
    _is_grid_preserving_op,
    _iterate_graphs_recursive,
)
from qc.compat.aimet_onnx.quantsim import QuantizationSimModel

# Attention over keys of before, as language models export it.
CACHED = """g (float[1, 4, 16] x, float[1, 6, 16] past) => (float[1, 4, 6] logits, float[1, 10, 16] present)
<float[16, 16] k, float[16, 16] q, float[16, 6] head> {
    a = MatMul(x, k)
    b = MatMul(x, q)
    present = Concat<axis = 1>(past, a)
    turned = Transpose<perm = [0, 2, 1]>(present)
    scores = MatMul(b, turned)
    shares = Softmax(scores)
    mixed = MatMul(shares, present)
    logits = MatMul(mixed, head)
}"""
FEEDS = random_feeds(parse(CACHED), 3)


def simulation() -> QuantizationSimModel:
    return QuantizationSimModel(parse(CACHED), activation_type=aimet_onnx.int16)


def test_the_quantizer_that_decides_about_a_tensor() -> None:
    sim = simulation()
    assert sim._get_enabled_quantizer_name("turned") == "present"
    assert sim._get_enabled_quantizer("turned") is sim.qc_quantize_op_dict["present"]
    with pytest.raises(KeyError, match="the model has no tensor 'nothing'"):
        sim._get_enabled_quantizer("nothing")


def test_the_older_name_for_it_warns() -> None:
    sim = simulation()
    turned = sim.connected_graph.get_all_products()["turned"]
    with pytest.warns(DeprecationWarning, match="use _get_enabled_quantizer"):
        assert sim._get_closest_enabled_quantizer(turned) is sim.qc_quantize_op_dict["present"]


def test_a_moved_tensor_gets_a_quantizer() -> None:
    """As AI Hub Models wants the second factor of a product in 8 bits."""
    sim = simulation()
    sim._insert_quantizer("turned", is_param=False)
    sim._rebuild_session()
    quantizer = sim.qc_quantize_op_dict["turned"]
    quantizer.set_bitwidth(8)
    quantizer.use_symmetric_encodings = True
    sim.compute_encodings(FEEDS)
    (encoding,) = quantizer.get_encodings() or ()
    assert encoding.bw == 8 and sim.qc_quantize_op_dict["present"].bitwidth == 16
    assert "turned_simulated" in computed(sim)
    quantizer.enabled = False
    assert "turned_simulated" not in computed(sim)
    with pytest.raises(RuntimeError, match="'present' has a quantizer"):
        sim._insert_quantizer("present", is_param=False)


def computed(sim: QuantizationSimModel) -> set[str]:
    return {name for node in sim.model.model.graph.node for name in node.output}


def test_quantizers_are_gone_for_a_while() -> None:
    sim = simulation()
    sim.compute_encodings(FEEDS)
    quantized = sim.session.run(None, FEEDS[0])[0]
    model = onnx.load_from_string(sim.model.model.SerializeToString())
    with sim._remove_quantization_nodes():
        plain = sim.session.run(None, FEEDS[0])[0]
    float_model = QuantizationSimModel.remove_quantizers(model)
    np.testing.assert_allclose(plain, run(float_model), rtol=1e-5, atol=1e-5)
    assert not np.array_equal(plain, quantized)
    np.testing.assert_array_equal(sim.session.run(None, FEEDS[0])[0], quantized)


def run(model: onnx.ModelProto) -> np.ndarray:
    session = quantsim.QuantizationSimModel.build_session(model, ["CPUExecutionProvider"])
    return np.asarray(session.run(None, FEEDS[0])[0])


def test_parameters_get_numbers_alone() -> None:
    sim = simulation()
    sim._compute_param_encodings(dummy_input=FEEDS[0], overwrite=False)
    parameters, activations = sim.get_all_quantizers()
    assert all(one.is_initialized() for one in parameters)
    assert not any(one.is_initialized() for one in activations)


@pytest.mark.parametrize("ties", [True, False])
def test_scripts_say_what_ties_grids(monkeypatch: pytest.MonkeyPatch, ties: bool) -> None:
    """What joins tensors does so whatever the list says, as in AIMET 2.42."""
    monkeypatch.setattr(quantsim, "_tie_qtzrs", ties)
    monkeypatch.setattr(quantsim, "op_types_to_tie_qtzrs", [])
    sim = simulation()
    quantizers = sim.qc_quantize_op_dict
    assert (quantizers["past"] is quantizers["present"]) == ties
    sim._tie_quantizers_for_op_types(["Concat"])
    assert quantizers["past"] is quantizers["a"] is quantizers["present"]


def test_types_that_scripts_add_tie_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "{ a = MatMul(x, w) b = Relu(a) y = LeakyRelu(b) }"
    source = f"g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> {body}"

    def tied(*asked: str) -> list[bool]:
        monkeypatch.setattr(quantsim, "op_types_to_tie_qtzrs", list(asked))
        quantizers = QuantizationSimModel(parse(source), config_file="default").qc_quantize_op_dict
        return [quantizers[name] is quantizers["b"] for name in "ay"]

    assert tied("Relu") == [True, False]
    assert tied("Relu", "LeakyRelu") == [True, True]
    assert tied() == [False, False]


@pytest.mark.parametrize("ties", [True, False])
def test_constraints_hold_for_a_while(ties: bool) -> None:
    with quantsim._apply_constraints(ties):
        quantizers = simulation().qc_quantize_op_dict
    assert (quantizers["past"] is quantizers["present"]) == ties
    assert quantsim._tie_qtzrs


def test_biases_become_integers_for_good() -> None:
    source = parse("g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w, float[3] b> { y = Gemm(x, w, b) }")
    sim = QuantizationSimModel(source)
    sim.compute_encodings(random_feeds(source, 3))
    sim._concretize_int32_bias_quantizers()
    sim._insert_data_movement_op_output_quantizers()
    scales = {name: op.export_encodings("2.0.0")["y_scale"] for name, op in sim.qc_quantize_op_dict.items()}
    np.testing.assert_allclose(scales["b"], np.multiply(scales["x"], scales["w"]), rtol=1e-6)
    stored = {tensor.name: tensor.data_type for tensor in sim.to_onnx_qdq().graph.initializer}
    assert onnx.TensorProto.INT32 in stored.values()


def test_biases_become_integers_for_a_while() -> None:
    source = parse("g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w, float[3] b> { y = Gemm(x, w, b) }")
    sim = QuantizationSimModel(source)
    sim.compute_encodings(random_feeds(source, 3))
    bias, before = sim.qc_quantize_op_dict["b"], sim.to_onnx_qdq(prequantize_constants=True)
    with sim._concretize_int32_bias_quantizers():
        assert bias.enabled and bias.bitwidth == 32
    assert not bias.enabled and bias.bitwidth == 8
    assert sim.to_onnx_qdq(prequantize_constants=True) == before


def test_what_is_not_followed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantsim, "op_outputs_to_ignore", ["Reshape"])
    with pytest.warns(UserWarning, match="op_outputs_to_ignore was changed"):
        simulation()


def test_blocks_are_taken_from_a_weight() -> None:
    sim = simulation()
    quantsim.set_blockwise_quantization_for_weights(sim, "MatMul", 4, True, 8)
    info = sim.qc_quantize_op_dict["head"].quant_info
    assert (info.blockSize, info.blockAxis) == (8, 0)
    info.blockAxis = -1
    assert (info.blockSize, info.blockAxis) == (0, -1)


def test_no_layer_is_rounded_if_none_is_named() -> None:
    sim = simulation()
    apply_adaround(sim, FEEDS, 10, set())
    assert all(not sim.qc_quantize_op_dict[name].is_encoding_frozen() for name in ("k", "q", "head"))
    kinds = [op.name for op in sim.connected_graph.ordered_ops if op.type in AdaroundSupportedModules]
    apply_adaround(sim, FEEDS, 10, kinds)
    assert all(sim.qc_quantize_op_dict[name].is_encoding_frozen() for name in ("k", "q", "head"))


def test_codes_of_weights_have_names_that_olive_reads() -> None:
    sim = simulation()
    sim.compute_encodings(FEEDS)
    model = sim.to_onnx_qdq(prequantize_constants=True)
    read = {node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    assert {"k_q", "q_q", "head_q"} <= read
    again = QuantizationSimModel._from_onnx_qdq(model, activation_type=aimet_onnx.int16)
    assert again.qc_quantize_op_dict["k"].is_initialized()


def test_ops_that_only_move() -> None:
    assert _is_grid_preserving_op("Reshape") and not _is_grid_preserving_op("Add")
    assert not _is_grid_preserving_op("Reshape", "com.example")


def test_graphs_and_opsets() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 13]>
    g (float[3, 2] xs, float[2] start) => (float[2] last, float[3, 2] ys) {
        last, ys = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] x) => (float[2] t, float[2] y) {
            t = Add(s, x)  y = Relu(t)
        }>(start, xs)
    }""")
    assert [graph.name for graph in _iterate_graphs_recursive(model.graph)] == ["g", "b"]
    newer = _convert_version_with_external_weights(model, 17)
    assert newer.opset_import[0].version == 17
