"""Ops that ONNX Runtime writes for the processor that it runs on, which nothing else takes."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.model import Model

_DOMAIN = "com.microsoft.nchwc"  # whose channels lie in blocks, as many as a register holds


def of_one_processor(model: Model) -> Iterator[str]:
    """A note if there are some, as in models that were saved with all its optimizations."""
    count = sum(op.domain == _DOMAIN for op in model.ops())
    if count:
        yield (
            f"{count} ops of {_DOMAIN} stay float, which ONNX Runtime made for one kind of processor when it "
            "saved this model: start from the model before, or save it with ORT_ENABLE_EXTENDED at most"
        )
