"""The options that name a device: what they run, and what is refused before any work."""

from __future__ import annotations

import importlib.metadata
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from support.models import parse, random_feeds

import qc as package
from qc.ir.base.underway import share, told, underway
from qc.named_pipelines import resolve_pipeline
from qc.passes import dumps
from qc.passes.framework.made_for import target_in
from qc.runtime import OpenModel
from qc.runtime.devices.known import DEVICES, open_device, version_of

DATA = ("--data", "calibration.npz")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no package of a device were installed."""
    found = importlib.metadata.version

    def version(name: str) -> str:
        if name in {device.package for device in DEVICES.values()}:
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("eval", "model.onnx", *DATA, "--on", "openvino"), "pip install 'qc-onnx[openvino]'"),
        (("bench", "model.onnx", "--on", "qnn-htp"), "pip install 'qc-onnx[qnn]'"),
        (("bench", "model.onnx", "--on", "tensorrt"), "pip install 'qc-onnx[tensorrt]'"),
        (("eval", "model.onnx", *DATA, "--on", "qnn"), "unknown device 'qnn' (did you mean 'qnn-htp'?)"),
        (("eval", "model.onnx", *DATA, "--device-option", "a=1"), "name it with --on"),
        (("eval", "model.onnx", *DATA, "--on", "ort-cpu", "--device-option", "a"), "of the form KEY=VALUE"),
        (("model.onnx", *DATA, "--emit", "qnn-context"), "is of the target qnn-htp, and this one is ort-cpu"),
        (("model.onnx", *DATA, "--device-option", "a=1"), "such as --emit qnn-context"),
        (
            ("model.onnx", *DATA, "--target", "qnn-htp", "--emit", "qnn-context"),
            "pip install 'qc-onnx[qnn]'",
        ),
        (("model.onnx", *DATA, "--fix-shape", "Q=1"), "fix-shapes names 'Q', which no input has"),
        (("model.onnx", *DATA, "--fix-shape", "N"), "of the form NAME=N"),
    ],
)
def test_what_is_refused(qc, arguments: tuple[str, ...], said: str) -> None:
    result = qc(*arguments)
    assert (result.code, result.made) == (2, [])
    assert said in " ".join(result.err.split())


@pytest.mark.usefixtures("without")
def test_a_check_without_the_runtime_says_that_only_rules_were_checked(qc) -> None:
    qc("model.onnx", *DATA, "-q", "--target", "openvino")
    result = qc("check", "model.q.onnx", "--target", "openvino", "--json", "check.json")
    assert result.code == 0 and "pip install 'qc-onnx[openvino]'" in " ".join(result.out.split())
    document = json.loads(Path("check.json").read_text())
    assert not document["executed"] and "its rules, checked on the graph" in document["where"]


@pytest.mark.parametrize("command", ["eval", "bench", "auto"])
@pytest.mark.parametrize(
    ("target", "notes"), [("ort-cpu-avx2", 0), ("qnn-htp", 1), ("npu", 1), ("mine.toml", 0), (None, 0)]
)
def test_a_device_of_another_target_is_told(qc, command: str, target: str | None, notes: int) -> None:
    Path("mine.toml").write_text('name = "mine"\nextends = "npu"\nsummary = "of mine"\n')
    asked = ("--target", target) if target is not None else ()
    quickly = {
        "eval": ("--latency-seconds", "0"),
        "bench": ("--seconds", "0.01"),
        "auto": ("--minutes", "0.01"),
    }
    result = qc(command, "model.onnx", *DATA, *quickly[command], *asked, "--on", "ort-cpu")
    said = f"note: the result is for {target}, and ort-cpu runs it: "
    assert result.err.count("and ort-cpu runs it") == notes, result.err
    assert (said in result.err and "which --target ort-cpu makes" in result.err) == bool(notes)


def test_the_device_is_one_more_column(qc) -> None:
    if version_of(DEVICES["openvino"]) is None:
        pytest.skip("openvino is not installed")
    qc("eval", "model.onnx", *DATA, "--on", "openvino", "--target", "openvino", "--json", "eval.json")
    names = [one["name"] for one in json.loads(Path("eval.json").read_text())["candidates"]]
    assert names == ["simulation", "integer", "openvino"]


def test_an_emulator_is_not_timed(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DEVICES["ort-cpu"], "emulated", True)
    asked = ("--on", "ort-cpu", "--latency-seconds", "0.01", "--json", "eval.json")
    result = qc("eval", "model.onnx", *DATA, *asked)
    assert result.code == 0 and "its time is not" in " ".join(result.err.split())
    candidates = json.loads(Path("eval.json").read_text())["candidates"]
    is_timed = {one["name"]: one["latency"] is not None for one in candidates}
    assert is_timed == {"simulation": True, "integer": True, "ort-cpu": False}


def test_a_model_for_another_target_is_told_as_such(qc) -> None:
    qc("model.onnx", *DATA, "-q", "--target", "tensorrt")
    result = qc("check", "model.q.onnx", "--target", "npu", "--json", "check.json")
    assert "the model was made for tensorrt, and was checked for npu" in " ".join(result.err.split())
    assert json.loads(Path("check.json").read_text())["made_for"] == "tensorrt"
    assert "was made for" not in qc("check", "model.q.onnx", "--target", "tensorrt").err


def test_a_model_is_checked_for_the_target_that_it_was_made_for(qc) -> None:
    qc("model.onnx", *DATA, "-q", "--target", "npu")
    result = qc("check", "model.q.onnx")
    assert (result.code, result.err) == (0, "") and "target   npu, which is not on this machine" in result.out
    assert package.check("model.q.onnx").target == "npu"
    mine = Path("mine.toml")
    mine.write_text('extends = "npu"\nname = "mine"\nsummary = "for tests"\n')
    qc("model.onnx", *DATA, "-q", "--target", str(mine))
    other = qc("check", "model.q.onnx")
    assert "the model was made for mine, and was checked for ort-cpu" in " ".join(other.err.split())


class Zeros:
    """A device that gives zeros, and counts what it opened."""

    name, title, provider, package, extra = "zeros", "Zeros", "ZerosExecutionProvider", "", ""
    fixed_shapes = emulated = False
    opened: ClassVar[list[dict[str, str]]] = []
    made_for: ClassVar[list[str]] = []

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> OpenModel:
        self.opened.append(self._options)
        self.made_for.append(target_in(model))
        zeros = ModelProto()
        zeros.CopyFrom(model)
        for node in zeros.graph.node:
            for place, name in enumerate(node.output):
                if name == zeros.graph.output[0].name:
                    node.output[place] = "before"
        zeros.graph.node.append(helper.make_node("Sub", ["before", "before"], [zeros.graph.output[0].name]))
        return OpenModel(zeros, base_dir=base_dir, threads=threads)


def test_a_search_judges_on_the_device(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEVICES, "zeros", Zeros)
    monkeypatch.setattr(Zeros, "opened", [])
    asked = ("auto", "model.onnx", *DATA, "--metric", "max-error", "--log", "log.jsonl", "--minutes", "0.01")
    result = qc(*asked, "--on", "zeros", "--device-option", "speed=1", "--max-drop", "0.5")
    scores = [json.loads(line)["score"] for line in Path("log.jsonl").read_text().splitlines()]
    assert result.code == 5 and min(scores) > 0.5
    assert len(Zeros.opened) >= len(scores)  # the time may end while one more is judged
    assert all(options == {"speed": "1"} for options in Zeros.opened)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "opnvino"), "unknown device 'opnvino' (did you mean 'openvino'?)"),
        (("--device-option", "a=1"), "name it with --on"),
        (("--on", "ort-cpu", "--objective", "latency"), "measured with ONNX Runtime, not on ort-cpu"),
    ],
)
def test_what_a_search_refuses(qc, arguments: tuple[str, ...], said: str) -> None:
    result = qc("auto", "model.onnx", *DATA, *arguments)
    assert (result.code, result.made) == (2, [])
    assert said in " ".join(result.err.split())


def test_a_device_is_compiled_for_unless_a_target_is_given(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEVICES, "qnn-htp", Zeros)

    def target_of(command: str, *arguments: str) -> str:
        monkeypatch.setattr(Zeros, "made_for", [])
        done = qc(command, "model.onnx", *DATA, "--on", "qnn-htp", *arguments)
        assert done.code == 0, done.err
        (target,) = set(Zeros.made_for)
        return target

    seconds = "--latency-seconds", "0"
    assert target_of("eval", *seconds) == "qnn-htp"
    assert target_of("eval", *seconds, "--target", "npu") == "npu"
    assert target_of("bench", "--seconds", "0.01") == "qnn-htp"
    assert target_of("auto", "--max-drop", "1000", "--metric", "max-error", "--minutes", "0.01") == "qnn-htp"


def test_a_pipeline_for_another_runtime_is_refused(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEVICES, "qnn-htp", Zeros)
    text = dumps(replace(resolve_pipeline("w8a8"), target="tensorrt"))
    Path("pipeline.toml").write_text(text)
    result = qc("eval", "model.onnx", *DATA, "--on", "qnn-htp", "--pipeline", "pipeline.toml")
    assert result.code == 2
    assert "is for target 'tensorrt', which qnn-htp does not run" in " ".join(result.err.split())


def test_cuda_is_missed_before_any_work(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    result = qc("auto", "model.onnx", *DATA, "--on", "ort-cuda")
    assert result.made == [] and result.err.count("CUDA cannot be used") == 1


def test_a_crash_is_told_of_the_runtime_that_it_is_of() -> None:
    share()
    with underway("opened the candidate 'openvino'"), underway("opened", outer=True, runtime="OpenVINO"):
        assert told() == ("OpenVINO", "opened the candidate 'openvino'")
    assert told() == ("", "")


def test_what_the_compiler_of_the_htp_makes_gives_the_same_and_is_not_compiled_again(qc) -> None:
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")
    result = qc(
        *("model.onnx", *DATA, "--target", "qnn-htp", "--fix-shape", "batch=2"),
        *("--emit", "qnn-context", "--device-option", "htp_arch=75", "-o", "m.onnx"),
    )
    assert result.code == 0 and "m.qnn-context.onnx" in result.err
    context = onnx.load("m.qnn-context.onnx")
    assert {node.op_type for node in context.graph.node} == {"EPContext"}
    device = open_device("qnn-htp", {"htp_arch": "75"})
    feed = random_feeds(onnx.load("m.onnx"), 1)[0]
    opened = [device.open(one).run(feed) for one in (onnx.load("m.onnx"), context)]
    for name, array in opened[0].items():
        assert np.array_equal(array, opened[1][name])


def test_the_graph_as_a_container_is_written_beside_the_result(qc) -> None:
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")
    result = qc(
        *(
            "model.onnx",
            *DATA,
            "--target",
            "qnn-htp",
            "--fix-shape",
            "batch=2",
            "--emit",
            "qnn-dlc",
            "-o",
            "m.onnx",
        )
    )
    assert result.code == 0 and "m.dlc" in result.err
    assert zipfile.is_zipfile("m.dlc")


def test_an_op_of_truth_values_that_the_htp_refuses_is_told() -> None:
    """It takes whole models, and this one is not opened for an op that computes on no float."""
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 4, 8] x, bool[2, 8] k) => (float[2, 4, 8] y, bool[2, 8] z) <float[8, 8] w> {
        y = MatMul(x, w)
        z = Trilu(k)
    }""")
    compiled = package.compile(model, "w8a8", data=random_feeds(model, 1), target="qnn-htp")
    assert {op.op_type: op.runs for op in package.check(compiled.model, "qnn-htp").ops} == {
        "MatMul": "integer",
        "Trilu": "refused",
    }
