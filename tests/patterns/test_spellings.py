"""Every spelling of every supergroup is found, whole and under its name, and computes what the name says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from support.models import random_feeds
from support.pipelines import run_model
from support.spellings import SPELLINGS, Spelling

from qc.ir import lift
from qc.patterns import blocks, find_all, is_block, supergroups

_erf = np.vectorize(math.erf)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "layer_norm": lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    "rms_norm": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    "l2_norm": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "relu6": lambda x: np.clip(x, 0, 6),
    "clip": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.1 * x),
    "prelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "softplus": lambda x: np.log1p(np.exp(x)),
}
_NEWEST_OPSET = 21  # of the oldest ONNX Runtime that qc supports


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_spelling(spelling: Spelling) -> None:
    graph = lift(spelling.model()).graph
    matches = find_all(graph, blocks() if is_block(spelling.group) else supergroups())
    found = [match for match in matches if match.name == spelling.group]
    assert len(found) == 1, [str(match) for match in matches]
    outside = [op.op_type for op in graph.ops() if op not in found[0].ops and op.op_type != "Constant"]
    assert outside == spelling.outside.split()


def test_the_spellings_have_names_of_their_own() -> None:
    names = [str(spelling) for spelling in SPELLINGS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "spelling",
    [
        spelling
        for spelling in SPELLINGS
        if spelling.group in FORMULAS
        and spelling.opset <= _NEWEST_OPSET
        and "unbiased" not in spelling.source
    ],
    ids=str,
)
def test_a_spelling_computes_what_its_name_says(spelling: Spelling) -> None:
    model = spelling.model()
    half = model.graph.input[0].type.tensor_type.elem_type == 10
    x = np.random.default_rng(0).normal(size=(2, 4, 8)) * 3
    feed = {"x": x.astype(np.float16 if half else np.float32)}
    if len(model.graph.input) > 1:
        feed["scale"] = np.ones(8, np.float32)
    expected = FORMULAS[spelling.group](feed["x"].astype(np.float64))
    np.testing.assert_allclose(run_model(model, feed)["y"], expected, rtol=0, atol=4e-3)


@pytest.mark.parametrize(
    "spelling",
    [spelling for spelling in SPELLINGS if spelling.meaning and spelling.opset <= _NEWEST_OPSET],
    ids=str,
)
def test_a_spelling_computes_what_an_op_of_onnx_computes(spelling: Spelling) -> None:
    model, reference = spelling.model(), spelling.reference()
    feeds = random_feeds(model, 1)[0]
    (expected,) = ReferenceEvaluator(reference).run(["y"], feeds)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, rtol=0, atol=1e-3)
