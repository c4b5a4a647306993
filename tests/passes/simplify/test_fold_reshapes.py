"""fold-constants lets a Reshape find the only length that is computed for it."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse

import qc
from qc.ir.facts.constants import initializer
from qc.runtime import open_session

LENGTHS = "s = Shape(x)  n = Gather(s, zero)  u = Unsqueeze(n, front)"
CONSTANTS = (
    "int64 zero = {0}, int64[1] front = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}"
)


def folded(body: str, batches: tuple[int, ...] = (3, 1, 0)) -> qc.Compiled:
    model = parse(f"g (float[N, 4, T] x) => (float[A, B, C] y) <{CONSTANTS}> {{ {LENGTHS}  {body} }}")
    made = qc.compile(model, "fold-constants", allow_unquantized=True)
    for batch in batches:
        x = np.random.default_rng(0).normal(size=(batch, 4, 2)).astype(np.float32)
        results = [open_session(one).run(None, {"x": x})[0] for one in (model, made.model)]
        np.testing.assert_array_equal(*results)
    return made


def ops(made: qc.Compiled) -> list[str]:
    return [op.op_type for op in made.ir.graph.ops()]


def test_a_free_batch_follows_from_the_others() -> None:
    made = folded("l = Concat<axis = 0>(u, two, four)  y = Reshape(x, l)")
    assert ops(made) == ["Reshape"]
    (reshape,) = made.ir.graph.ops()
    shape = initializer(reshape.inputs[1])
    assert shape is not None and shape.numpy().tolist() == [-1, 2, 4]


def test_what_else_reads_the_lengths_keeps_them() -> None:
    made = folded("l = Concat<axis = 0>(u, two, four)  r = Reshape(x, l)  c = Cast<to = 1>(u)  y = Add(r, c)")
    assert "Shape" in ops(made) and "Concat" not in ops(made)


@pytest.mark.parametrize(
    "lengths",
    [
        "k = Gather(s, two)  l = Concat<axis = 0>(u, four, k)",  # two are free
        "minus = Neg(one)  l = Concat<axis = 0>(u, four, minus)",  # one follows already
        "none = Sub(one, one)  l = Concat<axis = 0>(u, none, two)",  # one is that of the data
        "k = Shape<start = 1>(x)  l = Concat<axis = 0>(u, k)",  # one that is computed, of two elements
    ],
)
def test_other_lengths_stay(lengths: str) -> None:
    made = folded(f"{lengths}  y = Reshape(x, l)", batches=(3, 1))
    assert "Concat" in ops(made)


def test_a_shape_that_is_computed_as_a_whole_stays() -> None:
    assert "Shape" in ops(folded("y = Reshape(x, s)"))
