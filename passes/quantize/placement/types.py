"""The types of tensors, where shape inference does not know them."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter

from ...framework.context import PassContext


def complete_types(model: Model, context: PassContext) -> None:
    """Asks the runtime for element types that shape inference could not tell, and notes what nobody knows."""
    unknown = {value.name: value for value in model.graph.values() if not value.type.elem_type}
    made = {name: value for name, value in unknown.items() if value.producer is not None}
    if made and context.executor is not None:
        rewriter = Rewriter(model)
        types = context.executor.element_types(lower(model), list(made), base_dir=model.base_dir)
        for name, elem_type in types.items():
            if elem_type:
                with rewriter.action("type from the runtime", made[name]):
                    rewriter.set_type(made[name], made[name].type._replace(elem_type=elem_type))
    context.notes += _unknown_types(model)


def _unknown_types(model: Model) -> Iterator[str]:
    """Notes on ops in bodies, where no runtime can be asked, whose results have a type that nobody knows."""
    for op in (op for graph in model.graph.walk() if graph.parent is not None for op in graph.ops()):
        results = [value for value in op.outputs if value is not None]
        if op.domain and results and not any(value.type.elem_type for value in results):
            yield (
                f"the type of '{results[0].name}' is not known, as ONNX does not define {op.op_type}; "
                "what is computed from it inside the body stays float"
            )
