"""Rockchip's compiler: its log, its process on a stand-in, and the toolkit itself where it is installed."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest
from support.models import parse

from qc.ir.errors import ModelError, UsageError
from qc.runtime.devices import process
from qc.runtime.devices.rknn import Rknn, RknnModel
from qc.runtime.devices.rknn_log import CompiledLayer, executed_ops, read_log
from qc.runtime.protos.wiring import all_nodes

# What it said of a network, cut to what matters: #2# is merged into #1#, and of #3# there is no layer.
LOG = """
W build: The default input dtype of 'x' is changed from 'float32' to 'int8' in rknn model
D RKNN: [00:39:28.324] ID  OpType  DataType  Target  InputShape  OutputShape  FullName
D RKNN: [00:39:28.324] 0  InputOperator  INT8  NPU  \\  (1,1,8,8)  0/0/0  0  InputOperator:x
D RKNN: [00:39:28.324] 1  ConvRelu  INT8  NPU  (1,1,8,8),(16,1,3,3)  (1,16,8,8)  155/576  2  Conv:#1#
D RKNN: [00:39:28.324] 2  exDataConvert  INT8  NPU  (1,16,8,8)  (1,16,8,8)  0/0/0  0  exDataConvert:#4#_c
D RKNN: [00:39:28.324] 3  exMatMul  FLOAT16  NPU  (4,16,1,16)  (4,16,1,16)  130/256  2  exMatMul:#4##1
D RKNN: [00:39:28.324] 4  Softmax  FLOAT16  CPU  (1,16)  (1,16)  0/0/0  0  Softmax:#5#
D RKNN: [00:39:28.324] 1  ConvRelu  x  INT8  NC1HWC2  (1,1,8,8)  |  0x00000000  0x00000080
No lowering found for: #6#, node type = Det, use CustomOperatorLower instead.
"""
NETWORK = """g (float[1, 8] x) => (float[1, 8] y) {
    c = Constant<value = float {1}>()
    a = Conv(x, x)
    r = Relu(a)
    s = Sin(r)
    m = MatMul(s, r)
    t = Softmax(m)
    y = Det(t)
}"""
TOOLKIT = """
import os
import time

class RKNN:
    def __init__(self, verbose):
        pass

    def config(self, target_platform, level=0):
        if target_platform == "unheard":
            raise ValueError("Traceback (most recent call last):\\nValueError: Invalid target_platform!")
        self.level = level
        return 0

    def load_onnx(self, model):
        assert os.path.isfile(model)
        return -1 if self.level == 1 else 0

    def build(self, do_quantization):
        if self.level == 2:
            os.abort()
        if self.level == 4:
            time.sleep(60)
        print("D RKNN: [0] 1 Relu INT8 NPU (1,8) (1,8) 0/0/0 1 Relu:#0#")
        return 0

    def export_rknn(self, path):
        with open(path, "wb") as file:
            file.write(b"RKNN")
        return 0

    def init_runtime(self):
        return 0

    def inference(self, inputs, data_format):
        assert data_format == ["nchw"]
        if self.level == 3:
            return None
        return [inputs[0] * 2]
