"""Joins of tensors with different ranges: in integers where that costs little, or is needed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model
from support.placement import of_value, reason

import qc
from qc.ir.model import Model
from qc.passes import PassContext

WEIGHTS = "float[4, 8, 1, 1] wb, float[4, 8, 1, 1] ws, float[8, 8, 1, 1] wy"


def head(data: str, level: str = "") -> str:
    """Boxes beside scores of 0 to 1, as detectors join them."""
    boxes, scores = f"boxes{level}", f"scores{level}"
    return f"""
        b{level} = Conv({data}, wb)
        b1{level} = Sigmoid(b{level})
        {boxes} = Mul(b1{level}, largest)
        s{level} = Conv({data}, ws)
        {scores} = Sigmoid(s{level})
        both{level} = Concat<axis = 1>({boxes}, {scores})"""


DETECTOR = f"(float[1, 8, 4, 4] both) {{{head('x')} }}"
ANCHORS = DETECTOR.replace("(boxes, scores)", "(anchors, scores)")
PICTURE = DETECTOR.replace("(boxes, scores)", "(x, scores)").replace(
    "[1, 8, 4, 4] both", "[1, 12, 4, 4] both"
)
CONSUMED = f"(float[1, 8, 4, 4] y) {{{head('x')} y = Conv(both, wy) }}"
LEVELS = f"""(float[1, 8, 20] y) {{{head("x")}{head("half", "2")}
    half = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
    r = Reshape(both, shape)
    r2 = Reshape(both2, shape)
    y = Concat<axis = 2>(r, r2) }}"""


def compiled(
    rest: str, target: str, largest: float, placing: str = PLACE, scale: float = 1.0
) -> tuple[Model, PassContext, list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]]:
    """The model on a target, its context, and outputs in float beside those of the result."""
    interface, body = rest.split("{", 1)
    anchors = ", ".join(str(10 * number) for number in range(64))
    constants = f"float largest = {{{largest}}}, float[1, 4, 4, 4] anchors = {{{anchors}}}"
    shape = "int64[3] shape = {1, 8, -1}"
    text = f"g (float[1, 8, 4, 4] x) => {interface} <{WEIGHTS}, {constants}, {shape}> {{{body}"
    source = parse(f'<ir_version: 10, opset_import: ["" : 21]>{text}')
    rng = np.random.default_rng(1)
    feeds = [{"x": scale * rng.normal(size=(1, 8, 4, 4)).astype(np.float32)} for _ in range(8)]
    model, context = apply(f"{placing},calibrate,insert-qdq", source, target, feeds)[:2]
    pairs = [(run_model(source, feed), run_model(artifact(context, "qdq"), feed)) for feed in feeds]
    return model, context, pairs


@pytest.mark.parametrize("target", ["npu", "qnn-htp"])
@pytest.mark.parametrize("rest", [DETECTOR, LEVELS])
def test_scores_keep_their_numbers_beside_boxes(rest: str, target: str) -> None:
    model, context, pairs = compiled(rest, target, 640.0)
    name = "both" if rest is DETECTOR else "y"
    assert all(np.abs(float_[name] - made[name])[:, 4:].max() < 0.05 for float_, made in pairs)
    assert of_value(model, "both") is None
    assert reason(model, "both") == "made by a join of ranges too different for one grid"
    (note,) = (note for note in context.notes if "stays in float" in note)
    assert note.startswith("Concat of 'both' joins 'scores' of 0")
    boxes, scores = of_value(model, "boxes"), of_value(model, "scores")
    assert boxes is not None and scores is not None and boxes is not scores
    if target == "qnn-htp":
        assert scores.spec.fixed_range == (0.0, 1.0)


def test_ranges_that_are_alike_share_a_grid() -> None:
    model, context, _ = compiled(DETECTOR, "npu", 4.0)
    assert of_value(model, "both") is of_value(model, "scores") is of_value(model, "boxes")
    assert not context.notes


def test_sixteen_bits_are_enough_for_both() -> None:
    placing = PLACE.replace("insert-quantizers", "insert-quantizers{activation=uint16}")
    model, context, _ = compiled(DETECTOR, "npu", 640.0, placing)
    assert of_value(model, "both") is of_value(model, "scores")
    assert not context.notes


def test_what_an_integer_op_reads_has_a_grid() -> None:
    model, context, _ = compiled(CONSUMED, "npu", 640.0)
    assert of_value(model, "both") is of_value(model, "scores")
    assert not context.notes


def test_what_no_op_makes_in_integers_needs_no_grid_of_its_own() -> None:
    model, _, _ = compiled(ANCHORS, "qnn-htp", 1.0)
    assert of_value(model, "both") is None and of_value(model, "scores") is not None
    assert "anchors" not in {site.value.name for site in model.quant.sites()}


def test_an_input_has_a_grid_where_others_read_it() -> None:
    model, _, _ = compiled(PICTURE, "npu", 1.0, scale=100.0)
    both, x, scores = (of_value(model, name) for name in ("both", "x", "scores"))
    assert both is None and x is not None and scores is not None and x is not scores


def test_a_grid_holds_all_that_is_joined_where_codes_wrap_around() -> None:
    """By the search for the least error the range of the result ends below that of a part."""
    source = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1, 4, 4, 4] a, float[1, 4, 32, 4] b) => (float[1, 8, 36, 4] y) <float[8, 4, 1, 1] w> {
        r = Relu(a) j = Concat<axis = 2>(r, b) y = Conv(j, w) }""")
    rng = np.random.default_rng(1)
    shapes = {"a": (3, (1, 4, 4, 4)), "b": (1, (1, 4, 32, 4))}
    feeds = [
        {
            name: (scale * rng.laplace(size=shape)).astype(np.float32)
            for name, (scale, shape) in shapes.items()
        }
        for _ in range(8)
    ]
    model, _, _ = apply(f"{PLACE},calibrate{{method=mse}}", source, "qnn-htp", feeds)
    part, made = (quantizer.encoding for name in ("r", "j") if (quantizer := of_value(model, name)))
    assert part is not None and made is not None and part.maximum > 14.7
    assert made.minimum <= part.minimum and part.maximum <= made.maximum


