"""A language model with weights of 4 bits, in blocks of 32 and by channels, judged by its perplexity.

`python bigrams.py`. It predicts the next character of Python's own sources from the one before.
"""

import inspect
import textwrap

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import qc

SYMBOLS, WIDTH = 96, 64  # the printable characters of ASCII and all others, and the width of the model
NETWORK = f"""<ir_version: 10, opset_import: ["": 21]>
bigrams (int64[n] tokens) => (float[n, {SYMBOLS}] logits) {{
    embedded = Gather (embedding, tokens)
    logits = MatMul (embedded, head)
}}"""


def tokens_of(module: object) -> np.ndarray:
    """The characters of the sources of a module, int64, shape ``(length,)``."""
    codes = np.frombuffer(inspect.getsource(module).encode(), np.uint8).astype(np.int64) - 32
    return np.where((codes >= 0) & (codes < SYMBOLS - 1), codes, SYMBOLS - 1)


def network(tokens: np.ndarray) -> onnx.ModelProto:
    """The logarithms of how often a character follows another, as a product of two small matrices."""
    counts = np.full((SYMBOLS, SYMBOLS), 0.01)
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    left, strengths, right = np.linalg.svd(np.log(counts / counts.sum(axis=1, keepdims=True)))
    weights = {
        "embedding": left[:, :WIDTH] * np.sqrt(strengths[:WIDTH]),
        "head": np.sqrt(strengths[:WIDTH, None]) * right[:WIDTH],
    }
    model = onnx.parser.parse_model(NETWORK)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def perplexity(path: str, tokens: np.ndarray) -> float:
    """How many characters the model hesitates between: exp of the mean negative log likelihood."""
    logits = onnxruntime.InferenceSession(path).run(None, {"tokens": tokens[:-1]})[0].astype(float)
    likelihood = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.exp(-likelihood[np.arange(len(logits)), tokens[1:]].mean())


text = tokens_of(inspect)
onnx.save(network(text), "model.onnx")
feeds = [{"tokens": text[start : start + 128]} for start in range(0, 4096, 128)]
for pipeline in ("w4-block32", "w4a8"):
    compiled = qc.compile("model.onnx", pipeline, data=feeds)
    compiled.save(f"model.{pipeline}.onnx")
for name in ("model", "model.w4-block32", "model.w4a8"):
    print(f"{name} {perplexity(f'{name}.onnx', tokens_of(textwrap)):.2f}")
