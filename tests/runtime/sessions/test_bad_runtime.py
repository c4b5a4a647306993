"""What can be wrong when a model is run: the native library, and what a session is fed. One sentence each."""

from __future__ import annotations

import _ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from qc.ir.errors import DataError, ModelError, QcError, UsageError
from qc.ir.quant.spec import Encoding, PerChannel, QuantSpec
from qc.runtime.native import kernels, library
from qc.runtime.sessions.failures import explain_load
from qc.runtime.sessions.open import open_session, run_session

X = np.zeros((2, 3), np.float32)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the library, to spoil."""
    path = tmp_path / "library.so"
    shutil.copyfile(library.library_path(), path)
    return path


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The library is looked for anew, now and afterwards."""
    library.library_path.cache_clear()
    yield
    library.library_path.cache_clear()


def complaint(path: Path) -> str:
    with pytest.raises(QcError) as caught:
        library.check_library(path)
    text = str(caught.value)
    assert str(path) in text and "install qc again" in text and "\n" not in text
    return text


def test_the_library_itself_is_good(copy: Path) -> None:
    library.check_library(copy)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_library_that_is_cut_short(copy: Path, share: float) -> None:
    whole = copy.read_bytes()
    copy.write_bytes(whole[: int(len(whole) * share)])
    assert "is cut short" in complaint(copy)


@pytest.mark.parametrize("content", [b"", b"MZ", b"not a library\n" * 99])
def test_a_file_that_is_no_library(copy: Path, content: bytes) -> None:
    copy.write_bytes(content)
    assert "is not a shared library" in complaint(copy)