def test_a_maximum_that_begins_with_infinity_stays_float_and_is_no_error() -> None:
    """So PyTorch exports ``amax`` of a scatter, with which networks for molecules pool atoms."""
    source = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 8] x, int64[4, 8] i) => (float[2, 8] y) <float[2, 8] none> {
        r = Relu(x) y = ScatterElements<axis = 0, reduction = "max">(none, i, r) }""")
    infinite = np.full((2, 8), -np.inf, np.float32)
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(infinite, "none"))
    index = np.repeat([0, 1, 0, 1], 8).reshape(4, 8)
    feed = {"x": np.linspace(-1, 2, 32, dtype=np.float32).reshape(4, 8), "i": index}
    model, context, _ = apply(f"{PLACE},calibrate,insert-qdq", source, "qnn-htp", [feed])
    assert of_value(model, "r") is not None and "no grid reaches" in reason(model, "none")
    wanted, made = run_model(source, feed)["y"], run_model(artifact(context, "qdq"), feed)["y"]
    np.testing.assert_allclose(made, wanted, atol=0.02)


@pytest.mark.parametrize("shared", [False, True])
def test_a_constant_joined_with_data_that_must_be_signed_is_signed_in_that_join_alone(shared: bool) -> None:
    """Products of two tensors take signed codes on OpenVINO; zeros stand before the data, as caches begin."""
    others = "d = Concat<axis = 1>(zeros, r)\n p = Conv(d, wy)\n" if shared else "p = Conv(r, wy)\n"
    model = parse(f"""g (float[2, 8, 4, 8] x,
       float[2, 8, 8, 8] z) => (float[N, M, 4, 8] y, float[N, M, 4, 8] p)
    <float[2, 8, 4, 8] zeros = {{{", ".join(["0"] * 512)}}},
     float[8, 8, 1, 1] wx = {{{", ".join(["1"] * 64)}}},
     float[8, {16 if shared else 8}, 1, 1] wy = {{{", ".join(["1"] * (128 if shared else 64))}}}> {{
        h = Conv(x, wx)
        c = Concat<axis = 1>(zeros, h)
        w = Concat<axis = 1>(z, z)
        y = MatMul(c, w)
        r = Relu(h)
        {others}
    }}""")
    feeds = random_feeds(model, 2)
    result = qc.compile(model, "w8a8", data=feeds, target="openvino", threads=1)
    formats = {
        text: [str(quantizer.spec.format) for quantizer in result.ir.quant.quantizers_on(value)]
        for value in result.ir.graph.values()
        if (text := value.name) in ("c", "d", "zeros")
    }
    assert formats["c"] == ["int8"] and "int8" in formats["zeros"]
    assert formats.get("d", ["uint8"]) == ["uint8"]


@pytest.mark.parametrize(("mode", "tied"), [("linear", True), ("cubic", False)])
def test_what_is_interpolated_keeps_its_grid_on_the_htp(mode: str, tied: bool) -> None:
    """Between two grids its compiler makes a float op of it; a cubic one reaches beyond its data."""
    model = parse(f"""g (float[1, 3, 4, 4] x) => (float[1, 3, 8, 8] y)
    <float[3, 3, 1, 1] w, float[4] scales = {{1, 1, 2, 2}}> {{
        a = Conv(x, w)  r = Resize<mode = "{mode}">(a, , scales)  y = Relu(r)
    }}""")
    placed = apply(PLACE, model, "qnn-htp")[0]
    assert (of_value(placed, "a") is of_value(placed, "r")) == tied


def test_what_is_written_into_a_tensor_has_its_grid_on_the_htp() -> None:
    """As new keys are into a cache: between several grids it computes wrong numbers, and where it adds up."""
    text = """g (float[9, 8] x, float[2, 8] u, int64[2, 8] i) => (float[9, 8] y) <float[8, 8] w> {
        m = MatMul(u, w)  n = MatMul(x, w)  s = ScatterElements(n, i, m)  y = Relu(s)
    }"""
    placed = apply(PLACE, parse(text), "qnn-htp")[0]
    assert of_value(placed, "s") is of_value(placed, "n") is of_value(placed, "m") is not None
    adding = parse(text.replace("Elements(", 'Elements<reduction = "add">('))
    apart = apply(PLACE, adding, "qnn-htp")[0]
    assert of_value(apart, "s") is not of_value(apart, "n")


def test_what_is_moved_for_a_join_alone_is_rounded_to_its_grid_before() -> None:
    """The HTP computed wrong numbers where a Reshape stood in front of that, as of new keys for a cache."""
    model = parse("""g (float[9, 8] x, float[2, 8] u, int64[2, 8] i) => (float[9, 8] y, float[2, 8] k) <
        float[8, 8] w, int64[2] s = {4, 4}, int64[2] t = {2, 8}
    > {
        m = MatMul(u, w)  k = Relu(m)  q = Reshape(m, s)  r = Reshape(q, t)  y = ScatterElements(x, i, r)
    }""")
    placed = apply(PLACE, model, "qnn-htp")[0]
    assert of_value(placed, "q") is of_value(placed, "r") is of_value(placed, "y")
    assert of_value(placed, "m") is not of_value(placed, "y")


def test_an_infinity_that_is_written_into_a_mask_stays_float() -> None:
    """Longformer's masks are made so: such a tensor was calibrated, and its infinity was an error."""
    model = parse("""g (float[2, 8] x, bool[2] m) => (float[2, 8] y) <
        float[8, 8] w, float far, int64[2, 2] i = {0, 1, 1, 3}, float[2] zero = {0, 0}
    > { a = MatMul(x, w)  u = Where(m, far, zero)  t = ScatterND(a, i, u)  y = Softmax(t) }""")
    (far,) = [tensor for tensor in model.graph.initializer if tensor.name == "far"]
    far.CopyFrom(numpy_helper.from_array(np.float32(-np.inf), "far"))
    feeds = [feed | {"m": np.array([True, False])} for feed in random_feeds(model, 2)]
    made = qc.compile(model, data=feeds, target="qnn-htp", threads=1).ir
    assert "infinity" in reason(made, "t")


def test_an_infinity_around_a_picture_stays_float() -> None:
    """A pool that rounds its lengths up keeps such a Pad, whose grid would hold nothing else."""
    model = parse("""g (float[2, 8, 8, 8] x) => (float[2, 8, 5, 5] y) <
        float[8, 8, 1, 1] w, int64[8] around = {0, 0, 1, 1, 0, 0, 1, 1}, float low = {-3.4028234663852886e38}
    > {
        c = Conv(x, w)  p = Pad(c, around, low)  q = MaxPool<kernel_shape = [3, 3], strides = [2, 2],
            ceil_mode = 1>(p)  y = Conv(q, w)
    }""")
    made = qc.compile(model, data=random_feeds(model, 2), target="qnn-htp", threads=1).ir
    assert "infinity" in reason(made, "p")
