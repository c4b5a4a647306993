"""Scripts and tools that call ONNX Runtime's quantizer, with qc in its place."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime.quantization.onnx_quantizer as theirs_of_ops
import onnxruntime.quantization.qdq_quantizer as theirs_of_qdq
import pytest
from onnx import ModelProto, TensorProto
from onnxruntime.quantization import CalibrationDataReader, StaticQuantConfig
from support.graph_text import build_model

import qc
import qc.compat.onnxruntime as ours
from qc.compat.onnxruntime import QuantFormat, QuantType, quantize, quantize_dynamic, quantize_static
from qc.compat.onnxruntime.execution_providers.qnn import get_qnn_qdq_config
from qc.ir.errors import QuantizedError
from qc.ir.onnx.protos import model_tensors
from qc.passes.framework.made_for import target_in

from .networks import Feed, feeds, network


class Once(CalibrationDataReader):
    """A reader as scripts write it, which is read once; its array is filled anew for each feed."""

    def __init__(self, given: list[Feed]) -> None:
        self._given = iter(given)
        self._array: np.ndarray | None = None

    def get_next(self) -> Feed | None:
        feed = next(self._given, None)
        if feed is None:
            return None
        ((name, values),) = feed.items()
        self._array = values.copy() if self._array is None else self._array
        self._array[:] = values
        return {name: self._array}


def op_types(model: ModelProto | Path) -> Counter[str]:
    loaded = onnx.load(model) if isinstance(model, Path) else model
    return Counter(node.op_type for node in loaded.graph.node)


def transformer_layer() -> ModelProto:
    """A product with a bias, a GELU as exporters write it, and a product with a bias."""
    random = np.random.default_rng(0)
    body = """
    p = MatMul(x, w1)
    a = Add(p, b1)
    d = Div(a, root)
    e = Erf(d)
    s = Add(e, one)
    m = Mul(a, s)
    g = Mul(m, half)
    q = MatMul(g, w2)
    y = Add(q, b2)
    """
    constants = {
        "w1": random.normal(size=(128, 512)) / 11,
        "b1": random.normal(size=512) / 8,
        "w2": random.normal(size=(512, 128)) / 22,
        "b2": random.normal(size=128) / 16,
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    return build_model(body, inputs="float[32,128] x", constants=constants)


def rows(count: int = 4) -> list[Feed]:
    return [{"x": np.random.default_rng(i).normal(size=(32, 128)).astype(np.float32)} for i in range(count)]


def error_of(model: ModelProto, quantized: ModelProto | Path, feed: Feed) -> float:
    """The largest error, as a share of the largest number."""
    source = str(quantized) if isinstance(quantized, Path) else quantized.SerializeToString()
    (found,) = ort.InferenceSession(source).run(None, feed)
    (exact,) = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def test_a_script_runs_with_qc_on_every_path(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from onnxruntime.quantization import QDQQuantizer, quant_pre_process, quantize, quantize_static\n"
        "from onnxruntime.quantization.quantize import get_qdq_config, quantize_dynamic\n"
        "from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer\n"
        "from onnxruntime.quantization.preprocess import quant_pre_process as again\n"
        "from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config\n"
        "assert again is quant_pre_process\n"
        "for one in (QDQQuantizer, quantize, quantize_static, get_qdq_config, quantize_dynamic, again,\n"
        "            ONNXQuantizer, get_qnn_qdq_config):\n"
        "    print(one.__module__.rpartition('.')[0])\n"
    )
    command = [sys.executable, "-m", "qc.compat.onnxruntime", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) == {"qc.compat.onnxruntime"}


def test_a_module_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import sys\nfrom onnxruntime.quantization import quantize_static\n"
        "print(quantize_static.__module__, sys.argv[1:], __name__)\n"
    )
    command = [sys.executable, "-m", "qc.compat.onnxruntime", "-m", "tool", "--option"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.split() == ["qc.compat.onnxruntime.quantize", "['--option']", "__main__"]


@pytest.mark.parametrize(
    "theirs, our", [(theirs_of_qdq, ours.QDQQuantizer), (theirs_of_ops, ours.ONNXQuantizer)]
)
def test_arguments_of_quantizers_stand_where_they_do_in_onnxruntime(theirs: Any, our: Any) -> None:
    their = getattr(theirs, our.__name__)
    assert list(inspect.signature(our).parameters) == list(inspect.signature(their).parameters)


def told(**changed: Any) -> dict[str, Any]:
    """The arguments of a quantizer as Optimum gives them."""
    return {
        "model": transformer_layer(),
        "per_channel": True,
        "reduce_range": False,
        "weight_qType": QuantType.QInt8,
        "activation_qType": QuantType.QUInt8,
        "tensors_range": None,
        "nodes_to_quantize": [],
        "nodes_to_exclude": [],
        "op_types_to_quantize": ["Conv", "MatMul", "Gemm"],
        "extra_options": {
            "WeightSymmetric": True,
            "ActivationSymmetric": False,
            "EnableSubgraph": False,
            "ForceSymmetric": False,
            "AddQDQPairToWeight": False,
            "DedicatedQDQPair": False,
            "QDQOpTypePerChannelSupportToAxis": {"MatMul": 1},
        },
    } | changed


RANGES = {"x": (np.float32(-4), np.float32(4)), "g": (-0.2, 4.0), "y": (-4.0, 4.0), "a": (-4.0, 4.0)}


def test_ranges_that_were_found_before_take_the_place_of_data() -> None:
    quantizer = ours.QDQQuantizer(**told(tensors_range=RANGES))
    made = quantizer.quantize_model()
    assert quantizer.model.model is made
    scales = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    np.testing.assert_allclose(scales["x_scale"], 8 / 255, rtol=1e-6)
    np.testing.assert_allclose(scales["g_scale"], 4.2 / 255, rtol=1e-6)
    assert {"w1_quantized", "w2_quantized"} <= set(scales)
    assert error_of(transformer_layer(), made, rows()[0]) < 0.05


def test_a_tensor_without_a_range_stays_float() -> None:
    with pytest.warns(UserWarning, match="no range was given for 'g', which stays float"):
        made = ours.QDQQuantizer(**told(tensors_range={"x": (-4.0, 4.0)})).quantize_model()
    assert {node.input[0] for node in made.graph.node if node.op_type == "QuantizeLinear"} == {"x"}
    with pytest.raises(qc.UsageError, match="needs tensors_range"):
        ours.QDQQuantizer(**told()).quantize_model()


def test_a_quantizer_of_ops_is_dynamic_or_static() -> None:
    dynamic = ours.ONNXQuantizer(mode=0, static=False, **told())
    assert op_types(dynamic.quantize_model())["MatMulInteger"] == 2
    assert error_of(transformer_layer(), dynamic.model.model, rows()[0]) < 0.05
    static = ours.ONNXQuantizer(mode=1, static=True, **told(tensors_range=RANGES))
    assert not op_types(static.quantize_model())["MatMul"]
    assert error_of(transformer_layer(), static.model.model, rows()[0]) < 0.05


def test_a_quantizer_of_another_tool_cannot_build_on_it() -> None:
    with pytest.raises(ImportError, match=r"a base of '.*Theirs' is not part of .*; import it before"):

        class Theirs(ours.ONNXQuantizer):
            pass


@pytest.mark.parametrize(
    "chosen", [{"op_types_to_quantize": ["MatMul"]}, {"nodes_to_exclude": ["bias 1", "bias 2", "erf"]}]
)
def test_a_product_is_quantized_without_its_bias_being_named(
    tmp_path: Path, chosen: dict[str, list[str]]
) -> None:
    """GELUs become one op on the way, and a bias is added by the kernel of the product."""
    model = transformer_layer()
    for place, name in ((1, "bias 1"), (3, "erf"), (8, "bias 2")):
        model.graph.node[place].name = name
    path = tmp_path / "q.onnx"
    quantize_static(model, path, rows(), activation_type=QuantType.QUInt8, per_channel=True, **chosen)
    codes = {
        tensor.name for tensor in onnx.load(path).graph.initializer if tensor.data_type == TensorProto.INT8
    }
    assert {"w1_quantized", "w2_quantized"} <= codes
    quantize_dynamic(model, path, **chosen)
    assert op_types(path)["MatMulInteger"] == 2


def test_the_file_of_kept_samples_is_closed(tmp_path: Path) -> None:
    """Python tells of files that are not, in development and in tests."""
    with warnings.catch_warnings(record=True) as told_of:
        warnings.simplefilter("always")
        quantize_static(network(), tmp_path / "q.onnx", Once(feeds()))
        gc.collect()
    assert not [one.message for one in told_of if issubclass(one.category, ResourceWarning)]


def test_a_convolution_is_quantized_though_its_relu_is_excluded(tmp_path: Path) -> None:
    quantize_static(network(), tmp_path / "q.onnx", feeds(), nodes_to_exclude=["relu", "flatten"])
    assert {"conv.weight_quantized", "fc.weight_quantized"} <= {
        tensor.name for tensor in onnx.load(tmp_path / "q.onnx").graph.initializer
    }


def test_bodies_are_quantized_though_only_products_are_named(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[32,128] x, bool c) => (float[32,128] y) {
        y = If(c) <
            then_branch = more () => (float[32,128] t) { t = MatMul(x, w) },
            else_branch = less () => (float[32,128] e) { e = Identity(x) }
        >
    }
    """)
    weight = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    data = [feed | {"c": np.array(True)} for feed in rows()]
    quantize_static(model, tmp_path / "q.onnx", data, op_types_to_quantize=["MatMul"])
    kinds = {tensor.data_type for tensor in model_tensors(onnx.load(tmp_path / "q.onnx"))}
    assert TensorProto.INT8 in kinds


