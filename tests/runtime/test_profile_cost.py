"""Times by node from a profile, and what ops cost by their shapes."""

from __future__ import annotations

import pytest
from support.models import parse

from qc.runtime.execution.cost import operations, tensor_shapes
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


@pytest.mark.parametrize(
    ("node", "number"),
    [
        ("y = Conv<pads=[1, 1, 1, 1], group=2>(x, c)", 6 * 5 * 5 * 2 * 9),
        ("y = ConvTranspose(x, t)", 4 * 5 * 5 * 3 * 2 * 2),
        ("y = MatMul(x, m)", 4 * 5 * 7 * 5),
        ("y = Gemm<transA=1>(a, b)", 3 * 8 * 6),
        ("q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Relu(d)", 4 * 5 * 5),
        ("n = NonZero(x)  y = Transpose(n)", None),
    ],
)
def test_operations(node: str, number: int | None) -> None:
    model = parse(
        f"""g (float[N, 4, 5, 5] x, float[6, 3] a, float[6, 8] b) => (float y)
        <float[6, 2, 3, 3] c, float[4, 3, 2, 2] t, float[5, 7] m, float s = {{0.5}}, int8 z = {{0}}>
        {{ {node} }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    shapes = tensor_shapes(model, {"x": (1, 4, 5, 5)})
    assert operations(list(all_nodes(model.graph))[-1], shapes) == number
