"""Times by node from a profile, and what ops cost by their shapes."""

from __future__ import annotations

import pytest
from support.models import parse

from qc.ir.facts.op_table import TABLE, WEIGHTED
from qc.ir.facts.products import is_product
from qc.runtime.execution.cost import multiplied_by, tensor_shapes
from qc.runtime.execution.profile import NodeTime, node_times
from qc.runtime.protos.wiring import all_nodes


def event(name: str, start: int, duration: int, category: str = "Node") -> dict:
    return {
        "name": name,
        "cat": category,
        "ts": start,
        "dur": duration,
        "args": {"op_name": name.split("_")[0]},
    }


def test_times_are_medians_over_runs_and_sums_over_iterations() -> None:
    events = []
    for start, taken in ((0, 900), (1000, 10), (2000, 30), (3000, 20)):
        events.append(event("model_run", start, 950, "Session"))
        events.append(event("Conv_kernel_time", start + 1, taken))
        events += [event("Add_kernel_time", start + 1 + step, 2) for step in (910, 920)]
        events.append(event("Conv_fence_before", start + 1, 500))
    conv, add = node_times(events)
    assert conv == NodeTime("Conv", "Conv", pytest.approx(20e-6))
    assert add == NodeTime("Add", "Add", pytest.approx(4e-6))
    assert node_times(events[:4])[0].seconds == pytest.approx(900e-6)  # a single run is no warm-up


def test_the_time_of_a_body_is_that_of_its_ops() -> None:
    events = [event("model_run", 0, 1000, "Session")]
    events += [event("Loop_kernel_time", 10, 500), event("MatMul_kernel_time", 20, 200)]
    events += [event("If_kernel_time", 230, 250), event("Add_kernel_time", 240, 150)]
    events += [event("Relu_kernel_time", 520, 30)]
    found = {time.name: round(time.seconds * 1e6) for time in node_times(events)}
    assert found == {"Loop": 50, "MatMul": 200, "If": 100, "Add": 150, "Relu": 30}


@pytest.mark.parametrize(
    ("node", "number"),
    [
        ("y = Conv<pads=[1, 1, 1, 1], group=2>(x, c)", 6 * 5 * 5 * 2 * 9),
        ("y = ConvTranspose(x, t)", 4 * 5 * 5 * 3 * 2 * 2),
        ("y = MatMul(x, m)", 4 * 5 * 7 * 5),
        ("y = Gemm<transA=1>(a, b)", 3 * 8 * 6),
        ("q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Relu(d)", 0),
        ("n = NonZero(x)  c = Cast<to=1>(n)  t = Transpose(c)  y = MatMul(t, c)", None),
        ('y = Einsum<equation="nchw,wk->nck">(x, m)', 4 * 5 * 5 * 7),
        ('y = Einsum<equation="...w,wk->...k">(x, m)', 4 * 5 * 5 * 7),
        ("k = Squeeze(x)  y, h = LSTM<hidden_size=3>(k, lw, lr)", 4 * 5 * (5 + 3) * 12),
        (
            "k = Squeeze(x)  y = com.microsoft.DynamicQuantizeLSTM<hidden_size=3>"
            "(k, qw, qr, , , , , , ws, zp, ws, zp)",
            4 * 5 * (5 + 3) * 12,
        ),
        ("k = Squeeze(x)  y = com.microsoft.DynamicQuantizeMatMul(k, m, s)", 4 * 5 * 5 * 7),
        ("k = Squeeze(x)  y = Attention<q_num_heads=1, kv_num_heads=1>(k, k, k)", 2 * 4 * 5 * 5 * 5),
        ("y = DeformConv(x, c2, o)", 6 * 3 * 3 * 4 * 9),
        (
            "y = Scan<num_scan_inputs=1, body=b (float[4, 5, 5] v) => (float[4, 5, 7] r)"
            "{ r = MatMul(v, m) }>(x)",
            1 * 4 * 5 * 7 * 5,
        ),
        (
            "y = Loop<body=b (int64 i, bool k, float[1, 4, 5, 5] v) => (bool d, float[1, 4, 5, 5] r)"
            "{ d = Identity(k)  r = MatMul(v, e) }>(trips, , x)",
            3 * 4 * 5 * 5 * 5,
        ),
        (
            "y = Loop<body=b (int64 i, bool k, float[1, 4, 5, 5] v) => (bool d, float[1, 4, 5, 5] r)"
            "{ d = Identity(k)  r = MatMul(v, e) }>(endless, , x)",
            4 * 5 * 5 * 5,
        ),
    ],
)
def test_multiplications(node: str, number: int | None) -> None:
    model = parse(
        f"""g (float[N, 4, 5, 5] x, float[6, 3] a, float[6, 8] b) => (float y)
        <float[6, 2, 3, 3] c, float[4, 3, 2, 2] t, float[5, 7] m, float s = {{0.5}}, int8 z = {{0}},
         float[1, 12, 5] lw, float[1, 12, 3] lr, int8[1, 5, 12] qw, int8[1, 3, 12] qr, float[1, 12] ws,
         int8[1, 12] zp, float[6, 4, 3, 3] c2, float[1, 18, 3, 3] o, int64 trips = {{3}},
         int64 endless = {{9223372036854775807}}, float[5, 5] e>
        {{ {node} }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.opset_import[0].version = 23
    model.opset_import.add(domain="com.microsoft", version=1)
    shapes = tensor_shapes(model, {"x": (1, 4, 5, 5)})
    assert multiplied_by(list(all_nodes(model.graph))[-1], shapes) == number


def test_every_op_that_sums_products_is_one() -> None:
    assert is_product("LSTM") and is_product("MultiHeadAttention", "com.microsoft")
    assert not is_product("Gather") and not is_product("MatMul", "other")
    assert set(WEIGHTED) <= {op_type for op_type in TABLE if is_product(op_type)}


def test_weights_count_once_where_shapes_are_not_known() -> None:
    model = parse("""g (float[a, 3] x, float[3, 5] z) => (float[a, 5] y)
        <int8[3, 5] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}, float s = {0.5}, int8 o = {0}> {
        d = DequantizeLinear(w, s, o)
        y = MatMul(x, d)
        v = MatMul(x, z)
    }""")
    of_weights, of_data = list(all_nodes(model.graph))[1:]
    assert multiplied_by(of_weights, {}) is None and multiplied_by(of_weights, {}, estimates=True) == 15
    assert multiplied_by(of_data, {}, estimates=True) == 0
