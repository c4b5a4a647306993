"""Random small models with If, Loop and Scan, nested, and what all of their tensors hold when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .models import floats, model_of

ROWS = (2, 4)


@st.composite
def models_with_bodies(draw: st.DrawFn) -> ModelProto:
    """Checked models of an input ``x`` (2, 4), a condition ``c`` and a trip count ``n`` of 0 or 1.

    Sibling bodies use the same names; bodies read weights and other tensors of all graphs around them.
    """
    scope = _Scope(draw, None)
    for _ in range(draw(st.integers(1, 3))):
        scope.step(depth=0)
    scope.control(depth=0)
    scope.step(depth=0)
    made = scope.tensors[1:]
    outputs = dict.fromkeys([*draw(st.lists(st.sampled_from(made), max_size=1)), made[-1]])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
    count = helper.make_tensor_value_info("n", TensorProto.INT64, ())
    model = model_of(
        scope.nodes,
        [floats("x", *ROWS), condition, count],
        [floats(name, *ROWS) for name in outputs],
        scope.weights,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class _Scope:
    """Grows one graph; all of its float tensors have the shape (2, 4), or (4,) in the body of a Scan."""

    def __init__(self, draw: st.DrawFn, around: _Scope | None, given: tuple[str, ...] = ("x",)) -> None:
        self.draw = draw
        self.around = around
        self.prefix = "" if around is None else f"{around.prefix}i"
        self.seeds: np.random.Generator = (
            np.random.default_rng(draw(st.integers(0, 999))) if around is None else around.seeds
        )
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.tensors = list(given)

    def visible(self) -> list[str]:
        """The float tensors of this graph and of those around it."""
        return [*(self.around.visible() if self.around is not None else []), *self.tensors]

    def step(self, depth: int) -> None:
        """Adds an op behind a tensor that is visible here."""
        x = self.pick()
        steps: list[Callable[[str], None]] = [self.matmul, self.matmul, self.add, self.simple, self.simple]
        self.draw(st.sampled_from(steps))(x)

    def pick(self) -> str:
        """The newest tensor, or any other."""
        return self.tensors[-1] if self.draw(st.booleans()) and self.tensors else self.any()

    def any(self) -> str:
        return str(self.draw(st.sampled_from(self.visible())))

    def node(self, op_type: str, inputs: list[str], names: int = 1, **attributes: Any) -> list[str]:
        made = [f"{self.prefix}{op_type.lower()}{len(self.nodes)}_{index}" for index in range(names)]
        self.nodes.append(helper.make_node(op_type, inputs, made, **attributes))
        return made

    def add_node(self, op_type: str, inputs: list[str], **attributes: Any) -> None:
        self.tensors += self.node(op_type, inputs, **attributes)

    def weight(self, *shape: int) -> str:
        """A new weight of this graph or of one around it, or one that somebody reads already."""
        scope = self
        while scope.around is not None and self.draw(st.booleans()):
            scope = scope.around
        known = [tensor.name for tensor in scope.weights if tuple(tensor.dims) == shape]
        if known and self.draw(st.booleans()):
            return str(self.draw(st.sampled_from(known)))
        array = self.seeds.normal(size=shape).astype(np.float32) / 2
        name = f"{scope.prefix}w{len(scope.weights)}"
        scope.weights.append(numpy_helper.from_array(array, name))
        return name

    # -- ops ----------------------------------------------------------------------------------------

    def matmul(self, x: str) -> None:
        self.add_node("MatMul", [x, self.weight(4, 4)])
        if self.draw(st.booleans()):
            self.add_node("Add", [self.tensors[-1], self.weight(4)])

    def add(self, x: str) -> None:
        self.add_node("Add", [x, self.any()])

    def simple(self, x: str) -> None:
        self.add_node(self.draw(st.sampled_from(["Relu", "Tanh", "Identity", "Softmax", "Neg"])), [x])

    # -- bodies -------------------------------------------------------------------------------------

    def control(self, depth: int) -> None:
        """Adds an If, a Loop or a Scan."""
        kind = self.draw(st.sampled_from([self.branch, self.loop, self.scan]))
        kind(depth)

    def branch(self, depth: int) -> None:
        bodies = []
        for name in ("then", "else"):
            body = _Scope(self.draw, self, ())
            body.fill(depth)
            result = body.result(self.pick())
            bodies.append(body.graph(name, [], [floats(result, *ROWS)]))
        self.add_node("If", ["c"], then_branch=bodies[0], else_branch=bodies[1])

    def loop(self, depth: int) -> None:
        start = self.pick()
        p = f"{self.prefix}l{len(self.nodes)}"
        body = _Scope(self.draw, self, (f"{p}s",))
        body.fill(depth)
        unchanged = []
        if self.draw(st.booleans()):
            unchanged.append(f"{p}w")
            body.add_node("MatMul", [body.pick(), *unchanged])
        state, shown = body.result(body.pick()), body.result(body.pick())
        body.nodes.append(helper.make_node("Identity", [f"{p}c"], [f"{p}d"]))
        inputs = [
            helper.make_tensor_value_info(f"{p}i", TensorProto.INT64, ()),
            helper.make_tensor_value_info(f"{p}c", TensorProto.BOOL, ()),
            floats(f"{p}s", *ROWS),
            *(floats(name, 4, 4) for name in unchanged),
        ]
        outputs = [
            helper.make_tensor_value_info(f"{p}d", TensorProto.BOOL, ()),
            floats(state, *ROWS),
            *(floats(name, 4, 4) for name in unchanged),
            floats(shown, *ROWS),
        ]
        count = self.draw(st.sampled_from(["n", "two"]))
        if count == "two":
            count = f"{p}k"
            self.weights.append(numpy_helper.from_array(np.asarray(2), count))
        graph = body.graph("body", inputs, outputs)
        starts = [start, *(self.weight(4, 4) for _ in unchanged)]
        last, *_, stacked = self.node("Loop", [count, "", *starts], 1 + len(starts), body=graph)
        self.tensors.append(last)
        zero = f"{p}z"
        self.weights.append(numpy_helper.from_array(np.zeros((1, *ROWS), np.float32), zero))
        joined = self.node("Concat", [stacked, zero], axis=0)
        self.tensors += self.node("ReduceMax", [*joined, self.axis(0)], keepdims=0)

    def scan(self, depth: int) -> None:
        start, scanned = self.pick(), self.pick()
        p = f"{self.prefix}s{len(self.nodes)}"
        body = _Scope(self.draw, self, (f"{p}s", f"{p}x"))
        body.fill(depth)
        state, shown = body.result(body.pick()), body.result(f"{p}s")
        stacked = self.node("Unsqueeze", [scanned, self.axis(0)])
        graph = body.graph(
            "body",
            [floats(f"{p}s", *ROWS), floats(f"{p}x", *ROWS)],
            [floats(state, *ROWS), floats(shown, *ROWS)],
        )
        twice = self.node("Concat", [*stacked, *stacked], axis=0)
        last, rows = self.node("Scan", [start, *twice], 2, body=graph, num_scan_inputs=1)
        self.tensors.append(last)
        self.tensors += self.node("ReduceMax", [rows, self.axis(0)], keepdims=0)

    def axis(self, number: int) -> str:
        name = f"{self.prefix}axis{len(self.nodes)}_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray([number], np.int64), name))
        return name

    def fill(self, depth: int) -> None:
        """Adds what is in a body: nothing, some ops, or further bodies."""
        for _ in range(self.draw(st.integers(0, 2))):
            self.step(depth + 1)
        if depth < 1 and self.draw(st.booleans()):
            self.control(depth + 1)

    def result(self, like: str) -> str:
        """A tensor that the body computes, made from ``like`` if there is none yet or with an Identity."""
        return self.node("Identity", [self.tensors[-1] if self.tensors else like])[0]

    def graph(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        return helper.make_graph(self.nodes, name, inputs, outputs, self.weights)


Arrays = dict[str, np.ndarray]


def all_numbers(model: ModelProto, feeds: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """All numbers that each result of a node in any graph takes, computed node by node by ONNX's reference.

    A tensor of a body that never runs is left out. The names must be unique in the model.
    """
    seen: dict[str, list[np.ndarray]] = {}
    for feed in feeds:
        _run_graph(model.graph, feed, seen)
    return {name: np.concatenate([array.ravel() for array in arrays]) for name, arrays in seen.items()}


def _run_graph(
    graph: GraphProto, known: Arrays, seen: dict[str, list[np.ndarray]], given: Sequence[np.ndarray] = ()
) -> list[np.ndarray]:
    known = {**known, **{tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}}
    known.update(zip((info.name for info in graph.input), given, strict=False))
    for node in graph.node:
        for name, array in zip(node.output, _run_node(node, known, seen), strict=True):
            known[name] = array
            seen.setdefault(name, []).append(array)
    return [known[info.name] for info in graph.output]


def _run_node(node: NodeProto, known: Arrays, seen: dict[str, list[np.ndarray]]) -> list[np.ndarray]:
    bodies = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
    if node.op_type == "If":
        return _run_graph(bodies["then_branch" if known[node.input[0]] else "else_branch"], known, seen)
    if node.op_type == "Loop":
        states, rows = [known[name] for name in node.input[2:]], []
        for index in range(int(known[node.input[0]])):
            given = [np.asarray(index), np.asarray(True), *states]
            _, *states, row = _run_graph(bodies["body"], known, seen, given)
            rows.append(row)
        return [*states, np.reshape(rows, (len(rows), *ROWS)).astype(np.float32)]
    if node.op_type == "Scan":
        state, rows = known[node.input[0]], []
        for scanned in known[node.input[1]]:
            state, row = _run_graph(bodies["body"], known, seen, [state, scanned])
            rows.append(row)
        return [state, np.stack(rows)]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(known[name].dtype), known[name].shape
        )
        for name in dict.fromkeys(node.input)
    ]
    single = model_of([node], inputs, list(node.output))
    return list(ReferenceEvaluator(single).run(None, {info.name: known[info.name] for info in inputs}))
