"""Ops that read and write at places, in those that a device has."""

from __future__ import annotations

import numpy as np
import pytest
from support.decomposed import types
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc

FROM_START = ["Less", "Add", "Where"]  # of places, that they count from the start


def test_rows_at_places_that_are_data_are_written_element_by_element() -> None:
    """A cache of fixed length is filled so: the HTP gave up models with such a ScatterND."""
    model = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[9, 2, 4] x, int64[3, 1] i, float[3, 2, 4] u) => (float[9, 2, 4] y) { y = ScatterND(x, i, u) }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == [*FROM_START, "Expand", "Reshape", "Reshape", "ScatterElements", "Reshape"]
    feed = random_feeds(model, 1)[0] | {"i": np.array([[8], [-9], [3]])}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize(
    ("data", "copies", "left"),
    [
        ("1, 8, 4", "e = Expand(u, to)", ["Reshape", "Gather"]),
        ("1, 8, 4", "e = Tile(u, times)", ["Reshape", "Gather"]),
        ("1, 8, 5", "e = Expand(u, to)", ["Expand", "GatherElements"]),
    ],
)
def test_rows_that_are_chosen_as_a_whole_are_gathered(data: str, copies: str, left: list[str]) -> None:
    """RT-DETR takes the best queries so: the HTP gave up the model for a GatherElements."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[{data}] x, float[1, 8] score) => (float[1, 3, 4] y) <
        int64[1] two = {{2}}, int64[3] to = {{1, 3, 4}}, int64[3] times = {{1, 1, 4}}, int64[1] three = {{3}}
    > {{ v, i = TopK(score, three)  u = Unsqueeze(i, two)  {copies}  y = GatherElements<axis = 1>(x, e) }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["TopK", "Unsqueeze", *left]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("Gather<axis = 1>(x, i)", "5, 2, 4"),
        ("GatherElements<axis = 1>(x, i)", "2, 4"),
        ("ScatterElements<axis = 1>(x, i, u)", "5, 4"),
    ],
)
def test_places_from_the_end_are_counted_from_the_start(op: str, shape: str) -> None:
    """The HTP reads, writes or sets something else where they are not constant."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[5, 4] x, int64[2, 4] i, float[2, 4] u) => (float[{shape}] y) {{ y = {op} }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == [*FROM_START, op[: op.index("(")].split("<")[0]]
    feed = random_feeds(model, 1)[0] | {"i": np.array([[-4, 3, -2, 1], [0, -3, -2, -1]])}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
    assert types(qc.compile(made, "decompose-ops", target="qnn-htp").model) == types(made)


def test_places_of_ones_that_there_are_not_set_none() -> None:
    """Labels of -100 are those that do not count."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (int64[2, 3] i) => (float[2, 3, 60] y) <int64 sixty = {60}, float[2] values = {-1, 2}> {
        y = OneHot(i, sixty, values)
    }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == [*FROM_START, "Less", "Where", "OneHot"]
    feed = {"i": np.array([[-100, -60, -1], [0, 59, 60]])}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
    assert types(qc.compile(made, "decompose-ops", target="qnn-htp").model) == types(made)


@pytest.mark.parametrize(
    ("found", "are_known"),
    [
        ("l = Less(i, zero) p = Where(l, minus, i)", False),
        ("p, n = TopK(i, two)", False),
        ("v, p = TopK(i, two)", True),
        ("a = ArgMax<axis = 0>(i) b = Concat<axis = 0>(a, a) p = Slice(b, zeros, two)", True),
    ],
)
def test_where_places_are_known_to_count_from_the_start(found: str, are_known: bool) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[5, 4] x, int64[3, 2] i) => (float[A, B, C] y) <
        int64 zero = {{0}}, int64 minus = {{-1}}, int64[1] two = {{2}}, int64[1] zeros = {{0}}
    > {{ {found}  y = Gather(x, p) }}""")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert ("Add" in types(made)) != are_known


def test_a_long_way_to_places_is_followed() -> None:
    names = [f"i{index}" for index in range(2000)]
    chain = " ".join(f"{b} = Identity({a})" for a, b in zip(["i", *names], names, strict=False))
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[5, 4] x, int64[3] i) => (float[3, 4] y) {{ {chain} y = Gather(x, {names[-1]}) }}""")
    assert types(qc.compile(model, "decompose-ops", target="qnn-htp").model)[-4:] == [*FROM_START, "Gather"]


def test_a_mask_in_the_other_order_is_gathered() -> None:
    """Of masked sequences Keras turns the mask as well."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[4, 2] x) => (bool[4, 2] y) <float zero = {0}, int64[2] ends = {3, 3}> {
        m = Less(x, zero)  y = ReverseSequence(m, ends)
    }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Less", "Gather"]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize("op", ["m = Pad(i, none)", "m = GatherND(i, all)"])
