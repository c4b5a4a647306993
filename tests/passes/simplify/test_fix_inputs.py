"""Values for inputs of one number: the branch that they choose stays, and callers need no change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc
from qc.cli import main
from qc.compiler import Compilation
from qc.ir.errors import DataError, UsageError
from qc.runtime import OrtExecutor, ShardedExecutor, load_data, model_inputs, random_data
from qc.verdict.measure import measure_verdict

TEXT = """g (float[4, 8] x, int64 rate) => (float[4, 3] y) <float[8, 3] wide_w, float[8, 3] narrow_w> {
    wide = Constant<value = int64 {16000}>()
    is_wide = Equal(rate, wide)
    y = If<then_branch = yes () => (float[4, 3] a) { a = MatMul(x, wide_w) },
           else_branch = no () => (float[4, 3] b) { b = MatMul(x, narrow_w) }>(is_wide)
}"""


def feeds(rate: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        {"x": random.normal(0, 1, (4, 8)).astype(np.float32), "rate": np.asarray(rate, np.int64)}
        for _ in range(4)
    ]


@pytest.mark.parametrize("rate", [16000, 8000])
@needs_exact_sums
def test_the_branch_of_the_value_stays_and_is_quantized(rate: int) -> None:
    model, data = parse(TEXT), feeds(rate)
    made = qc.compile(model, data=data, target="qnn-htp", fix_inputs=(f"rate={rate}",)).model
    assert "If" not in {node.op_type for node in made.graph.node}
    assert [info.name for info in made.graph.input] == ["x", "rate"]
    (found,), (wanted,) = (qc.runtime.OpenModel(one).run(data[0]).values() for one in (made, model))
    assert np.abs(found - wanted).max() < 0.1 * np.abs(wanted).max()


def test_an_input_whose_free_length_becomes_one_has_a_value() -> None:
    text = "g (float[n, 4] x, int64[n] last) => (float[n, 4] y) <float[4, 4] w> { h = MatMul(x, w)  %s }"
    model = parse(text % "f = Cast<to = 1>(last)  y = Mul(h, f)")
    data = [{"x": np.ones((1, 4), np.float32), "last": np.int64([3])}]
    fixed = {"fix_shapes": ("n=1",), "fix_inputs": ("last=3",)}
    made = qc.compile(model, data=data, target="qnn-htp", **fixed).model
    assert "Cast" not in {node.op_type for node in made.graph.node}
    with pytest.raises(UsageError, match=r"'last' is int64\[n\]; only an input of one number"):
        qc.compile(model, data=data, target="qnn-htp", fix_inputs=("last=3",))


def test_auto_fixes_them_too() -> None:
    found = qc.find_recipe(
        parse(TEXT), data=feeds(8000), fix_inputs=("rate=8000",), target="qnn-htp", max_drop="50%"
    )
    assert found.compiled is not None
    assert "If" not in {node.op_type for node in found.compiled.model.graph.node}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("rat=1", "'rat', which is no input .did you mean 'rate'"),
        ("x=1", r"'x' is float\[4,8\]; only an input of one number can be fixed"),
        ("rate=1.5", "1.5 is no number for 'rate', which is int64"),
        ("rate", "'rate' is not of the form NAME=NUMBER"),
        ("rate=1e400", "'rate=1e400' is not of the form NAME=NUMBER, with a finite number"),
        ("rate=nan", "'rate=nan' is not of the form NAME=NUMBER, with a finite number"),
    ],
)
def test_wrong_values_are_named(value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        qc.compile(parse(TEXT), data=feeds(8000), target="qnn-htp", fix_inputs=(value,))


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="fix-inputs: 'rate' cannot be both 8000 and 16000"):
        qc.compile(parse(TEXT), data=feeds(8000), target="qnn-htp", fix_inputs=("rate=8000", "rate=16000"))


def test_a_result_is_compared_with_the_float_model_that_has_the_same_inputs() -> None:
    """A Dropout that data turns on would drop other numbers in every run of the float model."""
    model = parse(
        "g (float[4, 16] x, bool train) => (float[4, 8] y) <float[16, 8] w, float half = {0.5}> {"
        " d = Dropout(x, half, train) y = MatMul(d, w) }"
    )
    fed = [{**feed, "train": np.array(True)} for feed in random_feeds(model, 4)]
    compilation = Compilation(
        model, "w8a8", data=fed, fix_inputs=("train=false",), target="ort-cpu", threads=1
    )
    exact = run_model(compilation.reference(), fed[0])["y"]
    np.testing.assert_allclose(exact, run_model(model, {**fed[0], "train": np.array(False)})["y"], rtol=1e-5)
    accuracy = measure_verdict(compilation.compile(), fed, with_costs=False).accuracy
    assert accuracy is not None and accuracy.sqnr_db is not None and accuracy.sqnr_db > 25
    assert Compilation(model, "w8a8", data=fed).reference() is model


def test_data_need_not_have_a_fixed_input(tmp_path: Path) -> None:
    model, whole = parse(TEXT), feeds(16000)
    given = {"target": "qnn-htp", "fix_inputs": ("rate=16000",), "threads": 1}
    wanted = qc.compile(model, data=whole, **given).model.SerializeToString()
    parts = [{"x": feed["x"]} for feed in whole]
    pairs = [(feed["x"], feed["rate"]) for feed in whole]
    stacked = {"x": np.stack([feed["x"] for feed in whole])}
    for data in (parts, pairs, [(feed["x"],) for feed in whole], stacked):
        made = qc.compile(model, data=data, **given)
        assert made.model.SerializeToString() == wanted
        assert qc.measure_verdict(made, data).accuracy is not None
    folder = tmp_path / "kept"
    folder.mkdir()
    Compilation(model, data=parts, **given).dump(folder)
    assert Compilation.load(folder).compile().model.SerializeToString() == wanted
    executor = ShardedExecutor(OrtExecutor(threads=1), lambda: ThreadPoolExecutor(2), 2)
    assert qc.compile(model, data=stacked, executor=executor, **given).model.SerializeToString() == wanted
    assert qc.compile(model, data=random_data(made.inputs, 4), **given).coverage.formats
    with pytest.raises(DataError, match="no array for the input 'rate'"):
        list(load_data(parts, model_inputs(model)))


def test_an_input_that_is_one_number_by_a_fixed_length_need_not_be_there() -> None:
    text = "g (float[n, 4] x, int64[n] last) => (float[n, 4] y) <float[4, 4] w> { h = MatMul(x, w)  %s }"
    model = parse(text % "f = Cast<to = 1>(last)  y = Mul(h, f)")
    fixed = {"fix_shapes": ("n=1",), "fix_inputs": ("last=3",), "target": "qnn-htp", "threads": 1}
    data = [{"x": np.ones((1, 4), np.float32)}]
    made = qc.compile(model, data=data, **fixed)
    assert qc.measure_verdict(made, data).accuracy is not None


def test_auto_and_the_command_line_do_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(TEXT), "m.onnx")
    np.savez("x.npz", x=np.stack([feed["x"] for feed in feeds(16000)]))
    common = ("m.onnx", "--data", "x.npz", "--fix-input", "rate=16000", "--threads", "1")
    found = ("auto", *common, "--eval-data", "x.npz", "--max-drop", "50%", "-q", "-o", "a.onnx")
    assert main(list(found)) == 0
    recipe = ["m.onnx", "--data", "x.npz", "--pipeline", "a.recipe.toml", "-o", "b.onnx", "--no-verdict"]
    assert main(recipe) == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    assert main(["eval", *common, "--quantized", "a.onnx", "--latency-seconds", "0"]) == 0