"""
RELU = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }")
FEED = {"x": np.arange(8, dtype=np.float32)[None]}


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the toolkit, in the process that is made for it."""
    (tmp_path / "rknn").mkdir()
    (tmp_path / "rknn" / "api.py").write_text(TOOLKIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_layers_are_read_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    log = read_log(tmp_path / "log")
    assert [layer for layer in log.layers if layer.places] == [
        CompiledLayer("ConvRelu", "INT8", "NPU", (1,)),
        CompiledLayer("exDataConvert", "INT8", "NPU", (4,)),
        CompiledLayer("exMatMul", "FLOAT16", "NPU", (4,)),
        CompiledLayer("Softmax", "FLOAT16", "CPU", (5,)),
    ]
    assert log.missing == {6: "Rockchip's compiler has no Det"}
    assert not read_log(tmp_path / "missing").layers


def test_ops_are_found_in_the_layers_that_they_are_merged_into(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    nodes = list(all_nodes(parse(NETWORK).graph))
    found = {op.node.op_type: op for op in executed_ops(nodes, read_log(tmp_path / "log"))}
    assert {type: (op.kernel, op.integer, op.place) for type, op in found.items()} == {
        "Conv": ("ConvRelu INT8", True, ""),
        "Relu": ("ConvRelu INT8", True, ""),
        "Sin": ("", None, ""),
        "MatMul": ("exMatMul FLOAT16", False, ""),
        "Softmax": ("Softmax FLOAT16", False, "CPU"),
        "Det": ("", False, "CPU"),
    }
    assert found["Softmax"].reason == "Rockchip's compiler leaves it to the CPU, as Softmax FLOAT16"
    assert found["Det"].reason == "Rockchip's compiler has no Det"


def test_a_model_is_opened_and_run_in_a_process(toolkit: None) -> None:
    device = Rknn({})
    opened = device.open(RELU)
    assert np.array_equal(opened.run(FEED)["y"], FEED["x"] * 2)
    assert np.array_equal(opened.run(FEED)["y"], FEED["x"] * 2)
    (op,) = device.execution(RELU).ops
    assert op.integer and op.kernel == "Relu INT8"


def test_nothing_is_left_of_where_the_toolkit_works(
    toolkit: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    opened = Rknn({}).open(RELU)
    assert list(scratch.iterdir())
    del opened
    gc.collect()
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"target_platform": "unheard"},
            UsageError,
            "a device option of rknn is not valid.*Invalid target_platform",
        ),
        ({"speed": "1"}, UsageError, "a device option of rknn is not valid.*speed"),
        ({"level": "1"}, ModelError, "Rockchip's compiler gives the model up: load_onnx failed with code -1"),
        (
            {"level": "2"},
            ModelError,
            "Rockchip's compiler or simulator ended its process with SIGABRT while it opened",
        ),
    ],
)
def test_what_the_toolkit_refuses_is_one_sentence(
    toolkit: None, options: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Rknn(options).open(RELU)


def test_the_model_for_the_device_can_be_had(toolkit: None) -> None:
    assert Rknn({}).emit("rknn", RELU) == b"RKNN"


def test_a_compiler_that_comes_to_no_end_is_ended(toolkit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rknn, "seconds", 0.1)
    with pytest.raises(
        ModelError, match="was ended, as it opened the model for longer than its size asks for"
    ):
        Rknn({"level": "4"}).open(RELU)


def test_a_toolkit_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rknn").mkdir()
    (tmp_path / "rknn" / "api.py").write_text("raise ImportError('libGL.so.1')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"^rknn-toolkit2 cannot be loaded: libGL\.so\.1"):
        Rknn({}).execution(RELU)


def test_an_interrupted_run_leaves_no_answer_to_the_next(
    toolkit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Rknn({}).open(RELU)

    def interrupted(stream: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(process.pickle, "load", interrupted)
        opened.run(FEED)
    with pytest.raises(ModelError, match="ended its process with SIGKILL while it ran the model"):
        opened.run(FEED)


@pytest.mark.parametrize(
    ("layer", "op_type", "held"),
    [
        ("ConvExHardSwish", "HardSwish", True),
        ("ConvAddRelu", "Relu", True),
        ("ConvPRelu", "Relu", False),
        ("exMatMul", "Mul", False),
        ("MaxPool", "Max", False),
        ("ConvLeakyRelu", "LeakyRelu", True),
    ],
)
def test_words_of_a_layer_tell_what_was_merged(layer: str, op_type: str, held: bool) -> None:
    assert CompiledLayer(layer, "INT8", "NPU", ()).holds(op_type) == held


def test_a_run_without_a_result_is_an_error(toolkit: None) -> None:
    opened = Rknn({"level": "3"}).open(RELU)
    with pytest.raises(ModelError, match="simulator failed to run the model, and does not say why"):
        opened.run(FEED)


def test_a_check_keeps_what_the_compiler_gives_up(toolkit: None) -> None:
    execution = Rknn({"level": "1"}).execution(RELU)
    assert "gives the model up" in execution.failure
    assert [op.integer for op in execution.ops] == [None]


def test_free_dimensions_are_refused_with_the_option_that_fixes_them() -> None:
    model = parse("g (float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match=r"'x\[0\]' is 'N'; compile the model with --fix-shape N=1"):
        RknnModel(model, None, {})
