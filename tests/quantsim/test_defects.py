"""The known defects of AIMET, each on a small model, and what is right there; B1 to B11 are their names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import ModelProto
from support.graph_text import build_model
from support.models import random_feeds
from support.pipelines import apply, artifact, run_model
from support.placement import op, value
from support.quantsim import as_aimet_writes, axis, bits, built, grid, on, remarks, tied

from qc.ir.onnx.lower import lower
from qc.ir.quant.formats import IntFormat
from qc.ir.quant_table import Site
from qc.passes.quantize.quantsim.drafts import Draft
from qc.passes.quantize.quantsim.reading import load_config
from qc.runtime.execution.executed import execution_of

from .test_placement_table import CONV, IMAGE, LN, NEW_LN, NORM

CHAIN = "calibrate{rounded_parameters=true}"


def simulated(proto: ModelProto, config: str = "htp_v73") -> ModelProto:
    """The simulation of a model that was calibrated on random data."""
    pipeline = f"configure-quantizers{{config={config}}},{CHAIN},to-simulation"
    context = apply(pipeline, proto, feeds=random_feeds(proto))[1]
    return artifact(context, "simulation")


def test_a_draft_keeps_its_sign_at_every_width() -> None:
    draft = Draft(IntFormat(8, signed=False), is_parameter=False)
    formats = []
    for width in (8, 32, 16, 8):
        draft.set_bits(width)
        formats.append(str(draft.spec.format))
    assert formats == ["uint8", "int32", "uint16", "uint8"]


def test_a_bias_of_one_number_has_one_scale() -> None:
    """Exporters of JAX give a Gemm such a bias, which has no channels as the configuration asks for."""
    constants = {"W": np.ones((8, 4), np.float32), "b": np.zeros((), np.float32)}
    model = built("y = Gemm(x, W, b)", "default", inputs="float[2, 8] x", outputs="y", constants=constants)
    assert axis(model, "W") == 1


# -- exposed tensors ---------------------------------------------------------------------------------


def test_every_convolution_around_an_exposed_tensor_has_scales_per_channel() -> None:
    body = "c1 = Conv(x, W); r = Relu(c1); y = Conv(r, V)"
    constants = {"W": CONV["W"], "V": CONV["W"] * 2}
    model = built(body, outputs="c1 y", inputs=IMAGE, constants=constants)
    assert (axis(model, "W"), axis(model, "V")) == (0, 0)
    assert {"c1", "r"} <= on(model)  # AIMET leaves the output c1 out, as inside of Conv + Relu


def test_what_makes_an_exposed_tensor_runs_in_integers() -> None:
    body = "c1 = Conv(x, W); r = Relu(c1); y = Conv(r, V)"
    constants = {"W": CONV["W"], "V": CONV["W"] * 2}
    proto = build_model(body, "c1 y", IMAGE, constants=constants)
    feeds = random_feeds(proto)
    pipeline = f"configure-quantizers{{config=htp_v73}},{CHAIN},insert-qdq"
    integer = artifact(apply(pipeline, proto, feeds=feeds)[1], "qdq")
    kernels = [op.kernel for op in execution_of(integer).ops]
    assert kernels.count("QLinearConv") == 2  # of AIMET's model one: what the other makes is left in float


def test_outputs_whose_names_begin_alike() -> None:
    body = "hidden_output = Conv(x, W); hidden_output_1 = Conv(x, V); y_updated = Relu(x); y = Tanh(x)"
    constants = {"W": CONV["W"], "V": CONV["W"] * 2}
    outputs = "hidden_output hidden_output_1 y y_updated"
    model = built(body, outputs=outputs, inputs=IMAGE, constants=constants)
    assert set(outputs.split()) < on(model)


def test_an_exposed_product_keeps_its_grid_beside_a_bias() -> None:
    constants = {"B": np.ones((2, 8, 8), np.float32), "b": np.ones(8, np.float32)}
    body = "mm = MatMul(x, B); y = Add(mm, b)"
    assert "mm" not in on(built(body, constants=constants))
    assert "mm" in on(built(body, outputs="y mm", constants=constants))


def test_b1_a_relu_does_not_clip_an_output_of_the_model() -> None:
    proto = build_model("m = Mul(x, k); y = Relu(m)", "m y", constants={"k": np.float32(2)})
    feed = random_feeds(proto)[0]
    floats, rounded = run_model(proto, feed), run_model(simulated(proto), feed)
    assert floats["m"].min() < -0.5
    np.testing.assert_allclose(rounded["m"], floats["m"], atol=0.1)
    model = built("m = Mul(x, k); y = Relu(m)", outputs="m y", constants={"k": np.float32(2)})
    assert not tied(model, "m", "y")
    assert grid(model, "y").spec.fixed_range == (0.0, np.inf)
    assert "B1" in remarks(model, "y")


# -- ties --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, range_of_y",
    [
        ("a = Sigmoid(x); y = Relu(a)", (0.0, 1.0)),
        ("a = Tanh(x); y = Relu(a)", (0.0, np.inf)),
        ("a = Tanh(x); p = MaxPool<kernel_shape=[2,2]>(a); y = Relu(p)", (0.0, np.inf)),
        ("a = Sigmoid(x); b = Softmax(x); c = Concat<axis=1>(a, b); y = Relu(c)", (0.0, 1.0)),
    ],
)
def test_b2_two_fixed_ranges_are_no_failure(body: str, range_of_y: tuple[float, float]) -> None:
    model = built(body, inputs=IMAGE)
    assert grid(model, "y").spec.fixed_range == range_of_y
    assert grid(model, "a").spec.fixed_range == ((-1.0, 1.0) if "Tanh" in body else (0.0, 1.0))


@pytest.mark.parametrize(
    "kind, gates, made",
    [("LSTM", 4, "none, h"), ("LSTM", 4, "none, h, c"), ("GRU", 3, "none, h"), ("RNN", 1, "none, h")],
)
def test_b3_recurrent_ops_without_a_first_output(kind: str, gates: int, made: str) -> None:
    constants = {name: np.ones((1, 4 * gates, size), np.float32) for name, size in (("W", 8), ("R", 4))}
    body = f"{made} = {kind}<hidden_size=4>(x, W, R); z = Tanh(h)"
    assert tied(built(body, outputs="z", constants=constants), "x", "h")


def test_what_two_recurrent_ops_read_has_the_grid_of_the_last() -> None:
    body = "h = LSTM<hidden_size=4>(x, W, R); k = LSTM<hidden_size=4>(x, W, R); y = Tanh(h); z = Tanh(k)"
    constants = {"W": np.ones((1, 16, 8), np.float32), "R": np.ones((1, 16, 4), np.float32)}
    model = built(body, outputs="y z", constants=constants)
    assert tied(model, "x", "k") and not tied(model, "x", "h")  # as in AIMET


def test_b4_a_join_without_a_grid_takes_none_away(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = load_config("htp_v73").config.plain()
    config["op_type"]["Concat"] = {"is_output_quantized": False}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(as_aimet_writes(config)))
    model = built("a = Mul(x, x); b = Add(x, x); y = Concat<axis=0>(a, b)", str(path))
    assert on(model) == {"x", "a", "b"}


@pytest.mark.parametrize("config", ["default", "htp_v73"])
def test_b7_a_relu_wastes_no_codes_on_negative_numbers(config: str) -> None:
    model = built("c = Conv<group=4>(x, W1); y = Relu(c)", config, inputs=IMAGE, constants=CONV)
    assert tied(model, "c", "y")
    assert grid(model, "y").spec.fixed_range == (0.0, np.inf)
    shared = built("c = Mul(x, x); y = Relu(c); z = Tanh(c)", config, outputs="y z")
    assert tied(shared, "c", "y") == (config == "default")  # as in AIMET
    assert grid(shared, "c").spec.fixed_range is None


@pytest.mark.parametrize(
    "body, outputs, changes_nothing",
    [
        ("a = Mul(x, x); t = Transpose(a); f = Flatten(t); y = Relu(f)", "y", True),
        ("a = Mul(x, x); m = MaxPool<kernel_shape=[2,2]>(a); y = Relu(m)", "y", True),
        ("a = Mul(x, x); b = Add(x, x); c = Concat<axis=1>(a, b); y = Relu(c)", "y", True),
        ('a = Mul(x, x); r = Resize<mode="nearest">(a, none, twice); y = Relu(r)', "y", True),
        ('a = Mul(x, x); r = Resize<mode="linear">(a, none, twice); y = Relu(r)', "y", False),
        ("a = Mul(x, x); r = AveragePool<kernel_shape=[2,2]>(a); y = Relu(r)", "y", False),
        ('a = Mul(x, x); b = ScatterND<reduction="add">(a, zero, x); y = Relu(b)', "y", False),
        ("a = Mul(x, x); t = Transpose(a); y = Relu(t)", "y t", False),
        ("a = Mul(x, x); t = Transpose(a); y = Relu(t); z = Exp(t)", "y z", False),
        ("a = Mul(x, x); b = Add(x, x); c = Concat<axis=1>(a, b); y = Relu(c); z = Exp(b)", "y z", True),
        ("a = Mul(x, x); v, i = TopK<axis=1>(a, one); y = Relu(v)", "y i", False),
    ],
)
def test_b7_the_range_of_a_relu_goes_where_it_changes_nothing(
    body: str, outputs: str, changes_nothing: bool
) -> None:
    constants = {"twice": np.array([1, 1, 2, 2], np.float32), "zero": np.array([[0]]), "one": np.array([1])}
    model = built(body, "default", outputs=outputs, inputs=IMAGE, constants=constants)
    assert (grid(model, "a").spec.fixed_range == (0.0, np.inf)) == changes_nothing


def test_a_relu_that_clips_keeps_the_largest_value() -> None:
    proto = build_model("c = Mul(x, k); y = Relu(c)", constants={"k": np.float32(3)})
    feeds = random_feeds(proto)
    model = apply(f"configure-quantizers{{config=htp_v73}},{CHAIN}", proto, feeds=feeds)[0]
    encoding = grid(model, "y").encoding
    assert encoding is not None and int(encoding.zero_point) == 0
    highest = max(float(run_model(proto, feed)["y"].max()) for feed in feeds)
    np.testing.assert_allclose(encoding.maximum, highest, rtol=1e-6)


def test_joins_climb_through_what_keeps_values_only() -> None:
    shape = {"s": np.array([2, 4, 8])}
    moved = built("a = Mul(x, x); r = Reshape(a, s); b = Tanh(x); y = Concat<axis=0>(r, b)", constants=shape)
    assert tied(moved, "a", "y")  # Tanh has a fixed range of its own, so it is left alone
    assert not tied(moved, "b", "y")
    gathered = built(
        "k = Cast<to=7>(z); g = Gather<axis=1>(x, k); b = Add(x, x); y = Concat<axis=1>(g, b)",
        inputs="float[2,4,8] x, float[3] z",
    )
    assert tied(gathered, "b", "y")
    assert not {"k", "g"} & on(gathered)
    assert not tied(gathered, "z", "y")


def test_a_branch_without_a_grid_gets_that_of_the_join() -> None:
    body = "i = Cast<to=7>(x); f = Cast<to=1>(i); b = Add(x, x); y = Concat<axis=0>(f, b)"
    model = built(body)
    assert tied(model, "b", "y")
    assert model.quant.get(Site(value(model, "f"), op(model, "y"), 0)) is grid(model, "y")


def test_a_tensor_with_other_readers_is_requantized_for_the_join() -> None:
    model = built("a = Mul(x, x); b = Add(x, x); z = Exp(a); y = Concat<axis=0>(a, b)", outputs="y z")
    assert not tied(model, "a", "y")
    assert model.quant.get(Site(value(model, "a"), op(model, "y"), 0)) is grid(model, "y")


@pytest.mark.parametrize(
    "body, constants",
    [
        ("a = Mul(x, x); y = Concat<axis=0>(a, k)", {"k": np.ones((2, 4, 8), np.float32)}),
        ("a = Mul(x, x); b = Exp(x); c = Concat<axis=0>(a, b); d = Add(x, x); y = Concat<axis=0>(c, d)", {}),
    ],
)
def test_constants_and_nested_joins_are_tied(body: str, constants: dict[str, np.ndarray]) -> None:
    model = built(body, constants=constants)
    assert tied(model, *(on(model) - {"x"}))


def test_integers_never_have_a_grid() -> None:
    body = "h = Shape(x); g = Gather(h, i); c = Concat<axis=0>(g, i2); r = Reshape(x, c); y = Relu(r)"
    constants = {"i": np.array([0]), "i2": np.array([32])}
    model = built(body, constants=constants)
    assert on(model) == {"x", "y"}


# -- norms -------------------------------------------------------------------------------------------


def test_b5_a_residual_is_no_bias_of_a_norm() -> None:
    model = built(LN + "sc = Mul(nrm, gamma)\ny = Add(sc, x)", constants=NORM)
    assert {"sc", "y"} <= on(model)
    assert not {"mu", "d", "nrm"} & on(model)


def test_b5_a_computed_scale_is_outside_of_a_norm() -> None:
    inputs = "float[2,4,8] x, float[2,4,8] t"
    model = built(LN + "s = Tanh(t)\nsc = Mul(nrm, s)\ny = Add(sc, t)", inputs=inputs, constants=NORM)
    assert {"s", "sc", "y", "nrm"} <= on(model)


def test_b5_a_scale_along_another_axis_is_outside_of_a_norm() -> None:
    constants = {**NORM, "gamma": np.ones((4, 1), np.float32)}
    assert "nrm" in on(built(LN + "y = Mul(nrm, gamma)", constants=constants))


def test_b6_a_norm_that_shows_what_it_normalized() -> None:
    body = LN + "sc = Mul(nrm, gamma)\ny = Add(sc, beta)"
    model = built(body, outputs="y nrm", constants=NORM)
    assert {"nrm", "gamma", "y"} <= on(model)
    assert not {"mu", "d", "sq", "var", "ve", "std"} & on(model)


@pytest.mark.parametrize("opset", [18, 21])
def test_b10_axes_as_inputs_make_no_difference(opset: int) -> None:
    model = built(NEW_LN, opset=opset, constants=NORM)
    assert on(model) == {"x", "gamma", "y"}
    assert bits(model, "gamma") == 8


# -- numbers -----------------------------------------------------------------------------------------


def test_b8_what_an_encodings_version_lacks_is_said() -> None:
    proto = build_model("y = Relu(x)")
    halves = "configure-quantizers{activation=float16 weight=float16},calibrate,"
    context = apply(halves + "to-encodings{version='2.0.0'}", proto, feeds=random_feeds(proto))[1]
    assert any("'y' is float16" in note for note in context.notes)
    plain = "configure-quantizers,calibrate,to-encodings{version='2.1.0'}"
    context = apply(plain, proto, feeds=random_feeds(proto))[1]
    content = json.loads(str(context.artifacts["encodings"].payload))
    assert content["version"] == "2.1.0" and {e["name"] for e in content["encodings"]} == {"x", "y"}


def test_b9_strict_symmetry_has_no_code_to_spare(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = load_config("htp_v73").config.plain()
    config["defaults"]["strict_symmetric"] = True
    path = tmp_path / "strict.json"
    path.write_text(json.dumps(as_aimet_writes(config)))
    spec = grid(built("y = Conv(x, W)", str(path), inputs=IMAGE, constants=CONV), "W").spec
    assert spec.code_range == (-127, 127)


@pytest.mark.parametrize("far", [-1e4, -1e9])
def test_b11_scores_behind_a_mask_have_a_grid_of_their_own_range(far: float) -> None:
    body = "s = Mul(x, x); w = Where(m, s, low); y = Softmax(w)"
    proto = build_model(body, "y", "float[2,4,8] x, bool[2,4,8] m", constants={"low": np.float32(far)})
    feed = random_feeds(proto)[0]
    np.testing.assert_allclose(run_model(simulated(proto), feed)["y"], run_model(proto, feed)["y"], atol=0.02)


def test_b11_a_number_that_masks_has_no_grid_where_others_see_it() -> None:
    body = "s = Mul(x, x); w = Where(m, s, low); y = Relu(w)"
    parts = {"inputs": "float[2,4,8] x, bool[2,4,8] m", "constants": {"low": np.float32(-1e9)}}
    model = built(body, **parts)  # type: ignore[arg-type]
    assert not {"low", "w"} & on(model)
    assert "B11" in remarks(model, "w")


def test_b11_a_constant_with_nan_stays_float_alone() -> None:
    model = built("s = Add(x, k); y = Relu(s)", constants={"k": np.float32([1, np.nan])}, inputs="float[2] x")
    assert on(model) == {"x", "y"}
    assert "it can hold NaN" in remarks(model, "k")


def test_b11_a_sum_with_a_mask_has_a_grid() -> None:
    body = "s = Mul(x, x); w = Add(s, mask); y = Softmax(w)"
    mask = np.where(np.eye(8) > 0, 0, -1e9).astype(np.float32)[:4]
    model = built(body, constants={"mask": mask})
    assert "w" in on(model) and "mask" not in on(model)


def test_b12_an_exposed_convolution_keeps_its_batch_norm() -> None:
    proto = build_model("c = Conv(x, W); y = BatchNormalization(c, g, h, m, v)", "y c", IMAGE, constants=CONV)
    folded = apply("fold-batch-norms", proto)[0]
    assert {output.name for output in folded.graph.outputs if output is not None} == {"y", "c"}


def test_b13_a_batch_norm_before_padding_is_not_folded_wrongly() -> None:
    constants = {**CONV, "h": np.full(4, 3, np.float32)}
    body = 'n = BatchNormalization(x, g, h, m, v); y = Conv<auto_pad="SAME_UPPER">(n, W)'
    proto = build_model(body, inputs=IMAGE, constants=constants)
    feed = random_feeds(proto)[0]
    folded = lower(apply("fold-batch-norms", proto)[0])
    np.testing.assert_allclose(run_model(folded, feed)["y"], run_model(proto, feed)["y"], atol=1e-4)


def test_unsigned_symmetric_grids_begin_at_zero(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = load_config("htp_v73").config.plain()
    config["defaults"] |= {
        "unsigned_symmetric": True,
        "ops": config["defaults"]["ops"] | {"is_symmetric": True},
    }
    path = tmp_path / "unsigned.json"
    path.write_text(json.dumps(as_aimet_writes(config)))
    proto = build_model("a = Conv(x, W); y = Abs(a)", inputs=IMAGE, constants=CONV)
    passes = f"configure-quantizers{{config={str(path)!r}}},calibrate-as-aimet"
    model = apply(passes, proto, feeds=random_feeds(proto))[0]
    grids = {name: model.quant.of_value(model.graph.value_named(name)) for name in ("a", "y")}
    assert all(grid.spec.symmetric for grid in grids.values())
    assert grids["y"].encoding.minimum == 0 > grids["a"].encoding.minimum
