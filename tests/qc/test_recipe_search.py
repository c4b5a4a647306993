"""What a search for a recipe may be asked, from Python."""

from __future__ import annotations

import math
import re

import pytest

from qc.auto import MaxDrop, RecipeSearch, ladder
from qc.ir.errors import UsageError

MODEL, DATA = "model.onnx", "calibration.npz"


def test_fewer_bits_than_four_have_recipes_of_their_own() -> None:
    assert RecipeSearch("model.onnx", data=DATA, bits=2.5).ladder == ladder(2)
    assert RecipeSearch("model.onnx", data=DATA, bits=5.5).ladder == ladder(4)


@pytest.mark.parametrize(
    ("given", "drop"),
    [
        ("1%", MaxDrop(0.01)),
        (" .5 ", MaxDrop(0.5, False)),
        (1e-5, MaxDrop(1e-5, False)),
        (2, MaxDrop(2, False)),
    ],
)
def test_a_drop_is_a_share_or_a_number(given, drop: MaxDrop) -> None:
    assert MaxDrop.parse(given) == drop


@pytest.mark.parametrize("given", ["-1%", "nan", -1.0, math.nan, math.inf, "", "one"])
def test_what_is_no_drop(given) -> None:
    with pytest.raises(UsageError, match=r"a drop is a share such as 1% or a number such as 0\.5"):
        MaxDrop.parse(given)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"minutes": math.nan}, "minutes=nan is not a number above 0"),
        ({"minutes": "1"}, "minutes='1' is not a number above 0"),
        ({"jobs": 1.5}, "jobs=1.5 is not a whole number of at least 1"),
        ({"points": -1}, "points=-1 is not a whole number of at least 0"),
        ({"weights": 4.5}, "weights=4.5 is not a whole number of at least 2"),
        ({"weights": 9}, "weights=9 is more than 8"),
        ({"bits": "x"}, "a weight has 2 to 32 bits on average, not 'x'"),
        ({"metric": len}, "the metric is a text, such as 'file.py:function', or a Metric, not <built-in"),
        ({"candidates": ["w8a8"]}, "a candidate is w and a with 2 to 16 bits"),
    ],
)
def test_what_is_no_search(settings: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        assert RecipeSearch(MODEL, data=DATA, **settings).mixing
