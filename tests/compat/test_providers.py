"""Execution providers in scripts: where the models of the compatibility layers run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds

import qc
from qc.compat import providers
from qc.compat.aimet_onnx import arguments
from qc.compat.aimet_onnx.defs import CallbackFunc
from qc.compat.aimet_onnx.layer_output_utils import LayerOutput
from qc.compat.aimet_onnx.quant_analyzer import QuantAnalyzer
from qc.compat.aimet_onnx.quantsim import QuantizationSimModel
from qc.compat.aimet_onnx.utils import OrtInferenceSession
from qc.compat.onnxruntime import quantize_static
from qc.compat.providers import device_of
from qc.runtime.sessions.providers import missing_for_cuda

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
MISSING = "CUDA cannot be used: the installed ONNX Runtime is without it"


def network() -> ModelProto:
    return parse("g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w> { h = MatMul (x, w) y = Relu (h) }")


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An ONNX Runtime without CUDA."""
    missing_for_cuda.cache_clear()
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU])
    yield
    missing_for_cuda.cache_clear()


@pytest.fixture
def seeming_cuda(monkeypatch: pytest.MonkeyPatch, without_cuda: None) -> None:
    """CUDA that is chosen and then, when a model is opened, turns out to be missing."""
    monkeypatch.setattr(providers, "choose_provider", lambda name: name)
    monkeypatch.setattr(providers, "missing_for_cuda", lambda: "")
    monkeypatch.setattr(arguments, "missing_for_cuda", lambda: "")


@pytest.mark.usefixtures("seeming_cuda")
def test_the_first_provider_that_can_be_used_is() -> None:
    assert device_of(None) == device_of([]) == device_of([CPU, CUDA]) == "cpu"
    assert device_of([CUDA, CPU]) == device_of([("TensorrtExecutionProvider", {}), (CUDA, {})]) == "cuda"


@pytest.mark.usefixtures("without_cuda")
def test_where_cuda_cannot_be_used_the_cpu_is_with_a_warning_or_nothing() -> None:
    with pytest.warns(UserWarning, match="models run on the CPU, as CUDA cannot be used: "):
        assert device_of([CUDA, CPU]) == "cpu"
    with pytest.raises(qc.QcError, match=MISSING):
        QuantizationSimModel(network(), providers=[CUDA])
    with pytest.raises(
        qc.UsageError, match="'ROCMExecutionProvider' is not part of qc's compatibility layer"
    ):
        QuantizationSimModel(network(), providers=["ROCMExecutionProvider"])


@pytest.mark.usefixtures("seeming_cuda")
def test_every_model_of_a_simulation_runs_where_it_is_told(tmp_path: Path) -> None:
    feeds = random_feeds(network(), 2)
    simulation = QuantizationSimModel(network(), providers=[CUDA])
    score = CallbackFunc(lambda session, _: 0.0)
    analyzer = QuantAnalyzer(network(), feeds[0], score, score)
    asked = [
        lambda: simulation.compute_encodings(feeds),
        lambda: simulation.session.run(None, feeds[0]),
        lambda: OrtInferenceSession(network(), [CUDA]),
        lambda: LayerOutput(network(), [CUDA], tmp_path).get_outputs(feeds[0]),
        lambda: analyzer.check_model_sensitivity_to_quantization(simulation),
        lambda: quantize_static(
            network(), tmp_path / "model.onnx", iter(feeds), calibration_providers=[CUDA, CPU]
        ),
    ]
    for ask in asked:
        with pytest.raises(qc.QcError, match=MISSING):
            ask()


@pytest.mark.usefixtures("seeming_cuda")
def test_use_cuda_of_earlier_versions_is_looked_at() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for given, device in [
            ({"use_cuda": False}, "cpu"),
            ({"use_cuda": True}, "cuda"),
            ({"device": 0}, "cuda"),
        ]:
            assert QuantizationSimModel(network(), **given)._device == device  # type: ignore[arg-type]


@pytest.mark.skipif(bool(missing_for_cuda()), reason=missing_for_cuda())
def test_a_simulation_on_a_gpu_gives_what_that_on_the_cpu_gives() -> None:
    feeds = random_feeds(network(), 4)
    results = []
    for listed in ([CPU], [CUDA, CPU]):
        simulation = QuantizationSimModel(network(), providers=listed)
        simulation.compute_encodings(feeds)
        results.append(simulation.session.run(None, feeds[0])[0])
    assert simulation.session.get_providers()[0] == CUDA
    (encoding,) = simulation.qc_quantize_op_dict["y"].get_encodings()
    np.testing.assert_allclose(*results, atol=1.01 * encoding.delta)  # a sum may round the other way
    onnx.checker.check_model(simulation.to_onnx_qdq())
