"""``qc.measure_sensitivity`` and ``qc sensitivity``: each quantizer on alone, and off alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds

import qc as package
from qc.ir.rewriter import Rewriter
from qc.passes import NullProgress
from qc.sensitivity import sensitivity_heading

CONSTANT = """g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] good, float[4, 4] bad> {
    a = MatMul(x, good)
    r = Relu(a)
    y = MatMul(r, bad)
}"""


class Counting(NullProgress):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.steps = 0
        self.total: int | None = None

    def start(self, description: str, total: int | None) -> Counting:
        self.total, self.steps = total, 0
        return self

    def advance(self, steps: int = 1) -> None:
        self.steps += steps

    def finish(self) -> None:
        pass


def compiled_with_an_outlier() -> package.Compiled:
    """A model one of whose weights has an outlier, which leaves few codes for the rest of it."""
    model = parse(CONSTANT)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "bad")
    array = numpy_helper.to_array(weight).copy()
    array[0, :] = 1e4
    weight.CopyFrom(numpy_helper.from_array(array, "bad"))
    return package.compile(model, "w8a8", data=random_feeds(model, 4), target="ort-cpu", threads=1)


def test_the_quantizer_with_an_outlier_comes_first() -> None:
    compiled = compiled_with_an_outlier()
    feeds = [{"x": np.zeros((2, 4), np.float32) - 1.0}, {"x": np.full((2, 4), 0.5, np.float32)}]
    feeds[0]["x"][:, 3] = 2.0
    result = package.measure_sensitivity(compiled, feeds, threads=1)
    assert result.feeds == 2
    ranked = [row.alone_db for row in result.quantizers]
    assert ranked == sorted(ranked) and all(math.isfinite(ratio) for ratio in ranked[:1])
    assert min(ranked) >= result.whole_db - 1.0
    names = {tensor for row in result.quantizers for tensor in row.tensors}
    assert {"x", "good", "bad"} <= names


def test_the_numbers_are_those_of_single_simulations() -> None:
    compiled = compiled_with_an_outlier()
    feeds = random_feeds(compiled.ir.origin, 3, seed=5)
    result = package.measure_sensitivity(compiled, feeds, samples=2, threads=1)
    simulation = compiled.open_simulation(settable_weights=True, float_biases=True, threads=1)
    off = simulation.with_encodings(dict.fromkeys(simulation.quantizers, "off"))

    def ratio(variant: package.Simulation) -> float:
        pairs = [(off.run(feed)["y"], variant.run(feed)["y"]) for feed in feeds[:2]]
        noise = sum(float(np.sum((x.astype(float) - y) ** 2)) for x, y in pairs)
        signal = sum(float(np.sum(x.astype(float) ** 2)) for x, _ in pairs)
        return 10 * math.log10(signal / noise) if noise else math.inf

    assert result.feeds == 2
    assert result.whole_db == pytest.approx(ratio(simulation))
    assert {row.quantizer for row in result.quantizers} == set(simulation.quantizers)
    for row in result.quantizers:
        own = simulation.quantizers[row.quantizer].encoding
        assert own is not None and row.format == str(own.spec)
        assert row.alone_db == pytest.approx(ratio(off.with_encodings({row.quantizer: own})))
        assert row.without_db == pytest.approx(ratio(simulation.with_encodings({row.quantizer: "off"})))


def test_a_corrected_bias_is_no_harm_of_a_quantizer() -> None:
    """With all quantizers off it would be an error itself, larger than that of any of them."""
    model = parse("""g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w, float[4] b> {
        y = Gemm(x, w, b)
    }""")
    feeds = random_feeds(model, 4)
    compiled = package.compile(model, "w8a8", data=feeds, target="npu", threads=1)
    plain = package.measure_sensitivity(compiled, feeds, threads=1)
    bias = next(value for value in compiled.ir.graph.values() if value.name == "b")
    assert bias.const is not None
    rewriter = Rewriter(compiled.ir)
    with rewriter.action("correct bias", bias):
        rewriter.set_constant(bias, bias.const.numpy() + np.float32(0.5), in_float=False)
    corrected = package.measure_sensitivity(compiled, feeds, threads=1)
    assert corrected.is_corrected and corrected == replace(plain, is_corrected=True)
    assert " dB before biases are corrected; " in sensitivity_heading(corrected, 1)


def test_fewer_bits_harm_more_and_progress_is_told() -> None:
    compiled = compiled_with_an_outlier()
    feeds, progress = random_feeds(compiled.ir.origin, 3), Counting()
    coarse = package.measure_sensitivity(compiled, feeds, bits=3, threads=1, progress=progress)
    assert progress.steps == progress.total == 3 * (1 + 2 * len(coarse.quantizers))
    assert all("int3" in row.format for row in coarse.quantizers)
    assert coarse.whole_db < package.measure_sensitivity(compiled, feeds, threads=1).whole_db


def test_nothing_to_turn_on_and_off() -> None:
    model = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Exp(x) }")
    compiled = package.compile(model, "fold-constants", allow_unquantized=True)
    with pytest.raises(package.UsageError, match="no quantizer can be turned on and off"):
        package.measure_sensitivity(compiled, random_feeds(model))


def test_an_output_must_be_a_float_tensor() -> None:
    model = parse(
        "g (float[2, 4] x) => (int64[2, 1] y) <float[4, 4] w> { a = MatMul(x, w) y = ArgMax<axis = 1>(a) }"
    )
    compiled = package.compile(model, "w8a8", data=random_feeds(model), target="ort-cpu", threads=1)
    with pytest.raises(package.UsageError, match="compares floats, and the outputs have none"):
        package.measure_sensitivity(compiled, random_feeds(model), threads=1)


def test_the_command(qc) -> None:  # type: ignore[no-untyped-def]
    arguments = ["sensitivity", "model.onnx", "--data", "calibration.npz", "--samples", "2", "--threads", "1"]
    result = qc(*arguments, "--top", "3", "--json", "ranks.json")
    assert (result.code, result.made) == (0, ["ranks.json"])
    (wrote,) = result.err.splitlines()
    assert wrote.startswith("wrote ranks.json, ")
    document = json.loads(Path("ranks.json").read_text())
    assert document["feeds"] == 2 and len(document["quantizers"]) == 25
    rows = document["quantizers"]
    assert [row["alone_db"] for row in rows] == sorted(row["alone_db"] for row in rows)
    lines = result.out.splitlines()
    assert result.out.startswith("model.onnx: on 2 samples, all quantizers on have ")
    assert len([line for line in lines if line.startswith("q")]) == 3
    assert rows[0]["tensors"][0] in result.out and f"{rows[0]['alone_db']:.1f} dB" in result.out
    assert qc(*arguments, "--json", "model.onnx").code == 2
    assert qc("sensitivity", "model.onnx").err == (
        "qc: error: there is no data to run on; give it with --data, or --random-data to try out\n"
    )
    assert "'1' is not a number of at least 2" in qc(*arguments, "--bits", "1").err
    assert "'few' is not a number of at least 2" in qc(*arguments, "--bits", "few").err
    assert "17 is more than 16" in qc(*arguments, "--bits", "17").err


def test_the_device_is_looked_at(qc) -> None:  # type: ignore[no-untyped-def]
    result = qc("sensitivity", "model.onnx", "--data", "calibration.npz", "--device", "tpu")
    assert (result.code, result.made) == (2, [])
    assert "unknown device 'tpu'" in result.err
