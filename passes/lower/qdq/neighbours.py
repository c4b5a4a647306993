"""What is behind and in front of a tensor, through ops that runtimes see through."""

from __future__ import annotations

from collections.abc import Callable

from qc.ir.facts.constants import constant_data, initializer
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ...simplify.fold_constants import constant_ops

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# With constants, these become part of the product in front of them.
FOLDED = ("Add", "BatchNormalization", "Div", "Mul", "Sub")


def only_reader(value: Value | None) -> Op | None:
    """The op that reads a tensor, if nothing else does."""
    use = value.only_use if value is not None else None
    return use.op if use is not None else None


def comes_to(value: Value, goal: Callable[[Op], bool], passed: Callable[[Op], bool]) -> bool:
    """Whether a tensor, or what ops that let it pass make of it, is read by an op of a kind."""
    waiting, seen = [value], {value}
    for one in waiting:
        readers = [use.op for use in one.uses]
        if any(map(goal, readers)):
            return True
        made = [result for op in readers if passed(op) for result in op.outputs]
        new = [result for result in dict.fromkeys(made) if result is not None and result not in seen]
        waiting += new
        seen.update(new)
    return False


def comes_from(value: Value, goal: Callable[[Op], bool], passed: Callable[[Op], bool]) -> bool:
    """Whether an op of a kind makes a tensor, be it in front of ops of one tensor that let it pass."""
    op = value.producer
    while op is not None and not goal(op):
        source = computed_input(op) if passed(op) else None
        op = source.producer if source is not None else None
    return op is not None


def computed_input(op: Op) -> Value | None:
    """The tensor that an op reads beside constants; None if there are several."""
    inputs = [value for value in op.inputs if value is not None]
    computed = [value for value in inputs if not is_constant(value) and stored_codes(value) is None]
    return computed[0] if len(computed) == 1 else None


def moves_or_keeps_shape(op: Op) -> bool:
    """Whether an op moves or joins numbers, or makes as many, as elementwise functions do."""
    (result, *_) = op.outputs
    shape = result.type.shape if result is not None else None
    shapes = [value.type.shape for value in op.inputs if value is not None]
    keeps_shape = shape is not None and shape in shapes and not op.is_type(*PRODUCTS)
    return is_grid_preserving(op) or op.is_type("Concat") or keeps_shape


def has_known_lengths(value: Value | None) -> bool:
    """Whether the shape of a tensor is known, and no length is free."""
    shape = value.type.shape if value is not None else None
    return shape is not None and all(isinstance(length, int) for length in shape)


def end_of_product(op: Op) -> Value:
    """The result of a product with what becomes part of it."""
    (result, *_) = op.outputs
    assert result is not None
    while len(uses := result.uses) == 1 and uses[0].op.is_type(*FOLDED):
        reader = uses[0].op
        others = [value for value in reader.inputs if value is not None and value is not result]
        (behind, *_) = reader.outputs
        if behind is None or not others or not all(map(is_constant, others)):
            break
        result = behind
    return result


def is_constant(value: Value) -> bool:
    """Whether a tensor is computed from constants alone, which ONNX Runtime does when it loads the model."""
    return constant_data(value) is not None or value.producer in constant_ops(value.graph)


def dequantize_behind(value: Value) -> Op | None:
    """The DequantizeLinear that makes a tensor, before ops that only move it."""
    producer = value.producer
    while producer is not None and is_grid_preserving(producer):
        source = producer.inputs[0]
        producer = source.producer if source is not None else None
    return producer if producer is not None and is_qdq(producer, "DequantizeLinear") else None


def stored_codes(value: Value) -> TensorRef | None:
    """The constant that a tensor is dequantized from."""
    producer = value.producer
    if producer is None or not is_qdq(producer, "DequantizeLinear"):
        return None
    codes = producer.inputs[0]
    return initializer(codes)


def put_identity_behind(rewriter: Rewriter, value: Value, reader: Op | None = None) -> None:
    """Lets the ops that read a tensor, or one of them, read it through a LeakyRelu of slope 1.

    It changes no number, becomes part of a product in front of it, and runtimes do not see through it.
    """
    graph, readers = value.graph, {use for use in value.uses if reader in (None, use.op)}
    kept = rewriter.add_value(graph, f"{value.name}_kept", value.type)
    rewriter.add_op(graph, "LeakyRelu", (value,), [kept], {"alpha": 1.0}, "", f"{value.name}_LeakyRelu")
    rewriter.replace_uses(value, kept, where=readers.__contains__, outputs=False)
