"""A large GRU written out as a Scan over its steps, since ONNX Runtime has no GRU on codes.

The products with the data of all steps are one DynamicQuantizeMatMul outside, those with the state another in
each step. From some hundred units on that is quicker than the float op, though a Scan takes time of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Graph, Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

from .stored_weight import StoredWeight

_DOMAIN = "com.microsoft"
_PLAIN = ["Sigmoid", "Tanh"]


def fits_scan(op: Op, of_state: StoredWeight, least: int) -> bool:
    """Whether an op is a GRU as PyTorch and Keras have it, large enough for a Scan to be worth it."""
    if not op.is_type("GRU") or not 0 < least <= of_state.array[0].size:
        return False
    given = dict(enumerate(op.inputs))
    plain = op.attribute("activations", _PLAIN)[:2] == op.attribute("activations", _PLAIN)[-2:] == _PLAIN
    resets_behind = op.attribute("linear_before_reset", 0) == 1
    bias = given.get(3)
    known = bias is None or constant_numbers(bias) is not None
    whole = given.get(4) is None and "clip" not in op.attributes and not op.attribute("layout", 0)
    return plain and resets_behind and known and whole and of_state.array.dtype == np.int8


class ScannedGru:
    """The writing of one GRU; ``transposed`` are the codes that were written so far, by what they are of."""

    def __init__(
        self,
        rewriter: Rewriter,
        captures: Captures,
        transposed: dict[tuple[Value, int], Value],
        op: Op,
        of_data: StoredWeight,
        of_state: StoredWeight,
    ) -> None:
        self._rewriter, self._captures, self._transposed = rewriter, captures, transposed
        self._op, self._graph = op, op.graph
        self._of_data, self._of_state = of_data, of_state
        self._name = op.name or "gru"
        self._inputs = dict(enumerate(op.inputs))
        self._directions, _, self._hidden = of_state.array.shape

    def write(self) -> None:
        """Puts a Scan for each direction in its place."""
        if _DOMAIN not in self._rewriter.model.opset_imports:
            self._rewriter.set_opset(_DOMAIN, 1)
        bias = constant_numbers(self._inputs.get(3))
        biases = bias if bias is not None else np.zeros((self._directions, 6 * self._hidden), np.float32)
        reverse = [self._op.attribute("direction", "forward") == "reverse", True]
        states = self._first_states()
        found = [
            self._direction(index, states[index], biases[index], reverse[index])
            for index in range(self._directions)
        ]
        shapes = [(1, [0, 1, -1, self._hidden]), (0, [1, -1, self._hidden])]
        for port, result in enumerate(self._op.outputs):
            if result is None or not result.is_read:
                continue
            axis, shape = shapes[port]
            parts = [self._add("Reshape", [one[port], self._constant(shape, "shape")]) for one in found]
            whole = parts[0] if len(parts) == 1 else self._add("Concat", parts, {"axis": axis})
            self._rewriter.set_type(whole, result.type)
            self._rewriter.replace_uses(result, whole)
        self._rewriter.erase_op(self._op)

    def _direction(self, index: int, state: Value, bias: np.ndarray, reverse: bool) -> tuple[Value, Value]:
        """The states after all steps, (steps, batch, hidden), and the last, (batch, hidden)."""
        hidden, x = self._hidden, self._inputs[0]
        assert x is not None
        of_gates = bias[: 3 * hidden].copy()
        of_gates[: 2 * hidden] += bias[3 * hidden : 5 * hidden]
        gates = self._product(x, self._of_data, index, self._constant(of_gates, "bias"))
        update_reset, new = self._split(gates, [2 * hidden, hidden], 2)
        attributes: dict[str, object] = {"num_scan_inputs": 2}
        if reverse:
            attributes |= {"scan_input_directions": [1, 1], "scan_output_directions": [1]}
        last, every = (
            self._rewriter.add_value(self._graph, f"{self._name}_{kind}") for kind in ("last", "all")
        )
        inputs = [state, update_reset, new]
        step = self._rewriter.add_op(self._graph, "Scan", inputs, [last, every], attributes)
        body = Graph(self._rewriter.model, f"{self._name}_step", parent=step)
        self._rewriter.add_body(step, "body", body)
        self._fill(body, index, self._constant(bias[5 * hidden :], "reset_bias"))
        return every, last

    def _fill(self, body: Graph, index: int, bias: Value) -> None:
        """One step: from the state, and what the data adds to the gates, to the next state, twice."""
        hidden = self._hidden
        lengths = {"state": hidden, "update_reset": 2 * hidden, "new": hidden}
        body.inputs = [
            self._rewriter.add_value(
                body, f"{self._name}_{name}", ValueType(TensorProto.FLOAT, (None, length))
            )
            for name, length in lengths.items()
        ]
        state, update_reset, new = body.inputs
        of_gates, of_new = self._split(self._product(state, self._of_state, index), [2 * hidden, hidden], 1)
        update, reset = self._split(
            self._add("Sigmoid", [self._add("Add", [of_gates, update_reset])]), [hidden, hidden], 1
        )
        biased = self._add("Add", [of_new, self._captures.into(body, bias)])
        candidate = self._add("Tanh", [self._add("Add", [self._add("Mul", [reset, biased]), new])])
        kept = self._add("Mul", [update, self._add("Sub", [state, candidate])])
        following = self._add("Add", [candidate, kept])
        shown = self._add("Identity", [following])
        for value in (following, shown):
            self._rewriter.set_type(value, state.type)
        body.outputs = [following, shown]

    def _product(self, data: Value, weight: StoredWeight, index: int, bias: Value | None = None) -> Value:
        """Data, quantized as it comes, times the codes of one direction."""
        array, name, home = weight.array[index], weight.codes.name, weight.codes.original
        if (home, index) not in self._transposed:
            codes = np.ascontiguousarray(array.T)
            made = self._rewriter.add_constant(home.graph, codes, f"{name}_transposed")
            self._transposed[home, index] = made
        scale = self._constant(np.broadcast_to(weight.scale, array.shape[:1]), "scale")
        points = self._constant(np.zeros(array.shape[:1], np.int8), "zero_point")
        constants = [
            self._captures.into(data.graph, value)
            for value in (self._transposed[home, index], scale, points, *([bias] if bias is not None else []))
        ]
        return self._add("DynamicQuantizeMatMul", [data, *constants], domain=_DOMAIN)

    def _first_states(self) -> list[Value]:
        """The state before the first step, (batch, hidden), of each direction."""
        given, x = self._inputs.get(5), self._inputs[0]
        assert x is not None
        if given is not None:
            parts = self._split(given, [1] * self._directions, 0) if self._directions > 1 else [given]
            return [
                self._add("Reshape", [part, self._constant([-1, self._hidden], "shape")]) for part in parts
            ]
        batch = self._add("Gather", [self._add("Shape", [x]), self._constant([1], "one")])
        shape = self._add("Concat", [batch, self._constant([self._hidden], "hidden")], {"axis": 0})
        return [self._add("ConstantOfShape", [shape])] * self._directions

    def _split(self, value: Value, lengths: Sequence[int], axis: int) -> list[Value]:
        graph = value.graph
        results = [self._rewriter.add_value(graph, f"{value.name}_{index}") for index in range(len(lengths))]
        inputs = [value]
        attributes: dict[str, object] = {"axis": axis}
        if self._rewriter.model.opset < 13:
            attributes |= {"split": list(lengths)}
        else:
            inputs.append(self._captures.into(graph, self._constant(lengths, "lengths")))
        self._rewriter.add_op(graph, "Split", inputs, results, attributes)
        return results

    def _constant(self, numbers: Sequence[int] | np.ndarray, name: str) -> Value:
        return self._rewriter.add_constant(self._graph, np.asarray(numbers), f"{self._name}_{name}")

    def _add(
        self,
        op_type: str,
        inputs: Sequence[Value],
        attributes: dict[str, object] | None = None,
        domain: str = "",
    ) -> Value:
        """The result of a new op, in the graph of its first input."""
        graph = inputs[0].graph
        result = self._rewriter.add_value(graph, f"{self._name}_{op_type}")
        self._rewriter.add_op(graph, op_type, inputs, [result], attributes, domain)
        return result
