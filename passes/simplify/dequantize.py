"""Makes a float model of one that is quantized already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qc.ir.errors import UsageError
from qc.ir.facts.qdq import float_name, is_qdq
from qc.ir.facts.quantized_form import quantized_form
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .eliminate_dead_code import EliminateDeadCode
from .eliminate_identity import EliminateIdentity
from .float_twins import operators, packed, products
from .float_twins.lookups import look_up_numbers
from .float_twins.twins import FloatTwins, Grid, NoTwin, needed
from .fold_constants import FoldConstants

Rule = Callable[[FloatTwins, Op], None]


@dataclass(frozen=True)
class Dequantize(Pass):
    """Makes a float model of one that is quantized, whoever did it and in whichever form.

    These are QDQ pairs, also with Clips of codes in between; the operators of ONNX and ONNX Runtime on
    codes, such as QLinearConv and QGemm; products of integers whose grids are found at every run, with
    DynamicQuantizeLinear or in one op such as DynamicQuantizeLSTM; weights of few bits, as in MatMulNBits;
    and simulations of qc. Weights become the numbers that their codes stand for. Activations are not
    rounded any more, nor limited to what a calibration saw; but where a grid begins at 0 below numbers that
    may be negative, it does the work of a Relu, and one that also ends at 6 that of a Clip, and such an op
    takes its place. Clips of codes whose limits are those of no narrower format are Clips of the numbers.

    What is in none of these forms stays, with a note. The result can be quantized anew.
    """

    name = "dequantize"
    stage = Stage.FLOAT
    needs = frozenset({"executor"})
    tolerance = 0.5  # activations are neither rounded nor limited any more

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        look_up_numbers(model, rewriter)
        if quantized_form(model.graphs()) is None:
            return
        FoldConstants().run(model, context)  # PyTorch computes zero points of biases, and casts codes to
        EliminateIdentity().run(model, context)  # the type that they have
        twins = FloatTwins(rewriter)
        changed = False
        for graph in list(model.graph.walk()):
            for op in graph.ops():
                rule = _rule(op)
                changed |= rule is not None and op in graph and _apply(rule, twins, op)
        if changed:
            EliminateDeadCode().run(model, context)
        left = quantized_form(model.graphs())
        if left is not None:
            context.notes.append(f"ops were left that compute with codes: {left}")


def _apply(rule: Rule, twins: FloatTwins, op: Op) -> bool:
    """Whether a rule could be applied; if not, nothing is left of it."""
    try:
        with twins.rewriter.action("to float", op):
            rule(twins, op)
    except (NoTwin, UsageError, ValueError):  # the last two if numbers do not fit each other
        twins.forget()
        return False
    twins.keep()
    return True


def _rule(op: Op) -> Rule | None:
    if is_qdq(op, "DequantizeLinear"):
        return _dequantize
    if op.domain == "qc":
        return _pass_on if op.op_type == "FakeQuantize" else None
    if op.domain not in ("", "com.microsoft"):
        return None
    if op.op_type in operators.OPERATORS or op.op_type == "QLinearConcat":
        return operators.to_float
    return _RULES.get(op.op_type)


_RULES: Mapping[str, Rule] = {
    "ConvInteger": products.integer_product,
    "DynamicQuantizeLSTM": products.dynamic_lstm,
    "DynamicQuantizeMatMul": products.dynamic_matmul,
    "GatherBlockQuantized": packed.gather_of_blocks,
    "MatMulInteger": products.integer_product,
    "MatMulIntegerToFloat": products.matmul_to_float,
    "MatMulNBits": packed.matmul_of_bits,
    "QAttention": products.attention,
    "QEmbedLayerNormalization": products.embedding,
}


def _dequantize(twins: FloatTwins, op: Op) -> None:
    codes, scale, zero_point = (*op.inputs, None)[:3]
    grid = Grid(needed(scale), zero_point, op.attribute("axis", 1), op.attribute("block_size", 0))
    result, twin = needed(op.outputs[0]), twins.of(codes, grid)
    twins.substitute(result, twin)
    is_constant = twin.const is not None and twin.graph is result.graph and not twin.is_output
    if is_constant and float_name(needed(codes).name, result.name) == result.name:
        twins.rewriter.swap_names(result, twin)


def _pass_on(twins: FloatTwins, op: Op) -> None:
    twins.substitute(needed(op.outputs[0]), needed(op.inputs[0]))