def test_a_library_for_another_processor(copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    content[18:20] = (243).to_bytes(2, "little")  # RISC-V
    copy.write_bytes(content)
    assert "another kind of processor" in complaint(copy)


def test_a_library_of_another_version(monkeypatch: pytest.MonkeyPatch, copy: Path) -> None:
    sentence = f"it has interface {library._INTERFACE} instead of 99"
    monkeypatch.setattr(library, "_INTERFACE", 99)
    assert sentence in complaint(copy)


def test_a_library_of_something_else() -> None:
    assert "does not tell its version" in complaint(Path(_ctypes.__file__))


@pytest.mark.usefixtures("forgotten")
def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_SUFFIX", "elsewhere")
    with pytest.raises(QcError, match=r"libqc_runtime.elsewhere\) is missing; install qc again"):
        open_session(quantizer())


def test_an_older_onnx_runtime() -> None:
    sentence = "qc needs ONNX Runtime 1.18 or newer but this is 1.2; upgrade it with: pip install"
    assert explain_load(f"[ONNXRuntimeError] : 1 : FAIL : {sentence}") == sentence


def test_a_model_that_is_newer_than_onnx_runtime() -> None:
    newer = quantizer()
    newer.ir_version = 99
    with pytest.raises(QcError, match=r"the model has version 99 of .*: save it with ir_version = \d+, or"):
        open_session(newer)


def quantizer(**attributes: Any) -> Any:
    node = helper.make_node("FakeQuantize", ["x", "s", "z", "l"], ["y"], "q", domain="qc", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, ["k"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [
            helper.make_tensor("s", TensorProto.FLOAT, [1], [0.5]),
            helper.make_tensor("z", TensorProto.INT32, [1], [0]),
            helper.make_tensor("l", TensorProto.INT32, [2], [-128, 127]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("qc", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return open_session(quantizer())


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        ({"x": X.astype(np.float64)}, DataError, "input 'x' has dtype float64, the model takes float32"),
        ({"x": np.zeros((2, 4), np.float32)}, DataError, r"input 'x' has size 4 on axis 1.*float32 \(n, 3\)"),
        ({"x": np.zeros(3, np.float32)}, DataError, r"input 'x' has rank 1, shape \(3,\)"),
        ({}, DataError, "no array for the input 'x'"),
        ({"x": X, "s": np.ones(1)}, DataError, "input 's' has dtype float64, the model takes float32"),
        ({"x": X, "y": X}, DataError, "the model has no input 'y'"),
        ({"x": "zero"}, DataError, "input 'x' must be a numpy array, got a 'str'"),
        ({"x": X, "s": np.array([-1], np.float32)}, ModelError, "node 'q': .*scale holds -1.0"),
        (
            {"x": X, "s": np.array([np.nan], np.float32)},
            ModelError,
            "every scale must be finite and above zero",
        ),
        (
            {"x": X, "s": np.array([np.inf], np.float32)},
            ModelError,
            "every scale must be finite and above zero",
        ),
        ({"x": X, "s": np.ones(2, np.float32)}, ModelError, r"scale has shape \(2,\) but zero_point has"),
    ],
)
def test_a_feed_that_does_not_fit(
    session: onnxruntime.InferenceSession, feed: Any, error: type[QcError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        run_session(session, feed)
    assert "\n" not in str(caught.value)
    assert run_session(session, {"x": X})[0].shape == (2, 3)  # and the session goes on


def test_scale_zero_is_off(session: onnxruntime.InferenceSession) -> None:
    x = np.array([[0.1, np.nan, np.inf]], np.float32)
    off = run_session(session, {"x": x, "s": np.zeros(1, np.float32)})[0]
    np.testing.assert_array_equal(off, x)


def test_an_output_that_is_not_there(session: onnxruntime.InferenceSession) -> None:
    with pytest.raises(ModelError, match="the model has no output 'elsewhere'"):
        run_session(session, {"x": X}, ["elsewhere"])


def test_channels_that_do_not_fit() -> None:
    with pytest.raises(ModelError, match=r"node 'q': .*axis 1 of a tensor of shape \(2, 3\) needs \(3,\)"):
        run_session(open_session(quantizer(granularity="channel", axis=1)), {"x": X})


def test_results_of_a_kernel_go_where_they_fit() -> None:
    encoding = Encoding(QuantSpec.of("int8"), np.asarray(0.5), np.asarray(0))
    x = np.linspace(-9, 9, 12, dtype=np.float32).reshape(3, 4)
    expected = kernels.fake_quantize(x, encoding)
    out = np.empty_like(x)
    assert kernels.fake_quantize(x, encoding, out=out) is out
    np.testing.assert_array_equal(out, expected)
    for wrong in (np.empty(12, np.float32), np.empty((3, 4)), np.empty((4, 3), np.float32).T):
        with pytest.raises(UsageError, match="out must be a contiguous, writable float32 array"):
            kernels.fake_quantize(x, encoding, out=wrong)
    memory = np.zeros(13, np.float32)
    with pytest.raises(UsageError, match="not overlap"):
        kernels.fake_quantize(memory[:12], encoding, out=memory[1:])
    assert kernels.fake_quantize(x, encoding, out=x) is x
    np.testing.assert_array_equal(x, expected)


# Memory that was never written to is not there yet, so that reading it takes none.
@pytest.mark.parametrize("axis", [None, 1])
def test_more_elements_than_a_32_bit_number_counts(axis: int | None) -> None:
    elements = (1 << 32) + 70_001
    x = np.zeros((elements, 1), np.float16)
    x[0], x[-1], x[-2] = -3.5, 7.75, np.nan
    seen = kernels.observe(x, axis=axis)
    assert (float(seen.minimum.min()), float(seen.maximum.max())) == (-3.5, 7.75)
    assert (seen.count, seen.nonfinite) == (elements - 1, 1)


def test_a_grid_of_channels_for_another_axis() -> None:
    encoding = Encoding(QuantSpec.of("int8", granularity=PerChannel(1)), np.ones(2), np.zeros(2))
    with pytest.raises(UsageError, match=r"axis 1 of a tensor of shape \(2, 3\) needs \(3,\)"):
        kernels.fake_quantize(X, encoding)


def test_lengths_that_do_not_fit_a_branch_ask_for_the_input_that_chooses() -> None:
    words = (
        "Node (If_0) Op (If) [TypeInferenceError] Graph attribute inferencing failed: Node (rnn/LSTM) "
        "Op (LSTM) [ShapeInferenceError] First input tensor must have rank 3"
    )
    said = explain_load(f"[ONNXRuntimeError] : 1 : FAIL : {words}")
    assert said.startswith(
        "the shapes of the inputs do not fit a branch of node 'If_0', where the LSTM 'rnn/LSTM' fails: "
    )
    assert (
        "First input tensor must have rank 3; if an input chooses the branch" in said
        and "--fix-input" in said
    )
