"""What a model stores, and what storing the results of constant ops makes needless."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from qc.ir.facts.constants import initializer
from qc.ir.facts.op_traits import traits
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.onnx.protos import model_tensors
from qc.ir.tensor_ref import TensorRef


def original_size(model: Model) -> int:
    """The bytes of all constants of the model as it came."""
    return sum(TensorRef(tensor).nbytes for tensor in model_tensors(model.origin))


def stored_size(model: Model) -> int:
    """The bytes of all constants of the model as it is."""
    constants = (value.const for graph in model.graphs() for value in graph.values())
    return sum(const.nbytes for const in constants if const is not None)


class Sources(NamedTuple):
    """What the results of an op are computed from, in bytes.

    Attributes:
        read: the constants that they depend on.
        needless: the constants and ops that nothing needs any more once the results are stored.
    """

    read: int
    needless: int


def sources_of(op: Op, order: Mapping[Op, int]) -> Sources:
    """The sources of an op that depends on constants alone.

    Args:
        order: the places of all such ops of the graph in topological order.
    """
    gone = {op}
    sources = sorted(_ops_behind(op, order), key=order.__getitem__, reverse=True)
    for other in sources:
        results = [value for value in other.outputs if value is not None]
        if all(_is_only_read_in(value, gone) for value in results):
            gone.add(other)
    read = dict.fromkeys(value for other in (op, *sources) for value in other.inputs)
    constants = {value: const.nbytes for value in read if value and (const := initializer(value))}
    needless = [size for value, size in constants.items() if _is_only_read_in(value, gone)]
    ops = [other.proto.ByteSize() for other in gone if other.proto is not None]
    return Sources(sum(constants.values()), sum(needless) + sum(ops))


def _ops_behind(op: Op, known: Container[Op]) -> set[Op]:
    """The ops among the known ones that an op depends on."""
    found: set[Op] = set()
    pending = [op]
    while pending:
        for value in pending.pop().inputs:
            producer = value.producer if value is not None else None
            if producer is not None and producer in known and producer not in found:
                found.add(producer)
                pending.append(producer)
    return found


def _is_only_read_in(value: Value, ops: Container[Op]) -> bool:
    """Whether nothing but some ops can read a value of their graph."""
    is_seen = value.is_output or value.captured is not None
    return not is_seen and all(use.op in ops for use in value.uses)


def is_parameter(value: Value) -> bool:
    """Whether a value is read as a trained parameter alone, such as the weight of a MatMul, or a table."""
    uses = value.uses
    trained = all(use.port in traits(use.op).trained.values() for use in uses)
    return (bool(uses) and trained) or is_table(value)


def is_table(value: Value) -> bool:
    """Whether a value is a matrix that rows are looked up in alone, as an embedding does."""
    uses = value.uses
    looked_up = all(use.op.is_type("Gather") and use.port == 0 for use in uses)
    return bool(uses) and looked_up and value.is_float and value.type.rank == 2
