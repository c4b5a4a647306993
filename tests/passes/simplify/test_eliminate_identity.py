"""Numbers that change nothing, which the text of a model cannot say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import apply, run_model

import qc
from qc.ir.onnx.lower import lower
from qc.runtime import open_session, run_session


@pytest.mark.parametrize(
    ("op_type", "number", "left"), [("Max", -np.inf, 1), ("Max", np.inf, 2), ("Min", np.inf, 1)]
)
def test_a_limit_at_infinity_is_none(op_type: str, number: float, left: int) -> None:
    model = parse(
        f"g (float[2, 4] x) => (float[2, 4] y) <float far> {{ a = {op_type}(far, x)  y = Relu(a) }}"
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(number), "far"))
    ir, _, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == left


def test_a_number_that_a_caller_may_feed_stays() -> None:
    model = parse("g (float[2, 4] x, float zero) => (float[2, 4] y) { a = Add(x, zero)  y = Relu(a) }")
    model.graph.initializer.append(onnx.helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0]))
    ir, _, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == 2


# The mean over words that sentence transformers take.
POOLED = """g (float[2, 5, 8] words, int64[2, 5] mask) => (float[2, 8] y)
<int64[1] last = {-1}, int64[3] full = {2, 5, 8}, int64[1] along = {AXIS}, float least = {0.001}> {
    m = Unsqueeze(mask, last)
    e = Expand(m, full)
    f = Cast<to = 1>(e)
    p = Mul(words, f)
    s = ReduceSum<keepdims = 0>(p, along)
    n = ReduceSum<keepdims = 0>(f, along)
    c = Clip(n, least)
    y = Div(s, c)
}"""


def without_copies(text: str) -> list[str]:
    """The ops that are left, which compute what the model did."""
    model = parse(text)
    ir, _, _ = apply("eliminate-identity", model)
    made = lower(ir)
    onnx.checker.check_model(made, full_check=True)
    (feed,) = random_feeds(model, 1)
    for one, other in zip(*(run_session(open_session(m), feed) for m in (model, made)), strict=True):
        np.testing.assert_array_equal(one, other)
    return [op.op_type for op in ir.graph.ops()]


def test_copies_that_elementwise_ops_make_themselves_are_left_out() -> None:
    assert "Expand" not in without_copies(POOLED.replace("AXIS", "1"))


def test_copies_that_are_summed_stay() -> None:
    text = POOLED.replace("AXIS", "2").replace("float[2, 8] y", "float[2, 5] y")
    assert "Expand" in without_copies(text)


@pytest.mark.parametrize(
    ("behind", "made"),
    [
        ("y = Neg(e)", "float[2, 3]"),  # nothing else is as long
        ("z = Neg(e)  y = MatMul(z, other)", "float[2, 3]"),
        ("z = Neg(e)  y = Concat<axis = 0>(z, other)", "float[5, 3]"),
    ],
)
def test_copies_that_something_needs_stay(behind: str, made: str) -> None:
    head = f"g (float[2, 1] x, float[3, 3] other) => ({made} y) <int64[2] n = {{2, 3}}>"
    text = f"{head} {{ e = Expand(x, n)  {behind} }}"
    assert "Expand" in without_copies(text)


def test_copies_of_an_unknown_length_stay() -> None:
    head = "g (float[N, 1] x, float[2, 3] o) => (float[2, 3] y) <int64[2] n = {2, 3}>"
    text = f"{head} {{ e = Expand(x, n)  y = Add(e, o) }}"
    assert "Expand" in without_copies(text.replace("N", "M"))
    assert "Expand" not in without_copies(text.replace("N", "2"))


@pytest.mark.parametrize(
    ("between", "left"),
    [
        ("c = Identity(t)", []),
        ("p = Pow(t, three)  c = Mul(p, each)", ["Pow", "Mul"]),
        ("p = Sub(row, t)  c = Clip(p, zero, three)", ["Sub", "Clip"]),
        ("c = PRelu(t, each)", ["PRelu"]),
        ("c = Softmax<axis = 1>(t)", ["Transpose", "Softmax", "Transpose"]),
        ("c = Add(t, w)", ["Transpose", "Add", "Transpose"]),
    ],
)
def test_what_a_transpose_takes_back_is_computed_as_it_lies(between: str, left: list[str]) -> None:
    model = parse(f"""g (float[N, 4, H, 5] x, float[N, H, 5, 4] w) => (float[N, 4, H, 5] y)
    <float three = {{3}}, float zero = {{0}}, float[5, 4] each, float[4] row = {{1, 2, 3, 4}}> {{
        r = Relu(x)
        t = Transpose<perm = [0, 2, 3, 1]>(r)
        {between}
        b = Transpose<perm = [0, 3, 1, 2]>(c)
        y = Add(b, r)
    }}""")
    ir, _, _ = apply("eliminate-identity, eliminate-dead-code", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Relu", *left, "Add"]
    rng = np.random.default_rng(2)
    shapes = {"x": (2, 4, 3, 5), "w": (2, 3, 5, 4)}
    feed = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    before, after = (run_session(open_session(one), feed)[0] for one in (model, lower(ir)))
    np.testing.assert_allclose(after, before, rtol=1e-6)


def test_what_the_model_says_of_the_other_order_is_not_said_any_more() -> None:
    text = """g (float[1, 3, 1, 1] x) => (float[1, 3, 1, 1] y) <float[1, 1, 1, 3] r> {
        t = Transpose<perm = [0, 2, 3, 1]>(x) r = Relu(t) y = Transpose<perm = [0, 3, 1, 2]>(r) }"""
    between = text.replace("y = Transpose", "u = Transpose").replace("(r) }", "(r) y = Abs(u) }")
    assert without_copies(between) == ["Relu", "Abs"]


def test_transposes_stay_where_what_is_between_them_is_read_elsewhere() -> None:
    model = parse("""g (float[2, 3] x) => (float[2, 3] y, float[3, 2] z) {
        t = Transpose<perm = [1, 0]>(x)
        z = Exp(t)
        b = Transpose<perm = [1, 0]>(z)
        y = Relu(b)
    }""")
    ir, _, _ = apply("eliminate-identity", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Transpose", "Exp", "Transpose", "Relu"]


@pytest.mark.parametrize(
    ("shape", "left"), [("-1, 4, 0", 0), ("2, 4, 3", 0), ("0, -1, 3", 0), ("4, -1, 3", 1), ("2, -1", 1)]
)
def test_a_reshape_to_the_lengths_that_are_is_none(shape: str, left: int) -> None:
    rank = shape.count(",") + 1
    model = parse(f"""g (float[2, 4, 3] x) => (float[{"A, B, C"[: 3 * rank - 2]}] y)
    <int64[{rank}] s = {{{shape}}}> {{
        r = Reshape(x, s)
        y = Relu(r)
    }}""")
    ir, _, _ = apply("eliminate-identity", model)
    assert sum(op.is_type("Reshape") for op in ir.graph.ops()) == left


@pytest.mark.parametrize(
    ("reshapes", "left"),
    [
        ("a = Flatten(x) b = Reshape(a, pairs)", ["Reshape"]),
        ("a = Unsqueeze(x, one) c = Reshape(a, rows) b = Reshape(c, pairs)", ["Reshape"]),
        ("a = Reshape(x, rows) b = Reshape(a, whole)", []),
        ("a = Unsqueeze(x, one) b = Squeeze(a, one)", []),
        ("a = Reshape(x, rows) b = Reshape(a, kept)", ["Reshape", "Reshape"]),
        ("a = Flatten(x) b = Unsqueeze(a, one)", ["Flatten", "Unsqueeze"]),
        (
            "a = Flatten(x) z = Reshape(a, pairs) s = Shape(a) b = Cast<to = 1>(s)",
            ["Flatten", "Shape", "Cast"],
        ),
    ],
)
def test_what_was_reshaped_is_reshaped_once(reshapes: str, left: list[str]) -> None:
    text = f"""g (float[2, 4, 3] x) => (float y) <
        int64[1] one = {{1}}, int64[2] rows = {{-1, 3}}, int64[3] pairs = {{3, 4, 2}},
        int64[3] whole = {{2, 4, 3}}, int64[3] kept = {{0, 3, 1}}
    > {{ {reshapes} y = Relu(b) }}"""
    ir, _, _ = apply("eliminate-identity, eliminate-dead-code", parse(text))
    assert [op.op_type for op in ir.graph.ops()] == [*left, "Relu"]


def test_a_free_length_that_was_there_before_is_the_same() -> None:
    ops = "a = Reshape(x, rows) b = Reshape(a, three) y = Relu(b)"
    lengths = "int64[2] rows = {-1, 4}, int64[3] three = {-1, 2, 4}"
    text = f"g (float[N, 2, 4] x) => (float[N, 2, 4] y) <{lengths}> {{ {ops} }}"
    assert without_copies(text) == ["Reshape", "Relu"]


def test_several_free_lengths_stay_apart_from_axes_of_length_1() -> None:
    ops = "a = Squeeze(x, one) b = Unsqueeze(a, one) y = Relu(b)"
    text = f"g (float[N, 1, M] x) => (float[N, 1, M] y) <int64[1] one = {{1}}> {{ {ops} }}"
    assert without_copies(text) == ["Relu"]
    ops = "a = Flatten(x) b = Reshape(a, lengths) y = Relu(b)"
    text = f"g (float[N, 2, M] x, int64[3] lengths) => (float[N, 2, M] y) {{ {ops} }}"
    ir, _, _ = apply("eliminate-identity", parse(text))
    assert len(ir.graph.ops()) == 3


def test_transposes_stay_where_a_constant_gives_the_data_more_axes() -> None:
    model = parse("""g (float[3, 4] x) => (float[1, 3, 4] y) <float[1, 1, 1] two = {2}> {
        t = Transpose<perm = [1, 0]>(x)
        m = Mul(t, two)
        u = Transpose<perm = [0, 2, 1]>(m)
        y = Relu(u)
    }""")
    ir, _, _ = apply("eliminate-identity", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Transpose", "Mul", "Transpose", "Relu"]


def test_a_reshape_of_old_has_its_shape_as_an_attribute() -> None:
    model = parse("""<ir_version: 3, opset_import: ["" : 4]> g (float[3, 4] x) => (float[2, 6] y) {
        r = Reshape<shape = [2, -1]>(x)
        y = Relu(r)
    }""")
    ir, _, _ = apply("eliminate-identity", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Reshape", "Relu"]


@pytest.mark.parametrize(("places", "left"), [("0, 1", 1), ("1, 0", 2), ("0, 0", 2), ("0", 2)])
def test_a_gather_of_all_there_is_is_none(places: str, left: int) -> None:
    """Also where its result is a graph input, whose name stays."""
    count = places.count(",") + 1
    model = parse(
        f"g (float[2, 4] x) => (float[{count}, 4] y) <int64[{count}] places = {{{places}}}> {{"
        " t = Gather(x, places)  y = Relu(t) }"
    )
    ir, _, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == left
    assert [value.name for value in ir.graph.inputs] == ["x"]


@pytest.mark.parametrize(
    ("training", "left"), [("", 1), (", , no", 1), (", rate, no", 1), (", rate, yes", 2)]
)
def test_a_dropout_that_does_not_train_is_none(training: str, left: int) -> None:
    model = parse(
        "g (float[2, 4] x) => (float[2, 4] y) <float rate = {0.5}, bool no = {0}, bool yes = {1}> {"
        f" d = Dropout(x{training})  y = Relu(d) }}"
    )
    ir, _, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == left


@pytest.mark.parametrize(("training", "wanted"), [("flag", 0), ("no", 1)])
def test_an_input_that_lets_dropouts_drop_is_named(training: str, wanted: int) -> None:
    """As models of Flax have one for training."""
    model = parse(
        "g (float[2, 4] x, bool flag) => (float[2, 4] y) <float rate = {0.5}> {"
        f" no = Not(flag)  a = Relu(x)  b = Dropout(a, rate, {training})  y = Dropout(b, rate, {training}) }}"
    )
    _, context, _ = apply("eliminate-identity", model)
    assert len(context.notes) == 1 and f"--fix-input flag={wanted} " in context.notes[0]
    ir, context, _ = apply(
        f"fix-inputs{{values=['flag={wanted}']}},fold-constants,eliminate-identity,eliminate-dead-code", model
    )
    assert not context.notes and [op.op_type for op in ir.graph.ops()] == ["Relu"]


def test_dropouts_that_always_drop_are_told_of() -> None:
    """As PyTorch exports a model in training mode."""
    model = parse(
        "g (float[2, 4] x) => (float[2, 4] y) <float rate = {0.5}, bool yes = {1}> {"
        " a = Dropout(x, rate, yes)  b = Relu(a)  y = Dropout(b, rate, yes) }"
    )
    ir, context, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == 3
    assert len(context.notes) == 1 and "export the model for inference" in context.notes[0]


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        ("a = Slice(x, zero, four, last)  y = Relu(a)", ["Relu"]),
        ("a = Slice(x, zero, far, last)  y = Relu(a)", ["Relu"]),
        ("a = Slice(x, four, minus, last, back)  y = Relu(a)", ["Slice", "Relu"]),
        ("r = Relu(x)  e = Slice(x, four, far, last)  y = Concat<axis = -1>(r, e)", ["Relu", "Slice"]),
    ],
    ids=["all", "more-than-all", "backwards", "nothing"],
)
def test_slices_of_all_and_of_nothing(ops: str, left: list[str]) -> None:
    """A rotary embedding that turns whole heads has both."""
    numbers = {"zero": 0, "four": 4, "far": 9000, "last": -1, "minus": -5, "back": -1}
    constants = ", ".join(f"int64[1] {name} = {{{number}}}" for name, number in numbers.items())
    text = f"g (float[2, N, 4] x) => (float[2, N, 4] y) <{constants}> {{ {ops} }}"
    assert sorted(without_copies(text)) == sorted(left)


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        ("a = Tile(x, ones)", 0),
        ("a = Tile(x, twos)", 1),
        ("a = Expand(x, ones)", 0),
        ('a = Resize<mode = "linear">(x, , , own)', 0),
        ('a = Resize<mode = "linear">(x, , , other)', 1),
        ('a = Resize<mode = "cubic">(x, , scale)', 0),
        ("a = Resize(x, , nearly)", 1),
        ('a = Resize<coordinate_transformation_mode = "tf_crop_and_resize">(x, part, , own)', 1),
        ("a = Add(x, zeros)", 0),
        ("a = Mul(x, zeros)", 1),
        ("a = Add(x, more)", 1),
    ],
)
def test_what_changes_neither_lengths_nor_numbers_is_none(ops: str, left: int) -> None:
    """The HTP's compiler crashed of a Tile of all ones in five dimensions (SAM)."""
    text = f"""g (float[1, 2, 4, 6] x) => (float[A, B, C, D] y) <
        int64[4] ones = {{1, 1, 1, 1}}, int64[4] twos = {{1, 1, 1, 2}}, int64[4] own = {{1, 2, 4, 6}},
        int64[4] other = {{1, 2, 8, 6}}, float[4] scale = {{1, 1, 1, 1}}, float[4] nearly = {{1, 1, 1, 1.1}},
        float[8] part = {{0, 0, 0, 0, 1, 1, 0.5, 1}}, float[4, 1] zeros = {{0, 0, 0, 0}},
        float[3, 1, 1, 1] more = {{0, 0, 0}}
    > {{ {ops}  y = Relu(a) }}"""
    assert without_copies(text).count("Relu") == 1 and len(without_copies(text)) == left + 1


