"""Devices: opened, run, and asked what became of the ops; those that are not installed are skipped."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds

import qc
from qc.ir.errors import ModelError, QcError, UsageError
from qc.runtime import open_session
from qc.runtime.devices import process, qnn_process
from qc.runtime.devices.device import version_of
from qc.runtime.devices.known import DEVICES, open_device
from qc.runtime.devices.qnn_htp import HtpModel
from qc.runtime.devices.qnn_log import NodeVerdict, invalid_option, read_verdicts

# What the provider said, cut to what matters. Node 3 is refused by the HTP's compiler, 9 by the provider;
# 12 is offered twice, as the layout changed in between.
LOG = """
[V:onnxruntime:, a.cc:557 Create] Qnn_OpConfig node name: #2# package_name: qti.aisw \
QNN_op_type: Conv2d num_of_inputs: 3 num_of_outputs: 1 num_of_params: 4
 node_inputs:
 name=x type=QNN_TENSOR_TYPE_APP_WRITE dataType=QNN_DATATYPE_FLOAT_32 rank=4
 node_outputs:
 name=y type=QNN_TENSOR_TYPE_NATIVE dataType=QNN_DATATYPE_UFIXED_POINT_8 rank=4
[V:onnxruntime:, b.cc:1713 Log] Validation PASSED for 3 nodes in OrtNodeUnit (Conv) :
	Operator type: DequantizeLinear Node name: #1# Node index: 0
	Operator type: Conv Node name: #2# Node index: 1
	Operator type: QuantizeLinear Node name: q Node index: 2

[W:onnxruntime:, a.cc:565 Create] QNN.backendValidateOpConfig() failed for node `#3#` of \
type `LayerNorm` with error code 3110
[V:onnxruntime:, b.cc:1713 Log] Validation FAILED for 2 nodes in OrtNodeUnit (LayerNormalization) :
	Operator type: DequantizeLinear Node name: #1#/duplicated Node index: 7
	Operator type: LayerNormalization Node name: #3# Node index: 3
	REASON : Failed to add node.

[V:onnxruntime:, b.cc:1713 Log] Validation FAILED for 1 nodes in OrtNodeUnit (Erf) :
	Operator type: Erf Node name: #9# Node index: 9
	REASON : Operators of type `Erf` are not supported by QNN EP.

[V:onnxruntime:, b.cc:1713 Log] Validation FAILED for 1 nodes in OrtNodeUnit (Sin) :
	Operator type: Sin Node name: #12# Node index: 12
	REASON : not yet
[V:onnxruntime:, b.cc:1713 Log] Validation PASSED for 1 nodes in OrtNodeUnit (Sin) :
	Operator type: Sin Node name: #12#_2 Node index: 12
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for a process in /proc")
def test_the_process_of_the_emulator_ends_with_a_caller_that_is_killed() -> None:
    served = """
import os
from qc.runtime.devices.process import _end_with_caller
caller = os.getppid()
print(os.getpid(), flush=True)
_end_with_caller(caller)
"""
    calling = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {served!r}])"
    with subprocess.Popen([sys.executable, "-c", calling], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        place = Path("/proc", caller.stdout.readline().strip())
        assert place.is_dir()
        caller.kill()
    end = time.monotonic() + 60
    while place.is_dir() and time.monotonic() < end and "(zombie)" not in (place / "status").read_text():
        time.sleep(0.2)
    assert not place.is_dir() or "(zombie)" in (place / "status").read_text()


def test_verdicts_are_read_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert read_verdicts(tmp_path / "log") == {
        2: NodeVerdict(True, "Conv2d UFIXED_POINT_8", True),
        3: NodeVerdict(False, reason="QNN's LayerNorm is not valid so (error 3110)"),
        9: NodeVerdict(False, reason="Operators of type `Erf` are not supported by QNN EP."),
        12: NodeVerdict(True),
    }


def test_an_option_that_the_provider_passes_over_is_found_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        LOG + "\x1b[0;93m2026 [W:onnxruntime:, c.cc:290 Parse] Invalid HTP architecture: 99\x1b[m\n"
    )
    assert invalid_option(log) == "Invalid HTP architecture: 99"
    log.write_text(LOG)
    assert not invalid_option(log)


def test_a_plugin_of_another_version_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = types.ModuleType("onnxruntime_qnn")
    plugin.EP_NAME, plugin.__version__ = "Fake", "0.1"  # type: ignore[attr-defined]
    plugin.get_library_path = lambda: "/nowhere/libfake.so"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime_qnn", plugin)
    said = "onnxruntime-qnn 0.1 does not work with onnxruntime.*install another version: [^\n]*$"
    with pytest.raises(UsageError, match=said):
        qnn_process.opened(qnn_process.Request(Path("a"), Path("b"), {}, may_use_cpu=False))


def test_a_process_that_ends_while_it_opens_a_model_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ending = [sys.executable, "-c", "import os, sys; sys.stdin.buffer.read(1); os.abort()"]
    monkeypatch.setattr(process, "_command", lambda module: ending)
    model = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match="SIGABRT while it opened the model; compile the float model anew"):
        HtpModel(model, None, {})


def test_unknown_devices_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"unknown device 'openvinno' .did you mean 'openvino'"):
        open_device("openvinno")

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(QcError, match=r"qnn-htp needs the package 'onnxruntime-qnn'.*'qc-onnx\[qnn\]'"):
        open_device("qnn-htp")


