"""What a device runs as one, so that nothing is rounded in between: activations and tables of all codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.graph import Op, Value
from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import Quantizer
from qc.ir.rewriter import Rewriter

from .device_writer import UINT8, Rounded, is_one_grid, is_uint8

ACTIVATIONS = ("Relu", "Clip")
_PARTS = ("Gather", "Slice", "Split")
_LEADERS = (Arithmetic.MATRIX.value, "sum", "product")
_LEADS_RELU = "float16"  # alone: behind a Clip it has its own grid


class Fusions:
    """Finds pairs of ops that a device runs as one, and takes away what was rounded between them.

    Args:
        rounded: all roundings of a model.
        kinds: what the device computes how, by op type.

    Attributes:
        rounded: those that are left, by the op that rounds.
        tables: those of them that round what a table of all codes gives.
        repeated: quantizers whose roundings repeated those of others, which stand for them.
    """

    def __init__(self, rewriter: Rewriter, rounded: list[Rounded], kinds: Mapping[str, str]) -> None:
        self.rounded = {one.op: one for one in rounded}
        self.tables: set[Op] = set()
        self.repeated: dict[Quantizer, Quantizer] = {}
        self._rewriter, self._kinds = rewriter, kinds
        for one in rounded:
            self._forget_repeated(one)
        for one in list(self.rounded.values()):
            op = one.value.producer
            if op is None or op.domain:
                continue
            if op.op_type in ACTIVATIONS and _starts_at_zero(one.quantizer):
                self._fuse_activation(op, one.op)
            elif self._fuse_silu(op) or self._fuse_linear(op):
                self.tables.add(one.op)
        for rounding in reversed(list(self.rounded)):  # the last of joins that are joined decides
            joined = self.rounded[rounding]
            op = joined.value.producer
            if op is not None and op.is_type("Concat") and is_uint8(joined.quantizer):
                self._join_at_once(op, joined)

    def may_lead(self, activation: Op, op: Op) -> bool:
        """Whether an activation behind an op runs as one with it."""
        leaders = (*_LEADERS, _LEADS_RELU) if activation.is_type("Relu") else _LEADERS
        return not op.domain and self._kinds.get(op.op_type) in leaders and not _is_reshaped(op)

    def leader(self, activation: Op) -> Op | None:
        """The op that runs as one with an activation, once nothing is rounded between them."""
        source = activation.inputs[0]
        made = source.producer if source is not None else None
        return made if made is not None and self.may_lead(activation, made) else None

    def _forget_repeated(self, one: Rounded) -> None:
        """Takes away a rounding of what was only moved since it was rounded to the same grid."""
        result = result_of(one.op)
        op = one.value.producer
        if op is None or op.domain or not is_grid_preserving(op) or result.is_output:
            return
        before = self._rounding_of(_moves_behind(one.value, is_grid_preserving)[1])
        if before is not None and is_one_grid(before.quantizer, one.quantizer):
            self.repeated[one.quantizer] = before.quantizer
            self._rewriter.replace_uses(result, one.value)
            self._rewriter.erase_op(one.op)
            del self.rounded[one.op]

    def _fuse_activation(self, op: Op, rounding: Op) -> None:
        """Takes away the grid between an activation and what leads it; behind a table both are one."""
        source = op.inputs[0]
        is_table = source is not None and source.producer in self.tables
        if self._fuse(op, 0, partial(self.may_lead, op)) and is_table:
            self.tables.add(rounding)

    def _fuse_silu(self, op: Op) -> bool:
        """Takes away the grid within a number times its sigmoid, which are one table; whether it is that."""
        read = op.inputs

        def makes_gate(port: int, maker: Op) -> bool:
            return maker.is_type("Sigmoid") and maker.inputs[0] is read[1 - port]

        return op.op_type == "Mul" and any(self._fuse(op, port, partial(makes_gate, port)) for port in (0, 1))

    def _fuse_linear(self, op: Op) -> bool:
        """Takes away the grid between a product by a number and one added to it; whether it is that."""
        if op.op_type != "Add" or not has_one_number(op):
            return False
        return any(self._fuse(op, port, _multiplies_by_number) for port in (0, 1))

    def _join_at_once(self, concat: Op, joined: Rounded) -> None:
        """Lets what a Concat reads be made on the grid of its result, and for others on its own."""
        for port, given in enumerate(concat.inputs):
            moves, source = _moves_behind(given, _is_move)
            path = (given, *(move.inputs[0] for move in moves))
            is_shared = any(self._is_shared(value) for value in path if value is not None)
            before = self._rounding_of(source)
            made = self._joinable(before, joined, is_shared) if before else self._part_of(source, joined)
            if made is None:
                continue
            if made is not before:
                value = result_of(made.op)
                for move in reversed(moves):
                    value = result_of(self._copied(move, [value, *move.inputs[1:]]))
                self._rewriter.set_input(concat, port, value)
            for place, number in enumerate(joined.op.inputs[1:], 1):
                self._rewriter.set_input(made.op, place, number)
            self.rounded[made.op] = made._replace(quantizer=joined.quantizer)

    def _joinable(self, before: Rounded, joined: Rounded, is_shared: bool) -> Rounded | None:
        """A rounding that only a Concat reads, if it may have the grid of that one's result."""
        maker = before.value.producer
        if maker is None or not (self._makes_codes(maker) or (maker.is_type("Concat") and not is_shared)):
            return None
        # A grid of its own that begins at zero limits what is made, as a Relu does.
        if _starts_at_zero(before.quantizer) and not _starts_at_zero(joined.quantizer):
            return None
        return self._made_again(before, maker) if is_shared else before

    def _part_of(self, source: Value | None, joined: Rounded) -> Rounded | None:
        """A rounding of what is cut out of a tensor, which the device multiplies as it cuts.

        What a product of matrices made is brought to the grid of the Concat as it is, by a table.
        """
        cut = source.producer if source is not None else None
        if source is None or cut is None or cut.domain or not cut.is_type(*_PARTS):
            return None
        whole = _moves_behind(cut.inputs[0], _is_reshape)[1]
        made = self._rounding_of(whole)
        maker = made.value.producer if made is not None else None
        if maker is not None and self._kinds.get(maker.op_type) == Arithmetic.MATRIX.value:
            return None
        op = self._copied(joined.op, [source, *joined.op.inputs[1:]])
        return Rounded(op, source, joined.quantizer)

    def _made_again(self, rounded: Rounded, maker: Op) -> Rounded:
        """A second rounding of a tensor, behind a second activation, as what leads that is computed there."""
        value, op = rounded.value, rounded.op
        if maker.op_type in ACTIVATIONS:
            value = result_of(self._copied(maker, maker.inputs))
        made = self._copied(op, [value, *op.inputs[1:]])
        self.tables |= {made} if op in self.tables else set()
        return Rounded(made, value, rounded.quantizer)

    def _is_shared(self, value: Value) -> bool:
        return value.is_output or len(value.uses) > 1

    def _makes_codes(self, op: Op) -> bool:
        kinds = (*_LEADERS, _LEADS_RELU, "exact", "logarithm")
        made = self._kinds.get(op.op_type) in kinds or op.is_type("Neg")
        return not op.domain and made and not _is_reshape(op)

    def _rounding_of(self, source: Value | None) -> Rounded | None:
        """What rounds a tensor to a grid of uint8, if that is done here."""
        op = source.producer if source is not None else None
        found = self.rounded.get(op) if op is not None else None
        return found if found is not None and is_uint8(found.quantizer) else None

    def _copied(self, op: Op, given: Sequence[Value | None]) -> Op:
        """An op like another one that reads something else."""
        result = result_of(op)
        made = self._rewriter.add_value(op.graph, result.name, result.type)
        attributes = {name: op.attribute(name) for name in op.attributes}
        return self._rewriter.add_op(op.graph, op.op_type, given, [made], attributes, op.domain)

    def _fuse(self, op: Op, port: int, fits: Callable[[Op], bool]) -> bool:
        """Lets an op read what is computed before it as it is, if it alone reads it; whether it does now."""
        source = op.inputs[port]
        before = self._rounding_of(source)
        if source is None or before is None or len(source.uses) > 1 or source.is_output:
            return False
        maker = before.value.producer
        if maker is None or maker.domain or len(before.value.uses) > 1 or not fits(maker):
            return False
        self._rewriter.set_input(op, port, before.value)
        self._rewriter.erase_op(before.op)
        del self.rounded[before.op]
        return True


