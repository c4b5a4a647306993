"""An AveragePool in the form that a device runs computes what it did."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto
from support.decomposed import agree, types
from support.models import parse

import qc


def pooled(attributes: str) -> tuple[ModelProto, ModelProto]:
    """A model of an AveragePool, and as it is for the HTP."""
    model = parse(f"""<ir_version: 9, opset_import: ["" : 19]>
    g (float[1, 3, 7, 8] x) => (float[1, 3, H, W] y) {{ y = AveragePool<{attributes}>(x) }}""")
    return model, qc.compile(model, "decompose-ops", target="qnn-htp").model


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("kernel_shape = [2, 2], strides = [2, 2]", ["AveragePool"]),
        ("kernel_shape = [3, 3], strides = [2, 1], ceil_mode = 1", ["AveragePool"]),
        ("kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1", ["AveragePool"]),
        ("kernel_shape = [4, 4], strides = [3, 3], ceil_mode = 1, pads = [0, 1, 0, 1]", ["AveragePool"]),
        ("kernel_shape = [4, 4], strides = [4, 4], ceil_mode = 1, pads = [0, 1, 0, 0]", ["Conv", "Mul"]),
        ("kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1, count_include_pad = 1", ["Conv", "Mul"]),
        ("kernel_shape = [3, 3], pads = [2, 2, 2, 2]", ["Conv", "Mul"]),
        ("kernel_shape = [3, 3], pads = [1, 1, 1, 1]", ["AveragePool"]),
        ("kernel_shape = [3, 3], dilations = [2, 2]", ["Conv"]),
        ("kernel_shape = [2, 2], dilations = [8, 8], pads = [1, 1, 1, 1]", ["Conv", "Mul"]),
        ('kernel_shape = [3, 3], auto_pad = "SAME_UPPER"', ["AveragePool"]),
        ('kernel_shape = [8, 8], strides = [8, 8], auto_pad = "SAME_LOWER"', ["GlobalAveragePool"]),
        (
            'kernel_shape = [9, 9], strides = [8, 8], auto_pad = "SAME_UPPER", count_include_pad = 1',
            ["AveragePool"],
        ),
    ],
)
def test_no_window_reaches_beyond_the_border(attributes: str, expected: list[str]) -> None:
    """The HTP's numbers are others there, or its compiler ends; a wide border is a Conv as well."""
    model, made = pooled(attributes)
    assert types(made) == expected
    agree(made, model)


def test_what_the_last_window_reaches_beyond_is_a_border_that_does_not_count() -> None:
    _, made = pooled("kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1")
    (pool,) = made.graph.node
    found = {one.name: list(one.ints) or one.i for one in pool.attribute}
    assert found == {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 0]}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_average_is_what_it_was(data: st.DataObject) -> None:
    def pair(least: int, most: int) -> list[int]:
        return [data.draw(st.integers(least, most)) for _ in range(2)]

    window, strides = pair(2, 4), pair(1, 3)
    pads = [data.draw(st.integers(0, size - 1)) for size in window * 2]
    ceil, counted = pair(0, 1)
    model, made = pooled(
        f"kernel_shape = {window}, strides = {strides}, pads = {pads}, "
        f"ceil_mode = {ceil}, count_include_pad = {counted}"
    )
    agree(made, model)