def quantized(target: str) -> ModelProto:
    """A small network that every device runs in integers."""
    model = parse(
        """net (float[1, 4, 8, 8] x) => (float[1, 6] y)
        <float[8, 4, 3, 3] w, float[8] b, float[8, 8, 1, 1] v, float[8] c, float[8, 6] u, float[6] e> {
            a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
            r = Relu(a)
            d = Conv(r, v, c)
            s = Add(d, r)
            p = GlobalAveragePool(s)
            f = Flatten(p)
            y = Gemm(f, u, e)
        }"""
    )
    return qc.compile(model, "w8a8", data=random_feeds(model, 4), target=target.replace("cuda", "cpu")).model


@pytest.mark.parametrize("name", list(DEVICES))
def test_a_device_runs_a_model_in_integers_and_says_so(name: str) -> None:
    if name in ("ort-cuda", "tensorrt"):
        pytest.skip(f"{name} has tests of its own, for a GPU")
    if version_of(DEVICES[name]) is None:
        pytest.skip(f"{name} is not installed")
    model = quantized(name)
    device = open_device(name)
    execution = device.execution(model, random_feeds(model, 3))
    found = {op.node.op_type: op.integer for op in execution.ops if op.integer is not None}
    assert not execution.failure
    assert all(found[op_type] for op_type in ("Conv", "GlobalAveragePool", "Gemm"))
    (feed,) = random_feeds(model, 1, seed=1)
    (exact,) = open_session(model, optimize=False).run(None, feed)
    opened = device.open(model)
    first, again = opened.run(feed)["y"], opened.run(feed)["y"]
    assert opened.outputs == ["y"] and np.array_equal(first, again)
    assert np.abs(first - exact).max() < 0.05 * np.ptp(exact)


def htp() -> None:
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")


def test_the_htp_names_what_it_refuses() -> None:
    htp()
    model = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Erf(x) }")
    (op,) = open_device("qnn-htp").execution(model).ops
    assert op.integer is False and op.place == "CPU" and "Erf" in op.reason
    with pytest.raises(ModelError, match="the HTP does not run all nodes; 'qc check' tells which and why"):
        open_device("qnn-htp").open(model)


def test_the_htp_is_not_offered_branches() -> None:
    htp()
    model = parse(
        """g (float[1, 8] x, bool c) => (float[1, 8] y) {
            y = If (c) <then_branch = t () => (float[1, 8] a) { a = Relu(x) },
                        else_branch = e () => (float[1, 8] b) { b = Neg(x) }>
        }"""
    )
    inside = [op for op in open_device("qnn-htp").execution(model).ops if op.node.graph.owner is not None]
    assert [op.node.op_type for op in inside] == ["Relu", "Neg"]
    assert all(op.place == "CPU" and op.reason.endswith("stands in a body") for op in inside)


def test_free_dimensions_are_refused_with_the_option_that_fixes_them() -> None:
    model = parse("g (float[N, 8] x, float[?, N] z) => (float[N, 8] y) { y = Relu(x) }")
    mend = (
        "is 'N', 'z[0]' is free; compile the model with --fix-shape N=1 --fix-shape 'z[0]=1', or with other"
    )
    with pytest.raises(ModelError, match=re.escape(mend)):
        HtpModel(model, None, {})


def test_an_emulator_that_ends_its_process_is_an_error() -> None:
    htp()
    model = quantized("qnn-htp")
    opened = HtpModel(model, None, {})
    os.kill(opened._process.pid, signal.SIGSEGV)
    with pytest.raises(
        ModelError, match="the HTP ended its process with SIGSEGV while it ran the model; compile the float"
    ):
        opened.run(random_feeds(model, 1)[0])


def test_options_of_a_device_are_its_own() -> None:
    model = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }")
    with pytest.raises(UsageError, match="ort-cpu has no device option 'speed'"):
        open_device("ort-cpu", {"speed": "1"})
    if version_of(DEVICES["qnn-htp"]) is not None:
        with pytest.raises(UsageError, match="qnn-htp has no device option 'speed'"):
            open_device("qnn-htp", {"speed": "1"}).open(model)
    if version_of(DEVICES["openvino"]) is None:
        pytest.skip("openvino is not installed")
    with pytest.raises(UsageError, match="openvino has no device option 'speed'"):
        open_device("openvino", {"speed": "1"}).open(model)


def test_a_model_that_openvino_cannot_read_is_an_error() -> None:
    if version_of(DEVICES["openvino"]) is None:
        pytest.skip("openvino is not installed")
    node = onnx.helper.make_node("Unheard", ["x"], ["y"], domain="nobody")
    model = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }")
    model.graph.node[0].CopyFrom(node)
    model.opset_import.add(domain="nobody", version=1)
    with pytest.raises(ModelError, match=r"OpenVINO cannot open the model.*Unheard"):
        open_device("openvino").open(model)


def test_the_htp_computes_a_silu_of_a_low_picture() -> None:
    """As behind a group normalization: in 16 bits it had other numbers altogether."""
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")
    random = np.random.default_rng(3)
    model = parse("""g (float[1, 3, 8, 8] x) => (float[1, 8, 8, 8] y)
    <float[32, 3, 1, 1] w, float[8, 32, 1, 1] v, int64[3] flat = {1, 32, 64},
     int64[4] picture = {1, 32, 8, 8}> {
        a = Conv(x, w)  r = Reshape(a, flat)  t = Tanh(r)  p = Reshape(t, picture)
        g = Sigmoid(p)  s = Mul(p, g)  y = Conv(s, v)
    }""")
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            numbers = random.normal(size=tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(numbers, tensor.name))
    feeds = [{"x": random.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    compiled = qc.compile(model, "w8a16", data=feeds, target="qnn-htp", threads=1)
    made = open_device("qnn-htp").open(compiled.model).run(feeds[0])["y"]
    meant = open_session(compiled.model).run(None, feeds[0])[0]
    np.testing.assert_allclose(made, meant, atol=0.02 * np.std(meant))
