"""Small models with one layer or a few, problems of layers, and what is lost by rounding their weights."""

from __future__ import annotations

import numpy as np
import onnx

from qc.ir.model import Model
from qc.passes import PassContext
from qc.passes.optimize.weights.problem import Problem

from .models import random_feeds
from .pipelines import PLACE, Feeds, apply, artifact, run_model

INT4 = (
    PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}") + ",annotate-per-channel,calibrate"
)
LAYERS = {
    "padded convolution": """g (float[4, 3, 8, 8] x) => (float[4, 6, 4, 4] y)
        <float[6, 3, 3, 3] w, float[6] b> { y = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b) }""",
    "groups": """g (float[4, 8, 6, 6] x) => (float[4, 6, 2, 2] y)
        <float[6, 4, 3, 3] w> { y = Conv<group = 2, dilations = [2, 2]>(x, w) }""",
    "depthwise": """g (float[4, 8, 6, 6] x) => (float[4, 8, 6, 6] y)
        <float[8, 1, 3, 3] w> { y = Conv<group = 8, auto_pad = "SAME_UPPER">(x, w) }""",
    "gemm": """g (float[64, 24] x) => (float[64, 6] y)
        <float[6, 24] w, float[6] b> { y = Gemm<transB = 1, alpha = 0.5>(x, w, b) }""",
    "transposed gemm": """g (float[24, 64] x) => (float[64, 6] y)
        <float[24, 6] w> { y = Gemm<transA = 1>(x, w) }""",
    "transposed convolution": """g (float[4, 6, 5, 5] x) => (float[4, 8, 10, 12] y)
        <float[6, 4, 3, 3] w, float[8] b> {
            y = ConvTranspose<group = 2, strides = [2, 2], pads = [1, 1, 1, 0], output_padding = [1, 1]>
                (x, w, b)
        }""",
    "product with the weight on the left": """g (float[4, 24, 16] x) => (float[4, 6, 16] y)
        <float[6, 24] w> { y = MatMul(w, x) }""",
    "product": """g (float[4, 16, 24] x) => (float[4, 16, 6] y) <float[24, 6] w> { y = MatMul(x, w) }""",
}
DEEP = """g (float[8, 3, 8, 8] x) => (float[8, 10] y)
    <float[8, 3, 3, 3] v, float[8] b, float[8, 1, 3, 3] d, float[16, 8, 1, 1] w, float[16, 10] f> {
    c = Conv<pads = [1, 1, 1, 1]>(x, v, b)
    r = Relu(c)
    e = Conv<pads = [1, 1, 1, 1], group = 8>(r, d)
    s = Relu(e)
    t = Conv(s, w)
    u = Relu(t)
    m = GlobalAveragePool(u)
    n = Flatten(m)
    y = MatMul(n, f)
}"""


def problem(rng: np.random.Generator, outputs: int, features: int, bits: int = 4, groups: int = 1) -> Problem:
    """A problem with features that depend on each other."""
    mixed = rng.normal(size=(groups, features, features))
    data = rng.normal(size=(groups, 4 * features, features)) @ mixed
    gram = np.swapaxes(data, 1, 2) @ data / data.shape[1] + 1e-3 * np.eye(features)
    wanted = rng.normal(size=(groups, outputs, features))
    scale = np.broadcast_to(np.abs(wanted).max(2, keepdims=True) / (2 ** (bits - 1) - 1), wanted.shape)
    shared = np.arange(groups * outputs).reshape(groups, outputs, 1).repeat(features, 2)
    weight = wanted + 0.1 * rng.normal(size=wanted.shape)
    limit = 2 ** (bits - 1)
    return Problem(
        wanted, gram, scale, np.zeros_like(wanted), -limit, limit - 1, weight, shared, np.zeros_like(scale)
    )


def compiled(
    source: onnx.ModelProto, feeds: Feeds, passes: str = f"{INT4},round-weights"
) -> tuple[Model, PassContext]:
    return apply(f"{passes},insert-qdq", source, "npu", feeds)[:2]


def error_of(source: onnx.ModelProto, context: PassContext, feeds: Feeds) -> float:
    """The mean square of what the quantized output differs by from the float one, as a share of that."""
    made = artifact(context, "qdq")
    pairs = [(run_model(source, feed)["y"], run_model(made, feed)["y"]) for feed in feeds]
    return float(sum(np.square(b - a).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs))


def dependent_feeds(source: onnx.ModelProto, count: int) -> Feeds:
    """Random feeds whose neighbours are alike, as those of pictures and sentences are, and not of mean 0."""
    found = []
    for feed in random_feeds(source, count):
        x = feed["x"].astype(np.float64)
        for axis in range(x.ndim):
            x = x + np.roll(x, 1, axis)
        found.append({"x": (x + 0.5).astype(np.float32)})
    return found
