"""The command line: what it makes, what it prints and where."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from support.models import parse

from qc.cli import commands
from qc.cli.run import cli
from qc.ir import lift
from qc.ir.verifier import verify
from qc.passes import PassContext, Pipeline, registry, run_pipeline
from qc.passes.framework.definition import check_definition
from qc.runtime import open_session, run_session

MODEL, DATA = "model.onnx", "calibration.npz"
ROOT = Path(__file__).parents[2]


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
    passes = "insert-quantizers,tie-quantizers,calibrate,insert-qdq,to-simulation,to-encodings"
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
        *("fp16", "quantsim", "quantsim-qdq", "w4", "w4-block128", "w4-block32"),
        *("w4a8", "w8", "w8a16", "w8a8"),
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


# -- the process ----------------------------------------------------------------------------------------


def run(*arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "qc", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        **options,  # type: ignore[call-overload]
    )


def test_the_exit_code_reaches_the_shell(qc) -> None:
    process = run("absent.onnx")
    out, err = process.communicate()
    assert (process.returncode, out) == (3, "")
    assert err == "qc: error: model 'absent.onnx' does not exist\n"


def test_a_closed_pipe_is_no_disaster(qc) -> None:
    process = run("print", MODEL)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal as POSIX has them")
@pytest.mark.parametrize("slow", ["click", "onnx"])
def test_an_interrupt_while_the_command_starts(tmp_path: Path, slow: str) -> None:
    """A module that qc needs takes for ever to import."""
    (tmp_path / f"{slow}.py").write_text(
        "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "qc", "list-targets"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (tmp_path / "begun").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.strip()) == (130, "qc: error: interrupted")


def test_a_group_of_commands_shows_its_help_and_what_is_nearly_the_word(qc) -> None:
    assert (shown := qc("encodings")).code == 0 and "convert  Write a file in another version." in shown.out
    assert shown.out == qc("encodings", "--help").out
    wrong = qc("encodings", "chek", "a", "b")
    assert wrong.code == 2 and "no such command 'chek' (did you mean 'check'?); 'qc enc" in wrong.err


def test_an_interrupt(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qc.compiler.Compilation.compile", interrupt)
    result = qc(MODEL, "--data", DATA)
    assert (result.code, result.made) == (130, [])
    assert result.err.endswith("qc: error: interrupted\n")


# -- documentation --------------------------------------------------------------------------------------


def test_the_pages_of_passes_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


def test_the_pass_in_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    code = textwrap.dedent(re.findall(r" *```python\n(.*?)```", guide, re.DOTALL)[0])
    path = tmp_path / "eliminate_double_neg.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("qc.passes.simplify.eliminate_double_neg", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    cls = module.EliminateDoubleNeg
    check_definition(cls)
    golden = textwrap.dedent(re.findall(r" *```\n( *--- run\n.*?)```", guide, re.DOTALL)[0])
    model = lift(parse(golden.partition("--- model\n")[2]))
    run_pipeline(Pipeline([cls()]), model, PassContext(verify=verify))
    relu = model.graph.ops()[-1]
    assert model.graph.op_inputs(relu)[0] is model.graph.inputs[0]


def test_the_command_of_the_guide(qc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    folder = Path(commands.__file__).parent
    place = shutil.copytree(folder, tmp_path / "commands")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (command,) = [block for block in blocks if "class CountOps(Command)" in block]
    (place / "count_ops.py").write_text(command)
    monkeypatch.setattr(cli, "folder", place)
    monkeypatch.setattr(commands, "__path__", [str(place), str(folder)])
    assert "Others:\n  count-ops         Count the ops of a model.\n" in qc("--help").out
    assert qc("count-ops", MODEL).out.startswith("BatchNormalization 10\nConv 10\nClip 5\n")
    assert qc("count-ops", MODEL, "--least", "5").out.endswith("Clip 5\n")
    assert "'0' is not a number of at least 1" in qc("count-ops", MODEL, "--least", "0").err


def test_the_target_of_the_guide(qc) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    Path("toy.toml").write_text(re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)[0])
    result = qc(MODEL, "--data", DATA, "--target", "toy.toml")
    assert result.code == 0 and "w8a8 for toy" in result.err


# Pages whose commands are run, in an order in which each finds the files that it reads.
PAGES = (
    *("command-line", "aimet-configurations", "calibration", "debugging", "comparing", "speed"),
    *("recipes", "simulation", "encodings", "looking"),
)


def documentation(*pages: str) -> str:
    return "\n".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in pages)


def documented_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", documentation(*PAGES), re.DOTALL)
    return [command for block in blocks for command in re.split(r"\n(?=qc )", block)]


def documented_files() -> dict[str, str]:
    text = documentation(*PAGES, "targets")
    return dict(re.findall(r"A file `(\w+\.\w+)`.*?```(?:toml|python)\n(.*?)```", text, re.DOTALL))


def test_the_documented_commands_run(qc) -> None:
    with np.load(DATA) as data:
        images = data["image"][:16]  # that they run does not depend on how much they are given
    for name in (DATA, "test.npz"):
        np.savez(name, image=images)
    np.save("labels.npy", np.zeros(len(images), int))
    Path("samples.py").write_text(
        "import numpy\n\ndef feeds():\n    yield {'image': numpy.load('test.npz')['image']}\n"
    )
    Path("photos").mkdir()
    Image.fromarray(((images[0, 0] + 1) * 127).astype(np.uint8)).save("photos/0.png")
    for name, text in documented_files().items():
        Path(name).write_text(text)
    commands = documented_commands()
    assert len(commands) > 10
    for command in commands:
        result = qc(*shlex.split(command, comments=True)[1:])
        different = command.startswith("qc diff") and result.code == 1
        slower = "--objective latency" in command and result.code == 5  # as a busy machine times it
        assert result.code == 0 or different or slower, f"{command}: {result.err}"
