"""``qc bisect`` names the action or the quantizer at fault."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from support.pipelines import run_model

from qc.ir.errors import DemandError
from qc.search import Compilation, OracleVerdict, Outcome, bisect, parse_oracle
from qc.search.oracle import Oracle

MODEL, DATA = "model.onnx", "calibration.npz"
USAGE, BAD_MODEL, DEMAND = 2, 3, 5
MISWIRED = "renew-relu{victim=relu_37}"
PREPARE = "fold-batch-norms,match-supergroups,insert-quantizers,annotate-per-channel,tie-quantizers,calibrate"


def compared_in_process(candidate: str) -> list[str]:
    """A script that ends with 1 if the model at its argument is not what ``chain.onnx`` is."""
    Path("judge.py").write_text(
        "import sys, numpy as np, onnxruntime as ort\n"
        "x = np.random.default_rng(1).normal(size=(2, 4)).astype('float32')\n"
        "outputs = [ort.InferenceSession(p, providers=['CPUExecutionProvider']).run(None, {'x': x})[0]\n"
        "           for p in ('chain.onnx', sys.argv[1])]\n"
        "sys.exit(not np.allclose(*outputs))\n"
    )
    return [shlex.quote(sys.executable), "judge.py", candidate]


@pytest.mark.usefixtures("planted", "chain")
def test_a_miswired_rewrite_by_a_condition(qc) -> None:
    result = qc(
        "bisect", "chain.onnx", "--passes", MISWIRED, "--random-data", "4", "--oracle", "max_error > 1e-3"
    )
    assert result.code == 0
    assert "first bad  action 37 of 40" in result.out
    assert "rewrite Relu 'relu_37'" in result.out and "renew-relu" in result.out
    probes = [line for line in result.err.splitlines() if line.startswith("limit ")]
    assert probes[0].startswith("limit 40 of 40: bad, ") and probes[1] == "limit 0 of 40: good, 0"
    assert len(probes) <= 8


@pytest.mark.usefixtures("planted", "chain")
@pytest.mark.parametrize("oracle", ["max-error > 1e-3", "max-error(r_40)>0.001", "top-1 < 0.999"])
def test_conditions_are_spelled_as_metrics_are_and_reach_no_shell(qc, oracle: str) -> None:
    result = qc(
        "bisect", "chain.onnx", "--passes", MISWIRED, "--random-data", "64", "--oracle", oracle, "--quiet"
    )
    assert (result.code, result.made) == (0, [])
    assert "first bad  action 37 of 40" in result.out
    for text in ("max-errors > 0.1", "max error > 0.1", "30 > sqnr"):
        result = qc("bisect", "chain.onnx", "--passes", MISWIRED, "--oracle", text)
        assert (result.code, result.made) == (USAGE, []), result.err


USER = """
def accuracy(outputs, feed, label):
    return (outputs["r_40"].argmax(axis=-1) == label).mean()

class Largest:
    def __init__(self):
        self.seen = []

    def update(self, outputs):
        self.seen.append(outputs["r_40"].max())

    def compute(self):
        return max(self.seen)
