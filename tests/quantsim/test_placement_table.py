"""What AIMET places on small graphs, as measured on it; 8 bits unless said otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from support.quantsim import axis, bits, built, grid, on, remarks, tied

LN = """mu = ReduceMean<axes=[-1], keepdims=1>(x)
d = Sub(x, mu)
sq = Pow(d, two)
var = ReduceMean<axes=[-1], keepdims=1>(sq)
ve = Add(var, eps)
std = Sqrt(ve)
nrm = Div(d, std)
"""
AFFINE = LN + "sc = Mul(nrm, gamma)\ny = Add(sc, beta)"
NEW_LN = """mu = ReduceMean<keepdims=1>(x, minusone)
d = Sub(x, mu)
sq = Pow(d, two)
var = ReduceMean<keepdims=1>(sq, minusone)
ve = Add(var, eps)
std = Sqrt(ve)
nrm = Div(d, std)
sc = Mul(nrm, gamma)
y = Add(sc, beta)"""
RMS = """sq = Mul(x, x)
var = ReduceMean<axes=[-1], keepdims=1>(sq)
ve = Add(var, eps)
std = Sqrt(ve)
nrm = Div(x, std)
y = Mul(nrm, gamma)"""
NORM = {
    "eps": np.float32(1e-5),
    "two": np.float32(2),
    "gamma": np.ones(8, np.float32),
    "beta": np.zeros(8, np.float32),
    "minusone": np.array([-1]),
}
LINEAR = {
    "W": np.eye(8, dtype=np.float32),
    "b": np.ones(8, np.float32),
    "b2": np.ones((1, 8), np.float32),
}
IMAGE = "float[1,4,8,8] x"
CONV = {
    "W": np.ones((4, 4, 3, 3), np.float32),
    "W1": np.ones((4, 1, 3, 3), np.float32),
    "W3": np.ones((4, 4, 1, 3, 3), np.float32),
    "WT": np.ones((4, 2, 3, 3), np.float32),
    "g": np.ones(4, np.float32),
    "h": np.zeros(4, np.float32),
    "m": np.zeros(4, np.float32),
    "v": np.ones(4, np.float32),
}


def test_layer_norm_counts_as_one_op() -> None:
    model = built(AFFINE, constants=NORM)
    assert on(model) == {"x", "gamma", "y"}
    assert not grid(model, "gamma").spec.symmetric
    assert bits(model, "gamma") == 8
    assert "htp_v73.toml, supergroup_pass_list" in remarks(model, "beta") + str(model.journal.remarks)


def test_default_has_no_norms() -> None:
    model = built(AFFINE, "default", constants=NORM)
    assert on(model) == {
        *("x", "two", "eps", "gamma", "beta"),
        *("mu", "d", "sq", "var", "ve", "std", "nrm", "sc", "y"),
    }


def test_wide_parameters_of_a_norm_are_symmetric() -> None:
    model = built(AFFINE, options="weight=int16", constants=NORM)
    assert (bits(model, "gamma"), grid(model, "gamma").spec.symmetric) == (16, True)


def test_scale_of_rms_norm_is_as_wide_as_its_result() -> None:
    model = built(RMS, options="activation=uint16", constants=NORM)
    assert on(model) == {"x", "gamma", "y"}
    assert (bits(model, "gamma"), grid(model, "gamma").spec.symmetric) == (16, False)


def test_norm_without_scale_is_fused_from_the_centred_values_on() -> None:
    assert on(built(LN.replace("nrm", "y"), constants=NORM)) == {"x", "mu", "d", "y"}


@pytest.mark.parametrize("config", ["htp_v73", "default"])
def test_product_bias_and_relu_are_one_op(config: str) -> None:
    model = built("mm = MatMul(x, W); s = Add(mm, b); y = Relu(s)", config, constants=LINEAR)
    assert on(model) == {"x", "W", "y"}
    assert axis(model, "W") == 1


@pytest.mark.parametrize("config", ["htp_v73", "default"])
def test_a_bias_of_two_axes_is_data(config: str) -> None:
    model = built("mm = MatMul(x, W); y = Add(mm, b2)", config, constants=LINEAR)
    assert on(model) == {"x", "W", "mm", "b2", "y"}


def test_convolution_with_batch_norm_and_relu() -> None:
    body = "c = Conv(x, W); n = BatchNormalization(c, g, h, m, v); y = Relu(n)"
    assert on(built(body, inputs=IMAGE, constants=CONV)) == {"x", "W", "g", "y"}
    model = built(body, "default", inputs=IMAGE, constants=CONV)
    assert on(model) == {"x", "W", "g", "c", "n", "y"}
    assert tied(model, "n", "y")


@pytest.mark.parametrize(
    "body, inputs",
    [
        ("c = Conv<group=4>(x, W1); y = Relu(c)", IMAGE),
        ("c = Conv(x, W3); y = Relu(c)", "float[1,4,2,8,8] x"),
    ],
)
def test_depthwise_and_3d_convolutions_are_tied_to_their_relu(body: str, inputs: str) -> None:
    model = built(body, inputs=inputs, constants=CONV)
    assert tied(model, "c", "y")
    assert grid(model, "y").spec.fixed_range == (0.0, np.inf)


def test_grouped_transposed_convolution_has_one_scale() -> None:
    assert axis(built("y = ConvTranspose<group=2>(x, WT)", inputs=IMAGE, constants=CONV), "WT") is None


@pytest.mark.parametrize("config", ["htp_v73", "default"])
def test_constants_are_activations(config: str) -> None:
    body = """c = Clip(x, lo, hi); p = PRelu(c, slope); q = Pad(p, pads, fill); e = Greater(q, zero)
    y = Where(e, q, other)"""
    constants = {
        "lo": np.float32(-1),
        "hi": np.float32(1),
        "slope": np.full(8, 0.1, np.float32),
        "pads": np.zeros(6, np.int64),
        "fill": np.float32(0.5),
        "zero": np.float32(0.25),
        "other": np.float32(-3),
    }
    model = built(body, config, constants=constants)
    assert {"lo", "hi", "slope", "fill", "zero", "other"} <= on(model)
    assert not {"pads", "e", "q"} & on(model)


def test_resize_and_average_pool_have_the_grid_of_their_input() -> None:
    body = 'r = Resize<mode="nearest">(x, none, s); y = AveragePool<kernel_shape=[2,2]>(r)'
    model = built(body, inputs=IMAGE, constants={"s": np.array([1, 1, 2, 2], np.float32)})
    assert tied(model, "x", "r", "y")
    assert "s" not in on(model)


def test_casts_and_moves_have_no_grid_of_their_own() -> None:
    body = "a = Cast<to=10>(x); b = Cast<to=1>(a); c = Flatten(b); y = Relu(c)"
    assert on(built(body)) == {"x", "y"}


def test_last_moved_tensor_of_an_enpu_has_a_grid() -> None:
    model = built("r = Relu(x); y = MaxPool<kernel_shape=[2,2]>(r)", "enpu_v6", inputs=IMAGE)
    assert not tied(model, "r", "y")


def test_states_of_an_lstm_have_one_grid() -> None:
    constants = {"W": np.ones((1, 16, 8), np.float32), "R": np.ones((1, 16, 4), np.float32)}
    model = built("y, h, c = LSTM<hidden_size=4>(x, W, R)", outputs="y h", constants=constants)
    assert tied(model, "x", "y", "h")
    assert {"W", "R", "c"} <= on(model)
    assert axis(model, "W") is None and grid(model, "W").spec.symmetric


def test_a_table_is_an_activation() -> None:
    constants = {"table": np.ones((5, 8), np.float32)}
    body, inputs = "g = Gather(table, i); y = Relu(g)", "int64[2] i"
    model = built(body, options="activation=uint16", inputs=inputs, constants=constants)
    assert on(model) == {"table", "y"}
    assert (bits(model, "table"), axis(model, "table")) == (16, None)


def test_a_weight_behind_a_transpose_has_scales_along_its_stored_channels() -> None:
    body = "t = Transpose<perm=[1,0]>(W); y = MatMul(x, t)"
    model = built(body, constants=LINEAR)
    assert on(model) == {"x", "W", "y"}
    assert axis(model, "W") == 0
    wide = built(body, options="weight=int16", constants=LINEAR)
    assert bits(wide, "x") == 16


@pytest.mark.parametrize("shape", [(8,), (2, 8, 8)])
def test_a_bias_behind_any_constant_factor_is_part_of_the_product(shape: tuple[int, ...]) -> None:
    constants = {"B": np.ones(shape, np.float32), "b": np.ones(4 if len(shape) == 1 else 8, np.float32)}
    assert on(built("mm = MatMul(x, B); y = Add(mm, b)", constants=constants)) == {"x", "B", "y"}


def test_a_norm_over_two_axes_has_no_grids_inside() -> None:
    wide = AFFINE.replace("axes=[-1]", "axes=[1,2]")
    constants = {**NORM, "gamma": np.ones((4, 8), np.float32), "beta": np.ones((4, 8), np.float32)}
    model = built(wide, options="activation=uint16", constants=constants)
    assert on(model) == {"x", "gamma", "y"}
    assert (bits(model, "gamma"), grid(model, "gamma").spec.symmetric) == (16, True)


def test_a_float16_tensor_stays_float() -> None:
    assert "h" not in on(built("h = Cast<to=10>(x); c = Cast<to=1>(h); y = Relu(c)", "enpu_v7"))


def test_a_weight_behind_an_identity_is_a_weight() -> None:
    model = built("w = Identity(W); y = MatMul(x, w)", constants=LINEAR)
    assert axis(model, "W") == 1
