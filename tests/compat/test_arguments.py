"""Arguments and names of earlier versions of AIMET, quantizers on their own, and views of the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import (
    QSpec,
    QuantizationDataType,
    QuantizationSimModel,
    QuantScheme,
    compute_encodings,
)
from qc.compat.aimet_onnx.adaround.utils import ModelData
from qc.compat.aimet_onnx.common.quantsim import calculate_delta_offset, create_encoding_from_min_max
from qc.compat.aimet_onnx.common.quantsim_config.utils import (
    get_path_for_per_channel_config,
    get_path_for_per_tensor_config,
    get_path_for_target_config,
)
from qc.compat.aimet_onnx.defs import TfEncoding, qtype
from qc.compat.aimet_onnx.graph_edits import (
    duplicate_shared_initializers,
    remove_node,
    remove_nodes_with_type,
    replace_relu6_with_relu,
)
from qc.compat.aimet_onnx.layer_output_utils import LayerOutput
from qc.compat.aimet_onnx.meta.connectedgraph import ConnectedGraph, get_all_input_ops, get_ordered_ops
from qc.compat.aimet_onnx.meta.utils import get_module_act_func_pair
from qc.compat.aimet_onnx.qc_quantize_op import OpMode, QcQuantizeOp, TensorQuantizerParams
from qc.compat.aimet_onnx.utils import (
    CachedDataset,
    ParamUtils,
    compute_psnr,
    disable_quantizers,
    make_dummy_input,
    make_psnr_eval_fn,
)

from .networks import feeds, network, typed

OLD = [
    ((None, "tf", "nearest", 4, 16), {}),
    ((None, QuantScheme.post_training_tf), {"default_param_bw": 4, "default_activation_bw": 16}),
    ((), {"rounding_mode": "nearest", "default_param_bw": 4, "default_activation_bw": 16}),
    ((), {"use_symmetric_encodings": False, "default_param_bw": 4, "default_activation_bw": 16, "device": 0}),
    (
        (),
        {
            "default_param_bw": 4,
            "default_activation_bw": 16,
            "default_data_type": QuantizationDataType.int,
            "use_cuda": False,
        },
    ),
]


@pytest.mark.parametrize("positional, named", OLD)
def test_constructor_of_earlier_versions(positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="param_type, activation_type"):
        sim = QuantizationSimModel(network(), *positional, **named)
    widths = [sim.qc_quantize_op_dict[name].bitwidth for name in ("conv.weight", "x")]
    assert widths == [4, 16]


@pytest.mark.parametrize(
    "named, error",
    [
        ({"rounding_mode": "stochastic"}, TypeError),
        ({"use_cuda": True, "providers": ["CPUExecutionProvider"]}, RuntimeError),
        ({"default_param_bw": 4, "param_type": "int8"}, RuntimeError),
        ({"nothing": 1}, TypeError),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_arguments_that_contradict(named: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        QuantizationSimModel(network(), **named)


def test_options_of_sessions() -> None:
    sim = QuantizationSimModel(network(), session_options_kwargs={"intra_op_num_threads": 1})
    sim.compute_encodings(feeds())
    assert sim.session.run(None, feeds()[0])
    with pytest.raises(AttributeError, match="SessionOptions has no 'nothing'"):
        QuantizationSimModel(network(), session_options_kwargs={"nothing": 1})


def _run(session: Any, argument: object = None) -> None:
    for feed in feeds():
        session.run(None, feed)


@pytest.mark.parametrize(
    "calibrate, is_old",
    [
        (lambda sim: sim.compute_encodings(inputs=feeds()), False),
        (lambda sim: sim.compute_encodings(forward_pass_callback=_run), False),
        (lambda sim: sim.compute_encodings(_run, None), True),
        (lambda sim: sim.compute_encodings(_run, forward_pass_callback_args=None), True),
    ],
)
@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_forms_of_calibration(calibrate: Callable[[QuantizationSimModel], None], is_old: bool) -> None:
    expected, sim = QuantizationSimModel(network()), QuantizationSimModel(network())
    expected.compute_encodings(feeds())
    if is_old:
        with pytest.warns(DeprecationWarning):
            calibrate(sim)
    else:
        calibrate(sim)
    for name, op in expected.qc_quantize_op_dict.items():
        assert op.get_encodings() == sim.qc_quantize_op_dict[name].get_encodings()


@pytest.mark.parametrize(
    "positional, named",
    [
        (([],), {"forward_pass_callback": _run}),
        ((_run,), {"inputs": []}),
        (([], None), {}),
        (([],), {"forward_pass_callback_args": None}),
        (([],), {"name": None}),
        ((_run, None), {"forward_pass_callback_args": None}),
        ((), {"forward_pass_callback_args": None}),
        ((), {}),
        ((0,), {}),
    ],
)
def test_what_is_no_calibration(positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="compute_encodings takes an iterable of feeds, or a function"):
        QuantizationSimModel(network()).compute_encodings(*positional, **named)


def test_calibrations_nest() -> None:
    sim = QuantizationSimModel(network())
    with compute_encodings(sim), compute_encodings(sim):
        _run(sim.session)
    assert sim.qc_quantize_op_dict["x"].is_initialized()


def test_errors_are_of_the_types_that_scripts_catch() -> None:
    sim = QuantizationSimModel(network())
    for error in (qc.UsageError, ValueError, RuntimeError, AssertionError):
        with pytest.raises(error, match="no tensor 'nothing' of the model"):
            sim.set_tensor_precision("nothing", "int8")
        with pytest.raises(error, match="a quantizer without encodings cannot be frozen"):
            sim.qc_quantize_op_dict["x"].freeze_encodings()


# -- quantizers ---------------------------------------------------------------------------------------


def test_a_quantizer_on_its_own() -> None:
    op = QcQuantizeOp(bitwidth=4, use_symmetric_encodings=True)
    assert (op.enabled, op.bitwidth, op.op_mode) == (True, 4, OpMode.oneShotQuantizeDequantize)
    op.update_encoding_stats(np.float32([-1, 0.5]))
    op.update_encoding_stats(np.float32([0, 7]))
    (encoding,) = op.compute_encodings() or ()
    assert (encoding.delta, encoding.offset, op.op_mode) == (1.0, -8, OpMode.quantizeDequantize)
    np.testing.assert_array_equal(op.quantize_dequantize(np.float32([2.4, -9])), [2, -8])
    (exported,) = op.export_encodings()
    assert (exported["bitwidth"], exported["scale"], exported["is_symmetric"]) == (4, 1.0, "True")
    assert op.export_encodings("1.0.0")["scale"] == [1.0]
    assert op.export_encodings("2.0.0")["output_dtype"] == "int4"
    op.reset_encoding_stats()
    assert op.get_encodings() is None
    with pytest.raises(RuntimeError, match="nothing to compute encodings of"):
        op.compute_encodings()


def test_a_quantizer_of_channels_and_blocks() -> None:
    shape = TensorQuantizerParams((4, 8), 0, 1)
    op = QcQuantizeOp(use_symmetric_encodings=True, tensor_quantizer_params=shape)
    info = op.quant_info
    assert (info.usePerChannelMode, info.blockSize, info.isIntDataType) == (False, 0, True)
    info.usePerChannelMode = True
    assert (op.quant_info.usePerChannelMode, info.channelAxis) == (True, 0)
    op.update_encoding_stats(np.arange(32, dtype=np.float32).reshape(4, 8))
    assert len(op.compute_encodings() or ()) == 4
    info.blockSize = 4
    assert (info.blockSize, info.blockAxis, info.channelAxis) == (4, 1, 0)
    info.opMode = OpMode.passThrough
    assert not op.enabled


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (QSpec.blockwise("int4", -1), "blocks of -1 do not divide"),
        (QSpec.lpbq("int4", 4, 0), "scale_bits is 0; it must be at least 1"),
    ],
)
def test_blocks_that_are_none(spec: QSpec, said: str) -> None:
    op = QcQuantizeOp(tensor_quantizer_params=TensorQuantizerParams((4, 8), 0, 1))
    with pytest.raises(RuntimeError, match=said):
        op.set_qspec(spec)


@pytest.mark.parametrize("bits", [4, 8])
def test_strict_grids_are_loaded_as_they_are_told(bits: int) -> None:
    op = QcQuantizeOp(bitwidth=bits, use_symmetric_encodings=True)
    op.use_strict_symmetric = True
    op.update_encoding_stats(np.float32([-3, 5]))
    strict = op.compute_encodings() or []
    op.load_encodings(strict)
    assert op.get_encodings() == strict and strict[0].offset == 1 - 2 ** (bits - 1)
    other = QcQuantizeOp()
    other.update_quantizer_and_load_encodings(strict, True, True, False, QuantizationDataType.int)
    assert other.get_encodings() == strict
    other.load_encodings([TfEncoding(delta=0.5, offset=-(2 ** (bits - 1)), bw=bits)])
    np.testing.assert_array_equal(
        other.quantize_dequantize(np.float32([0, 1, -100])), [0, 1, 0.5 * strict[0].offset]
    )


def test_no_encodings_to_load() -> None:
    op = QcQuantizeOp()
    op.enabled = False
    with pytest.raises(RuntimeError, match="there is no encoding to load"):
        op.load_encodings([])
    with pytest.raises(RuntimeError, match="there is no encoding to load"):
        op.update_quantizer_and_load_encodings([], True, False, False, QuantizationDataType.int)
    assert not op.enabled


@pytest.mark.parametrize("precision", ["float8e4m3fn", "float8e5m2"])
def test_a_quantizer_of_small_floats_has_one_scale(precision: str) -> None:
    op = QcQuantizeOp()
    op.set_precision(precision)
    op.update_encoding_stats(np.float32([-3, 5]))
    (encoding,) = op.compute_encodings() or ()
    np.testing.assert_allclose((encoding.min, encoding.max, encoding.offset), (-5, 5, 0), rtol=1e-6)
    op.load_encodings([TfEncoding(delta=0.5, bw=8)])
    assert op.precision() == qtype.from_string(precision)
    (loaded,) = op.get_encodings() or ()
    assert (loaded.delta, loaded.max) == (0.5, 0.5 * qtype.from_string(precision).format.highest)


def test_a_quantizer_of_16_bit_floats_has_no_scale() -> None:
    op = QcQuantizeOp(bitwidth=16)
    op.data_type = QuantizationDataType.float
    assert op.get_encodings() is None
    assert op.export_encodings("0.6.1") == [{"bitwidth": 16, "dtype": "float"}]
    assert op.export_encodings("1.0.0") == {"bw": 16, "dtype": "FLOAT", "enc_type": "PER_TENSOR"}
    assert op.export_encodings("2.0.0") == {}
    with pytest.raises(RuntimeError, match="a float16 has no scale to load"):
        op.load_encodings([TfEncoding()])


@pytest.mark.parametrize("symmetric, offset", [(True, -8), (False, -3)])
def test_a_quantizer_takes_format_and_numbers_at_once(symmetric: bool, offset: int) -> None:
    op = QcQuantizeOp()
    op.enabled = False
    encoding = TfEncoding(0.5 * offset, 0.5 * (offset + 15), 0.5, offset, 4)
    op.update_quantizer_and_load_encodings([encoding], symmetric, False, False, QuantizationDataType.int)
    assert (op.enabled, op.use_symmetric_encodings, op.get_encodings()) == (True, symmetric, [encoding])
    op.freeze_encodings()
    op.update_quantizer_and_load_encodings([TfEncoding(bw=16)], None, None, None, QuantizationDataType.float)
    assert op.get_encodings() == [encoding]


def test_a_quantizer_of_a_script_is_given_to_tensors() -> None:
    sim = QuantizationSimModel(network())
    given = QcQuantizeOp(bitwidth=4)
    given.update_encoding_stats(np.float32([0, 15]))
    given.compute_encodings()
    given.freeze_encodings()
    sim.set_quantizers({"x": given})
    sim.compute_encodings(feeds())
    held = sim.qc_quantize_op_dict["x"]
    assert held.bitwidth == 4 and [one.delta for one in held.get_encodings() or ()] == [1.0]


def test_older_names_of_a_quantizer() -> None:
    sim = QuantizationSimModel(network())
    sim.compute_encodings(feeds())
    op = sim.qc_quantize_op_dict["x"]
    with pytest.warns(DeprecationWarning, match="use get_encodings"):
        assert op.encodings == op.get_encodings()
    with pytest.warns(DeprecationWarning, match="use load_encodings"):
        op.encodings = None
    assert not op.is_initialized() and op.op_mode is OpMode.updateStats
    op.use_unsigned_symmetric = True
    assert op.use_unsigned_symmetric
    with pytest.raises(AttributeError, match=r"QcQuantizeOp\.nothing is not part of"):
        op.nothing  # noqa: B018


# -- the model ----------------------------------------------------------------------------------------


def test_the_simulation_holds_weights_under_their_names() -> None:
    float_model = network()
    sim = QuantizationSimModel(float_model)
    sim.compute_encodings(feeds())
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in float_model.graph.initializer}
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in sim.model.graph().initializer}
    for name, array in weights.items():
        np.testing.assert_array_equal(held[name], array)
    bare = sim.remove_quantizers(sim.model.model)
    assert [node.op_type for node in sim.model.nodes()] == [node.op_type for node in float_model.graph.node]
    found = qc.runtime.open_session(bare).run(None, feeds()[0])
    expected = qc.runtime.open_session(float_model).run(None, feeds()[0])
    np.testing.assert_array_equal(found[0], expected[0])


def test_nodes_without_names_are_named() -> None:
    model = network()
    for node in model.graph.node:
        node.name = ""
    before = copy.deepcopy(model)
    sim = QuantizationSimModel(model)
    assert model == before
    assert list(sim.connected_graph.get_all_ops()) == ["/Conv", "/Relu", "/Flatten", "/Gemm"]


def test_kernels_of_a_device() -> None:
    kernels = QuantizationSimModel(network(), config_file="htp_v73").get_supported_kernels()
    assert all(set(one) <= {"activation", "param"} for found in kernels.values() for one in found)


@pytest.mark.parametrize(
    "path, scales",
    [
        (get_path_for_per_channel_config(), True),
        (get_path_for_per_tensor_config(), False),
        (get_path_for_target_config("htp_quantsim_config_v73"), True),
    ],
)
def test_paths_of_configurations(path: str, scales: bool) -> None:
    sim = QuantizationSimModel(network(), config_file=path)
    assert sim.qc_quantize_op_dict["conv.weight"].quant_info.usePerChannelMode is scales


def test_the_graph_of_a_model() -> None:
    graph = ConnectedGraph(network())
    conv, relu, *_ = graph.ordered_ops
    products = graph.get_all_products()
    assert [op.name for op in graph.starting_ops] == ["conv"] == [op.name for op in get_all_input_ops(graph)]
    assert get_ordered_ops(graph.starting_ops) == graph.ordered_ops
    assert products["c"].producer is conv and products["c"].consumers == [relu]
    assert products["x"].is_model_input and products["conv.weight"].is_parm
    node = conv.get_module()
    assert node is not None and node.op_type == "Conv" and conv.output_ops == [relu]
    assert get_module_act_func_pair(graph) == {"conv": "Relu"}
    with pytest.warns(DeprecationWarning, match=r"Op\.output is deprecated"):
        assert conv.output is products["c"]
    info = ModelData(QuantizationSimModel(network())).module_to_info
    assert (info["conv"].type, info["relu"].type, info["conv"].inputs) == ("Conv", None, ["x"])


# -- utils --------------------------------------------------------------------------------------------

CLIPPED = "c = Conv(x, W); r = Clip(c, zero, six); y = Conv(r, W)"
CONSTANTS = {"W": np.ones((3, 3, 1, 1)), "zero": np.float32(0), "six": np.float32(6)}


def _clipped() -> onnx.ModelProto:
    return typed(build_model(CLIPPED, "y", "float[1,3,4,4] x", constants=CONSTANTS))


def _types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_nodes_are_taken_out() -> None:
    model = _clipped()
    remove_nodes_with_type("Clip", model.graph)
    onnx.checker.check_model(model, full_check=True)
    assert _types(model) == ["Conv", "Conv"]
    remove_node(model.graph.node[-1], model.graph)
    onnx.checker.check_model(model, full_check=True)
    assert _types(model) == ["Conv"] and model.graph.node[0].output[0] == "y"
    with pytest.raises(RuntimeError, match="output 'y' would be 'x', which no node makes"):
        remove_node(model.graph.node[0], model.graph)


def test_clips_and_shared_constants() -> None:
    model = _clipped()
    replace_relu6_with_relu(model)
    assert _types(model) == ["Conv", "Relu", "Conv"]
    assert duplicate_shared_initializers(model.graph) == 1
    onnx.checker.check_model(model, full_check=True)
    names = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    assert len(set(names)) == 2
    assert ParamUtils.get_shape(model, model.graph.node[0], 1) == [3, 3, 1, 1]
    assert ParamUtils.get_param(model, model.graph.node[0], 2) is None


def test_scores_and_feeds(tmp_path: Path) -> None:
    model = network()
    feed = make_dummy_input(model)
    sim = QuantizationSimModel(model)
    sim.compute_encodings([feed])
    score = make_psnr_eval_fn(qc.runtime.open_session(model), [feed])
    with disable_quantizers(sim, set(sim.qc_quantize_op_dict)):
        assert score(sim.session) == pytest.approx(100.0, abs=20)
    assert 10 < score(sim.session) < 70
    with pytest.raises(RuntimeError, match="no tensor 'nothing'"), disable_quantizers(sim, {"nothing"}):
        pass
    assert compute_psnr(np.float32([0, 2]), np.float32([0, 2.02])) == pytest.approx(43.01, abs=0.01)
    kept = CachedDataset([feed, [np.zeros(2), np.ones(1)], np.ones(3)], 3, str(tmp_path))
    assert [type(batch) for batch in kept] == [dict, list, np.ndarray]
    np.testing.assert_array_equal(kept[0]["x"], feed["x"])


def test_outputs_of_layers_by_name(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network())
    sim.compute_encodings(feeds())
    found = LayerOutput(sim.model, None, tmp_path).get_outputs(feeds()[0])
    assert next(iter(found)) == "x" and "y" in found
    np.testing.assert_array_equal(found["y"], sim.session.run(None, feeds()[0])[0])


@pytest.mark.parametrize("symmetric, delta, offset", [(True, 2 / 128, -128), (False, 3 / 255, -170)])
def test_grids_of_ranges(symmetric: bool, delta: float, offset: int) -> None:
    assert calculate_delta_offset(-2.0, 1.0, 8, symmetric, False) == (pytest.approx(delta), offset)
    found = create_encoding_from_min_max(-2.0, 1.0, 8, symmetric, False)
    assert (found.min, found.bw) == (pytest.approx(-2.0), 8)
    assert QSpec.per_tensor("int8").dtype.bits == 8
