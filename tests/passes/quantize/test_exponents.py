"""What Exp reads keeps its largest numbers, which count most behind it."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse

import qc

# The head of a detector: lengths as powers of e, and scores beside them.
HEAD = """g (float[1, 16, 512] x) => (float[1, 4, 512] lengths, float[1, 4, 512] scores)
    <float[8, 16] w, float factor = {1.5}, float stride = {8}, int64[1] axis = {1},
     int64[1] start = {0}, int64[1] middle = {4}, int64[1] end = {8}> {
    h = MatMul(w, x)
    a = Slice(h, start, middle, axis)
    b = Slice(h, middle, end, axis)
    c = Mul(a, factor)
    e = Exp(c)
    lengths = Mul(e, stride)
    scores = Sigmoid(b)
}"""


def made(text: str, target: str, method: str = "mse") -> qc.Compiled:
    rng = np.random.default_rng(0)
    feeds = [
        {"x": (rng.uniform(0.5, 2) * rng.normal(size=(1, 16, 512))).astype(np.float32)} for _ in range(16)
    ]
    calibrate = f"calibrate{{method={method}}}"
    passes = f"match-supergroups,insert-quantizers,annotate-per-channel,tie-quantizers,{calibrate}"
    return qc.compile(parse(text), f"{passes},insert-qdq", target=target, data=feeds)


def top(compiled: qc.Compiled, name: str) -> float:
    held = compiled.ir.quant.of_value(next(one for one in compiled.ir.graph.values() if one.name == name))
    assert held is not None and held.encoding is not None
    return float(held.encoding.maximum)


@pytest.mark.parametrize("target", ["npu", "qnn-htp"])
def test_the_largest_numbers_in_front_of_exp_are_kept(target: str) -> None:
    kept = made(HEAD, target)
    assert top(kept, "h") == pytest.approx(top(made(HEAD, target, "min-max"), "h"), rel=0.01)
    assert top(kept, "h") > top(made(HEAD.replace("Exp", "Tanh"), target), "h")
    assert top(kept, "h") > top(made(HEAD.replace("c = Mul(a, factor)", "c = Neg(a)"), target), "h")
    limited = HEAD.replace("c = Mul(a, factor)", "c = Clip(a, , most)").replace(
        "factor = {1.5}", "most = {60}"
    )
    assert top(made(limited, target), "h") == pytest.approx(top(kept, "h"), rel=0.01)
