"""TensorRT as a device: what it tells of its layers, on a stand-in, and on a GPU where there is one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import ModelProto
from support.folders import FIXTURES
from support.models import parse, random_feeds
from support.tensorrt_stand_in import stand_in

import qc
from qc.ir.errors import ModelError, QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.load import load_model
from qc.runtime import load_data, model_inputs
from qc.runtime.devices import tensorrt
from qc.runtime.devices.device import version_of
from qc.runtime.devices.onnx_runtime import OrtCpu
from qc.runtime.devices.tensorrt import TensorRt
from qc.runtime.devices.tensorrt_layers import executed_ops, read_layers
from qc.runtime.protos.wiring import all_nodes

BLOCK = """net (float[1, 4, 8, 8] x) => (float[1, 6] y)
    <float[8, 4, 3, 3] w, float[8] b, float[8, 8, 1, 1] v, float[8] c, float[8, 6] u, float[6] e> {
        a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
        r = Relu(a)
        d = Conv(r, v, c)
        s = Add(d, r)
        t = Relu(s)
        p = GlobalAveragePool(t)
        f = Flatten(p)
        y = Gemm(f, u, e)
    }"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was loaded is loaded anew, before and after."""
    for found in (tensorrt._libraries, tensorrt._logger):
        found.cache_clear()
    yield
    for found in (tensorrt._libraries, tensorrt._logger):
        found.cache_clear()


@pytest.fixture(params=["stand-in", "gpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TensorRt:
    """TensorRT."""
    if request.param == "stand-in":
        stand_in(monkeypatch)
    elif version_of(TensorRt) is None:
        pytest.skip("tensorrt is not installed")
    try:
        return TensorRt({})
    except QcError as error:
        pytest.skip(str(error))


# -- what is told of layers -------------------------------------------------------------------------------

FOUR, LINEAR = "Four wide channel vectorized row major Int8 format", "Row major linear FP32"
WIDE = "Thirty-two wide channel vectorized row major Int8 format"


def told(name: str, type: str, reads: list[str], makes: list[str], *nodes: int) -> dict[str, object]:
    """A layer as TensorRT 10 tells it: format and type in one text, a control character between nodes."""
    sides = {
        side: [
            {"Name": "t", "Location": "Device", "Dimensions": [1, 8], "Format/Datatype": text} for text in all
        ]
        for side, all in (("Inputs", reads), ("Outputs", makes))
    }
    metadata = "\x1e".join(f"[ONNX Layer: #{node}#]" for node in nodes)
    return {"Name": name, "LayerType": type, **sides, "Metadata": metadata}


def became(
    model: ModelProto, layers: list[object], **seconds: float
) -> dict[str, tuple[str, bool | None, float]]:
    text = json.dumps({"Layers": layers, "Bindings": ["x", "y"]})
    ops = executed_ops(model, read_layers(text), seconds)
    return {op.node.proto.output[0]: (op.kernel, op.integer, op.seconds) for op in ops}


def test_a_layer_is_found_by_the_nodes_that_it_is_made_of() -> None:
    """As a quantized ResNet looks: the last block gives floats, what pools them and a product behind."""
    model = parse(BLOCK)
    layers: list[object] = [
        told("q", "Reformat", [LINEAR], [FOUR]),
        told("conv", "CaskConvolution", [FOUR], [WIDE], 0, 1),
        told("add", "CaskConvolution", [WIDE, LINEAR], [LINEAR], 2, 3, 4),
        told("copy", "Reformat", [LINEAR], ["Two wide channel vectorized row major FP16 format"], 5),
        told("pool", "TiledPooling", [LINEAR], [LINEAR], 5),
        told("shape", "Shuffle", [WIDE], [WIDE], 7),
        told("gemm", "CaskGemmMatrixMultiply", ["Row major Int8 format"], [LINEAR], 7),
        told("bias", "kgen", ["Float", "Float"], ["Float"], 7),
    ]
    assert became(model, layers, conv=2e-5, add=3e-5) == {
        "a": ("CaskConvolution Int8", True, 2e-5),
        "r": ("CaskConvolution Int8", True, 2e-5),
        "d": ("CaskConvolution Int8 to FP32", True, 3e-5),
        "s": ("CaskConvolution Int8 to FP32", True, 3e-5),
        "t": ("CaskConvolution Int8 to FP32", True, 3e-5),
        "p": ("TiledPooling FP32", False, 0.0),
        "f": ("", None, 0.0),
        "y": ("CaskGemmMatrixMultiply Int8 to FP32", True, 0.0),
    }


def test_a_type_may_stand_in_a_field_of_its_own() -> None:
    text = "g (float[1, 8] x) => (float[1, 8] z) <float[8, 8] w> { y = MatMul(x, w) z = Softmax(y) }"
    gemm, softmax = told("gemm", "gemm", [], [], 0), told("softmax", "kgen", [], [], 1)
    gemm["Inputs"] = [{"Name": "x", "Datatype": "Int8", "Format": "?"}, {"Name": "w", "Datatype": "Int8"}]
    gemm["Outputs"] = [{"Name": "y", "DataType": "Half", "Format": "Row major linear FP16 format"}]
    softmax["Inputs"] = gemm["Outputs"]
    assert became(parse(text), [gemm, softmax]) == {
        "y": ("gemm Int8 to Half", True, 0.0),
        "z": ("kgen Half", False, 0.0),
    }


@pytest.mark.parametrize(
    ("reads", "makes", "integer"),
    [
        (["FP8"], ["Half"], True),
        (["Float", "Int8"], ["Float"], False),
        (["Half", "Int4"], ["Half"], False),
        (["Float"], ["Int8"], False),
    ],
)
def test_a_product_is_in_integers_by_its_data(reads: list[str], makes: list[str], integer: bool) -> None:
    model = parse("g (float[1, 8] x) => (float[1, 8] y) <float[8, 8] w> { y = MatMul(x, w) }")
    assert became(model, [told("gemm", "gemm", reads, makes, 0)])["y"][1] is integer


@pytest.mark.parametrize(("makes", "integer"), [("Int8", True), ("Float", False)])
def test_what_dequantizes_before_it_computes_is_in_float(makes: str, integer: bool) -> None:
    model = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }")
    assert became(model, [told("relu", "kgen", ["Int8"], [makes], 0)])["y"][1] is integer


def test_control_characters_as_such_are_read() -> None:
    text = json.dumps({"Layers": ["only a name", told("c", "kgen", ["Int8"], ["Int8"], 3, 4)]})
    (layer,) = read_layers(text.replace("\\u001e", "\x1f"))
    assert layer.places == (3, 4) and layer.kernel == "kgen Int8"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Layers": [{}]}'])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|another form"):
        read_layers(text)