def test_what_may_be_longer_than_the_model_says_is_joined() -> None:
    """Some models say of an input that its length is 0, and take any."""
    model = parse(
        "g (float[2, 0] x, float[2, 4] k) => (float[2, M] y) { j = Concat<axis = 1>(x, k)  y = Relu(j) }"
    )
    ir, _, _ = apply("eliminate-identity", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Concat", "Relu"]


def test_a_slice_of_old_has_its_ends_as_attributes() -> None:
    model = parse(
        """<ir_version: 4, opset_import: ["" : 9]> g (float[2, 4] x) => (float[2, 2] y) {
            a = Slice<axes = [1], starts = [0], ends = [2]>(x)  y = Relu(a) }"""
    )
    ir, _, _ = apply("eliminate-identity", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Slice", "Relu"]


@pytest.mark.parametrize(
    ("attributes", "height", "left"),
    [
        ("dilations = [1, 1]", "8", {}),
        ("dilations = [1, 2]", "8", {"dilations"}),
        ("count_include_pad = 1, ceil_mode = 1, strides = [2, 2]", "7", {"ceil_mode"}),
        ("count_include_pad = 1, ceil_mode = 1, strides = [2, 2]", "8", {}),
        ("pads = [1, 0, 0, 0], ceil_mode = 1, strides = [2, 2]", "7", {}),
        ("pads = [1, 0, 0, 0], ceil_mode = 1, strides = [2, 2]", "N", {"ceil_mode"}),
        ("count_include_pad = 1, pads = [0, 0, 0, 1]", "8", {"count_include_pad"}),
        ('count_include_pad = 1, auto_pad = "VALID"', "8", {}),
        ('count_include_pad = 1, auto_pad = "SAME_UPPER"', "8", {"count_include_pad"}),
    ],
)
def test_a_pool_loses_attributes_that_change_nothing(attributes: str, height: str, left: set[str]) -> None:
    model = parse(f"""<ir_version: 9, opset_import: ["" : 19]>
    g (float[1, 2, {height}, 7] x) => (float[1, 2, H, W] y) {{
        y = AveragePool<kernel_shape = [2, 3], {attributes}>(x)
    }}""")
    made = lower(apply("eliminate-identity", model)[0])
    (feed,) = random_feeds(model, 1, size=7)
    for one, other in zip(*(run_session(open_session(m), feed) for m in (model, made)), strict=True):
        np.testing.assert_array_equal(one, other)
    names = {attribute.name for attribute in made.graph.node[0].attribute}
    assert names & {"dilations", "ceil_mode", "count_include_pad"} == set(left)


@pytest.mark.parametrize(
    ("shift", "behind", "left"),
    [
        ("ReduceMax<axes = [-1]>(x)", "Softmax<axis = -1>(s)", ["Softmax"]),
        ("ReduceMax<axes = [1]>(x)", "LogSoftmax<axis = 1>(s)", ["LogSoftmax"]),
        ("ReduceMax<axes = [1]>(x)", "Softmax<axis = -1>(s)", ["ReduceMax", "Sub", "Softmax"]),
        ("ReduceMax(x)", "Softmax<axis = -1>(s)", ["ReduceMax", "Sub", "Softmax"]),
        ("ReduceMean<axes = [-1]>(x)", "Softmax<axis = -1>(s)", ["ReduceMean", "Sub", "Softmax"]),
        ("ReduceMax<axes = [-1]>(x)", "Sigmoid(s)", ["ReduceMax", "Sub", "Sigmoid"]),
    ],
)
def test_a_maximum_that_a_softmax_takes_off_itself(shift: str, behind: str, left: list[str]) -> None:
    """As behind sinks of attention, where it hides the mask of the scores from all that looks for it."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ m = {shift}  s = Sub(x, m)  y = {behind} }}""")
    made = qc.compile(
        model, "eliminate-identity,eliminate-dead-code", threads=1, allow_unquantized=True
    ).model
    assert [node.op_type for node in made.graph.node] == left
    (feed,) = random_feeds(model, 1)
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-6)
