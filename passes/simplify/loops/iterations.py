"""How often a Loop or Scan runs its body, where no data decides that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from onnx import ModelProto, helper

from qc.ir.errors import QcError
from qc.ir.executor import Executor
from qc.ir.facts.constants import fixed_constant
from qc.ir.facts.op_traits import is_random
from qc.ir.graph import Graph, Op, Value
from qc.ir.onnx.lower import lower_ops

# Inputs of the body of a Loop, before what it carries; the op itself takes its limit first.
ITERATION, CONDITION = 0, 1
_BATCHED_SCAN = 8  # in this opset Scan has another interface, with a batch


def iterations(op: Op, executor: Executor, most: int) -> int | None:
    """How often an op runs its body; None if data decides, or if it is more often than ``most``.

    A condition that follows from constants, and from what the iterations make of them as of a counter, is
    found by computing it. What cannot be computed counts as data, and so do random numbers.

    Args:
        op: a Loop or Scan.
        executor: computes the condition.
    """
    count = _scanned_length(op) if op.is_type("Scan") else _loop_count(op, executor, most)
    return count if count is not None and count <= most else None


def numbered(value: Value, iteration: int) -> np.ndarray:
    """The number of an iteration, as the input of a body that takes it: a number, or a row of one."""
    return np.full((1,) * len(value.type.shape or ()), iteration, np.int64)


def _scanned_length(op: Op) -> int | None:
    """The length of what a Scan goes over; None if it is free."""
    count = op.attribute("num_scan_inputs", 0)
    if op.graph.model.opset <= _BATCHED_SCAN or not 0 < count <= op.num_inputs:
        return None
    axes = op.attribute("scan_input_axes", [0] * count)
    found = {_length(value, axis) for value, axis in zip(op.inputs[-count:], axes, strict=True)}
    return found.pop() if len(found) == 1 else None


def _length(value: Value | None, axis: int) -> int | None:
    shape = value.original.type.shape if value is not None else None
    length = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return length if isinstance(length, int) else None


def _loop_count(op: Op, executor: Executor, most: int) -> int | None:
    given = (*op.inputs, None)  # a condition that is left out at the end is no input
    if None in given[CONDITION + 1 : -1]:
        return None  # a state that does not begin: no valid model
    limit, start = _number(given[ITERATION], default=most + 1), _number(given[CONDITION], default=1)
    if limit is None or start is None:
        return None
    if limit <= 0 or not start:
        return 0
    condition = _Condition.of(op)
    try:
        return condition.count(executor, min(limit, most + 1)) if condition is not None else None
    except QcError:  # such as a state that becomes infinite
        return None


def _number(value: Value | None, default: int) -> int | None:
    """A constant number; the default without an input, None for data."""
    if value is None:
        return default
    data = fixed_constant(value)
    return int(data.numpy().item()) if data is not None and data.size == 1 else None


@dataclass(frozen=True)
class _Condition:
    """What decides in a body whether its Loop goes on.

    Attributes:
        ops: those that compute the condition and the states that it depends on, in topological order.
        start: what these states are at first, by inputs of the body.
    """

    body: Graph
    ops: tuple[Op, ...]
    start: Mapping[Value, np.ndarray]

    @classmethod
    def of(cls, op: Op) -> _Condition | None:
        """The condition of a Loop; None if data is among what it depends on."""
        (body,) = op.subgraphs.values()
        given = dict(zip(body.inputs, op.inputs, strict=False))
        ops: dict[Op, None] = {}
        start: dict[Value, np.ndarray] = {}
        pending = [body.outputs[0]]
        for value in pending:
            producer = value.producer if value is not None else None
            if value is None or (producer is not None and not _is_computed(producer)):
                return None
            if producer is not None and producer not in ops:
                ops[producer] = None
                pending += [read for read in producer.inputs if read is not None]
            elif producer is None and value not in (*start, *body.inputs[: CONDITION + 1]):
                first = fixed_constant(given.get(value, value))
                if first is None:
                    return None
                if value in given:
                    start[value] = first.numpy()
                    pending.append(_carried(value))
        return cls(body, tuple(one for one in body.ops() if one in ops), start)

    def count(self, executor: Executor, limit: int) -> int:
        """After how many iterations it says that there are no more, or ``limit``."""
        iteration, condition = self.body.inputs[: CONDITION + 1]
        given_back = ((value, _carried(value)) for value in (condition, *self.start))
        carried = {value: back for value, back in given_back if back is not None}
        made = [value for value in dict.fromkeys(carried.values()) if value.producer is not None]
        held = {iteration: numbered(iteration, 0), condition: np.array(True), **self.start}
        feeds = ({value.name: array for value, array in held.items()} for _ in range(limit))
        base_dir = self.body.model.base_dir
        results = executor.run(self._step(made, held), feeds, base_dir=base_dir) if made else repeat({})
        for done in range(1, limit):
            found = next(results)
            held |= {value: _array(back, found, held) for value, back in carried.items()}
            if not held[condition].item():
                return done
            held[iteration] = numbered(iteration, done)
        return limit

    def _step(self, made: Sequence[Value], held: Mapping[Value, np.ndarray]) -> ModelProto:
        """One iteration as a model."""
        step = lower_ops(self.body, self.ops, made)
        for value, array in held.items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            step.graph.input.append(helper.make_tensor_value_info(value.name, kind, None))
        return step


def _is_computed(op: Op) -> bool:
    """Whether an op makes the same of the same numbers in every run, and can be run by itself."""
    return not (op.subgraphs or op.domain or is_random(op))


def _carried(state: Value) -> Value | None:
    """What a body of a Loop gives back for its condition or a state."""
    return state.graph.outputs[state.graph.inputs.index(state) - 1]


def _array(value: Value, made: Mapping[str, np.ndarray], held: Mapping[Value, np.ndarray]) -> np.ndarray:
    """What a body gives back: what an op made, an input, or a constant."""
    if value.name in made:
        return made[value.name]
    const = fixed_constant(value)
    return const.numpy() if const is not None else held[value]
