"""Files with two-level blocks (LPBQ) in which something is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.models import parse

from qc.ir import lift
from qc.ir.errors import UsageError
from qc.passes.encodings import converted, dump_encodings, located, parse_encodings
from qc.passes.encodings.comparison import compare

INTEGERS = [[16, 16, 16], [3, 4, 5]]  # two blocks along axis 0, for three channels


def old(**changes: Any) -> str:
    """A file of version 1.0.0 with one weight."""
    entry = {"name": "w", "enc_type": "LPBQ", "dtype": "INT", "bw": 8, "compressed_bw": 4, "is_sym": True}
    entry |= {"block_size": 2, "per_block_int_scale": [16, 3, 16, 4, 16, 5]}
    entry |= {"scale": [0.5, 0.25, 1.0], "offset": [-128] * 3, **changes}
    return json.dumps({"version": "1.0.0", "param_encodings": [entry]})


def new(version: str, **changes: Any) -> str:
    """A file of version 2.0.0 or 2.1.0 with one weight; ``x`` and ``inner`` are those of a 2.1.0 scale."""
    entry: dict[str, Any] = {"name": "w", "output_dtype": "int4", "axis": 0, "block_size": 2}
    if version == "2.1.0":
        scale = {
            "x": changes.pop("x", INTEGERS),
            "x_scale": [0.5, 0.25, 1.0],
            "axis": changes.pop("inner", 1),
        }
        entry["y_scale"] = scale
    else:
        entry |= {"per_block_int_scale": INTEGERS, "per_channel_float_scale": [[0.5, 0.25, 1.0]]}
    return json.dumps({"version": version, "encodings": [entry | changes]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (old(offset=[-128, -128, -64]), "'offset' gives zero the code -4 of int4; two-level blocks are sym"),
        (old(zero_point_shift=[0.0, 0.5]), "'zero_point_shift' has 2 numbers for 3 scales"),
        (old(per_block_int_scale=[16] * 7), "'per_block_int_scale' has 7 numbers, which are no blocks of 3"),
        (new("2.0.0", y_zero_point=3), "'y_zero_point' gives zero the code 3 of int4; two-level blocks are"),
        (new("2.0.0", output_dtype="uint4"), "'y_zero_point' is missing; two-level blocks of uint4 have 8"),
        (new("2.1.0", y_zero_point=[0] * 5), "'y_zero_point' has the shape (5,), the blocks (2, 3)"),
        (new("2.1.0", x=[[16, 16, 16], [3, 4, 1.5]]), "y_scale: 'x' must hold whole numbers from 1 to"),
        (new("2.1.0", x=16), "'axis' is 0, but the scales have 0 dimensions"),
        (new("2.1.0", inner=0), "'axis' must be 1, that of the channels, as blocks lie along axis 0"),
    ],
)
def test_what_two_level_blocks_cannot_be(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_encodings(text, "f")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        new("2.1.0"),
        new("2.1.0", inner=-1, axis=-2),
        new("2.0.0", y_zero_point=[[0] * 3] * 2),
        new("2.0.0", output_dtype="uint4", y_zero_point=[[8] * 3] * 2),
    ],
)
@pytest.mark.parametrize("version", ["1.0.0", "2.0.0", "2.1.0"])
def test_two_level_blocks_are_the_same_in_all_versions(text: str, version: str) -> None:
    document = parse_encodings(text)
    again = parse_encodings(dump_encodings(converted(document, version)))
    assert compare(again, parse_encodings(old())).is_equal


def test_channels_without_a_scale() -> None:
    model = lift(parse("g (float[1, 4] x) => (float[1, 3] y) <float[4, 3] w> { y = MatMul(x, w) }"))
    assert located(parse_encodings(old()), model).records[0].axis == 0
    two = parse_encodings(old(scale=[0.5, 0.25], offset=[-128] * 2), "f")
    with pytest.raises(UsageError, match=r"f: 'w' has 6 scales, which do not fit a tensor of shape \[4, 3\]"):
        located(two, model)
