"""The positions in runtime/csrc/ort_abi.h against the installed ONNX Runtime.

Entries that need no running kernel are called here by their position; the others are called by the
operators themselves in test_custom_ops.py and test_observe_op.py.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.folders import ROOT

from qc.runtime.native.library import library_path

SOURCES = ROOT / "runtime" / "csrc"
HEADER = (SOURCES / "ort_abi.h").read_text()
POSITION = {name: int(place) for name, place in re.findall(r"QC_ORT_POSITION\((\w+), (\d+)\)", HEADER)}
API_VERSION = int(re.findall(r"kApiVersion = (\d+)", HEADER)[0])
FAIL, INVALID_ARGUMENT = 1, 2

GetApi = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
GetVersionString = ctypes.CFUNCTYPE(ctypes.c_void_p)


class ApiBase(ctypes.Structure):
    _fields_ = (("get_api", GetApi), ("get_version_string", GetVersionString))


@pytest.fixture(scope="module")
def base() -> ApiBase:
    folder = Path(onnxruntime.__file__).parent / "capi"
    libraries = sorted(folder.glob("libonnxruntime.so*")) + sorted(folder.glob("libonnxruntime*.dylib"))
    if not libraries:
        pytest.skip("this ONNX Runtime keeps its C interface inside its Python module")
    get_base = ctypes.CDLL(str(libraries[0])).OrtGetApiBase
    get_base.restype = ctypes.POINTER(ApiBase)
    result: ApiBase = get_base().contents
    return result


def entry(table: int, position: int, result: Any, *arguments: Any) -> Any:
    """The function at a position of an API table."""
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[position]
    assert address is not None
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def described(table: int, status: int) -> tuple[int, str]:
    """Code and message of a status, which is released."""
    code = entry(table, 1, ctypes.c_int, ctypes.c_void_p)(status)
    message = entry(table, POSITION["GetErrorMessage"], ctypes.c_char_p, ctypes.c_void_p)(status)
    text = message.decode()
    entry(table, POSITION["ReleaseStatus"], None, ctypes.c_void_p)(status)
    return code, text


def test_the_version_is_offered(base: ApiBase) -> None:
    assert ctypes.string_at(base.get_version_string()).decode() == onnxruntime.__version__
    assert base.get_api(API_VERSION)


def test_statuses_keep_code_and_message(base: ApiBase) -> None:
    table = base.get_api(API_VERSION)
    create = entry(table, POSITION["CreateStatus"], ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    status = create(INVALID_ARGUMENT, b"a clear sentence")
    assert described(table, status) == (INVALID_ARGUMENT, "a clear sentence")


def test_domains_can_be_created_and_released(base: ApiBase) -> None:
    table, domain = base.get_api(API_VERSION), ctypes.c_void_p()
    create = entry(table, POSITION["CreateCustomOpDomain"], ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    assert create(b"test", ctypes.byref(domain)) is None
    assert domain.value
    entry(table, 101, None, ctypes.c_void_p)(domain)


def test_operators_are_registered_with_any_number_of_sessions(base: ApiBase) -> None:
    table = base.get_api(API_VERSION)
    register = ctypes.CDLL(str(library_path())).RegisterCustomOps
    register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ApiBase)]
    for _ in range(3):
        options = ctypes.c_void_p()
        assert entry(table, 10, ctypes.c_void_p, ctypes.c_void_p)(ctypes.byref(options)) is None
        assert register(options, ctypes.byref(base)) is None
        entry(table, 100, None, ctypes.c_void_p)(options)


def test_an_older_runtime_is_refused_in_one_sentence(base: ApiBase) -> None:
    def old_api(version: int) -> int | None:
        return base.get_api(version) if version < API_VERSION else None

    version = ctypes.create_string_buffer(b"1.2.3")
    old = ApiBase(GetApi(old_api), GetVersionString(lambda: ctypes.addressof(version)))
    register = ctypes.CDLL(str(library_path())).RegisterCustomOps
    register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ApiBase)]
    code, message = described(base.get_api(1), register(None, ctypes.byref(old)))
    assert code == FAIL
    assert message == (
        "qc needs ONNX Runtime 1.18 or newer but this is 1.2.3; "
        "upgrade it with: pip install --upgrade onnxruntime"
    )


@pytest.mark.parametrize(
    ("shape", "inferred"),
    [
        ([2, 3], [2, 3]),
        (["batch", 3], ["batch", 3]),
        ([None, 3], ["qc.unknown.", 3]),  # a dimension has to have a number or a name
        (None, None),  # ONNX Runtime does not tell an unknown rank from a scalar
    ],
)
def test_the_shape_of_a_quantized_tensor_is_inferred(shape: Any, inferred: Any) -> None:
    node = helper.make_node("FakeQuantize", ["x", "s", "z", "l"], ["y"], domain="qc")
    last = helper.make_node("Identity", ["y"], ["out"])
    graph = helper.make_graph(
        [node, last],
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("s", TensorProto.FLOAT, [], [1.0]),
            helper.make_tensor("z", TensorProto.INT32, [], [0]),
            helper.make_tensor("l", TensorProto.INT32, [2], [-128, 127]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("qc", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library_path()))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = [
        one.rstrip("0123456789") if isinstance(one, str) else one for one in session.get_outputs()[0].shape
    ]
    assert (found or None) == inferred


@pytest.mark.skipif(
    "QC_ORT_INCLUDE_DIR" not in os.environ or not shutil.which("c++"),
    reason="set QC_ORT_INCLUDE_DIR to a folder with the official onnxruntime_c_api.h",
)
def test_the_official_header_agrees() -> None:
    compiler = [
        "c++",
        "-std=c++17",
        "-fsyntax-only",
        "-DQC_OFFICIAL_ORT_HEADERS",
        f"-I{os.environ['QC_ORT_INCLUDE_DIR']}",
        str(SOURCES / "custom_ops.cpp"),
        str(SOURCES / "requantize_ops.cpp"),
    ]
    done = subprocess.run(compiler, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
