"""The verdict after a compilation: accuracy and costs beside float, and a sentence for what is worse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds

import qc as qc_package
from qc.checking import Check, CheckedOp
from qc.runtime import Latency, evaluate
from qc.verdict.growth import cause_of_growth
from qc.verdict.measure import Accuracy, Verdict
from qc.verdict.samples import enough_samples
from qc.verdict.words import cause_of_time, verdict_facts, verdict_notes, verdict_warnings

MODEL, DATA = "model.onnx", "calibration.npz"
POOR = "dB beside the float model, which may be too little: 'qc auto'"


@pytest.fixture
def judged(qc, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """The command line with its verdict, on one thread and without a limit of time."""
    if "two_lines" not in request.node.name:  # a process for each model, which takes its time
        monkeypatch.setattr("qc.verdict.measure.peak_memory", lambda *_, **__: 10**6)
    monkeypatch.delenv("QC_NO_VERDICT")
    monkeypatch.setattr("qc.cli.quantizing.VERDICT_SECONDS", 600.0)
    monkeypatch.setattr("qc.verdict.measure._ROUNDS", 5)
    return lambda *options: qc(MODEL, *options, "--threads", "1")


def test_accuracy_and_costs_are_told_in_two_lines_and_change_no_byte(judged) -> None:
    result = judged("--data", DATA)
    lines = [" ".join(line.split()) for line in result.err.splitlines()]
    assert any(line.startswith("integer 15 of 15 ops, 100.0% of the multiplications") for line in lines)
    accuracy = next(line for line in lines if line.startswith("accuracy"))
    assert " dB at the worst output, " in accuracy and "% agreement (expected-accuracy)" in accuracy
    cost = " ".join(result.err.split()).partition("cost time")[2]
    assert " x float (" in cost and ", size 0." in cost and "peak memory" in cost
    first = Path("model.q.onnx").read_bytes()
    without = judged("--data", DATA, "--no-verdict")
    assert not {"accuracy", "cost", "integer"} & {line.split(" ")[0] for line in without.err.splitlines()}
    assert Path("model.q.onnx").read_bytes() == first


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        (["--data", DATA, "--set", "Conv=w2"], True),
        (["--random-data", "2", "--set", "Conv=w2"], False),
    ],
)
def test_outputs_of_which_little_is_left_are_warned_of(judged, options: list[str], is_told: bool) -> None:
    result = judged(*options)
    assert result.code == 0
    assert (POOR in result.err.partition("qc: warning: outputs have ")[2]) == is_told
    assert ("\naccuracy " in result.err) == is_told, "random data tells nothing of accuracy"


def test_who_wants_it_quiet_is_warned_all_the_same_with_the_option_that_is_the_cause(judged) -> None:
    clipping = ["--opt", "calibrate.method=percentile", "--opt", "calibrate.percentile=60"]
    first, second = judged("--data", DATA, *clipping, "--quiet").err.splitlines()
    assert first.startswith("qc: warning: outputs have ") and POOR in first
    assert second.startswith("qc: warning: ") and "of the values of input 'image' lie beyond" in second
    assert "calibrate.method=percentile leaves of it" in second and "method=min-max keeps all" in second
    assert "calibrate on data like this" not in second
    assert judged("--data", DATA, "--quiet").err == ""


def test_a_simulation_has_an_accuracy_and_no_costs(judged) -> None:
    result = judged("--data", DATA, "--pipeline", "quantsim")
    assert "\naccuracy " in result.err and "\ncost " not in result.err


def test_a_device_elsewhere_is_judged_by_the_simulation(judged) -> None:
    result = judged("--data", DATA, "--target", "tensorrt")
    assert "\naccuracy " in result.err and "\ncost       size 0." in result.err
    assert "time " not in result.err.partition("\ncost")[2], "which is not of this machine"


def _compiled() -> tuple[qc_package.Compiled, list]:
    weight = numpy_helper.from_array(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), "w")
    model = parse("g (float[2, 8] x) => (float[2, 8] y) <float[8, 8] w> { y = MatMul(x, w) }")
    del model.graph.initializer[:]
    del model.graph.input[1:]
    model.graph.initializer.add().CopyFrom(weight)
    feeds = random_feeds(model, 3)
    return qc_package.compile(model, "w8a8", data=feeds, threads=1), feeds


def test_what_is_left_out_for_time_is_told_and_one_sample_is_looked_at() -> None:
    compiled, feeds = _compiled()
    found = qc_package.measure_verdict(compiled, feeds, seconds=0)
    assert found.accuracy is not None and found.accuracy.samples == 1
    assert (found.latency, found.memory, found.check) == (None, None, None)
    cost = str(dict(verdict_facts(found))["cost"])
    assert "a run of both models takes" in cost and cost.endswith("see 'qc bench'")


def test_without_data_there_are_sizes_alone_and_growth_has_a_cause() -> None:
    compiled, _ = _compiled()
    found = qc_package.measure_verdict(compiled, None)
    assert found.accuracy is None and found.latency is None and found.sizes is not None
    assert found.sizes[0] == compiled.ir.origin.ByteSize() < found.sizes[1] == compiled.model.ByteSize()
    (note,) = verdict_notes(found)
    assert "the result is larger than the float model" in note
    assert "quantize and dequantize ops with their scales" in note and "'qc diff'" in note


@pytest.mark.parametrize(
    ("pipeline", "cause"), [("fp16", "the added ops (Cast)"), ("w8", "the added ops (Cast, Mul)")]
)
def test_growth_is_blamed_on_ops_that_are_there(pipeline: str, cause: str) -> None:
    model = parse("g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w> { y = MatMul(x, w) }")
    (note,) = verdict_notes(qc_package.measure_verdict(qc_package.compile(model, pipeline), None))
    assert cause in note


@pytest.mark.parametrize(
    ("target", "pipeline", "wider"),
    [("qnn-htp", "w8a8", "qnn-htp"), ("qnn-htp", "w8a16", ""), ("ort-cpu", "w8a8", "")],
)
def test_activations_of_16_bits_are_named_where_a_target_has_them(
    target: str, pipeline: str, wider: str
) -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x)  y = Sigmoid(a) }")
    made = qc_package.compile(
        model, pipeline, data=random_feeds(model), target=target, allow_unquantized=True
    )
    assert qc_package.measure_verdict(made, None, with_costs=False).wider_on == wider


def _stored(**arrays: np.ndarray):
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for name, array in arrays.items():
        model.graph.initializer.add().CopyFrom(numpy_helper.from_array(array, name))
    return model


def test_folded_and_doubled_constants_are_named_as_causes() -> None:
    weight = np.ones((32, 32), np.float32)
    before = _stored(w=weight)
    folded = cause_of_growth(before, _stored(w=weight, table=np.ones((64, 64), np.float32)))
    assert folded.startswith("16.4 KB more are float constants") and "'table'" in folded
    doubled = cause_of_growth(before, _stored(a=np.ones((64, 64), np.int8), b=np.ones((8, 8), np.int8)))
    assert doubled.startswith("3.1 KB more are weights that are stored twice or padded, the largest 'a'")


def test_what_is_slower_or_takes_more_memory_has_a_cause_and_a_command() -> None:
    good = Verdict(Accuracy(4, 40.0, 0.999, "cosine"), (100, 30), _latency(0.5), (10**7, 10**7))
    assert verdict_notes(good) == []
    compiled, feeds = _compiled()
    check = qc_package.check(compiled.model, feeds=[feeds[0]] * 3)
    (slow,) = verdict_notes(replace(good, latency=_latency(1.5), check=check))
    assert "takes 1.50 times as long as float" in slow and "of it is " in slow
    assert "'qc auto --objective latency'" in slow
    assert verdict_notes(replace(good, sizes=(10_000, 10_057), growth="metadata")) == [], "hardly larger"
    (hungry,) = verdict_notes(replace(good, memory=(10**7, 2 * 10**7)))
    assert "a peak of 20.0 MB of memory, and float 10.0 MB" in hungry
    assert verdict_warnings(good) == []
    beyond = replace(good, accuracy=Accuracy(4, None, 0.5, "equal"), saturated=("beyond",))
    apart, cause = verdict_warnings(beyond)
    assert "agree with the float model to 50.0% only" in apart and cause == "beyond"
    assert "--pipeline" not in apart
    assert "the 16 bits that a-device runs" in verdict_warnings(replace(beyond, wider_on="a-device"))[0]
    assert verdict_notes(beyond) == [], "which is told once"
    assert verdict_notes(replace(good, saturated=("beyond",))) == ["beyond"]
    noisy = Latency(1.0, 1.2, (1.0, 1.0), (0.9, 1.4))
    assert verdict_notes(replace(good, latency=noisy)) == [], "a quarter of the rounds was quicker"
    noisy = Latency(1.0, 1.1, (1.0, 1.0), (1.02, 1.2))
    assert verdict_notes(replace(good, latency=noisy)) == [], "rounds differ by more than that"


@pytest.mark.parametrize(("seed", "is_told"), [("", True), ("seed = 1.0, ", False)])
def test_no_recipe_mends_random_outputs(seed: str, is_told: bool) -> None:
    """A policy that draws its action; seeded, both models draw the same one."""
    model = parse(f"""g (float[1, 8] x) => (float[1, 8] y) <float[8, 8] w> {{
        m = MatMul(x, w)
        n = RandomNormalLike<{seed}scale = 50.0>(m)
        y = Add(m, n)
    }}""")
    feeds = random_feeds(model, 8)
    compiled = qc_package.compile(model, "w8a8{insert-quantizers.slower=integer}", data=feeds, threads=1)
    warnings = verdict_warnings(qc_package.measure_verdict(compiled, feeds))
    assert any("makes other numbers in every run" in warning for warning in warnings) == is_told
    assert not any("qc auto" in warning for warning in warnings)


def test_the_cause_of_time_is_what_was_added_or_the_integer_kernels() -> None:
    ops = (CheckedOp("Conv 'c'", "Conv", "integer", "QLinearConv", "a", seconds=8.0),)
    rest = (("QuantizeLinear", 1.0), ("DequantizeLinear", 0.5), ("Shape", 0.5))
    whole = Check("ort-cpu", True, "here", ops, seconds=10.0, rest=rest)
    assert cause_of_time(whole, 1.2) == (
        "15% of it is for QuantizeLinear and DequantizeLinear around integer ops, which float has not"
    )
    assert cause_of_time(whole, 2.0) == (
        "80% of it is in integer kernels (QLinearConv), which are slower here than those of float"
    )
    assert "no op runs in integers" in cause_of_time(replace(whole, ops=(), rest=()), 2.0)


def _latency(ratio: float) -> Latency:
    return Latency(0.001, ratio, (0.001, 0.001), (ratio, ratio))


def test_samples_are_spread_over_the_data() -> None:
    compiled, feeds = _compiled()
    zeros = [{name: 0 * array for name, array in feed.items()} for feed in feeds]
    assert qc_package.measure_verdict(compiled, [*zeros[:1] * 8, *feeds[:1] * 8]).accuracy != (
        qc_package.measure_verdict(compiled, zeros[:1] * 16).accuracy
    )


@pytest.mark.parametrize("target", ["ort-cpu", "qnn-htp"])
def test_the_accuracy_is_that_of_all_samples_within_a_decibel(judged, target: str) -> None:
    options = ("--target", target, "--fix-shape", "batch=1", "--data", DATA)
    judged_by = [" ".join(judged(*options).err.split()) for _ in range(2)]
    sqnr = [re.search(r"accuracy (\d+\.\d) dB .*?on 64 samples", said) for said in judged_by]
    assert sqnr[0] is not None and sqnr[1] is not None and sqnr[0][0] == sqnr[1][0]
    compiled = qc_package.compile(MODEL, data=DATA, target=target, fix_shapes=("batch=1",), threads=1)
    made = compiled.model if target == "ort-cpu" else compiled.device_simulation
    (output,) = evaluate(MODEL, {"made": made}, DATA, latency_seconds=0).candidates[0].outputs
    assert abs(float(sqnr[0][1]) - output.sqnr_db) < 0.75


@pytest.mark.parametrize(
    ("batch", "side", "samples"), [(1, 8, 64), (1, 512, 64), (1, 1024, 33), (2, 1024, 16), (16, 1024, 8)]
)
def test_there_are_fewer_samples_the_more_is_multiplied(batch: int, side: int, samples: int) -> None:
    model = parse("m (float[N, 4, H, W] x) => (float[N, 8, h, w] y) <float[8, 4, 3, 3] w> { y = Conv(x, w) }")
    assert enough_samples(model, {"x": np.zeros((batch, 4, side, side), np.float32)}) == samples


def product_and(op: str) -> onnx.ModelProto:
    """A product of matrices, and an op that reads it."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]>
        m (float[2, 8] x) => (float[2, 4] y) {{ a = MatMul(x, w)  y = {op}(a) }}""")
    weight = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def test_a_result_that_cannot_be_compared_says_why() -> None:
    model = product_and("my.ops.Swirl")
    feeds = random_feeds(model, 2)
    found = qc_package.measure_verdict(qc_package.compile(model, data=feeds), feeds)
    (warning,) = verdict_warnings(found)
    assert warning.startswith("the result was not compared with the float model: no runtime here knows")


def test_data_that_is_zero_throughout_is_warned_of(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QC_NO_VERDICT")
    model = product_and("Relu")
    zeros = [{"x": np.zeros((2, 8), np.float32)}] * 3
    for feeds, is_told in ((zeros, True), ([*zeros, *random_feeds(model, 1)], False)):
        compiled = qc_package.compile(model, data=feeds)
        assert any("data is zero" in warning for warning in compiled.warnings) == is_told
        onnx.save(model, "model.onnx")
        np.savez("data.npz", x=np.concatenate([feed["x"][None] for feed in feeds]))
        for options in (["--no-verdict"], ["--quiet"], []):
            said = qc("model.onnx", "--data", "data.npz", *options)
            assert said.code == 0 and said.err.count("all calibration data is zero") == is_told


def test_a_device_whose_arithmetic_is_known_is_judged_by_its_codes() -> None:
    model = product_and("Relu")
    feeds = random_feeds(model, 4)
    compiled = qc_package.compile(model, data=feeds, target="qnn-htp")
    plain, device = (qc_package.Simulation(one) for one in (compiled.simulation, compiled.device_simulation))
    reference = [qc_package.runtime.open_session(model).run(None, feed)[0] for feed in feeds]

    def sqnr(simulation: qc_package.Simulation) -> float:
        made = [next(iter(simulation.run(feed).values())) for feed in feeds]
        error = np.sum(np.square(np.subtract(made, reference, dtype=np.float64)))
        return 10 * np.log10(np.sum(np.square(reference, dtype=np.float64)) / error)

    found = qc_package.measure_verdict(compiled, feeds)
    assert found.accuracy is not None
    assert found.accuracy.sqnr_db == pytest.approx(sqnr(device), abs=0.01)
    assert abs(sqnr(device) - sqnr(plain)) > 0.1, "the grid before the Relu does not count there"


def test_a_weight_that_may_be_given_and_is_not_is_no_data() -> None:
    model = parse("g (int64[2] x, float[8, 4] w) => (float[2, 4] y) { y = Gather(w, x) }")
    model.ir_version = 3  # where each weight is an input, too
    model.graph.initializer.append(
        numpy_helper.from_array(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), "w")
    )
    feeds = [{"x": np.array([2, 5])}] * 3
    compiled = qc_package.compile(model, data=feeds, target="qnn-htp", allow_unquantized=True)
    found = qc_package.measure_verdict(compiled, feeds)
    assert found.accuracy is not None and not compiled.warnings


def test_a_result_that_its_runtime_does_not_run_is_an_error_and_not_written(
    qc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what keeps it from that, ONNX Runtime reorders the axes of a Resize."""
    monkeypatch.delenv("QC_NO_VERDICT")
    monkeypatch.setattr("qc.passes.lower.qdq.keep_float.keep_layout", lambda *_: None)
    model = parse("""<ir_version: 9, opset_import: ["" : 19]>
    g (float[1, 8, 6, 6] x) => (float[1, 8, 9, 3] y) <float[8, 8, 1, 1] v, float[4] s = {1, 1, 1.5, 0.5}>
    { c = Conv(x, v)  m = Resize<mode = "cubic">(c, , s)  y = Conv(m, v) }""")
    onnx.save(model, "cubic.onnx")
    options = ("cubic.onnx", "--random-data", "2", "--target", "ort-cpu")
    result = qc(*options, "--coverage", "cover.json")
    assert (result.code, result.made) == (3, [])
    assert result.err.splitlines()[-1].startswith("qc: error: the result does not run, though the float ")
    assert "'Cubic' mode only supports" in result.err and "--no-verdict writes it all the same" in result.err
    written = qc(*options, "--no-verdict")
    assert (written.code, written.made) == (0, ["cubic.q.onnx"])
