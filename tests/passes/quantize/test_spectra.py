"""What only a logarithm sees stays float: a grid errs alike for loud and quiet numbers. So do angles."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse

import qc
from qc.ir import lift
from qc.passes.quantize.placement.spectra import before_angles, before_logarithms

# The power of a transform, summed to bands, and a layer behind its logarithm.
SPECTROGRAM = """g (float[1, 40, 64] x) => (float[1, 40, 8] y)
    <float[64, 33] cosine, float[64, 33] sine, float[33, 16] bands, float least = {1e-10}, float[16, 8] w> {
    a = MatMul(x, cosine)
    b = MatMul(x, sine)
    c = Mul(a, a)
    d = Mul(b, b)
    e = Add(c, d)
    f = MatMul(e, bands)
    h = Max(f, least)
    i = Log(h)
    y = MatMul(i, w)
}"""


def spectrogram() -> ModelProto:
    model = parse(SPECTROGRAM)
    time, frequency = np.arange(64)[:, None], np.arange(33)[None]
    angle = 2 * np.pi * time * frequency / 64
    window = np.hanning(64)[:, None]
    constants = {
        "cosine": window * np.cos(angle),
        "sine": window * np.sin(angle),
        "bands": np.repeat(np.eye(17), 2, axis=0)[:33, :16],
        "w": np.random.default_rng(1).normal(size=(16, 8)),
    }
    for tensor in model.graph.initializer:
        if tensor.name in constants:
            tensor.raw_data = constants[tensor.name].astype(np.float32).tobytes()
            tensor.ClearField("float_data")
    return model


def tones() -> list[dict[str, np.ndarray]]:
    """Loud low tones, and high ones that are a thousand times quieter."""
    rng = np.random.default_rng(0)
    time = np.arange(40 * 64).reshape(1, 40, 64) / 64
    return [
        {
            "x": (
                np.sin(2 * np.pi * rng.uniform(2, 6) * time)
                + 1e-3 * np.sin(2 * np.pi * rng.uniform(15, 30) * time)
            ).astype(np.float32)
        }
        for _ in range(8)
    ]


def ops_of(model: ModelProto) -> set[str]:
    return {op.op_type + ":" + op.outputs[0].name for op in before_logarithms(lift(model).graph)}


def test_a_spectrogram_keeps_its_quiet_numbers() -> None:
    model, feeds = spectrogram(), tones()
    compiled = qc.compile(model, data=feeds)
    quantized = qc.compile(
        model,
        "match-supergroups,insert-quantizers{spectra=integer},annotate-per-channel,calibrate,insert-qdq",
        data=feeds,
    )
    score = qc.runtime.evaluate(
        model, {"float": compiled.model, "integer": quantized.model}, feeds, latency_seconds=0
    )
    kept, lost = (one.worst_sqnr_db for one in score.candidates)
    assert kept > 35 > 20 > lost
    assert compiled.coverage.ops["MatMul"] == (1, 4)  # the layer behind the logarithm
    assert "logarithm" in {one.name: one.reason for one in compiled.coverage.unquantized}["a"]


def test_the_search_ends_at_the_network() -> None:
    assert ops_of(spectrogram()) == {
        "MatMul:a",
        "MatMul:b",
        "Mul:c",
        "Mul:d",
        "Add:e",
        "MatMul:f",
        "Max:h",
    }


@pytest.mark.parametrize(
    "between",
    ["p = Softmax(a)", "p = Relu(a)", "p = Sigmoid(a)", "p = Exp(a)", "s = Sigmoid(a)\n p = Mul(a, s)"],
)
def test_logarithms_of_probabilities_are_no_spectra(between: str) -> None:
    model = parse(
        f"""g (float[1, 4, 16] x) => (float[1, 4, 8] y) <float[16, 8] w> {{
            a = MatMul(x, w)
            {between}
            y = Log(p)
        }}"""
    )
    assert not any(name.startswith("MatMul") for name in ops_of(model))


def test_what_somebody_else_sees_too_is_quantized() -> None:
    model = parse(
        """g (float[1, 4, 16] x) => (float[1, 4, 8] y, float[1, 4, 8] z) <float[16, 8] w, float[8, 8] v> {
            a = MatMul(x, w)
            p = Mul(a, a)
            y = Log(p)
            z = MatMul(a, v)
        }"""
    )
    assert ops_of(model) == {"Mul:p"}


# Angles of 200 positions, as transformers rotate queries and keys by them, and a layer behind.
ANGLES = """g (int64[200] position) => (float[200, 4] y)
    <int64[1] axis = {1}, float[1, 8] frequency, float[16, 4] w> {
    a = Unsqueeze(position, axis)
    b = Cast<to = 1>(a)
    c = MatMul(b, frequency)
    d = Cos(c)
    e = Sin(c)
    f = Concat<axis = 1>(d, e)
    y = MatMul(f, w)
}"""


def test_angles_stay_float() -> None:
    model = parse(ANGLES)
    for tensor in model.graph.initializer:
        if tensor.name == "frequency":
            frequencies = np.geomspace(1, 1e-3, 8, dtype=np.float32)[np.newaxis]
            tensor.CopyFrom(numpy_helper.from_array(frequencies, tensor.name))
    feeds = [{"position": np.arange(200)}]
    made, all_the_same = (
        qc.compile(model, f"match-supergroups,insert-quantizers{options},calibrate,insert-qdq", data=feeds)
        for options in ("", "{spectra=integer}")
    )
    score = qc.runtime.evaluate(
        model, {"float": made.model, "integer": all_the_same.model}, feeds, latency_seconds=0
    )
    kept, lost = (one.worst_sqnr_db for one in score.candidates)
    assert kept > 35 > 20 > lost
    assert "angle" in {one.name: one.reason for one in made.coverage.unquantized}["c"]


def test_a_sine_alone_is_an_activation() -> None:
    model = parse(ANGLES.replace("Cos(c)", "Sin(c)"))
    assert not before_angles(lift(model).graph)
    assert {op.op_type for op in before_angles(lift(parse(ANGLES)).graph)} == {"Unsqueeze", "Cast", "MatMul"}