"""


@pytest.fixture
def user(chain: ModelProto) -> None:
    """``x.npy`` with 16 samples, ``labels.npy`` with what the model says of each, and ``user.py``."""
    x = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)
    np.save("x.npy", x)
    np.save("labels.npy", np.array([run_model(chain, {"x": row[None]})["r_40"].argmax() for row in x]))
    Path("user.py").write_text(USER)


@pytest.mark.usefixtures("planted", "user")
def test_metrics_of_the_user_and_labels_are_oracles(qc) -> None:
    common = ("chain.onnx", "--passes", MISWIRED, "--data", "x.npy", "--quiet")
    labels = ("--labels", "labels.npy")
    found = qc("bisect", *common, *labels, "--oracle", "user.py:accuracy < 1", "--json", "found.json")
    assert (found.code, found.made) == (0, ["found.json"]), found.err
    assert "first bad  action 37 of 40" in found.out
    probes = json.loads(Path("found.json").read_text())["probes"]
    assert probes[0]["value"] < 1 and probes[1]["value"] == 1
    largest = qc("bisect", *common, "--oracle", "user.py:Largest > -1")
    assert (largest.code, largest.made) == (DEMAND, [])
    assert "the result without any action is not good by 'user.py:Largest > -1'" in largest.err
    small = qc("reduce", *common, *labels, "--interesting", "user.py:accuracy < 1", "-o", "small.onnx")
    assert (small.code, small.made) == (0, ["small.onnx"]), small.err


@pytest.mark.usefixtures("planted", "user")
@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["--oracle", "user.py:accuracy < 1"], USAGE, "takes a label, and there are none"),
        (["--oracle", "sqnr < 1", "--labels", "labels.npy"], USAGE, "'sqnr < 1' is none; it needs no labels"),
        (["--labels", "labels.npy"], USAGE, "'fails' is none; it needs no labels"),
        (["--oracle", "user.py:accuracy < 1", "--labels", "absent.npy"], 4, "'absent.npy' do not exist"),
        (["--oracle", "user.py:none < 1"], USAGE, "'user.py' has no function 'none'"),
        (["--oracle", "user.py:Largest < 1", "--json", "user.py"], USAGE, "is the Python file of the metric"),
    ],
)
def test_careless_metrics_of_the_user(qc, arguments: list[str], code: int, fault: str) -> None:
    result = qc("bisect", "chain.onnx", "--passes", MISWIRED, "--data", "x.npy", *arguments)
    assert (result.code, result.made) == (code, [])
    assert fault in result.err


@pytest.mark.usefixtures("planted", "chain")
def test_a_miswired_rewrite_by_a_command(qc) -> None:
    command = " ".join(compared_in_process("{}"))
    result = qc("bisect", "chain.onnx", "--passes", MISWIRED, "--oracle", command, "--json", "found.json")
    assert (result.code, result.made) == (0, ["found.json"])
    found = json.loads(Path("found.json").read_text())
    assert [(s["number"], s["op"], s["kind"]) for s in found["suspects"]] == [(37, "relu_37", "rewrite")]
    assert found["probes"][1] == {"limit": 0, "verdict": "good", "grounds": "exit code 0", "value": None}


@pytest.mark.usefixtures("planted", "chain")
@pytest.mark.parametrize("fault", ["break", "crash"])
def test_a_defect_needs_no_oracle(qc, fault: str) -> None:
    result = qc("bisect", "chain.onnx", "--passes", f"renew-relu{{victim=relu_37 fault={fault}}}")
    assert result.code == 0
    assert "first bad  action 37 of" in result.out
    assert re.search(r"limit 36 of \d+: good, it compiles", result.err)


@pytest.mark.usefixtures("planted")
def test_a_bad_quantizer_is_named(qc) -> None:
    passes = f"{PREPARE},spoil-scale{{tensor=relu_3}},insert-qdq"
    arguments = ("bisect", MODEL, "--data", DATA, "--passes", passes, "--oracle", "sqnr(logits) < 30")
    result = qc(*arguments, "--json", "found.json")
    assert result.code == 0, result.err
    found = json.loads(Path("found.json").read_text())
    (suspect,) = found["suspects"]
    assert (suspect["pass"], suspect["tensor"], suspect["reason"]) == ("spoil-scale", "relu_3", "spoilt")
    assert found["quantizer"]["sites"] == ["'relu_3'"]
    assert found["quantizer"]["number"] == suspect["quantizer"]
    assert found["without"]["verdict"] == "good" and found["without"]["value"] > 30
    assert found["best_removal"] is None
    assert "at          'relu_3'" in result.out and "without it  good, " in result.out
    again = qc(*arguments, "--json", "again.json", "--quiet")
    assert (again.out, again.err) == (result.out, "")
    assert Path("again.json").read_text() == Path("found.json").read_text()


@pytest.mark.usefixtures("planted")
def test_a_worse_quantizer_behind_the_first_bad_one_is_named_too(qc) -> None:
    spoilt = "spoil-scale{tensor=relu_3 factor=8},spoil-scale{tensor=add_1 factor=20}"
    compilation = Compilation(MODEL, f"{PREPARE},{spoilt},insert-qdq", data=DATA, threads=1)
    finding = bisect(compilation, parse_oracle("sqnr < 32"))
    assert [remark.subject for remark in finding.suspects] == ["'relu_3'"]
    assert finding.without is not None and finding.without.is_bad
    assert finding.best_removal is not None
    assert finding.best_removal.quantizer.sites == ("'add_1'",)
    assert finding.removals > 20


def test_the_quantizer_that_helps_most_is_named_if_the_first_bad_one_is_no_cure(qc) -> None:
    result = qc("bisect", MODEL, "--data", DATA, "--oracle", "sqnr < 40", "--json", "found.json")
    assert result.code == 0
    found = json.loads(Path("found.json").read_text())
    assert found["without"]["verdict"] == "bad"
    assert found["best_removal"]["value"] >= found["without"]["value"]
    assert found["removals"] > 20
    assert f"tried       {found['removals']} quantizers" in result.out


@pytest.mark.usefixtures("chain")
@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["--oracle", "sqnr < 5", "--data", DATA], DEMAND, "is not bad by 'sqnr < 5' (good, "),
        (["--oracle", "sqnr < 5", "--data", DATA], DEMAND, "say what is bad, such as 'sqnr < 1"),
        (["--oracle", "sqnr > 5", "--data", DATA], DEMAND, "without any action is not good by 'sqnr > 5'"),
        (["--data", DATA], DEMAND, "the whole result is not bad by 'fails' (good, it compiles)"),
        (["--oracle", "sqnr < 5"], USAGE, "the oracle 'sqnr < 5' compares on data; give it with --data"),
        (["--oracle", "sqnr(logit) < 5", "--data", DATA], USAGE, "(did you mean 'logits'?)"),
        (["--oracle", "sqrn < 5", "--data", DATA], USAGE, "(did you mean 'sqnr'?)"),
        (["--oracle", "", "--data", DATA], USAGE, "the oracle is empty"),
        (["--oracle", "no-such-tool", "--data", DATA], USAGE, "'no-such-tool' cannot be run"),
        (["--oracle", "true", "--data", DATA], DEMAND, "is not bad by 'true' (good, exit code 0)"),
        (["--oracle", "false", "--data", DATA], DEMAND, "without any action is not good by 'false'"),
        (["--oracle", "exit 125;", "--data", DATA], DEMAND, "(cannot tell, exit code 125)"),
        (["--data", DATA, "--json", MODEL], USAGE, "is the input model"),
        (["--oracle", "sqnr < 5", "--data", "absent.npz"], 4, "'absent.npz'"),
    ],
)
def test_nothing_to_find(qc, arguments: list[str], code: int, fault: str) -> None:
    result = qc("bisect", MODEL, "--passes", "fold-batch-norms", *arguments)
    assert result.code == code
    assert fault in result.err.splitlines()[-1]
    assert result.made == []


def test_without_any_action_none_is_to_blame(qc) -> None:
    result = qc("bisect", MODEL, "--passes", "", "--oracle", "false")
    assert result.code == DEMAND
    assert "the result is bad, exit code 1, but there is no action" in result.err


class Scripted(Oracle):
    """Judges by the number of actions that happened."""

    def __init__(self, good: int, unknown: range) -> None:
        self.good, self.unknown = good, unknown

    def judge(self, compiled, compilation, data):
        count = compiled.ir.action_count
        if count in self.unknown:
            return OracleVerdict(Outcome.SKIP, "scripted")
        return OracleVerdict(Outcome.GOOD if count <= self.good else Outcome.BAD, "scripted")


@pytest.mark.usefixtures("planted", "chain")
@pytest.mark.parametrize("good", [0, 1, 17, 38, 39])
def test_every_action_can_be_found(good: int) -> None:
    finding = bisect(Compilation("chain.onnx", "renew-relu"), Scripted(good, range(0)))
    assert [remark.number for remark in finding.suspects] == [good + 1]
    assert finding.quantizer is None and finding.actions == 40


@pytest.mark.usefixtures("planted", "chain")
def test_actions_that_cannot_be_told_apart_are_all_named(qc) -> None:
    finding = bisect(Compilation("chain.onnx", "renew-relu"), Scripted(17, range(15, 23)))
    assert [remark.number for remark in finding.suspects] == list(range(15, 24))
    command = "test $(od -c {} | wc -l) -gt 0 && exit 125"
    with pytest.raises(DemandError, match="cannot tell"):
        bisect(Compilation("chain.onnx", "renew-relu"), parse_oracle(command))


@pytest.mark.usefixtures("chain")
def test_the_whole_process(qc, planted: str) -> None:
    np.save("x.npy", np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32))
    command = [sys.executable, "-m", "qc", "bisect", "chain.onnx", "--passes", MISWIRED]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([planted, os.environ.get("PYTHONPATH", "")])}
    done = [
        subprocess.run(
            [*command, "--data", "x.npy", "--oracle", "sqnr < 60"],
            capture_output=True,
            text=True,
            env={**environment, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    assert done[0].returncode == 0, done[0].stderr
    assert "action 37 of 40" in done[0].stdout
    assert (done[0].stdout, done[0].stderr) == (done[1].stdout, done[1].stderr)
