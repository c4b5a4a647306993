"""The verdict on lengths of sequences that no sample has: attention to few places gives larger numbers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper, parser
from support.models import parse

import qc
from qc.verdict.words import verdict_notes

WIDTH = 32
ENCODER = f"""<ir_version: 10, opset_import: ["": 21]>
encoder (int64[n, s] ids) => (float[n, s, {WIDTH}] y) {{{{
    e = Gather(table, ids)
    q = MatMul(e, wq)
    k = MatMul(e, wk)
    v = MatMul(e, wv)
    kt = Transpose<perm = [0, 2, 1]>(k)
    scores = MatMul(q, kt)
    weights = {{weights}}
    c = MatMul(weights, v)
    y = MatMul(c, wo)
}}}}"""


def encoder(weights: str = "Softmax<axis = -1>(scores)") -> ModelProto:
    """An encoder that averages over all places."""
    model, random = parser.parse_model(ENCODER.format(weights=weights)), np.random.default_rng(0)
    for name, size in (("wq", 0.05), ("wk", 0.05), ("wv", 0.2), ("wo", 0.2)):
        weight = (size * random.normal(size=(WIDTH, WIDTH))).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    table = random.normal(size=(64, WIDTH)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    return model


def notes(model: ModelProto, shapes: list[tuple[int, int]], **settings: object) -> list[str]:
    """What is said of lengths after a compilation on samples of these shapes."""
    random = np.random.default_rng(1)
    feeds = [{"ids": random.integers(0, 64, shape)} for shape in shapes]
    compiled = qc.compile(model, data=feeds, threads=1, **settings)
    found = verdict_notes(qc.measure_verdict(compiled, feeds, with_costs=False, seconds=600))
    return [note for note in found if "length" in note]


def test_what_is_lost_at_a_length_that_no_sample_has_is_told() -> None:
    (note,) = notes(encoder(), [(1, 64)] * 16)
    assert note.startswith("all sequences of the data have length 64, and at length 8 outputs have ")
    assert note.endswith("give data of all lengths that are in use")


@pytest.mark.parametrize(
    ("weights", "shapes", "settings"),
    [
        ("Softmax<axis = -1>(scores)", [(1, 64), (1, 8)] * 8, {}),  # more than one length was seen
        ("Tanh(scores)", [(1, 64)] * 16, {}),  # sums of fewer numbers are within the ranges
        ("Softmax<axis = -1>(scores)", [(1, 64)] * 16, {"fix_shapes": ("s=64",)}),
        ("Softmax<axis = -1>(scores)", [(16, 15)] * 16, {}),  # batches, too short to be cut
    ],
)
def test_no_note_cries_wolf(weights: str, shapes: list[tuple[int, int]], settings: dict) -> None:
    assert notes(encoder(weights), shapes, **settings) == []


def test_pictures_are_not_cut() -> None:
    model = parse("""net (float[n, 3, h, w] x) => (float[n, 4] y) <float[3, 4] v> {
        p = GlobalAveragePool(x) f = Flatten(p) y = MatMul(f, v) }""")
    random = np.random.default_rng(0)
    feeds = [{"x": random.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(16)]
    compiled = qc.compile(model, data=feeds, threads=1)
    assert qc.measure_verdict(compiled, feeds, with_costs=False).shortened is None
