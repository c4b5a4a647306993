"""In which form a model is quantized already, told by its ops."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..graph import Graph, Op
from .constants import constant_data


class Form(enum.Enum):
    """A way in which a model is quantized, in words."""

    DYNAMIC = "dynamic: grids of activations are found at every run"
    OPERATORS = "static, with operators on codes"
    QDQ = "static, in QDQ form"
    WEIGHTS = "weights only"
    SIMULATION = "a simulation"


_DYNAMIC = frozenset(
    {"ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulInteger"}
    | {"MatMulIntegerToFloat", "QAttention"}
)
_WEIGHTS = frozenset(
    {"GatherBlockQuantized", "MatMulBnb4", "MatMulFpQ4", "MatMulNBits", "QEmbedLayerNormalization", "QMoE"}
)
_DOMAINS = ("", "ai.onnx", "com.microsoft")


def form_of_op(domain: str, op_type: str) -> Form | None:
    """The form that an op is a sign of; None for one that neither rounds nor computes with codes.

    A DequantizeLinear counts as QDQ; on a constant it may be one of ``WEIGHTS``, see :func:`quantized_form`.
    """
    if domain == "qc":
        return Form.SIMULATION
    if domain not in _DOMAINS:
        return None
    if op_type in _DYNAMIC:
        return Form.DYNAMIC
    if op_type.startswith(("QLinear", "QOrdered")) or op_type == "QGemm":
        return Form.OPERATORS
    if op_type in ("QuantizeLinear", "DequantizeLinear"):
        return Form.QDQ
    return Form.WEIGHTS if op_type in _WEIGHTS else None


@dataclass(frozen=True)
class QuantizedForm:
    """How a model is quantized.

    Attributes:
        form: the form of its activations, or ``WEIGHTS`` if these are float.
        ops: the ops that round or compute with codes, by type, the most frequent first.
    """

    form: Form
    ops: tuple[tuple[str, int], ...]

    @property
    def has_pairs(self) -> bool:
        """Whether quantize and dequantize ops hold the grids, which ``import-qdq`` reads."""
        others = {op_type for op_type, _ in self.ops} - {"QuantizeLinear", "DequantizeLinear"}
        return not others

    def __str__(self) -> str:
        return f"{self.form.value} ({', '.join(f'{op_type} {count}' for op_type, count in self.ops)})"


def quantized_form(graphs: Iterable[Graph]) -> QuantizedForm | None:
    """How a model with these graphs is quantized; None for one that is not."""
    ops: Counter[str] = Counter()
    forms = set()
    for op in (op for graph in graphs for op in graph.ops()):
        form = form_of_op(op.domain, op.op_type)
        if form is not None:
            ops[op.op_type] += 1
            forms.add(Form.WEIGHTS if form is Form.QDQ and _is_on_constant(op) else form)
    if not forms:
        return None
    first = next(form for form in Form if form in forms)
    return QuantizedForm(first, tuple(sorted(ops.items(), key=lambda item: (-item[1], item[0]))))


def _is_on_constant(op: Op) -> bool:
    """Whether an op reads a constant, or one that was moved or looked up in."""
    value = op.inputs[0]
    while value is not None and constant_data(value) is None:
        producer = value.original.producer
        if producer is None or not producer.is_type(*_MOVERS):
            return False
        value = producer.inputs[0]
    return value is not None


_MOVERS = ("Gather", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Cast", "QuantizeLinear")
