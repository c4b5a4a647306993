"""What is computed from quantized tensors before anything else is rounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qc.ir.facts.op_traits import reads_shape_only, weight_port
from qc.ir.graph import Use, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import PerTensor, Quantizer
from qc.ir.quant_table import Site

# Ops on the way to a result, at most.
_FARTHEST = 8


def results_of(model: Model, quantizer: Quantizer) -> list[Value]:
    """The results that show what rounding by a quantizer does.

    They are those of layers behind its tensors, and what is rounded to another grid next or leaves the graph,
    with what stands between: rounding errors of numbers that a Relu or a gate makes 0 are not seen there.
    Empty if they are not in the main graph alone.
    """
    found: dict[Value, None] = {}
    for site in model.quant.sites_of(quantizer):
        value = site.value
        if value.graph is not model.graph or value.const is not None:
            return []
        for use in value.uses:
            if site.op is not None and (use.op, use.port) != (site.op, site.port):
                continue
            if not isinstance(use.port, int):
                return []
            found.update(dict.fromkeys(_results(model, quantizer, use, _FARTHEST)))
    return list(found)


def _results(model: Model, quantizer: Quantizer, use: Use, farthest: int) -> Iterator[Value]:
    if reads_shape_only(use.op):
        return
    for value in filter(None, use.op.outputs):
        if not value.is_float:
            continue
        uses = value.uses
        ends = weight_port(use.op) is not None or not farthest or value.is_output or not uses
        other = model.quant.of_value(value) not in (None, quantizer)
        if ends or other or any(_is_other(model, quantizer, value, one) for one in uses):
            yield value
            continue
        for one in uses:
            yield from _results(model, quantizer, one, farthest - 1)


def _is_other(model: Model, quantizer: Quantizer, value: Value, use: Use) -> bool:
    """Whether a use is in a body, or sees another grid."""
    if not isinstance(use.port, int):
        return True
    return model.quant.get(Site(value, use.op, use.port)) not in (None, quantizer)


def chosen_freely(model: Model) -> Iterator[tuple[Quantizer, Sequence[Value]]]:
    """The quantizers of activations whose range may be chosen, with their tensors, in topological order.

    Those of outputs of the graph are not among them, nor what is frozen or fixed by what makes it.
    """
    seen: set[int] = set()
    order = {value: index for index, value in enumerate(_values(model))}
    for value in order:
        for quantizer in model.quant.quantizers_on(value):
            spec = quantizer.spec
            if quantizer.id in seen or quantizer.is_fixed or quantizer.encoding is None or spec.derived:
                continue
            seen.add(quantizer.id)
            values = list(dict.fromkeys(site.value for site in model.quant.sites_of(quantizer)))
            is_integer = isinstance(spec.format, IntFormat) and spec.granularity == PerTensor()
            if not is_integer or spec.fixed_range is not None or any(one not in order for one in values):
                continue
            if not any(one.is_output for one in values):
                yield quantizer, values


def _values(model: Model) -> Iterator[Value]:
    """The float tensors that are fed or computed in the main graph, in topological order."""
    yield from (value for value in model.graph.inputs if value.is_float and value.const is None)
    for op in model.graph.ops():
        yield from (value for value in op.outputs if value is not None and value.is_float)