def test_a_reader_is_kept_where_it_is_read_twice(tmp_path: Path) -> None:
    def result(data: object) -> bytes:
        options = {"SmoothQuant": True}
        quantize_static(
            transformer_layer(), tmp_path / "q.onnx", data, per_channel=True, extra_options=options
        )
        return (tmp_path / "q.onnx").read_bytes()

    assert result(Once(rows())) == result(rows())


def test_operators_of_onnxruntime_give_the_numbers_of_the_qdq_model(tmp_path: Path) -> None:
    arguments = {"activation_type": QuantType.QUInt8, "per_channel": True}
    quantize_static(network(), tmp_path / "qdq.onnx", feeds(), **arguments)
    quantize_static(
        network(), tmp_path / "ops.onnx", feeds(), quant_format=QuantFormat.QOperator, **arguments
    )
    assert op_types(tmp_path / "ops.onnx")["QLinearConv"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ops.onnx", "qdq.onnx"]
    for feed in feeds():
        found, expected = (
            ort.InferenceSession(tmp_path / name).run(None, feed)[0] for name in ("ops.onnx", "qdq.onnx")
        )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("added", ["r = Add(c, d)", "a = Add(c, d)\nr = Relu(a)"])
def test_signed_activations_that_are_slow_are_told_of(tmp_path: Path, added: str) -> None:
    body = f"c = Conv<pads=[1,1,1,1]>(x, w)\nd = Conv<pads=[1,1,1,1]>(c, v)\n{added}\ny = Conv(r, v)"
    random = np.random.default_rng(0)
    constants = {name: random.normal(size=(8, 8, 3, 3)) for name in "wv"}
    model = build_model(body, inputs="float[1,8,16,16] x", constants=constants)
    model.graph.node[2].name = "sum"
    data = [{"x": random.normal(size=(1, 8, 16, 16)).astype(np.float32)} for _ in range(2)]
    signed = (
        "with signed activations ONNX Runtime computes Add in float here; activation_type=QuantType.QUInt8"
    )
    if qc.processor.default_target().activation.dtype == "int8":
        pytest.skip("this processor is as quick with signed activations")
    with pytest.warns(UserWarning, match=signed) as told_of:
        quantize_static(model, tmp_path / "q.onnx", data)
    assert {one.filename for one in told_of} == {__file__}
    for options in ({"activation_type": QuantType.QUInt8}, {"nodes_to_exclude": ["sum"]}):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            quantize_static(model, tmp_path / "q.onnx", data, **options)
        assert not [one for one in said if "signed" in str(one.message)]


def test_a_configuration_for_the_htp_can_be_taken_apart(tmp_path: Path) -> None:
    """As Olive does."""
    config = get_qnn_qdq_config(network(), feeds(), activation_type=QuantType.QUInt16)
    parts = {name: value for name, value in inspect.getmembers(config) if not name.startswith("_")}
    quantize_static(network(), tmp_path / "q.onnx", **parts)
    assert target_in(onnx.load(tmp_path / "q.onnx")) == "qnn-htp"
    with pytest.raises(qc.UsageError, match="'quant_format=QOperator' of a model for the HTP"):
        quantize_static(network(), tmp_path / "q.onnx", **parts | {"quant_format": QuantFormat.QOperator})


def test_formats_as_types_of_tensors_are_taken(tmp_path: Path) -> None:
    config = StaticQuantConfig(
        feeds(), activation_type=TensorProto.UINT8, weight_type=TensorProto.INT8, per_channel=True
    )
    quantize(network(), tmp_path / "types.onnx", config)
    config = StaticQuantConfig(feeds(), activation_type=QuantType.QUInt8, per_channel=True)
    quantize(network(), tmp_path / "formats.onnx", config)
    assert (tmp_path / "types.onnx").read_bytes() == (tmp_path / "formats.onnx").read_bytes()


def test_options_without_effect_are_taken_by_dynamic_quantization(tmp_path: Path) -> None:
    options = {"extra.Sigmoid.nnapi": False, "EnableSubgraph": True, "ActivationSymmetric": False}
    quantize_dynamic(transformer_layer(), tmp_path / "q.onnx", extra_options=options)
    assert op_types(tmp_path / "q.onnx")["MatMulInteger"] == 2


def test_the_input_by_its_old_name(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "model.onnx")
    ours.quant_pre_process(
        input_model_path=tmp_path / "model.onnx", output_model_path=tmp_path / "pre.onnx", auto_merge=True
    )
    assert op_types(tmp_path / "pre.onnx") == op_types(network())
    with pytest.raises(qc.UsageError, match="no argument 'input_modell_path'"):
        ours.quant_pre_process(input_modell_path="model.onnx", output_model_path="pre.onnx")
    with pytest.raises(qc.UsageError, match="needs input_model and output_model_path"):
        ours.quant_pre_process(network())


def test_errors_are_of_the_type_that_tools_catch(tmp_path: Path) -> None:
    """As Olive does, which goes on with another candidate."""
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    quantize_static(network(), tmp_path / "quantized.onnx", feeds())
    path = tmp_path / "q.onnx"
    caught: dict[type[Exception], Any] = {}
    for wrong, type_of_qc in (
        ({"nodes_to_exclude": ["other"]}, qc.UsageError),
        ({"calibration_cache_path": "cache"}, ImportError),
        ({"model_input": tmp_path / "broken.onnx"}, qc.ModelError),
        ({"calibration_data_reader": Once([{"z": np.zeros(1)}])}, qc.DataError),
        ({"model_input": tmp_path / "quantized.onnx"}, QuantizedError),
        ({"op_types_to_quantize": ["Relu"]}, qc.CoverageError),
    ):
        arguments = {"model_input": network(), "model_output": path, "calibration_data_reader": feeds()}
        with pytest.raises(ValueError) as raised:
            quantize_static(**arguments | wrong)
        assert isinstance(raised.value, type_of_qc)
        caught[type_of_qc] = raised.value
    assert not path.exists()
    assert "QuantizeLinear" in caught[QuantizedError].found
    assert "leaves it out" in str(caught[qc.CoverageError]) and caught[qc.CoverageError].coverage
