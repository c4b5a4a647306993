"""Recurrent ops in other ops: a step of each, written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from support.decomposed import agree, types
from support.models import random_feeds
from support.pipelines import apply, run_model

import qc
from qc.ir.onnx.lower import lower

RANDOM = np.random.default_rng(0)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FLOAT = onnx.TensorProto.FLOAT


def recurrent(
    op_type: str,
    direction: str,
    steps: int,
    given: str,
    results: tuple[str, ...],
    opset: int = 17,
    **attributes,
) -> ModelProto:
    """An op of 5 numbers and 4 units; ``given`` has a letter for bias, state and peepholes."""
    count, batch, size, hidden = 2 if direction == "bidirectional" else 1, 2, 5, 4
    rows = GATES[op_type] * hidden
    shapes = {"W": (rows, size), "R": (rows, hidden), "B": (2 * rows,), "P": (3 * hidden,)}
    constants = [
        numpy_helper.from_array(RANDOM.normal(0, 0.4, (count, *shape)).astype(np.float32), name)
        for name, shape in shapes.items()
        if name in "WR" + given
    ]
    state = (count, batch, hidden)
    fed = {"x": (steps, batch, size)} | ({"h": state} if "S" in given else {})
    names = ["x", "W", "R", "B" if "B" in given else "", "", "h" if "S" in given else ""]
    if op_type == "LSTM":
        fed |= {"c": state} if "S" in given else {}
        names += ["c" if "S" in given else "", "P" if "P" in given else ""]
    made = {"y": (steps, count, batch, hidden), "last": state, "cell": state}
    outputs = [name if name in results else "" for name in list(made)[: 3 if op_type == "LSTM" else 2]]
    node = helper.make_node(op_type, names, outputs, hidden_size=hidden, direction=direction, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in fed.items()],
        [helper.make_tensor_value_info(name, FLOAT, made[name]) for name in outputs if name],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", list(GATES))
def test_a_recurrent_op_is_its_steps(op_type: str, direction: str) -> None:
    kinds = product((1, 3), ("", "B", "S", "BS"), (("y",), ("last",), ("y", "last", "cell")), (11, 17))
    for steps, given, results, opset in kinds:
        for reset in (0, 1) if op_type == "GRU" else (None,):
            more = {} if reset is None else {"linear_before_reset": reset}
            model = recurrent(op_type, direction, steps, given, results, opset, **more)
            made = qc.compile(model, "decompose-ops", target="qnn-htp").model
            assert op_type not in types(made)
            agree(made, model)


@pytest.mark.parametrize("zeros", ["h", "c", "hc"])
def test_a_state_of_zeros_is_none_at_all(zeros: str) -> None:
    model = recurrent("LSTM", "bidirectional", 3, "BS", ("y", "cell"))
    for name in zeros:
        state = numpy_helper.from_array(np.zeros((2, 2, 4), np.float32), name)
        model.graph.initializer.append(state)
    fed = [info for info in model.graph.input if info.name not in zeros]
    del model.graph.input[:]
    model.graph.input.extend(fed)
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made).count("Gemm") == (6 if "h" in zeros else 8)  # of data, and of states of two directions
    agree(made, model)


def test_a_single_step_from_zeros_holds_no_weights_of_states() -> None:
    model = recurrent("GRU", "forward", 1, "B", ("y",), linear_before_reset=1)
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    read = {name for node in made.graph.node for name in node.input}
    assert {constant.name for constant in made.graph.initializer} <= read
    agree(made, model)


def test_peepholes_and_other_functions() -> None:
    for given in ("BP", "BSP"):
        model = recurrent("LSTM", "bidirectional", 3, given, ("y", "cell"))
        agree(qc.compile(model, "decompose-ops", target="qnn-htp").model, model)
    model = recurrent("GRU", "forward", 3, "B", ("y",), activations=["softsign", "RELU"])
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert {"Softsign", "Relu"} <= set(types(made))
    agree(made, model)


@pytest.mark.parametrize(
    ("attributes", "steps"),
    [({"clip": 1.0}, 3), ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, 3), ({}, 513)],
)
def test_what_is_no_plain_chain_of_steps_stays(attributes: dict, steps: int) -> None:
    model = recurrent("LSTM", "forward", steps, "B", ("last",), **attributes)
    compiled = qc.compile(model, "decompose-ops", target="qnn-htp")
    assert types(compiled.model) == ["LSTM"]
    assert any("no other ops are known" in remark.reason for remark in compiled.ir.journal.remarks)


def test_a_recurrent_op_whose_data_has_other_axes_stays() -> None:
    """Branches for other lengths than those of the data are never run, and may hold what no op takes.

    As a whole model it would be refused when it is read.
    """
    model = recurrent("LSTM", "forward", 3, "B", ("last",))
    axes = numpy_helper.from_array(np.array([0, 1]), "axes")
    model.graph.initializer.append(axes)
    model.graph.node.insert(0, helper.make_node("Unsqueeze", ["x", "axes"], ["apart"]))
    model.graph.node[1].input[0] = "apart"
    made = apply("decompose-ops", model, "qnn-htp")[0]
    assert types(lower(made)) == ["Unsqueeze", "LSTM"]


def test_a_recurrent_op_runs_in_integers_where_the_device_has_none() -> None:
    model = recurrent("LSTM", "forward", 4, "B", ("y",))
    made = qc.compile(model, "w8a8", data=random_feeds(model, 4), target="qnn-htp").model
    assert types(made).count("Gemm") == 4  # the data at once, and the state of each step but the first
    found, expected = (run_model(one, random_feeds(model, 1)[0])["y"] for one in (made, model))
    assert np.abs(found - expected).max() < 0.05
