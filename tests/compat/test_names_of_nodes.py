"""Names of nodes that have none, or one that another has, too: those of AIMET 2.42, which scripts know."""

from __future__ import annotations

import pytest
from support.models import parse

from qc.compat.aimet_onnx import QuantizationSimModel
from qc.compat.aimet_onnx.quantsim import set_param_type

CASES = {
    "Relu, Relu, Relu": "/Relu, /Relu_2, /Relu_4",
    "Relu, Sigmoid, Relu:/Relu_2, Sigmoid, Relu": "/Relu, /Sigmoid, /Relu_2, /Sigmoid_2, /Relu_3",
    "Relu:k, Relu:k, Relu:/Relu, Relu:/Relu, Relu": "k, /Relu, /Relu_2, /Relu_4, /Relu_6",
    "Relu:/Relu_1, Relu:/Relu_2, Relu, Relu, Relu": "/Relu_1, /Relu_2, /Relu, /Relu_3, /Relu_5",
}


@pytest.mark.parametrize("given", CASES)
def test_names_are_those_of_aimet(given: str) -> None:
    nodes = [part.partition(":") for part in given.split(", ")]
    steps = " ".join(f"t{i + 1} = {kind}(t{i})" for i, (kind, _, _) in enumerate(nodes))
    model = parse(f"g (float[2, 4] t0) => (float[2, 4] t{len(nodes)}) {{ {steps} }}")
    for node, (_, _, name) in zip(model.graph.node, nodes, strict=True):
        node.name = name
    names = QuantizationSimModel(model).connected_graph.get_all_ops()
    assert ", ".join(names) == CASES[given]


def test_branches_take_no_names_of_the_main_graph() -> None:
    first, second = "t () => (float[2, 4] o) { o = Relu(a) }", "e () => (float[2, 4] p) { p = Tanh(a) }"
    branches = f"then_branch={first}, else_branch={second}"
    model = parse(
        f"g (float[2, 4] x, bool k) => (float[2, 4] c) {{ a = Relu(x) y = If<{branches}>(k) c = Relu(y) }}"
    )
    assert list(QuantizationSimModel(model).connected_graph.get_all_ops()) == ["/Relu", "/If", "/Relu_2"]


def test_scripts_find_nodes_by_these_names() -> None:
    body = "{ a = MatMul(x, v) y = MatMul(a, w) }"
    model = parse(f"g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] v, float[4, 4] w> {body}")
    sim = QuantizationSimModel(model)
    set_param_type(sim, "int4", nodes_to_include=["/MatMul_2"])
    assert [sim.qc_quantize_op_dict[name].bitwidth for name in "vw"] == [8, 4]
