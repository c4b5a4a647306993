"""What ONNX Runtime would be slower with in integers stays float, with the numbers behind it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model
from support.placement import of_value, of_weight, op, reason

from qc.ir.errors import UsageError
from qc.ir.quant_table import Site
from qc.passes.framework.target import load_target
from qc.passes.framework.target_costs import nanoseconds
from qc.passes.quantize.placement.work import work_of
from qc.reading import read_model

SLOWER = re.compile(r"integers would take an estimated ([\d.e+]+) µs here, .* and floats take ([\d.e+]+) µs")

# Networks that were slower in integers, a part of each, with a result that stays float.
SLOW = {
    "hard-swish in ops of its own behind depthwise convolutions": """
        g (float[1, 20, 56, 56] x) => (float[1, 20, 56, 56] y)
        <float[20, 1, 5, 5] w, float three = {3.0}, float low = {0.0}, float six = {6.0}> {
            c = Conv<group = 20, pads = [2, 2, 2, 2]>(x, w)
            a = Add(c, three)
            l = Clip(a, low, six)
            m = Mul(c, l)
            y = Div(m, six)
        }""",
    "large depthwise kernels": """
        g (float[1, 48, 56, 56] x) => (float[1, 48, 56, 56] y) <float[48, 1, 11, 11] w> {
            c = Conv<group = 48, pads = [5, 5, 5, 5]>(x, w)
            y = Tanh(c)
        }""",
    "PRelu between small convolutions": """
        g (float[1, 4, 160, 160] x) => (float[1, 4, 160, 160] y)
        <float[4, 4, 3, 3] v, float[4, 1, 1] s, float[4, 4, 3, 3] w> {
            b = Conv<pads = [1, 1, 1, 1]>(x, v)
            r = PRelu(b, s)
            c = Conv<pads = [1, 1, 1, 1]>(r, w)
            y = PRelu(c, s)
        }""",
    "a swish, which is one op in float, behind small convolutions": """
        g (float[1, 16, 72, 72] x) => (float[1, 16, 72, 72] y)
        <float[16, 16, 1, 1] u, float[16, 16, 1, 1] v, float[16, 16, 1, 1] w> {
            a = Conv(x, u)
            f = Sigmoid(a)
            b = Mul(f, a)
            c = Conv(b, v)
            g = Sigmoid(c)
            d = Mul(c, g)
            e = Conv(d, w)
            h = Sigmoid(e)
            m = Mul(e, h)
            y = Tanh(m)
        }""",
    "a volume of one channel": """
        g (float[1, 1, 16, 16, 16] x) => (float[1, 8, 16, 16, 16] y) <float[8, 1, 3, 3, 3] w> {
            c = Conv<pads = [1, 1, 1, 1, 1, 1]>(x, w)
            y = Tanh(c)
        }""",
    "averages between convolutions": """
        g (float[1, 16, 56, 56] x) => (float[1, 16, 18, 18] y)
        <float[16, 16, 1, 1] v, float[16, 16, 1, 1] w> {
            b = Conv(x, v)
            c = AveragePool<kernel_shape = [3, 3], strides = [3, 3]>(b)
            y = Conv(c, w)
        }""",
    "a stack between convolutions": """
        g (float[1, 16, 56, 56] x) => (float[1, 16, 56, 56] y)
        <float[16, 16, 3, 3] u, float[16, 16, 3, 3] v, float[16, 32, 3, 3] w, int64[1] last = {4},
         int64[4] shape = {1, 32, 56, 56}> {
            a = Conv<pads = [1, 1, 1, 1]>(x, u)
            b = Conv<pads = [1, 1, 1, 1]>(x, v)
            p = Unsqueeze(a, last)
            q = Unsqueeze(b, last)
            c = Concat<axis = -1>(p, q)
            r = Reshape(c, shape)
            d = Conv<pads = [1, 1, 1, 1]>(r, w)
            y = Tanh(d)
        }""",
    "largest numbers behind what loses the layout": """
        g (float[1, 16, 56, 56] x) => (float[1, 4, 54, 54] y)
        <float[16, 16, 1, 1] v, float[4, 16, 1, 1] w, int64[1] first = {0}> {
            a = Conv(x, v)
            s = Squeeze(a, first)
            t = Elu(s)
            u = Unsqueeze(t, first)
            m = MaxPool<kernel_shape = [3, 3]>(u)
            c = Conv(m, w)
            y = Tanh(c)
        }""",
    "largest numbers of what no convolution made": """
        g (float[1, 16, 56, 56] x) => (float[1, 4, 54, 54] y) <float[4, 16, 1, 1] w> {
            t = Tanh(x)
            m = MaxPool<kernel_shape = [3, 3]>(t)
            c = Conv(m, w)
            y = Tanh(c)
        }""",
}


def unrolled(steps: int, width: int) -> str:
    """A recurrent cell, written as often as it runs, of one row at a time."""
    names = [f"h{step}" for step in range(steps)] + ["y"]
    cells = (f"p{i} = MatMul({names[i]}, w)  {names[i + 1]} = Tanh(p{i})" for i in range(steps))
    inside = "\n".join(["h0 = Tanh(x)", *cells])
    return f"g (float[1, {width}] x) => (float[1, {width}] y) <float[{width}, {width}] w> {{ {inside} }}"


@pytest.mark.parametrize("name", SLOW)
def test_what_is_slower_in_integers_stays_float(name: str) -> None:
    model, _, _ = apply(PLACE, parse(SLOW[name]))
    assert of_value(model, "c") is None
    found = SLOWER.search(reason(model, "c"))
    assert found is not None
    integers, floats = map(float, found.groups())
    assert integers > floats


@pytest.mark.parametrize("name", SLOW)
def test_it_runs_in_integers_if_that_is_asked_for(name: str) -> None:
    pipeline = PLACE.replace("insert-quantizers", "insert-quantizers{slower=integer}")
    model, _, _ = apply(pipeline, parse(SLOW[name]))
    assert of_value(model, "c") is not None


def test_many_products_of_one_small_row_stay_float() -> None:
    model, _, _ = apply(PLACE, parse(unrolled(60, 32)))
    assert "integers would take an estimated" in reason(model, "p7")


def test_what_nobody_notices_runs_in_integers() -> None:
    model, _, _ = apply(PLACE, parse(unrolled(1, 32)))
    assert of_value(model, "h0") is not None


LOOP = """g (float[N, {0}] x, int64 n) => (float[N, {0}] y) <float[{0}, {0}] w> {{
    c = Exp(x)
    y = Loop(n, , c) <body = step (int64 i, bool k, float[M, {0}] h) => (bool d, float[M, {0}] next) {{
        d = Identity(k)
        m = MatMul(h, w)
        next = Tanh(m)
    }}>
}}"""


@pytest.mark.parametrize(("width", "runs"), [(32, False), (1024, True)])
def test_a_loop_does_in_every_round_what_is_slower_in_integers(width: int, runs: bool) -> None:
    """One small product is noticed by nobody, and a free batch has another name in a body."""
    model, _, _ = apply(PLACE, parse(LOOP.format(width)))
    body = next(graph for graph in model.graphs() if graph.parent is not None)
    state = next(one for one in body.values() if one.name == "h")
    assert (model.quant.get(Site(state)) is not None) == runs


@pytest.mark.parametrize(("width", "runs"), [(136, False), (168, True)])
def test_less_is_tolerated_if_the_whole_model_is_slower(width: int, runs: bool) -> None:
    """Of several small products, the last ones alone take a little less in float."""
    chains = " ".join(f"h{i} = MatMul(x, w) r{i} = Exp(h{i}) y{i} = MatMul(r{i}, v)" for i in range(4))
    results = ", ".join(f"float[16, 4] y{i}" for i in range(4))
    source = parse(
        f"""g (float[16, {width}] x) => ({results})
        <float[{width}, {width}] w, float[{width}, 4] v> {{ {chains} }}"""
    )
    model, _, _ = apply(PLACE, source)
    assert (of_value(model, "r1") is not None) == runs


def test_what_pays_runs_in_integers() -> None:
    text = """g (float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y)
    <float[64, 64, 3, 3] v, float[64, 1, 3, 3] d, float[64, 64, 1, 1] w> {
        b = Conv<pads = [1, 1, 1, 1]>(x, v)
        c = Conv<group = 64, pads = [1, 1, 1, 1]>(b, d)
        y = Conv(c, w)
    }"""
    model, _, _ = apply(PLACE, parse(text))
    # The depthwise one alone would be quicker in float, but not with what leads there and back.
    assert all(of_value(model, name) is not None for name in ("b", "c", "y"))


def test_volumes_of_many_channels_run_in_integers() -> None:
    text = """g (float[1, 32, 16, 16, 16] x) => (float[1, 32, 16, 16, 16] y) <float[32, 32, 3, 3, 3] w> {
        c = Conv<pads = [1, 1, 1, 1, 1, 1]>(x, w)
        y = Tanh(c)
    }"""
    model, _, _ = apply(PLACE, parse(text))
    assert of_weight(model, "c") is not None and of_value(model, "c") is not None


@pytest.mark.parametrize("gate", ["t = Tanh(b) s = Mul(b, t)", "s = Elu(b)"])
def test_elementwise_floats_between_integers_are_found_in_their_layout(gate: str) -> None:
    """What runs in float alone costs no copy into another layout between integer convolutions."""
    text = f"""g (float[1, 32, 56, 56] x) => (float[1, 32, 56, 56] y)
    <float[32, 32, 1, 1] v, float[32, 32, 1, 1] w, float[32, 32, 3, 3] u> {{
        a = Conv<pads = [1, 1, 1, 1]>(x, u)
        b = Conv(a, v)
        {gate}
        c = Conv(s, w)
        y = Conv<pads = [1, 1, 1, 1]>(c, u)
    }}"""
    model, _, _ = apply(PLACE, parse(text))
    assert all(of_value(model, name) is not None for name in ("a", "b", "s", "c"))


def test_a_pool_finds_the_layout_of_the_convolution_before_an_elementwise_float() -> None:
    text = """g (float[1, 32, 48, 48] x) => (float[1, 64, 21, 21] y)
    <float[32, 32, 3, 3] v, float[32, 1, 1] s, float[64, 32, 3, 3] w> {
        a = Conv(x, v)
        b = PRelu(a, s)
        c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
        y = Conv(c, w)
    }"""
    model, _, _ = apply(PLACE, parse(text))
    assert all(of_value(model, name) is not None for name in ("a", "c"))


def test_an_activation_that_is_part_of_a_float_convolution_counts_in_integers_alone() -> None:
    text = """g (float[1, 16, 64, 64] x) => (float[1, 16, 64, 64] y)
    <float[16, 1, 5, 5] v, float[16, 1, 5, 5] w> {
        a = Conv<group = 16, pads = [2, 2, 2, 2]>(x, v)
        g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(a)
        b = Mul(a, g)
        c = Conv<group = 16, pads = [2, 2, 2, 2]>(b, w)
        h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c)
        y = Mul(c, h)
    }"""
    model = parse(text)
    graph = read_model(model).graph
    kinds = {work.kind for one in graph.ops() if (work := work_of(one, lambda value: value.type.shape, 16))}
    assert "HardSwish" in kinds
    placed, _, _ = apply(PLACE, model)
    assert of_value(placed, "a") is None


def test_other_bits_and_other_targets_are_not_weighed() -> None:
    text = SLOW["large depthwise kernels"]
    model, _, _ = apply(
        PLACE.replace("insert-quantizers", "insert-quantizers{activation=uint16}"), parse(text)
    )
    assert of_value(model, "c") is not None
    model, _, _ = apply(PLACE, parse(text), "qnn-htp")
    assert of_value(model, "c") is not None


def test_weights_are_stored_in_integers_and_dequantized_when_the_model_is_loaded() -> None:
    proto = parse(SLOW["large depthwise kernels"])
    feeds = random_feeds(proto, 1)
    model, context, _ = apply(f"{PLACE},calibrate,insert-qdq,to-simulation", proto, feeds=feeds)
    assert of_weight(model, "c") is not None
    assert {node.op_type for node in artifact(context, "qdq").graph.node} == {"Cast", "Mul", "Conv", "Tanh"}
    qdq, simulation = (run_model(artifact(context, name), feeds[0])["y"] for name in ("qdq", "simulation"))
    np.testing.assert_allclose(qdq, simulation, rtol=1e-4, atol=1e-5)


def test_a_weight_beside_data_in_codes_stays_float_as_the_op_would_be_taken_for_an_integer_one() -> None:
    text = """g (float[1, 64, 56, 56] x) => (float[1, 20, 56, 56] y)
    <float[32, 64, 3, 3] v, float[20, 32, 3, 3] u, float[20, 1, 11, 11] w> {
        a = Conv<pads = [1, 1, 1, 1]>(x, v)
        b = Conv<pads = [1, 1, 1, 1]>(a, u)
        c = Conv<group = 20, pads = [5, 5, 5, 5]>(b, w)
        y = Tanh(c)
    }"""
    model, _, _ = apply(PLACE, parse(text))
    assert of_value(model, "b") is not None
    assert "integers would take an estimated" in reason(model, "c")
    assert of_weight(model, "c") is None


def test_a_model_that_is_quick_in_integers_runs_in_them_wholly() -> None:
    """Where an estimate that is wrong can only cost time, nothing is left in float for a little of it."""
    text = """g (float[1, 64, 56, 56] x) => (float[1, 20, 56, 56] y)
    <float[64, 64, 3, 3] v, float[64, 64, 3, 3] u, float[20, 64, 3, 3] t, float[20, 1, 11, 11] w> {
        a = Conv<pads = [1, 1, 1, 1]>(x, v)
        b = Conv<pads = [1, 1, 1, 1]>(a, u)
        d = Conv<pads = [1, 1, 1, 1]>(b, t)
        c = Conv<group = 20, pads = [5, 5, 5, 5]>(d, w)
        y = Tanh(c)
    }"""
    model, _, _ = apply(PLACE, parse(text))
    assert of_weight(model, "c") is not None


@pytest.mark.parametrize(("length", "is_float"), [(4, False), (100_000, True)])
def test_free_dimensions_are_those_of_the_first_sample(length: int, is_float: bool) -> None:
    text = """g (float[N, 20, L] x) => (float[N, 20, H, W] y) <float[20, 1, 5, 5] w, int64[1] axes = {3}> {
        u = Unsqueeze(x, axes)
        c = Conv<group = 20, pads = [2, 2, 2, 2]>(u, w)
        y = Tanh(c)
    }"""
    model, _, _ = apply(PLACE, parse(text), feeds=[{"x": np.zeros((1, 20, length), np.float32)}])
    assert (of_value(model, "c") is None) == is_float


# -- work ---------------------------------------------------------------------------------------------------

COSTS = load_target("ort-cpu").costs


def estimated(batch: int, size: int, inputs: int, outputs: int, kernel: int) -> tuple[float, float]:
    """The estimated nanoseconds of a convolution in integers and in float."""
    shapes = f"float[{batch}, {inputs}, {size}, {size}] x) => (float[{batch}, {outputs}, M, M] y)"
    text = f"g ({shapes} <float[{outputs}, {inputs}, {kernel}, {kernel}] w> {{ y = Conv(x, w) }}"
    model, _, _ = apply("eliminate-dead-code", parse(text))
    work = work_of(op(model, "y"), lambda read: read.type.shape, COSTS.lanes)
    kernel_costs = COSTS.kernels[work.kind]
    return nanoseconds(kernel_costs.integers, work.amounts), nanoseconds(kernel_costs.floats, work.amounts)


@given(
    st.tuples(st.integers(1, 3), st.integers(5, 30), st.sampled_from([16, 40]), st.integers(2, 40)), st.data()
)
def test_more_work_never_costs_less(given: tuple[int, int, int, int], data: st.DataObject) -> None:
    before = estimated(*given, 3)
    grown = list(given)
    grown[data.draw(st.integers(0, 3))] *= 2
    after = estimated(*grown, 3)
    assert after[0] >= before[0]
    assert after[1] >= before[1]


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cpu-avx2", "ort-cpu-amx", "ort-cpu-arm"])
def test_costs_come_with_the_targets_of_onnx_runtime(target: str) -> None:
    assert load_target(target).costs is not None


def test_costs_of_a_quantity_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = "ort-cpu"\nname = "mine"\nsummary = "mine"\n[costs]\nquantize = { op = 1 }\n'
        "dequantize = { op = 1 }\n[costs.kernels.Conv]\nfloats = { products = 1 }\nintegers = { op = 1 }\n"
    )
    with pytest.raises(UsageError, match=r"'products' is no quantity .did you mean 'product'"):
        load_target(str(path))
