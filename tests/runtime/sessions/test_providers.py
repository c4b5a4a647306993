"""Where models run: what can be chosen, and what is said where it cannot be used."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from support.models import parse, random_feeds

import qc
from qc.cli import main
from qc.ir.errors import QcError, UsageError
from qc.layers import layer_errors
from qc.runtime import OrtExecutor, bench, choose_provider, evaluate, load_data, model_inputs, open_session
from qc.runtime.native import library as libraries
from qc.runtime.sessions import providers
from qc.runtime.sessions.providers import check_provider, missing_for_cuda

without_cuda = pytest.mark.skipif(not missing_for_cuda(), reason="CUDA can be used")


def model() -> ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "model",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What is missing is found out anew, before and after."""
    missing_for_cuda.cache_clear()
    yield
    missing_for_cuda.cache_clear()


def test_an_unknown_provider_is_named_with_the_known_ones() -> None:
    sentence = r"unknown device 'cdua' \(did you mean 'cuda'\?\); known: cpu, cuda, auto"
    feeds = [{"x": np.zeros(2, np.float32)}]
    with pytest.raises(UsageError, match=sentence):
        open_session(model(), provider="cdua")
    with pytest.raises(UsageError, match=sentence):
        list(OrtExecutor(provider="cdua").run(model(), feeds))
    with pytest.raises(UsageError, match=sentence):
        evaluate(model(), {"same": model()}, feeds, provider="cdua")
    with pytest.raises(UsageError, match=sentence):
        qc.compile(model(), device="cdua")
    with pytest.raises(UsageError, match=sentence):
        qc.Simulation(model(), device="cdua")


def test_auto_runs_everywhere() -> None:
    assert choose_provider("auto") in ("cpu", "cuda")
    x = np.array([1, -2], np.float32)
    assert open_session(model(), provider="auto").run(None, {"x": x})[0].tolist() == [-1, 2]


@pytest.mark.usefixtures("forgotten")
def test_an_onnx_runtime_without_cuda_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(QcError, match=r"CUDA cannot be used: .* pip install 'onnxruntime-gpu\[cuda,cudnn\]'"):
        open_session(model(), provider="cuda")
    assert choose_provider("auto") == "cpu"


@pytest.mark.usefixtures("forgotten")
def test_whatever_runs_models_runs_them_where_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    network = parse("g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w> { y = MatMul(x, w) }")
    onnx.save(network, tmp_path / "model.onnx")
    feeds = load_data(random_feeds(network, 2), model_inputs(network))
    compiled = qc.compile(network, data=feeds, device="cpu")
    asked: list[Callable[[], object]] = [
        lambda: bench({"it": tmp_path / "model.onnx"}, feeds, provider="cuda"),
        lambda: evaluate(network, {"it": network}, feeds, provider="cuda"),
        lambda: layer_errors(compiled, feeds, device="cuda"),
        lambda: qc.measure_sensitivity(compiled, feeds, device="cuda"),
        lambda: compiled.open_simulation(device="cuda"),
    ]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    for ask in asked:
        with pytest.raises(QcError, match="CUDA cannot be used: "):
            ask()


@pytest.mark.parametrize("command", ["bench", "eval", "sensitivity"])
@pytest.mark.usefixtures("forgotten")
def test_every_command_that_runs_models_takes_the_device(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    arguments = [command, str(tmp_path / "model.onnx"), "--random-data", "2", "--device", "cuda"]
    assert main(arguments) == QcError.exit_code
    assert "qc: error: CUDA cannot be used: " in capsys.readouterr().err


@pytest.mark.usefixtures("forgotten")
def test_a_missing_library_for_cuda_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    libraries.library_path.cache_clear()
    monkeypatch.setattr(libraries, "__file__", str(tmp_path / "library.py"))
    monkeypatch.setattr(libraries, "_recorded", lambda name: [])
    with pytest.raises(QcError, match=r"libqc_runtime_cuda\.so\) is missing; .* CUDA's compiler \(nvcc\)"):
        choose_provider("cuda")
    monkeypatch.undo()
    libraries.library_path.cache_clear()


@without_cuda
@pytest.mark.usefixtures("forgotten")
def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    library = _library_for_cuda()
    assert library.qc_cuda_failure() is not None
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(QcError, match="there is no GPU, or it or its driver does not fit qc's library: "):
        choose_provider("cuda")


@without_cuda
@pytest.mark.usefixtures("forgotten")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_an_onnx_runtime_that_lacks_libraries_of_cuda_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        qc_cuda_failure = staticmethod(Mock(return_value=None))

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(providers, "library_path", lambda cuda: "library")
    monkeypatch.setattr(ctypes, "CDLL", lambda path: Found)
    assert choose_provider("auto") == "cpu"
    with pytest.raises(QcError, match="CUDA cannot be used: ONNX Runtime cannot load its part for CUDA"):
        choose_provider("cuda")


def test_the_library_for_cuda_serves_the_processor_too() -> None:
    """It loads where there is no driver, and sessions choose among the operators of both."""
    _library_for_cuda()
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(libraries.library_path(cuda=True)))
    graph = model()
    graph.graph.node.append(helper.make_node("Observe", ["x"], ["a", "b", "c", "d"], domain="qc"))
    graph.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    graph.opset_import.append(helper.make_opsetid("qc", 1))
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    assert session.run(["a"], {"x": np.array([3, -4], np.float32)})[0].tolist() == [-4]


def test_a_provider_that_is_left_out_in_silence_is_an_error() -> None:
    session = open_session(model())
    with pytest.raises(QcError, match="cannot load its part for CUDA"):
        check_provider(session, "cuda")


def test_the_command_line_refuses_an_unknown_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_bytes(model().SerializeToString())
    arguments = ["eval", str(tmp_path / "model.onnx"), "--random-data", "2", "--device", "tpu"]
    assert main(arguments) == UsageError.exit_code
    assert "unknown device 'tpu'" in " ".join(capsys.readouterr().err.split())


def _library_for_cuda() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(libraries.library_path(cuda=True)))
    except QcError:
        pytest.skip("the library for CUDA was not built")
    library.qc_cuda_failure.restype = ctypes.c_char_p
    return library