# -- opened and run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures() -> list[Feed]:
    """Digits, one in each feed."""
    model = load_model(FIXTURES / "digits_cnn.onnx")
    return list(load_data(FIXTURES / "digits_calibration.npz", model_inputs(model)))


@pytest.fixture(scope="module")
def digits(pictures: list[Feed]) -> ModelProto:
    """A ResNet-like network for digits, as TensorRT takes it."""
    path = FIXTURES / "digits_cnn.onnx"
    return qc.compile(path, "w8a8", data=pictures, target="tensorrt", fix_shapes=("batch=1",)).model


def test_a_network_runs_as_in_onnx_runtime(
    device: TensorRt, digits: ModelProto, pictures: list[Feed]
) -> None:
    opened, exact = device.open(digits), OrtCpu({}).open(digits)
    (name,) = opened.outputs
    for feed in pictures[:16]:
        first, again, expected = (one.run(feed)[name] for one in (opened, opened, exact))
        assert (first.shape, first.dtype) == (expected.shape, expected.dtype)
        assert np.array_equal(first, again)
        assert np.abs(first - expected).max() < 0.05 * np.ptp(expected)


def test_its_convolutions_run_in_integers_and_take_time(device: TensorRt, digits: ModelProto) -> None:
    execution = device.execution(digits, random_feeds(digits, 3))
    convolutions = [op for op in execution.ops if op.node.op_type == "Conv"]
    assert len(convolutions) == 10 and all(op.integer for op in convolutions)
    assert all(op.kernel and op.runs_as and op.seconds > 0 for op in convolutions)
    assert {op.runs_as for op in convolutions} <= {time.name for time in execution.times}
    assert not device.execution(digits).times


@pytest.mark.usefixtures("device")
def test_a_check_asks_it(digits: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    for asking in ("qc.checking.judging", "qc.checking.runtimes", "qc.runtime.devices.device"):
        monkeypatch.setattr(f"{asking}.version_of", lambda device: "11")
    found = qc.check(digits, "tensorrt", random_feeds(digits, 2))
    assert found.executed and found.where.startswith("run by TensorRT") and found.seconds > 0
    assert {op.runs for op in found.ops if op.op_type == "Conv"} == {"integer"}


# -- what can go wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["tensorrt", "cuda.bindings.runtime"])
def test_a_package_that_cannot_be_loaded_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(QcError, match=rf"cannot be loaded: .*{missing}.*pip install 'qc-onnx\[tensorrt\]'"):
        TensorRt({})


def test_without_a_gpu_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, failing="device")
    sentence = "tensorrt needs a GPU of NVIDIA and its driver: no CUDA-capable device is detected"
    with pytest.raises(QcError, match=f"^{sentence}$"):
        TensorRt({})


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("start", "TensorRT cannot be started: CUDA fails: 35"),
        ("parse", "TensorRT cannot read the model: Conv '{}': UNSUPPORTED_NODE: not so"),
        ("build", "TensorRT cannot build an engine of the model: Error Code 10: no implementation of {}."),
        ("run", "TensorRT failed to run the model: IExecutionContext::executeV2: Error Code 1: no"),
    ],
)
def test_its_own_reason_is_told(failing: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, failing)
    model = qc.compile(parse(BLOCK), "w8a8", data=random_feeds(parse(BLOCK), 4), target="tensorrt").model
    names = [node.proto.name or node.proto.output[0] for node in all_nodes(model.graph)]
    with pytest.raises(ModelError) as caught:
        TensorRt({}).execution(model, random_feeds(model, 2))
    assert str(caught.value) == said.format(names[4])


def test_free_dimensions_are_refused_with_the_option_that_fixes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    with pytest.raises(ModelError, match=r"'x\[0\]' is 'N'; compile the model with --fix-shape N=1"):
        TensorRt({}).open(parse("g (float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"TF23": "1"}, r"tensorrt has no device option 'TF23' .did you mean 'TF32'"),
        ({"TF32": "yes"}, "the device option TF32 of tensorrt is 0 or 1, not 'yes'"),
    ],
)
def test_its_options_are_checked_before_anything_is_loaded(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TensorRt(options)
