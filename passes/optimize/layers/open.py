"""The weights whose codes are open to choice, each with all layers that read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Op, Use, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site

from .layer import Layer, check_names
from .unusual import StateKernel, unusual_layers

# The widest codes; of wider ones, neighbours differ by nothing that could be seen. Biases are wider.
_WIDEST = 8
# Bytes of a Gram matrix, of the float model and the quantized one, at most; a few such are held at once.
_MOST_BYTES = 1 << 31
_FLOAT64 = 8

Uses = tuple[Layer, ...]
"""The layers that read one weight, in the order of the graph; those of a body come before its op."""


def open_weights(model: Model, names: Collection[str] = ()) -> list[Uses]:
    """The weights with codes of at most 8 bits that were not chosen yet, in the order of their last uses.

    Those that a body reads come first. Each other constant with such codes gets a remark why it keeps its
    nearest ones.

    Args:
        names: of the ops whose weights are asked for; all if there are none.

    Raises:
        UsageError: there is no layer of such a name.
    """
    scopes = scopes_of(model.graph)
    layers = {(layer.op, layer.weight.port): layer for op in scopes.ops for layer in _layers_at(model, op)}
    check_names(names, layers.values())
    places = {op: place for place, op in enumerate(scopes.ops)}
    found = []
    for quantizer in model.quant.quantizers():
        constants = _constants(model, quantizer)
        if not constants:
            continue
        weight = constants[0]
        readers = sorted(scopes.uses(weight), key=lambda use: (places[use.op], str(use.port)))
        uses = [layers[use] for use in readers if use in layers]
        if names and not any(layer.op.name in names for layer in uses):
            continue
        reason = _closed(model, scopes, quantizer, readers, uses)
        if reason is None:
            found.append(tuple(uses))
        else:
            leave(model, weight, reason)
    return sorted(found, key=lambda uses: (not is_inside(uses), places[uses[-1].op], uses[-1].weight.port))


def leave(model: Model, weight: Value, reason: str) -> None:
    """Notes why a weight keeps its nearest codes."""
    said = f"keeps its nearest codes: {reason}"
    model.journal.note(Remark(SKIP, weight, str(Site(weight)), said))


def is_inside(uses: Sequence[Layer]) -> bool:
    """Whether a layer of a body reads the weight."""
    return any(layer.op.graph.parent is not None for layer in uses)


def _layers_at(model: Model, op: Op) -> list[Layer]:
    usual = Layer.of(model, op)
    return [usual] if usual is not None else unusual_layers(model, op)


def _constants(model: Model, quantizer: Quantizer) -> list[Value]:
    """The constants whose codes a quantizer stands for; none if they are too wide, or were chosen."""
    format = quantizer.spec.format
    if quantizer.encoding is None or quantizer.codes is not None:
        return []
    if isinstance(format, IntFormat) and format.bits > _WIDEST:
        return []
    values = dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer))
    return [value for value in values if value.const is not None and value.is_float]


def _closed(
    model: Model, scopes: Scopes, quantizer: Quantizer, readers: Sequence[Use], uses: Sequence[Layer]
) -> str | None:
    """Why the codes of a weight are not open to choice; None if they are."""
    if not isinstance(quantizer.spec.format, IntFormat):
        return f"numbers of {quantizer.spec.format} are no integers"
    if len({site.value.original for site in model.quant.sites_of(quantizer)}) > 1:
        return "its grid is that of other tensors too"
    known = {Use(layer.op, layer.weight.port) for layer in uses}
    for use in readers:
        if use not in known:
            return _no_layer(use.op)
    for layer in uses:
        if layer.weight.quantizer is not quantizer:
            return f"{layer.op.label} reads it on another grid"
    if not uses or scopes.leaves(uses[0].weight.constant) or scopes.onward(uses[0].weight.constant):
        return "it is a result of the model, or passes into a body"
    if any(layer.data.original.const is not None for layer in uses):
        return "what it multiplies is constant"
    array = uses[0].weight.array
    if array.dtype != np.float32 or array.size == 0:
        return f"it holds {array.size} numbers of type {array.dtype}"
    if len({_layout(layer) for layer in uses}) > 1:
        return "the ops that read it multiply different matrices"
    groups, _, features = uses[0].matrix.shape
    if groups * (2 * features) ** 2 * _FLOAT64 > _MOST_BYTES:
        return f"the Gram matrix of its {features} features would take too much memory"
    return _unseen(uses) if is_inside(uses) else None


def _unseen(uses: Sequence[Layer]) -> str | None:
    """Why what a weight multiplies in bodies cannot be observed; None if it can."""
    for layer in uses:
        graph = layer.op.graph
        while graph.parent is not None:
            if not graph.parent.is_type("If", "Loop"):
                return f"what it multiplies inside {graph.parent.label} cannot be observed"
            graph = graph.parent.graph
        if isinstance(layer, StateKernel):
            return f"the states of {layer.op.label} inside a body cannot be observed"
    return None


def _layout(layer: Layer) -> tuple[object, ...]:
    """What a weight and its matrix have to do with each other."""
    return type(layer), layer.groups, layer.is_transposed, layer.op.is_type("ConvTranspose")


def _no_layer(op: Op) -> str:
    if op.is_type("Gather"):
        return f"{op.label} reads each row alone, for which the nearest codes are the best"
    if op.is_type("LSTM", "GRU", "RNN"):
        return f"{op.label} gives back its last state alone, and what the weight multiplies is not known"
    return f"{op.label} reads it, which is no layer"
