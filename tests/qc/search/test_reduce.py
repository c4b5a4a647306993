"""``qc reduce`` leaves a few ops that still show what is looked for."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from support.graphs import float_models
from support.models import floats, model_of, parse, random_feeds

from qc.ir.executor import Feed
from qc.ir.onnx.protos import reads
from qc.ir.onnx.save import save_model
from qc.runtime.execution.tensor_types import tensor_types
from qc.runtime.protos.names import with_reads_renamed
from qc.runtime.protos.parts import Cutter
from qc.search import OracleVerdict, Outcome, Reduction
from qc.search.reduce import count_ops

MODEL, DATA = "model.onnx", "calibration.npz"
USAGE, BAD_DATA, DEMAND = 2, 4, 5
MISWIRED = "renew-relu{victim=relu_37}"


def ops(path: str) -> list[str]:
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return [node.op_type for node in model.graph.node]


# -- the command ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("planted", "chain")
def test_a_miswired_rewrite_by_a_condition(qc) -> None:
    result = qc(
        "reduce", "chain.onnx", "--passes", MISWIRED, "--random-data", "--interesting", "max_error > 1e-3"
    )
    assert (result.code, result.made) == (0, ["chain.reduced.onnx"])
    assert ops("chain.reduced.onnx") == ["Add", "Relu"]
    progress = result.err.splitlines()[1]
    assert progress.startswith("80 ops -> 40 -> 20 -> ") and progress.endswith(" -> 2")
    assert result.err.splitlines()[-1].startswith("wrote chain.reduced.onnx, 2 ops, ")


@pytest.mark.usefixtures("planted", "chain")
@pytest.mark.parametrize("fault", ["break", "crash"])
def test_a_defect(qc, fault: str) -> None:
    passes = f"renew-relu{{victim=relu_37 fault={fault}}}"
    result = qc("reduce", "chain.onnx", "--passes", passes, "--interesting", "fails", "-o", "out.onnx", "-q")
    assert (result.code, result.made, result.err) == (0, ["out.onnx"], "")
    assert ops("out.onnx") == ["Relu"]


@pytest.mark.usefixtures("chain")
def test_a_miswired_rewrite_by_a_command_in_another_process(qc, planted: str) -> None:
    passes = "renew-relu{victim=relu_3 fault=break}"
    Path("try.sh").write_text(
        f"export PYTHONPATH={shlex.quote(planted)}:$PYTHONPATH\n"
        f"{shlex.quote(sys.executable)} -m qc $1 --passes '{passes}' --no-reproducer -o out.onnx 2>&1 |\n"
        "    grep -q 'left the model broken'\n"
    )
    result = qc("reduce", "chain.onnx", "--interesting", "sh try.sh {}", "--max-tests", "6")
    assert result.code == 0 and "chain.reduced.onnx" in result.made
    assert len(ops("chain.reduced.onnx")) <= 6
    assert "6 tests" in result.err


@pytest.mark.usefixtures("planted")
def test_a_bad_quantizer(qc) -> None:
    prepare = "fold-batch-norms,match-supergroups,insert-quantizers,tie-quantizers,calibrate"
    passes = f"{prepare},spoil-scale{{tensor=relu_3 factor=100}},to-simulation"
    arguments = ("--passes", passes, "--data", DATA, "--interesting", "sqnr < 15")
    result = qc("reduce", MODEL, *arguments)
    assert result.code == 0, result.err
    left = onnx.load("model.reduced.onnx")
    assert count_ops(left) <= 6
    assert "relu_3" in [name for node in left.graph.node for name in (*node.input, *node.output)]


def test_the_same_model_comes_out_every_time(qc) -> None:
    for name in ("a.onnx", "b.onnx"):
        assert qc("reduce", MODEL, "--interesting", "grep -q relu_3", "-o", name).code == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    assert len(ops("a.onnx")) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (
            ["--interesting", "false"],
            DEMAND,
            "the command ended with exit code 1; it has to end with exit code 0 for what is looked for",
        ),
        (["--interesting", "sqnr < 1", "--data", DATA], DEMAND, "what is looked for, such as 'sqnr < "),
        (["--interesting", "fails", "--data", DATA], DEMAND, "not interesting to begin with: it compiles"),
        (["--interesting", "sqnr < 1"], USAGE, "needs data; give it with --data"),
        (["--interesting", "sqrn < 1", "--data", DATA], USAGE, "(did you mean 'sqnr'?)"),
        (["--interesting", "sqnr(logit) < 1", "--data", DATA], USAGE, "(did you mean 'logits'?)"),
        (["--interesting", "no-such-tool"], USAGE, "'no-such-tool' cannot be run"),
        (["--interesting", "true", "--target", "npu"], USAGE, "--target is for an oracle that compiles"),
        (["--interesting", "true", "--data", "absent.npz"], BAD_DATA, "'absent.npz'"),
        (["--interesting", "true", "-o", MODEL], USAGE, "is the input model"),
        (["--interesting", "true", "--timeout", "0"], USAGE, "0"),
        (["--interesting", "true", "--max-tests", "0"], USAGE, "'0'"),
        (["--interesting", "sleep 9;", "--timeout", "0.1"], DEMAND, "the command ran out of time"),
        ([], USAGE, "--interesting"),
    ],
)
def test_what_cannot_be_reduced(qc, arguments: list[str], code: int, fault: str) -> None:
    result = qc("reduce", MODEL, *arguments)
    assert (result.code, result.made) == (code, [])
    assert fault in result.err.splitlines()[-1]


def test_an_interrupt_leaves_the_best_so_far(qc) -> None:
    Path("slow.sh").write_text(
        "echo >> ran.txt; test $(wc -l < ran.txt) -lt 4 || sleep 60; grep -q Gemm $1\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "qc", "reduce", MODEL, "--interesting", "sh slow.sh {}"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in the background
    )
    while not Path("ran.txt").exists() or Path("ran.txt").read_text().count("\n") < 4:
        time.sleep(0.05)
        assert process.poll() is None, process.communicate()[1]
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "wrote model.reduced.onnx, " in err and err.endswith("qc: error: interrupted\n")
    assert 0 < len(ops("model.reduced.onnx")) < len(ops(MODEL))


# -- the work -------------------------------------------------------------------------------------------


class Keeps:
    """Interesting is what has certain ops."""

    reads_data = True

    def __init__(self, *wanted: str) -> None:
        self.wanted = set(wanted)
        self.feeds: list[Feed] = []

    def examine(self, path: Path, feeds: list[Feed]) -> OracleVerdict:
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        fed = {info.name for info in model.graph.input}
        assert all(set(feed) == fed for feed in feeds)
        self.feeds = list(feeds)
        present = {node.op_type for node in model.graph.node}
        return OracleVerdict(Outcome.BAD if self.wanted <= present else Outcome.GOOD, "looked")


@settings(max_examples=40)
@given(model=float_models(), data=st.data())
def test_each_op_can_be_all_that_is_left(model: ModelProto, data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(sorted({n.op_type for n in model.graph.node} - {"Constant"})))
    interest = Keeps(wanted)
    left = Reduction(model, interest, feeds=random_feeds(model)).run()
    assert [node.op_type for node in left.graph.node if node.op_type != "Constant"] == [wanted]


@settings(max_examples=20)
@given(model=float_models())
def test_cut_inputs_are_fed_what_was_there(model: ModelProto) -> None:
    """Every single op, on what the whole model gives it, gives what it gives there."""
    from support.pipelines import run_model

    feeds = random_feeds(model, 1)
    types = tensor_types(model, None, feeds[0])
    cutter = Cutter(model, types)
    for op in cutter.ops():
        names = [name for name in op.output if name in types]
        part = cutter.part([op])
        assert part is not None
        whole = ModelProto()
        whole.CopyFrom(model)
        del whole.graph.output[:]
        needed = [info.name for info in part.graph.input if info.name not in feeds[0]]
        shown = dict.fromkeys([*needed, *names])
        whole.graph.output.extend(onnx.ValueInfoProto(name=n, type=types[n]) for n in shown)
        expected = run_model(whole, feeds[0]) | feeds[0]
        found = run_model(part, {info.name: expected[info.name] for info in part.graph.input})
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])


LOOP = """
loops (float[2] x, float[2] scale) => (float[2] y) {
    scaled = Mul (x, scale)
    trip = Constant <value = int64 {3}> ()
    go = Constant <value = bool {1}> ()
    z = Loop (trip, go, scaled) <body = body (int64 i, bool c, float[2] a) => (bool d, float[2] b) {
        d = Identity (c)
        b = Add (a, scale)
    }>
    y = Relu (z)
}
"""


def test_bodies_keep_what_they_capture() -> None:
    model = parse(LOOP)
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    assert reads(loop) == ["trip", "go", "scaled", "scale"]
    renamed = with_reads_renamed(loop, "scale", "other")
    assert reads(renamed) == ["trip", "go", "scaled", "other"] and reads(loop)[-1] == "scale"
    left = Reduction(model, Keeps("Loop"), feeds=random_feeds(model)).run()
    assert [node.op_type for node in left.graph.node] == ["Constant", "Constant", "Loop"]
    assert [info.name for info in left.graph.input] == ["scale", "scaled"]
    assert [info.name for info in left.graph.output] == ["z"]


BRANCHES = """
branches (bool flag, float[2] x) => (float[2] y) {
    z = If (flag) <then_branch = first () => (float[2] a) { b = Neg (x)  a = Abs (b) },
                   else_branch = second () => (float[2] a2) { b2 = Exp (x)  c2 = Sin (b2)  a2 = Cos (c2) }>
    y = Relu (z)
}
"""


@pytest.mark.parametrize("wanted", ["Sin", "Abs"])
def test_a_branch_takes_the_place_of_its_if(wanted: str) -> None:
    model = parse(BRANCHES)
    interest = Inside(wanted)
    left = Reduction(model, interest, feeds=random_feeds(model)).run()
    assert [node.op_type for node in left.graph.node] == [wanted]
    assert len(interest.feeds) == 2


class Inside(Keeps):
    """Interesting is what has certain ops, in a body or not."""

    def examine(self, path: Path, feeds: list[Feed]) -> OracleVerdict:
        super().examine(path, feeds)
        text = str(onnx.load(path).graph)
        return OracleVerdict(
            Outcome.BAD if all(f'"{w}"' in text for w in self.wanted) else Outcome.GOOD, "looked"
        )


def test_ops_are_bypassed_and_outputs_dropped() -> None:
    model = parse(
        "m (float[2] x) => (float[2] y, float[2] s) {"
        " a = Exp (x)  b = Sin (a)  c = Cos (b)  y = Relu (c)  s, t = Split <axis = 0, num_outputs = 2> (c) }"
    )

    class Connected(Keeps):
        def examine(self, path: Path, feeds: list[Feed]) -> OracleVerdict:
            verdict = super().examine(path, feeds)
            linked = len(onnx.load(path).graph.input) == 1
            return verdict if linked else OracleVerdict(Outcome.GOOD, "in pieces")

    model.graph.output[1].type.tensor_type.shape.dim[0].dim_value = 1
    left = Reduction(model, Connected("Exp", "Split"), feeds=random_feeds(model)).run()
    assert [node.op_type for node in left.graph.node] == ["Exp", "Split"]
    assert len(left.graph.output) == 1


def test_a_limit_of_tests() -> None:
    model = parse("m (float[2] x) => (float[2] y) { a = Exp (x)  b = Sin (a)  c = Cos (b)  y = Relu (c) }")
    reduction = Reduction(model, Keeps("Cos"), max_tests=3)
    reduction.run()
    assert reduction.tests == 3
    assert [node.op_type for node in reduction.model.graph.node] == ["Cos", "Relu"]


def test_weights_in_a_file_beside_the_model_come_along(tmp_path: Path) -> None:
    array = np.arange(600, dtype=np.float32)
    stored = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[600], data_location=TensorProto.EXTERNAL
    )
    (tmp_path / "weights.bin").write_bytes(bytes(8) + array.tobytes())
    for key, value in (("location", "weights.bin"), ("offset", 8), ("length", array.nbytes)):
        stored.external_data.add(key=key, value=str(value))
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Add", ["a", "w"], ["y"])]
    model = model_of(nodes, [floats("x", 600)], [floats("y", 600)], [stored])
    reduction = Reduction(model, Keeps("Add"), base_dir=tmp_path, feeds=random_feeds(model))
    save_model(reduction.run(), tmp_path / "out.onnx", tmp_path)
    left = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in left.graph.node] == ["Add"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(left.graph.initializer[0]), array)


@pytest.mark.parametrize(
    ("output", "words"), [("metric.py", "the Python file of the metric"), ("labels.npy", "the labels")]
)
def test_what_judges_is_not_written_over(qc, output: str, words: str) -> None:
    Path("metric.py").write_text("def score(outputs, label):\n    return 1.0\n")
    np.save("labels.npy", np.zeros(4))
    judged = ["--interesting", "metric.py:score < 2", "--labels", "labels.npy", "--random-data", "4"]
    result = qc("reduce", MODEL, *judged, "-o", output, "-q")
    assert (result.code, result.made) == (USAGE, []) and f"'{output}' is {words}" in result.err
