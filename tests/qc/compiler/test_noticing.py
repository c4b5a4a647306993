"""Calibration that notices: forgotten preprocessing, few samples, and data that it never saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse

import qc as qc_package
from qc.compiler.normalized_inputs import unlike_normalization
from qc.runtime import random_data
from qc.runtime.data.inputs import model_inputs

TEXT = """g (float[N, 3, 8, 8] x) => (float[N, 8, 8, 8] y)
<float[8, 3, 3, 3] w, float[8] scale_var, float[8] shift, float[8] mean, float[8] run_var> {
    c = Conv<pads=[1, 1, 1, 1]>(x, w)  b = BatchNormalization(c, scale_var, shift, mean, run_var)  y = Relu(b)
}"""


def _pictures(count: int = 64) -> np.ndarray:
    """Normalized pictures: smooth, with a mean of 0 and a deviation of 1."""
    random = np.random.default_rng(0)
    coarse = random.normal(size=(count, 3, 4, 4)).repeat(2, axis=2).repeat(2, axis=3)
    return coarse.astype(np.float32)


def _trained() -> ModelProto:
    """A network whose normalization holds what it sees on normalized pictures."""
    model = parse(TEXT)
    part = qc_package.runtime.OpenModel(model, outputs=["c"])
    seen = part.run({"x": _pictures()})["c"]
    for tensor in model.graph.initializer:
        if tensor.name in ("mean", "run_var"):
            numbers = (seen.mean if tensor.name == "mean" else seen.var)(axis=(0, 2, 3))
            tensor.CopyFrom(numpy_helper.from_array(numbers.astype(np.float32), tensor.name))
    return model


def _folded() -> ModelProto:
    """The same network as exporters write it, with the normalization in the convolution."""
    return qc_package.compile(_trained(), "fold-batch-norms", allow_unquantized=True).float_model


def _notes(model: ModelProto, pictures: np.ndarray) -> list[str]:
    feeds = [{"x": pictures[start : start + 8]} for start in range(0, len(pictures), 8)]
    return qc_package.compile(model, "w8a8", data=feeds, threads=1).notes


@pytest.mark.parametrize("model", [_trained, _folded])
def test_raw_pictures_are_told_of_and_right_ones_are_not(model) -> None:
    right = _pictures()
    assert _notes(model(), right) == []
    raw = (right - right.min()) / (right.max() - right.min()) * 255
    (note,) = _notes(model(), raw)
    assert "from 0 to 255, seems to lack the preprocessing" in note


def test_the_command_line_tells_of_raw_pictures(qc) -> None:
    onnx.save(_trained(), "trained.onnx")
    np.savez("raw.npz", x=(_pictures() + 4) * 30)
    result = qc("trained.onnx", "--data", "raw.npz", "--no-verdict")
    assert result.code == 0 and "seems to lack the preprocessing" in result.err


def test_pictures_that_are_scaled_alone_are_told_of_where_the_variance_is_known() -> None:
    (note,) = _notes(_trained(), _pictures() / 50)
    assert "BatchNormalization" in note and "times the spread that its running variance has" in note


@pytest.mark.parametrize(
    ("nodes", "right", "wrong", "said"),
    [
        (
            "s = Sub(x, mean) n = Div(s, std)",
            (0, 255),
            (0, 1),
            "takes 123.7 off and divides by 58.4 (Sub of 's')",
        ),
        ("s = Sub(x, mean) n = Div(s, std)", (0, 255), (-2, 2), "takes 123.7 off and divides by 58.4"),
        ("s = Sub(x, mean) n = Identity(s)", (0, 255), (0, 1), "takes 123.7 off (Sub of 's')"),
        ("s = Mul(x, two) n = Add(s, less)", (0, 1), (0, 255), "takes 0.5 off and divides by 0.5"),
        ("s = Cast<to = 1>(x) n = Div(s, most)", (0, 255), (0, 1), "divides by 255 (Div of 'n')"),
    ],
)
def test_data_that_a_model_normalizes_itself(nodes: str, right, wrong, said: str) -> None:
    model = parse(
        f"""g (float[N, 3, 8, 8] x) => (float[N, 8, 8, 8] y) <float[8, 3, 3, 3] w, float[1, 3, 1, 1] mean =
        {{123.675, 123.675, 123.675}}, float[1] std = {{58.4}}, float[1] two = {{2}}, float[1] less = {{-1}},
        float[1] most = {{255}}> {{ {nodes} c = Conv<pads=[1, 1, 1, 1]>(n, w) y = Relu(c) }}"""
    )
    pictures = np.clip(_pictures() / 4, -1, 1) / 2 + 0.5
    for ends, count in ((right, 0), (wrong, 1)):
        low, high = ends
        notes = _notes(model, (low + pictures * (high - low)).astype(np.float32))
        assert len(notes) == count
    assert said in notes[0] and "seems to lack the preprocessing" in notes[0]


def test_what_is_no_normalization_tells_nothing() -> None:
    """A mask that is turned around, and a state of zeros."""
    model = parse(
        """g (float[N, 3, 8, 8] x, float[N, 3, 8, 8] mask, float[N, 3, 8, 8] h) => (float[N, 8, 8, 8] y)
        <float[8, 3, 3, 3] w, float[1] one = {1}, float[1] low = {-1000}, float[1] most = {255}> {
        m = Sub(one, mask) n = Mul(m, low) k = Add(h, most) a = Add(x, n) b = Add(a, k)
        c = Conv<pads=[1, 1, 1, 1]>(b, w) y = Relu(c) }"""
    )
    feeds = [{"x": one[None], "mask": np.ones_like(one[None]), "h": one[None] * 0} for one in _pictures()]
    assert qc_package.compile(model, "w8a8", data=feeds, threads=1).notes == []


@pytest.mark.parametrize(
    ("op", "numbers"),
    [
        ("Mul", "1"),
        ("Add", "0"),
        ("Mul", "inf"),
        ("Div", "inf"),
        ("Mul", "nan"),
        ("Div", "1e-40"),
        ("Sub", ""),
    ],
)
def test_constants_that_normalize_nothing(op: str, numbers: str) -> None:
    model = parse(
        f"""g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) <float[4, 3, 1, 1] w> {{
        k = Constant<value = float[{1 if numbers else 0}] {{{numbers}}}>() n = {op}(x, k) y = Conv(n, w) }}"""
    )
    feeds = [{"x": np.linspace(-1e-3, 1e-3, 192, dtype=np.float32).reshape(1, 3, 8, 8)}]
    assert unlike_normalization(model, None, feeds) == ""


def test_pictures_from_0_to_1_are_told_of_where_others_were_seen_in_training() -> None:
    (note,) = _notes(_trained(), np.clip(_pictures() / 3 + 0.5, 0, 1))
    assert "from 0 to 1, seems to lack the preprocessing" in note
    assert _notes(_trained(), np.clip(_pictures(), -1, 1)) == []


def test_a_network_that_takes_raw_pictures_is_left_alone() -> None:
    model = parse(
        "g (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) <float[4, 3, 1, 1] w, float[4] b>"
        "{ c = Conv(x, w, b)  y = Relu(c) }"
    )
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) / 255, "w"))
    assert _notes(model, (_pictures() + 4) * 30) == []


def test_normalizations_that_were_never_trained_and_random_data_tell_nothing() -> None:
    model = parse(TEXT)
    for tensor in model.graph.initializer:
        if tensor.name == "run_var":
            tensor.CopyFrom(numpy_helper.from_array(np.ones(8, np.float32), "run_var"))
    assert _notes(model, _pictures() * 100) == []
    data = random_data(model_inputs(_trained()), 8, sizes={"N": 4})
    scaled = _trained()
    scaled.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(scaled.graph.initializer[0]) * 100, "w")
    )
    assert qc_package.compile(scaled, "w8a8", data=data, threads=1).notes == []


@pytest.mark.parametrize("count", [1, 3])
def test_very_few_samples_are_told_of(count: int) -> None:
    feeds = [{"x": picture[None]} for picture in _pictures(count)]
    (note,) = qc_package.compile(_trained(), "w8a8", data=feeds, threads=1).notes
    assert f"little calibration data: ranges are those of {count} sample" in note and "may lose more" in note


def test_few_samples_are_told_of_by_the_spread_of_their_ranges() -> None:
    pictures = _pictures(16)
    even = [{"x": picture[None]} for picture in pictures]
    assert qc_package.compile(_trained(), "w8a8", data=even, threads=1).notes == []
    uneven = [{"x": picture[None] * 3.0 ** (index - 4)} for index, picture in enumerate(pictures[:6])]
    notes = qc_package.compile(_trained(), "w8a8", data=uneven, threads=1).notes
    assert any("or more with twice as many samples as these 6" in note for note in notes)


def test_a_batch_is_more_than_one_sample() -> None:
    assert qc_package.compile(_trained(), "w8a8", data=[{"x": _pictures()}], threads=1).notes == []


def test_evaluation_on_data_that_calibration_never_saw_is_told_of(qc) -> None:
    calibration = np.load("calibration.npz")["image"]
    np.savez("other.npz", image=calibration[:16] * 3)
    arguments = ["--calibration", "calibration.npz", "--latency-seconds", "0", "--threads", "1"]
    assert "lie beyond" not in qc("eval", "model.onnx", "--data", "calibration.npz", *arguments).err
    result = qc("eval", "model.onnx", "--data", "other.npz", *arguments)
    assert "of the values of input 'image' lie beyond" in result.err and "saturate" in result.err


@pytest.mark.parametrize(
    "command",
    [
        ["sensitivity", "--data", "other.npz", "--calibration", "calibration.npz", "--samples", "4"],
        ["eval", "--data", "other.npz", "--quantized", "model.q.onnx", "--latency-seconds", "0"],
        ["auto", "--data", "calibration.npz", "--eval-data", "other.npz", "--keep-best", "--minutes", "0.01"],
    ],
)
def test_whatever_judges_tells_of_inputs_beyond_their_grids(qc, command: list[str]) -> None:
    calibration = np.load("calibration.npz")["image"]
    np.savez("other.npz", image=calibration[:16] * 3)
    qc("model.onnx", "--data", "calibration.npz", "--quiet", "--threads", "1")
    result = qc(command[0], "model.onnx", *command[1:], "--threads", "1")
    assert "of the values of input 'image' lie beyond" in result.err and "saturate" in result.err
    result = qc("eval", "model.onnx", "--quantized", "model.q.onnx", "--data", "calibration.npz")
    assert "lie beyond" not in result.err


def test_inputs_that_saturate_are_told_of_in_the_verdict(tmp_path: Path) -> None:
    onnx.save(_trained(), tmp_path / "model.onnx")
    feeds = [{"x": _pictures(8)}] * 4
    right = qc_package.compile(tmp_path / "model.onnx", "w8a8", data=feeds, threads=1)
    assert qc_package.measure_verdict(right, feeds, seconds=0).saturated == ()
    (said,) = qc_package.measure_verdict(right, [{"x": feeds[0]["x"] * 4}], seconds=0).saturated
    assert said.partition("%")[2].startswith(" of the values of input 'x' lie beyond")


def test_a_percentile_that_no_method_uses_is_refused(qc) -> None:
    idle = qc("model.onnx", "--data", "calibration.npz", "--opt", "calibrate.percentile=99")
    assert (idle.code, idle.made) == (2, []) and "changes nothing with method=" in idle.err
    used = ["--opt", "calibrate.percentile=99", "--opt", "calibrate.method=percentile"]
    assert qc("model.onnx", "--data", "calibration.npz", *used).code == 0


def test_a_pipeline_is_text_of_passes_too(qc) -> None:
    assert qc("model.onnx", "--data", "calibration.npz", "--passes", "w8a8").made == ["model.q.onnx"]


def test_sensitivity_takes_as_many_samples_as_tell_the_whole() -> None:
    model = _trained()
    compiled = qc_package.compile(model, "w8a8", data=[{"x": _pictures()}], threads=1)
    even = [{"x": picture[None]} for picture in _pictures(24)]
    late = [*even[:12], *({"x": feed["x"] * 30} for feed in even[12:])]  # saturates far beyond the grid
    assert qc_package.measure_sensitivity(compiled, even, threads=1).feeds < 12
    few, all_of_them = (
        qc_package.measure_sensitivity(compiled, late, samples=samples, threads=1) for samples in (None, 24)
    )
    assert few.feeds < 24 and few.whole_db == pytest.approx(all_of_them.whole_db, abs=1.0)


def test_a_gradual_loss_is_told_of_and_samples_are_left_out(qc) -> None:
    oracle = ["--oracle", "sqnr < 40", "--samples", "4", "--threads", "1"]
    result = qc("bisect", "model.onnx", "--data", "calibration.npz", *oracle)
    assert result.code == 0 and "no quantizer is to blame alone" in result.err
    assert "'qc sensitivity'" in result.err