def has_one_number(op: Op) -> bool:
    """Whether an operand is a constant of one number."""
    constants = (value.original.const for value in op.inputs if value is not None)
    return any(one is not None and math.prod(one.shape) == 1 for one in constants)


def result_of(op: Op) -> Value:
    return next(value for value in op.outputs if value is not None)


def _is_reshape(op: Op) -> bool:
    return op.is_type("Flatten", "Reshape", "Squeeze", "Unsqueeze")


def _is_move(op: Op) -> bool:
    return _is_reshape(op) or op.is_type("Transpose")


def _moves_behind(value: Value | None, is_move: Callable[[Op], bool]) -> tuple[list[Op], Value | None]:
    """The ops that moved the numbers of a tensor, the last one first, and the tensor that they moved."""
    moves: list[Op] = []
    while value is not None and (op := value.producer) is not None and is_move(op):
        moves.append(op)
        value = op.inputs[0]
    return moves, value


def _multiplies_by_number(op: Op) -> bool:
    return op.is_type("Mul") and has_one_number(op)


def _starts_at_zero(quantizer: Quantizer) -> bool:
    encoding = quantizer.encoding
    return is_uint8(quantizer) and encoding is not None and int(encoding.zero_point) == UINT8.lowest


def _is_reshaped(op: Op) -> bool:
    """Whether an op is a convolution along one axis, behind which the device parts several samples again."""
    x = op.inputs[0]
    shape = x.type.shape if x is not None and x.type.shape is not None else ()
    return op.op_type == "Conv" and len(shape) == 3 and shape[0] != 1
