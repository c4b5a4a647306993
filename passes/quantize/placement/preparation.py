"""What is found out about a model before quantizers are placed."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.model import Model

from ...framework.context import PassContext
from .types import complete_types

_NCHWC = "com.microsoft.nchwc"  # whose channels lie in blocks, as many as a register holds


def prepare(model: Model, context: PassContext) -> None:
    """Completes types, and notes what no quantizer can be placed at."""
    complete_types(model, context)
    context.notes += _of_one_processor(model)


def _of_one_processor(model: Model) -> Iterator[str]:
    """A note on ops that ONNX Runtime wrote for the processor that it ran on, which nothing else takes.

    They are in models that were saved with all its optimizations.
    """
    count = sum(op.domain == _NCHWC for op in model.ops())
    if count:
        yield (
            f"{count} ops of {_NCHWC} stay float, which ONNX Runtime made for one kind of processor when it "
            "saved this model: start from the model before, or save it with ORT_ENABLE_EXTENDED at most"
        )
