"""Attention with masks in the spellings of exporters."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from .models import parse

LENGTH = 12
# Spellings of a mask in front of Softmax; ``{far}`` is the number that masks.
SPELLINGS = {
    "where": ("bool[2, 1, 1, 12] m", "w = Where(m, s, far)"),
    "where behind a shape": (
        "bool[2, 1, 12, 1] m",
        "t = Transpose<perm=[0, 1, 3, 2]>(s)\n u = Where(m, t, far)\n w = Transpose<perm=[0, 1, 3, 2]>(u)",
    ),
    "added, from the input": ("float[2, 1, 1, 12] m", "w = Add(s, m)"),
    "added, computed": (
        "int64[2, 1, 1, 12] m",
        "f = Cast<to=1>(m)\n i = Sub(one, f)\n j = Mul(i, far)\n w = Add(j, s)",
    ),
    "added and limited": ("float[2, 1, 1, 12] m", "u = Add(s, m)\n w = Max(u, low)"),
}


def attention(spelling: str, far: float) -> ModelProto:
    mask, body = SPELLINGS[spelling]
    return parse(
        f"""g (float[2, 12, 16] x, {mask}) => (float[2, 2, 12, 8] y)
        <float[16, 16] wq, float[16, 16] wk, float[16, 16] wv, float far = {{{far}}}, float one = {{1}},
         float low = {{-3.4028235e38}}, float scale = {{0.35}}, int64[4] shape = {{2, 12, 2, 8}}> {{
            q0 = MatMul(x, wq)
            k0 = MatMul(x, wk)
            v0 = MatMul(x, wv)
            q1 = Reshape(q0, shape)
            k1 = Reshape(k0, shape)
            v1 = Reshape(v0, shape)
            q2 = Transpose<perm=[0, 2, 1, 3]>(q1)
            k2 = Transpose<perm=[0, 2, 3, 1]>(k1)
            v2 = Transpose<perm=[0, 2, 1, 3]>(v1)
            p = MatMul(q2, k2)
            s = Mul(p, scale)
            {body}
            a = Softmax(w)
            y = MatMul(a, v2)
        }}"""
    )


def feeds_of(model: ModelProto, far: float, count: int = 8) -> list[dict[str, np.ndarray]]:
    """Sequences of different lengths; a mask that is added holds ``far``, any other 1 where there is data."""
    rng = np.random.default_rng(0)
    info = model.graph.input[1].type.tensor_type
    shape = [dim.dim_value for dim in info.shape.dim]
    feeds = []
    for _ in range(count):
        given = np.arange(LENGTH)[None, :] < rng.integers(3, LENGTH + 1, 2)[:, None]
        mask = given.reshape(shape)
        kinds = {1: np.where(mask, 0, far).astype(np.float32), 7: mask.astype(np.int64), 9: mask}
        x = rng.normal(size=(2, LENGTH, 16)).astype(np.float32) * 0.3
        feeds.append({"x": x, "m": kinds[info.elem_type]})
    return feeds


def sqnr(floats: np.ndarray, rounded: np.ndarray) -> float:
    """Signal to noise in dB."""
    return float(10 * np.log10(np.mean(floats**2) / np.mean((floats - rounded) ** 2)))
