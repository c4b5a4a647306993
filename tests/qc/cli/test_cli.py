"""The command line: what it makes, what it prints and where."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import ROOT

from qc.passes import registry
from qc.runtime import open_session, run_session

MODEL, DATA = "model.onnx", "calibration.npz"


def scores(model: str) -> np.ndarray:
    session = open_session(model, threads=1)
    with np.load(ROOT / "tests/fixtures/digits_test.npz") as test:
        return run_session(session, {"image": test["image"]})[0]


def op_types(model: str) -> set[str]:
    return {node.op_type for node in onnx.load(model).graph.node}


# -- compiling ------------------------------------------------------------------------------------------


def test_the_default_quantizes_to_a_file_named_after_the_model(qc) -> None:
    result = qc(MODEL, "--data", DATA)
    assert (result.code, result.out, result.made) == (0, "", ["model.q.onnx"])
    onnx.checker.check_model("model.q.onnx", full_check=True)
    assert {"QuantizeLinear", "DequantizeLinear"} <= op_types("model.q.onnx")
    agreement = scores("model.q.onnx").argmax(1) == scores(MODEL).argmax(1)
    assert agreement.mean() > 0.98


def test_the_same_command_gives_the_same_bytes(qc) -> None:
    qc(MODEL, "--data", DATA, "-o", "first.onnx")
    qc(MODEL, "--data", DATA, "-o", "second.onnx", "--threads", "1")
    assert Path("first.onnx").read_bytes() == Path("second.onnx").read_bytes()


def test_a_model_elsewhere_leaves_its_result_here(qc, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "net.v2.onnx"
    shutil.copy(MODEL, elsewhere)
    assert qc(str(elsewhere), "--data", DATA).made == ["net.v2.q.onnx"]


def test_no_passes_change_nothing(qc) -> None:
    assert qc(MODEL, "--passes", "", "-o", "same.onnx").code == 0
    assert onnx.load("same.onnx") == onnx.load(MODEL)


def test_every_lowering_pass_writes_its_file(qc) -> None:
    placed = "insert-quantizers{slower=integer},tie-quantizers,calibrate"
    passes = f"{placed},insert-qdq,to-simulation,to-encodings"
    result = qc("--passes", passes, MODEL, "-o", "out.onnx", "--data", DATA)
    assert result.made == ["out.encodings", "out.onnx", "out.simulation.onnx"]
    assert "FakeQuantize" in op_types("out.simulation.onnx")
    assert all(name in result.err for name in result.made)


def test_a_pipeline_file(qc) -> None:
    Path("mine.toml").write_text(
        '[pipeline]\npasses = "eliminate-identity"\n[[pass]]\nname = "fold-batch-norms"\n'
    )
    result = qc(MODEL, "--pipeline", "mine.toml")
    assert result.code == 0
    assert "BatchNormalization" not in op_types("model.q.onnx")
    assert "mine for ort-cpu" in result.err


def test_a_file_of_a_pipeline_is_explained(qc) -> None:
    Path("mine.toml").write_text(
        '[pipeline]\nname = "mine"\ndescription = "to try"\npasses = "fold-constants"\n'
    )
    assert "to try" in qc("help", "mine.toml").out


def test_a_target(qc) -> None:
    assert "w8a8 for npu" in qc(MODEL, "--data", DATA, "--target", "npu").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--random-data", MODEL],
        [MODEL, "--random-data"],
        ["--random-data", "3", MODEL],
        ["--random-data=3", MODEL],
    ],
)
def test_random_data_warns(qc, arguments: list[str]) -> None:
    result = qc(*arguments, "--quiet")
    assert result.code == 0
    assert result.err.startswith("qc: warning: --random-data makes meaningless ranges")


def test_random_data_depends_on_the_seed_alone(qc) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        qc(MODEL, "--random-data", "--seed", seed, "-o", f"{name}.onnx")
    a, b, c = (Path(f"{name}.onnx").read_bytes() for name in "abc")
    assert a == b != c


def test_data_from_a_function(qc) -> None:
    Path("feeds.py").write_text(
        "import numpy as np\n\ndef make():\n    yield {'image': np.ones((2, 1, 8, 8), 'float32')}\n"
    )
    assert qc(MODEL, "--data", "feeds.py:make").code == 0


def test_data_that_nothing_reads_is_pointed_out(qc) -> None:
    result = qc(MODEL, "--passes", "fold-batch-norms", "--data", DATA)
    assert result.code == 0
    assert "qc: warning: no pass of the pipeline reads data" in result.err


def test_a_result_without_quantizers_can_be_asked_for(qc) -> None:
    result = qc(MODEL, "--passes", "match-supergroups", "--allow-unquantized")
    assert (result.code, result.made) == (0, ["model.q.onnx"])
    assert "qc: note: the pipeline has no lowering pass" in result.err


# -- reports --------------------------------------------------------------------------------------------


def test_the_summary_fits_on_a_screen(qc) -> None:
    lines = qc(MODEL, "--data", DATA).err.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any("Conv 10/10" in line for line in lines)
    assert lines[-1].startswith("wrote      model.q.onnx, ")


def test_quiet_tells_nothing(qc) -> None:
    assert qc(MODEL, "--data", DATA, "-q").err == ""


def test_the_whole_coverage_can_be_had(qc) -> None:
    result = qc(MODEL, "--data", DATA, "-v", "--coverage", "coverage.json")
    assert result.made == ["coverage.json", "model.q.onnx"]
    coverage = json.loads(Path("coverage.json").read_text())
    assert coverage["ops"]["Conv"] == {"quantized": 10, "total": 10}
    assert sum(coverage["formats"].values()) == coverage["quantized_tensors"]
    assert "logits" in [tensor["name"] for tensor in coverage["float_tensors"]]
    listed = result.err.splitlines()
    for tensor in coverage["float_tensors"]:
        assert listed[listed.index(tensor["name"]) + 1].strip() == tensor["reason"]


def test_the_time_of_steps_in_a_loop(qc) -> None:
    err = qc(
        MODEL, "--data", DATA, "--time", "--passes", "fixpoint<max=3>(fold-constants),fold-batch-norms"
    ).err
    rows = [line.split() for line in err.splitlines()]
    assert [row[0] for row in rows if row and row[0].startswith("fold")] == [
        "fold-constants",
        "fold-batch-norms",
    ]


def test_names_cannot_steer_the_terminal(qc) -> None:
    model = onnx.load(MODEL)
    for node in model.graph.node:
        node.output[:] = ["\x1b[2J[bold]" if name == "logits" else name for name in node.output]
    model.graph.output[0].name = "\x1b[2J[bold]"
    onnx.save(model, "evil.onnx")
    for result in (qc("evil.onnx", "--data", DATA, "-v"), qc("inspect", "evil.onnx")):
        assert result.code == 0
        assert "\x1b" not in result.err + result.out
        assert "\\x1b[2J[bold]" in result.err + result.out


# -- looking at things ----------------------------------------------------------------------------------


def test_list_passes(qc) -> None:
    result = qc("list-passes")
    assert (result.code, result.err) == (0, "")
    listed = re.findall(r"^  ([a-z0-9-]+)", result.out, re.MULTILINE)
    assert sorted(listed) == sorted([*registry().names(), "fixpoint", "repeat"])


def test_list_pipelines_and_targets(qc) -> None:
    pipelines = [line.split()[0] for line in qc("list-pipelines").out.splitlines() if line[0] != " "]
    assert pipelines == [
        *("fp16", "legalize", "quantsim", "quantsim-qdq", "simplify"),
        *("w4", "w4-block128", "w4-block32", "w4a16", "w4a8", "w8", "w8a16", "w8a8", "w8a8-dynamic"),
    ]
    assert "ort-cpu" in qc("list-targets").out


@pytest.mark.parametrize("name", registry().names())
def test_help_explains_every_pass(qc, name: str) -> None:
    result = qc("help", name)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{name}\n")
    assert "``" not in result.out
    assert result.out.count("\nneeds  calibration data") <= 1


def test_help_explains_the_rest(qc) -> None:
    assert "percentile" in qc("help", "calibrate").out
    assert "fixpoint<max=8>(...)" in qc("help", "fixpoint").out
    assert "insert-qdq" in qc("help", "w8a8").out
    assert "--latency-seconds" in qc("help", "eval").out
    assert qc("help").out == qc("--help").out == qc("-h").out


def test_version(qc) -> None:
    assert re.fullmatch(r"qc-onnx \S+ \(onnx \S+, onnxruntime \S+\)\n", qc("--version").out)


def test_inspect(qc) -> None:
    result = qc("inspect", MODEL)
    assert (result.code, result.err, result.made) == (0, "", [])
    for words in (
        "opset 13",
        "image  float32 (batch, 1, 8, 8)",
        "logits  float32 (batch, 10)",
        "BatchNormalization 10",
        "21,364 float32 in 62 constants, 85.5 KB",
    ):
        assert words in result.out
    assert re.search(r"^quantized +none$", result.out, re.MULTILINE)
    assert "fully_connected 1" in result.out  # whose Gemm is outside of supergroups, but not of blocks
    assert re.search(r"^outside +Add 2 +GlobalAveragePool 1$", result.out, re.MULTILINE)
    qc(MODEL, "--data", DATA)
    assert re.search(
        r"quantized +static, in QDQ form\s+DequantizeLinear \d+ +QuantizeLinear \d+",
        qc("inspect", "model.q.onnx").out,
    )


def test_a_model_may_be_called_like_a_command(qc) -> None:
    shutil.copy(MODEL, "inspect")
    assert qc("compile", "inspect", "--data", DATA).made == ["inspect.q.onnx"]


# -- eval -----------------------------------------------------------------------------------------------


def test_eval_compares_simulation_and_integer_with_float(qc) -> None:
    result = qc("eval", MODEL, "--data", DATA, "--latency-seconds", "0.01", "--json", "eval.json")
    assert (result.code, result.made) == (0, ["eval.json"])
    numbers = json.loads(Path("eval.json").read_text())
    assert [candidate["name"] for candidate in numbers["candidates"]] == ["simulation", "integer"]
    assert (numbers["feeds"], numbers["threads"]) == (128, 1)
    for candidate in numbers["candidates"]:
        assert candidate["outputs"][0]["sqnr_db"] > 20
        assert candidate["latency"]["ratio"] > 0
    assert re.search(r"^logits +simulation +\d+\.\d dB", result.out, re.MULTILINE)
    assert "to float" in result.out


def test_eval_of_a_model_that_is_compiled_already(qc) -> None:
    qc(MODEL, "--data", DATA)
    result = qc("eval", MODEL, "--quantized", "model.q.onnx", "--data", DATA, "--latency-seconds", "0")
    assert re.search(r"^logits +quantized +\d+\.\d dB", result.out, re.MULTILINE)
    assert "latency" not in result.out


def test_eval_of_equal_models(qc) -> None:
    result = qc(
        "eval", MODEL, "--quantized", MODEL, "--data", DATA, "--latency-seconds", "0", "--json", "eval.json"
    )
    assert re.search(r"^logits +quantized +equal", result.out, re.MULTILINE)
    assert json.loads(Path("eval.json").read_text())["candidates"][0]["outputs"][0]["sqnr_db"] == "inf"


def test_eval_may_calibrate_on_other_data(qc) -> None:
    np.savez("other.npz", image=np.full((1, 1, 8, 8), 0.01, np.float32))
    same = qc("eval", MODEL, "--data", DATA, "--latency-seconds", "0")
    other = qc("eval", MODEL, "--data", DATA, "--calibration", "other.npz", "--latency-seconds", "0")
    assert same.code == other.code == 0
    assert same.out != other.out


def test_a_group_of_commands_shows_its_help_and_what_is_nearly_the_word(qc) -> None:
    assert (shown := qc("encodings")).code == 0 and "convert  Write a file in another version." in shown.out
    assert shown.out == qc("encodings", "--help").out
    wrong = qc("encodings", "chek", "a", "b")
    assert wrong.code == 2 and "no such command 'chek' (did you mean 'check'?); 'qc enc" in wrong.err
    file = qc("data", "model.onnx")
    said = "no such command 'model.onnx', which is a file; name one of these in front of it: preview"
    assert file.code == 2 and said in file.err
