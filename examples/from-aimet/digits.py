"""Pictures of digits, and a small network that knows them, which is made in a second."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, numpy_helper

SIZE = 10
# The strokes of each digit on a display of seven, and where they lie: top, left, bottom and right.
_STROKES = ("1110111", "0010010", "1011101", "1011011", "0111010")
_STROKES += ("1101011", "1101111", "1010010", "1111111", "1111011")
_PLACES = ((0, 1, 1, 5), (1, 0, 4, 1), (1, 5, 4, 6), (4, 1, 5, 5), (5, 0, 8, 1), (5, 5, 8, 6), (8, 1, 9, 5))
_NETWORK = f"""<ir_version: 8, opset_import: ["": 17]>
digits (float[n, 1, {SIZE}, {SIZE}] x) => (float[n, 10] y) {{
    c0 = Conv <pads = [1, 1, 1, 1]> (x, w0)
    n0 = BatchNormalization (c0, gamma0, beta0, mean0, variance0)
    r0 = Relu (n0)
    c1 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (r0, w1)
    n1 = BatchNormalization (c1, gamma1, beta1, mean1, variance1)
    r1 = Relu (n1)
    c2 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (r1, w2)
    n2 = BatchNormalization (c2, gamma2, beta2, mean2, variance2)
    r2 = Relu (n2)
    f = Flatten (r2)
    y = Gemm (f, w3, b3)
}}"""


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of digits, float32, shape ``(count, 1, 10, 10)``, and which digits they are.

    They lie anywhere, each stroke is as bright as chance has it, and there is noise.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    pictures = random.normal(scale=0.1, size=(count, 1, SIZE, SIZE))
    for picture, label in zip(pictures[:, 0], labels, strict=True):
        down, along = random.integers(0, (SIZE - 9, SIZE - 6))
        for stroke, (top, left, bottom, right) in zip(_STROKES[label], _PLACES, strict=True):
            if stroke == "1":
                picture[down + top : down + bottom, along + left : along + right] += random.uniform(0.6, 1.4)
    return pictures.astype(np.float32), labels


def feeds(count: int) -> list[dict[str, np.ndarray]]:
    """Pictures one by one, as calibration takes them."""
    return [{"x": picture[None]} for picture in digits(count, seed=3)[0]]


def network() -> ModelProto:
    """Three convolutions with BatchNormalization and Relu, and a product with a bias.

    Filters are random; the statistics are those of pictures, and the product is the best one by least squares
    (an extreme learning machine).
    """
    random = np.random.default_rng(0)
    pictures, labels = digits(2000, seed=1)
    weights: dict[str, np.ndarray] = {}
    for layer, (channels, filters) in enumerate(((1, 12), (12, 24), (24, 32))):
        weights[f"w{layer}"] = random.normal(size=(filters, channels, 3, 3)) / np.sqrt(9 * channels)
        made = _computed(weights, f"c{layer}", pictures)
        weights |= {f"mean{layer}": made.mean((0, 2, 3)), f"variance{layer}": made.var((0, 2, 3))}
        weights |= {f"gamma{layer}": random.uniform(0.5, 1.5, filters)}
        weights |= {f"beta{layer}": random.normal(scale=0.3, size=filters)}
    features = np.hstack([_computed(weights, "f", pictures), np.ones((len(labels), 1))])
    gram = features.T @ features + 10 * np.eye(features.shape[1])
    best = np.linalg.solve(gram, features.T @ np.eye(10)[labels])
    return _model(weights | {"w3": best[:-1], "b3": best[-1]})


def accuracy(session: onnxruntime.InferenceSession, pictures: np.ndarray, labels: np.ndarray) -> float:
    """The share of the pictures whose digit gets the highest score."""
    (scores,) = session.run(None, {"x": pictures})
    return float(np.mean(scores.argmax(1) == labels))


def _model(weights: dict[str, np.ndarray]) -> ModelProto:
    model = onnx.parser.parse_model(_NETWORK)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def _computed(weights: dict[str, np.ndarray], tensor: str, pictures: np.ndarray) -> np.ndarray:
    """What the network computes in between, from the weights that there are."""
    model = _model(weights)
    del model.graph.node[[node.name for node in model.graph.node].index(tensor) + 1 :], model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name=tensor))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": pictures})[0]
