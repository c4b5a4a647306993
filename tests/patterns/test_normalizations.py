"""What belongs to a norm and what must not be taken for one;"
"how norms are written is in support.spellings."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.spellings import NORMS as SPELLINGS
from support.spellings.norms import AFFINE, CENTRE, CONSTANTS, PLAIN, ROOT, VARIANCE

from qc.ir import lift
from qc.ir.tensor_ref import TensorRef
from qc.patterns import find_all, match_at, supergroups
from qc.patterns.fragments import is_root_of_count

NORMS = supergroups(["layer_norm", "rms_norm", "instance_norm", "group_norm", "l2_norm", "softmax"])


def found(graph_of, body, opset=17, constants=None, **options):
    graph = graph_of(body, opset=opset, constants={**CONSTANTS, **(constants or {})}, **options)
    return graph, find_all(graph, NORMS)


def summary(matches):
    return [(match.name, match.root.op_type, sorted(match.captures)) for match in matches]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_scale_and_bias_are_those_that_the_norm_reads(spelling):
    (match,) = find_all(lift(spelling.model()).graph, NORMS)
    read = {"g", "b"}.intersection(re.findall(r"\b(?:half_)?(\w+)", spelling.body))
    parameters = {{"scale": "g", "bias": "b"}[name] for name in ("scale", "bias") if name in match.captures}
    assert parameters == read


# -- what stays outside ------------------------------------------------------------------------------


def test_a_residual_is_no_bias(graph_of):
    _, matches = found(graph_of, PLAIN + "p = Mul(n, g); y = Add(p, x)")
    assert summary(matches) == [("layer_norm", "Mul", ["epsilon", "scale", "x"])]


def test_a_computed_scale_and_shift_are_no_parameters(graph_of):
    inputs = "float[2,4,8] x, float[8] scale, float[8] shift"
    _, matches = found(graph_of, PLAIN + "p = Mul(n, scale); y = Add(p, shift)", inputs=inputs)
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]


def test_a_gate_after_an_rms_norm_is_no_scale(graph_of):
    body = VARIANCE.replace("(d", "(x") + ROOT + "n = Div(x, s); y = Mul(n, gate)"
    _, matches = found(graph_of, body, inputs="float[2,4,8] x, float[2,4,8] gate")
    assert summary(matches) == [("rms_norm", "Div", ["epsilon", "x"])]


def test_a_position_embedding_is_no_bias(graph_of):
    _, matches = found(graph_of, PLAIN + "y = Add(n, positions)", constants={"positions": np.ones((1, 4, 8))})
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]


def test_a_scale_along_another_axis_is_no_scale(graph_of):
    graph, matches = found(graph_of, PLAIN + "y = Mul(n, channels)", constants={"channels": np.ones((4, 1))})
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]
    layer_norm, _ = supergroups(["layer_norm"])
    assert "a scale of shape [4, 1] for a norm over the axes [2]" in str(
        match_at(layer_norm, graph.ops()[-1])
    )


def test_a_normalized_value_that_is_an_output_stays_visible(graph_of):
    _, matches = found(graph_of, PLAIN + AFFINE, outputs="y n")
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]
    assert matches[0].result.name == "n"


@pytest.mark.parametrize("exposed", ["d", "v"])
def test_nothing_inside_a_norm_is_an_output(graph_of, exposed):
    graph, matches = found(graph_of, PLAIN + AFFINE, outputs=f"y {exposed}")
    hidden = [each for match in matches for each in match.inner]
    assert graph.value_named(exposed) not in hidden
    assert "layer_norm" not in [match.name for match in matches]


@pytest.mark.parametrize("exposed", ["m", "s", "m s"])
def test_mean_and_deviation_can_be_seen_outside(graph_of, exposed):
    graph, (match,) = found(graph_of, PLAIN + AFFINE, outputs=f"y {exposed}")
    assert (match.name, match.root.op_type) == ("layer_norm", "Div")
    assert {graph.value_named(name) for name in exposed.split()} <= set(match.results)
    assert set(match.results).isdisjoint(match.inner)


def test_an_rms_norm_inside_a_layer_norm_is_not_reported(graph_of):
    _, matches = found(graph_of, PLAIN + AFFINE)
    assert [match.name for match in matches] == ["layer_norm"]


def test_unequal_axes_make_no_layer_norm(graph_of):
    variance = VARIANCE.replace("[-1]", "[1]")
    _, matches = found(graph_of, CENTRE + variance + ROOT + "y = Div(d, s)")
    assert [match.name for match in matches] == ["rms_norm"], "the inner part alone, on the difference"


def test_a_dropped_dimension_that_is_not_put_back_makes_no_norm(graph_of):
    body = "m = ReduceMean<axes = [-1], keepdims = 0>(x); d = Sub(x, m);" + VARIANCE + ROOT + "y = Div(d, s)"
    _, matches = found(graph_of, body, inputs="float[8,8,8] x")
    assert [match.name for match in matches] == ["rms_norm"], "the inner part alone, on the difference"


def test_the_value_that_is_divided_must_be_the_one_that_was_squared(graph_of):
    _, matches = found(graph_of, CENTRE + VARIANCE + ROOT + "y = Div(x, s)")
    assert matches == []


def test_inner_values_are_those_that_need_no_quantizer(graph_of):
    _, (match,) = found(graph_of, PLAIN + AFFINE)
    assert sorted(each.name for each in match.inner) == sorted(
        ["m", "d", "q", "two", "v", "e", "eps", "s", "n", "p"]
    )


# -- groups and instances ----------------------------------------------------------------------------

IMAGE = "float[2,8,6,6] x"
POSITIONS = CENTRE + VARIANCE + ROOT


def test_moments_over_the_last_axes_with_one_scale_for_each_element_are_a_layer_norm(graph_of):
    body = POSITIONS.replace("[-1]", "[-2, -1]") + "n = Div(d, s); y = Mul(n, plane)"
    _, (match,) = found(graph_of, body, inputs=IMAGE, constants={"plane": np.ones((6, 6))})
    assert match.name == "layer_norm"
    assert "scale" in match.captures


def test_a_window_of_attention_around_a_layer_norm_is_no_group_norm(graph_of):
    body = (
        "r = Reshape(x, windows);"
        + PLAIN.replace("(x", "(r")
        + "p = Mul(n, g); a = Add(p, b); y = Reshape(a, back)"
    )
    constants = {"windows": np.array([8, 9, 8]), "back": np.array([2, 6, 6, 8])}
    _, (match,) = found(graph_of, body, inputs="float[2,6,6,8] x", constants=constants)
    assert match.name == "layer_norm"
    assert match["x"].name == "r"


def test_moments_of_flattened_positions_are_no_group_norm(graph_of):
    body = "r = Reshape(x, tokens);" + PLAIN.replace("(x", "(r") + "y = Reshape(n, back)"
    constants = {"tokens": np.array([2, 36, 8]), "back": np.array([2, 6, 6, 8])}
    _, (match,) = found(graph_of, body, inputs="float[2,6,6,8] x", constants=constants)
    assert match.name == "layer_norm"


def test_a_scale_for_each_element_after_a_group_norm_stays_outside(graph_of):
    body = (
        "r = Reshape(x, grouped); i = InstanceNormalization(r, ones, zeros); n = Reshape(i, whole);"
        "p = Mul(n, plane); y = Add(p, x)"
    )
    constants = {"grouped": np.array([0, 4, -1]), "whole": np.array([2, 8, 6, 6]), "plane": np.ones((6, 6))}
    _, (match,) = found(graph_of, body, inputs=IMAGE, constants=constants)
    assert (match.name, match.root.op_type, len(match.ops)) == ("group_norm", "Reshape", 3)


def test_one_op_with_a_computed_scale_is_a_norm_all_the_same(graph_of):
    _, (match,) = found(graph_of, "y = LayerNormalization(x, w)", inputs="float[2,4,8] x, float[8] w")
    assert match.name == "layer_norm"


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 3e38, 1e-45])
def test_numbers_without_bounds_are_no_roots_of_counts(number: float) -> None:
    assert not is_root_of_count(TensorRef.from_array(np.float32(number)))
