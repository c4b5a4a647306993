"""Options that look into a compilation: printing, dumping, statistics, remarks and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MODEL, DATA = "model.onnx", "calibration.npz"
FLOAT = "fold-constants,fold-batch-norms"
COMPILE = (MODEL, "--data", DATA, "-o", "out.onnx")


def test_printing_before_and_after_a_pass(qc) -> None:
    result = qc(
        MODEL, "--passes", FLOAT, "--print-before", "fold-batch-norms", "--print-after", "fold-batch-norms"
    )
    assert result.code == 0
    before, after = result.err.split("// before fold-batch-norms\n")[1].split("// after fold-batch-norms\n")
    assert "BatchNormalization" in before and "BatchNormalization" not in after.split("\nmodel  ")[0]
    assert "// before fold-constants" not in result.err


def test_printing_what_changed(qc) -> None:
    result = qc(MODEL, "--passes", FLOAT, "--print-after", "changed", "--print-diff", "--quiet")
    assert "// after fold-constants" not in result.err and "// after fold-batch-norms" in result.err
    lines = result.err.split("--- before fold-batch-norms")[1].splitlines()
    assert any(line.startswith("-") and "BatchNormalization" in line for line in lines)
    assert qc(MODEL, "--passes", "fold-constants", "--print-diff", "--quiet").err == ""


def test_dumping_every_pass(qc) -> None:
    assert qc(MODEL, "--passes", FLOAT, "--dump-dir", "dump").code == 0
    files = sorted(path.name for path in Path("dump").iterdir())
    assert files == ["000-input.qcir", "001-fold-constants.qcir", "002-fold-batch-norms.qcir"]
    texts = [Path("dump", name).read_text() for name in files]
    assert texts[0] == texts[1] != texts[2]


def test_statistics_by_rule(qc) -> None:
    err = qc(*COMPILE, "--stats").err
    rows = [line.split() for line in err.splitlines()]
    assert ["fold-batch-norms", "rewrite", "fold", "into", "weight", "10"] in rows
    assert ["match-supergroups", "match", "conv_relu", "3"] in rows


def test_the_time_of_every_pass(qc) -> None:
    rows = [line.split() for line in qc(*COMPILE, "--time").err.splitlines()]
    assert ["pass", "seconds", "self", "verify", "share", "memory", "actions", "analyses"] in rows
    folding = next(row for row in rows if row and row[0] == "fold-batch-norms")
    assert folding[-4] == "10" and folding[-2] == "of"
    order = next(row for row in rows if row[:2] == ["topological", "order"])
    assert int(order[3]) > int(order[2])


@pytest.mark.usefixtures("planted", "chain")
def test_a_pass_that_changes_the_model_unseen(qc) -> None:
    passes = ("--passes", "eliminate-dead-code,rename-unseen,eliminate-dead-code")
    assert qc("chain.onnx", *passes, "--quiet").code == 0
    assert qc("chain.onnx", "--passes", "eliminate-dead-code", "--check-analyses", "--quiet").code == 0
    result = qc("chain.onnx", *passes, "--check-analyses", "--no-reproducer")
    assert result.code == 6
    words = "pass 'rename-unseen' changed the model unseen: the analysis 'tensors_by_name' of graph"
    assert words in " ".join(result.err.split())


def test_remarks(qc) -> None:
    everything = qc(*COMPILE, "--remarks").err
    assert "fold-batch-norms 1 rewrite Conv 'conv_1': fold into weight" in everything
    some = qc(*COMPILE, "--remarks=place.*'image'", "--quiet").err.splitlines()
    assert [line.split(" q")[0] for line in some if "place" in line] == ["insert-quantizers 19 place"]


def test_remarks_for_programs(qc) -> None:
    assert qc(*COMPILE, "--remarks-out", "remarks.jsonl").made == ["out.onnx", "remarks.jsonl"]
    remarks = [json.loads(line) for line in Path("remarks.jsonl").read_text().splitlines()]
    numbers = [remark["number"] for remark in remarks if "number" in remark]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {"rewrite", "match", "place", "respec", "tie", "calibrate", "skip"} == {r["kind"] for r in remarks}
    placed = next(remark for remark in remarks if remark["kind"] == "place")
    assert placed["tensor"] == "image" and placed["quantizer"] == 1 and placed["pass"] == "insert-quantizers"


def test_a_limit_on_the_actions(qc) -> None:
    result = qc(*COMPILE, "--bisect-limit", "5", "--allow-unquantized", "--stats")
    assert result.code == 0 and "stopped after action 5, as asked" in result.err
    assert ["fold-batch-norms", "rewrite", "fold", "into", "weight", "5"] in [
        line.split() for line in result.err.splitlines()
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--print-after", "fold-constant"), "--print-after: there is no pass 'fold-constant' (did you mean"),
        (("--print-before", "to-encodings"), "pass 'to-encodings' is not in the pipeline; its passes: in"),
        (("--print-before", "changed"), "--print-before: there is no pass 'changed'"),
        (("--remarks=(",), "--remarks: '(' is not a regular expression"),
        (("--dump-dir", MODEL), f"--dump-dir '{MODEL}' is not a folder"),
        (("--remarks-out", DATA), "is the calibration data"),
        (("--remarks-out", "out.onnx"), "'out.onnx' cannot be two results at once"),
        (("--bisect-limit", "-1"), "'-1' is not a number of at least 0"),
    ],
)
def test_wrong_options(qc, arguments: tuple[str, ...], sentence: str) -> None:
    result = qc(*COMPILE, *arguments)
    assert (result.code, result.made) == (2, []) and sentence in result.err