def test_what_stays_as_it_was_given_keeps_its_name(op: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (int64[3] i) => (int64[3] m) <int64[2] none = {{0, 0}}, int64[3, 1] all = {{0, 1, 2}}> {{ {op} }}""")
    made = qc.compile(model, "decompose-ops, eliminate-dead-code", target="qnn-htp").model
    assert [one.name for one in made.graph.input] == ["i"]
    feed = {"i": np.array([3, 1, 2])}
    np.testing.assert_array_equal(run_model(made, feed)["m"], feed["i"])


@pytest.mark.parametrize("kind", ["int64", "bool"])
def test_a_pad_of_what_is_no_float_is_a_concat(kind: str) -> None:
    """LongT5 makes its masks of words longer so, which the HTP does not."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 3] x, {kind}[2, 3] i) => (float[4, 5] y, {kind}[4, 5] m) <
        int64[4] ends = {{0, 1, 2, 1}}, {kind} filling = {{1}}
    > {{ y = Pad(x, ends)  m = Pad(i, ends, filling) }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Pad", "Concat", "Concat"]
    feed = random_feeds(model, 1)[0] | {"i": np.arange(6).reshape(2, 3).astype(kind)}
    np.testing.assert_array_equal(run_model(made, feed)["m"], run_model(model, feed)["m"])


@pytest.mark.parametrize(
    ("shape", "places", "left"),
    [
        ("1, 8, 4", "p = Concat<axis = 1>(zero, i)", [*FROM_START, "Concat", "Gather", "Reshape", "Gather"]),
        ("8, 1, 4", "p = Concat<axis = 1>(i, zero)", [*FROM_START, "Concat", "Gather", "Reshape", "Gather"]),
        ("1, 8, 4", "p = Identity(all)", ["Reshape"]),
        (
            "2, 3, 4",
            "m = ArgMax<axis = 1>(i) o = Gather(m, two) p = Concat<axis = 1>(one, o)",
            ["ArgMax", *["Gather"] * 3, "Concat", "Gather", "Add", "Mul", "Reshape"],
        ),
        (
            "9, 8, 4",
            "p = Concat<axis = 1>(i, one)",
            [*FROM_START * 2, "Concat", *["Gather"] * 3, "Mul", "Add", "Reshape"],
        ),
        (
            "2, 8, 4",
            "y = GatherND<batch_dims = 1>(x, i)",
            [*FROM_START, *["Gather"] * 2, "Add", "Reshape"],
        ),
    ],
)
def test_places_are_gathered(shape: str, places: str, left: list[str]) -> None:
    """PyTorch's newer exporter takes the last tokens of CLIP so; the HTP has it of floats alone."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[{shape}] x, int64[2, 1] i) => (float[N, 4] y) <
        int64[2, 1] zero = {{0, 0}}, int64[2, 1] one = {{0, 1}}, int64[2] two = {{0, 0}},
        int64[8, 2] all = {{0, 0, 0, 1, 0, -6, 0, 3, 0, 4, 0, 5, -1, 6, 0, 7}}
    > {{ {places} {"" if "y =" in places else "y = GatherND(x, p)"} }}""")
    made = qc.compile(model, "fold-constants, decompose-ops, eliminate-dead-code", target="qnn-htp").model
    assert sorted(one for one in types(made) if one != "Identity") == sorted(left)
    feed = random_feeds(model, 1)[0] | {"i": np.array([[7], [-2]])}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("ArgMax<axis = 1, keepdims = 0>(x)", ["ArgMax", "Div", "Mul", "Sub"]),
        ("Cast<to = 7>(x)", ["Cast", "Div", "Mul", "Sub", "Add", "Div", "Mul", "Sub"]),
    ],
)
def test_a_remainder_is_what_whole_multiples_leave(number: str, expected: list[str]) -> None:
    """As of the columns of heat maps, which the HTP's compiler gives up."""
    shape = "2" if "ArgMax" in number else "2, 40"
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 40] x) => (int64[{shape}] y) <int64 c = {{7}}> {{ i = {number}  y = Mod(i, c) }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == expected
    feed = {"x": np.random.default_rng(0).uniform(-50, 50, (2, 40)).astype(np.float32)}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize(
    ("kind", "by", "opset", "number", "is_written"),
    [
        ("int32", 2**31 - 1, 17, "i = Identity(x)", False),  # a number and the divisor are more than there is
        ("int32", 2**30 - 1, 17, "i = Identity(x)", True),
        ("int8", 100, 17, "i = Identity(x)", False),
        ("int8", 63, 17, "i = Identity(x)", True),
        ("int8", 63, 13, "i = Identity(x)", False),  # whose Div has no such type
        ("int32", 63, 13, "i = Identity(x)", True),
        # A number far below 0 still is, with ten more.
        ("int32", 7, 17, "b = Less(x, zero)  a = Add(x, ten)  i = Where(b, a, x)", True),
        ("int32", 7, 17, "b = Less(x, zero)  i = Where(b, zero, x)", True),
    ],
)
def test_a_remainder_is_that_of_all_numbers(
    kind: str, by: int, opset: int, number: str, is_written: bool
) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g ({kind}[5] x) => ({kind}[5] y) <{kind} c = {{{by}}}, {kind} zero = {{0}}, {kind} ten = {{10}}> {{
        {number}  y = Mod(i, c)
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert ("Mod" not in types(made)) == is_written
    ends = np.iinfo(kind)
    feed = {"x": np.array([ends.min, -20, 0, 99, ends.max], kind)}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
