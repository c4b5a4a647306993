"""The plugin in ``examples/plugin``, installed as a user would install it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support.folders import ROOT
from support.models import parse

MODEL = """g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w1, float[4, 4] w2> {
    two = Constant<value_float = 2.0>()
    a = MatMul(x, w1)
    r = Relu(a)
    s = Mul(r, r)
    b = MatMul(s, w2)
    y = Pow(b, two)
}"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed plugin in ``site`` and a model."""
    folder = tmp_path_factory.mktemp("plugin")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [sys.executable, *install, "--target", str(folder / "site"), str(ROOT / "examples/plugin")],
        check=True,
        cwd=folder,
    )
    onnx.save(parse(MODEL), str(folder / "model.onnx"))
    return folder


def qc(place: Path, *arguments: str) -> str:
    """What a command prints on both streams."""
    run = subprocess.run(
        [sys.executable, "-m", "qc", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place / "site"), "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout


def test_it_is_short() -> None:
    files = (ROOT / "examples/plugin").rglob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) < 60


def test_its_pass_is_listed_and_explained(place: Path) -> None:
    assert "square-as-mul" in qc(place, "list-passes")
    assert "names of ops to leave alone" in qc(place, "help", "square-as-mul")


def test_its_pass_runs(place: Path) -> None:
    qc(place, "model.onnx", "--passes", "fold-constants,square-as-mul", "-o", "squared.onnx")
    made = onnx.load(str(place / "squared.onnx"))
    assert [node.op_type for node in made.graph.node] == ["MatMul", "Relu", "Mul", "MatMul", "Mul"]
    assert made.graph.node[-1].output[0] == "y"


def test_its_metric_is_one_of_evaluations_and_of_oracles(place: Path) -> None:
    job = ("model.onnx", "--random-data", "4")
    told = qc(place, "eval", *job, "--metric", "same_sign", "--latency-seconds", "0")
    assert re.search(r"^same_sign +1 ", told, re.MULTILINE)
    qc(place, "reduce", *job, "--passes", "fold-constants", "--interesting", "same-sign > 0.5")
    assert len(onnx.load(str(place / "model.reduced.onnx")).graph.node) == 1


def test_its_supergroup_and_target_are_used(place: Path) -> None:
    assert "example-npu" in qc(place, "list-targets")
    assert "squared_relu" in qc(place, "inspect", "model.onnx")
    job = ("model.onnx", "--random-data", "4", "--target", "example-npu", "-o", "q.onnx", "--remarks=squared")
    told = qc(place, *job)
    assert "match Mul of 's': squared_relu [example-npu.toml, line 21]" in told
    assert "place q4 's': made by squared_relu at Mul of 's'" in told
