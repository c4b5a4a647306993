"""A Resize takes the numbers that ONNX defines, in forms that the HTP computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from support.decomposed import agree, types
from support.models import parse
from support.pipelines import run_model

import qc

COORDINATES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def resized(given: str, attributes: str, constant: str) -> ModelProto:
    return parse(f"""<ir_version: 9, opset_import: ["" : 20]>
    g (float[1, 2, 6, 5] x) => (float[1, 2, H, W] y) <{constant}> {{
        y = Resize<{attributes}>({given})
    }}""")


def unchanged(model: ModelProto) -> ModelProto:
    """What the HTP is given, which takes exactly the same numbers."""
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    feed = {"x": np.arange(60, dtype=np.float32).reshape(1, 2, 6, 5)}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
    return made


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("lengths", ["12, 15", "3, 2", "9, 5", "10, 7", "1, 1"])
def test_the_nearest_numbers_are_repeated_or_gathered(lengths: str, coordinates: str, rounding: str) -> None:
    modes = f'coordinate_transformation_mode = "{coordinates}", nearest_mode = "{rounding}"'
    made = unchanged(resized("x, , , sizes", modes, f"int64[4] sizes = {{1, 2, {lengths}}}"))
    if set(types(made)) == {"Resize"}:
        (node,) = made.graph.node
        chosen = {one.name: one.s for one in node.attribute}
        assert chosen["coordinate_transformation_mode"] == b"asymmetric"
        assert chosen["nearest_mode"] == b"floor"
    else:
        assert set(types(made)) == {"Gather"}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ('mode = "nearest"', ["Resize"]),
        ('nearest_mode = "ceil"', ["Gather", "Gather"]),
        ('mode = "linear"', ["Resize"]),
        ('coordinate_transformation_mode = "half_pixel_symmetric"', ["Resize"]),
    ],
)
def test_scales_say_where_numbers_come_from(attributes: str, expected: list[str]) -> None:
    constant = "float[4] scales = {1.0, 1.0, 2.0, 3.0}"
    assert types(unchanged(resized("x, , scales", attributes, constant))) == expected


@pytest.mark.parametrize(
    ("given", "attributes", "constant", "expected"),
    [
        ("x, , scales", "axes = [2, 3]", "float[2] scales = {0.5, 2.0}", ["Gather", "Gather"]),
        ("x, , , sizes", "axes = [3, 2]", "int64[2] sizes = {10, 3}", ["Gather", "Gather"]),
        (
            "x, , , sizes",
            'axes = [2, 3], keep_aspect_ratio_policy = "not_larger"',
            "int64[2] sizes = {3, 9}",
            ["Resize"],
        ),
    ],
)
def test_what_is_said_of_some_axes_is_known_of_all(
    given: str, attributes: str, constant: str, expected: list[str]
) -> None:
    assert types(unchanged(resized(given, attributes, constant))) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ('coordinate_transformation_mode = "half_pixel"', True),
        ('coordinate_transformation_mode = "asymmetric"', True),
        ('coordinate_transformation_mode = "pytorch_half_pixel"', True),
        ('coordinate_transformation_mode = "half_pixel_symmetric"', True),
        ('coordinate_transformation_mode = "align_corners"', False),
        ('coordinate_transformation_mode = "align_corners", antialias = 1', True),
    ],
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", ["0.7, 1.0", "1.3, 0.45", "2.5, 1.5"])
def test_a_scale_that_is_no_ratio_of_lengths_is_a_product(
    scales: str, mode: str, attributes: str, expected: bool
) -> None:
    """The HTP takes the ratio of lengths for it; cubic ones it refuses then."""
    model = resized(
        "x, , scales", f'mode = "{mode}", {attributes}', f"float[4] scales = {{1.0, 1.0, {scales}}}"
    )
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert ("Resize" not in types(made)) == (expected or mode == "cubic")
    agree(made, model)


@pytest.mark.parametrize(
    ("attributes", "is_product"),
    [
        ('mode = "linear"', False),
        ('mode = "linear", antialias = 1', True),
        ('mode = "cubic"', False),
        ('mode = "cubic", antialias = 1', True),
        ('mode = "cubic", cubic_coeff_a = -0.5', True),
        ('mode = "cubic", exclude_outside = 1', True),
    ],
)
def test_what_the_htp_leaves_out_is_a_product(attributes: str, is_product: bool) -> None:
    model = resized("x, , , sizes", attributes, "int64[4] sizes = {1, 2, 4, 9}")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert ("MatMul" in types(made)) == is_product
    agree(made, model)


def test_one_that_changes_nothing_stays() -> None:
    """What it reads is a result of the model as well."""
    model = parse("""<ir_version: 9, opset_import: ["" : 20]>
    g (float[1, 2, 6, 5] x) => (float[1, 2, 6, 5] r, float[1, 2, 6, 5] y) <float[4] ones = {1, 1, 1, 1}> {
        r = Relu(x)
        y = Resize<mode = "linear", antialias = 1>(r, , ones)
    }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Relu", "Resize"]
    agree(made, model)


def test_older_opsets_are_given_a_region() -> None:
    model = parse("""<ir_version: 6, opset_import: ["" : 11]>
    g (float[1, 2, 6, 5] x) => (float[1, 2, 12, 10] y) <float[0] roi, float[4] scales = {1, 1, 2, 2}> {
        y = Resize<mode = "nearest">(x, roi, scales)
    }""")
    agree(qc.compile(model, "decompose-ops", target="qnn-htp").model, model)
