"""Convolutions by weights that are data run in float with data of formats in which the HTP takes none."""

from __future__ import annotations

import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.placement import reason

import qc

MODEL = """g (float[1, 8, 8, 8] x, float[{weight}] k) => (float[1, 4, {size}, {size}] y)
<float[4, 4, 1, 1] w> {{
    a = Tanh(k)
    p = Abs(x)
    c = {op}(p, a)
    r = Relu(c)
    y = Conv(r, w)
}}"""


def compiled(pipeline: str, op: str = "Conv", target: str = "qnn-htp") -> qc.Compiled:
    weight, size = ("4, 8, 3, 3", 6) if op == "Conv" else ("8, 4, 3, 3", 10)
    model = parse(MODEL.format(op=op, weight=weight, size=size))
    return qc.compile(model, pipeline, data=random_feeds(model, 4), target=target, threads=1)


def types(made: qc.Compiled) -> list[str]:
    return [node.op_type for node in made.model.graph.node if "uantizeLinear" not in node.op_type]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_of_16_bits_one_runs_in_float_between_integers(op: str) -> None:
    """The HTP gave up the model; what is behind keeps ONNX Runtime from making an integer op of it."""
    made = compiled("w8a16", op)
    assert types(made) == ["Tanh", "Abs", op, "LeakyRelu", "Relu", "Conv"]


@pytest.mark.parametrize(("pipeline", "target"), [("w8a8", "qnn-htp"), ("w8a16", "npu")])
def test_others_run_in_integers(pipeline: str, target: str) -> None:
    assert types(compiled(pipeline, target=target)) == ["Tanh", "Abs", "Conv", "Relu", "Conv"]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_check_by_rules_alone(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qc.checking.judging.device_here", lambda _: None)
    model = compiled("w8a16", op).model
    assert runs(model, op) == ("float", "unsupported op")
    kept = next(node for node in model.graph.node if node.op_type == "LeakyRelu")
    for node in model.graph.node:
        node.input[:] = [kept.input[0] if name == kept.output[0] else name for name in node.input]
    model.graph.node.remove(kept)
    assert runs(model, op) == ("breaks", "data weight")
    assert runs(compiled("w8a8", op).model, op) == ("integer", "")


def runs(model: ModelProto, op: str) -> tuple[str, str]:
    """How the first op of a type runs on the HTP, and the rule."""
    return next((one.runs, one.rule) for one in qc.check(model, "qnn-htp").ops if one.op_type == op)


def test_why() -> None:
    model = parse("g (float[1, 8, 8, 8] x, float[4, 8, 3, 3] k) => (float[1, 4, 6, 6] y) { y = Conv(x, k) }")
    data = random_feeds(model, 4)
    made = qc.compile(model, "w8a16", data=data, target="qnn-htp", threads=1, allow_unquantized=True)
    assert "does not run it in uint16 with a weight that is data" in reason(made.ir, "y")
