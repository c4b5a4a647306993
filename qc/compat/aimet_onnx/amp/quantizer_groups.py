"""Groups of quantizers that change together, and the candidates that a device has for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from ..common.amp.utils import Candidate
from ..defs import QuantizationDataType, qtype
from ..meta.operations import Product
from ..qc_quantize_op import QcQuantizeOp
from ..simulation.quantized_model import QuantizedModel

Quantizers = Mapping[str, QcQuantizeOp]

# Ops through which a parameter's group reaches: what they make has the numbers of their first input.
op_types_to_ignore = ["Flatten", "Gather", "Identity", "Pad", "Reshape", "Squeeze", "Transpose", "Unsqueeze"]


@dataclass(frozen=True)
class QuantizerGroup:
    """Quantizers that change together, by the names of the tensors."""

    parameter_quantizers: tuple[str, ...] = ()
    activation_quantizers: tuple[str, ...] = ()

    def get_activation_quantizers(self, name_to_quantizer_dict: Quantizers) -> list[QcQuantizeOp]:
        """Those of activations."""
        return [name_to_quantizer_dict[name] for name in self.activation_quantizers]

    def get_param_quantizers(self, name_to_quantizer_dict: Quantizers) -> list[QcQuantizeOp]:
        """Those of parameters."""
        return [name_to_quantizer_dict[name] for name in self.parameter_quantizers]

    def get_active_quantizers(self, name_to_quantizer_dict: Quantizers) -> list[QcQuantizeOp]:
        """Those that are on, activations first."""
        activations = self.get_activation_quantizers(name_to_quantizer_dict)
        both = [*activations, *self.get_param_quantizers(name_to_quantizer_dict)]
        return [quantizer for quantizer in both if quantizer.enabled]

    def get_candidate(self, name_to_quantizer_dict: Quantizers) -> Candidate:
        """What it is set to; where it has no activation, or no parameter, both are as the other."""
        sides = self.get_activation_quantizers, self.get_param_quantizers
        held = [next(iter(side(name_to_quantizer_dict)), None) for side in sides]
        found = [(one.bitwidth, one.data_type) if one is not None else None for one in held]
        activation, parameter = found[0] or found[1], found[1] or found[0]
        assert activation is not None and parameter is not None
        return activation, parameter

    def set_quantizers_to_candidate(self, name_to_quantizer_dict: Quantizers, candidate: Candidate) -> None:
        """Sets the number formats, but not of what is off or frozen."""
        sides = self.get_activation_quantizers, self.get_param_quantizers
        for side, (bits, kind) in zip(sides, candidate, strict=True):
            precision = qtype.from_legacy_repr(kind, bits)
            for quantizer in side(name_to_quantizer_dict):
                is_free = quantizer.enabled and not quantizer.is_encoding_frozen()
                if is_free and quantizer.precision() != precision:
                    quantizer.set_precision(precision)

    def to_list(self) -> list[tuple[str, str]]:
        """The names, each behind ``activation`` or ``weight``."""
        return [
            *(("activation", name) for name in self.activation_quantizers),
            *(("weight", name) for name in self.parameter_quantizers),
        ]


def find_quantizer_group(sim: QuantizedModel) -> tuple[dict[str, QcQuantizeOp], list[QuantizerGroup]]:
    """The quantizers by tensor, and groups of those that are on.

    What an op with parameters reads changes together with these; all other activations change alone.
    """
    quantizers = dict(sim.qc_quantize_op_dict)
    parameters = set(sim.param_names)
    on = {name: number for number, name in enumerate(quantizers) if quantizers[name].enabled}
    together: nx.Graph = nx.Graph()
    together.add_nodes_from(on)
    order: dict[str, int] = {}
    for op in sim.connected_graph.ordered_ops:
        own = [product.name for product, _ in op.parameters.values() if product.name in on]
        read = [_behind(one, on) for one in op.inputs if one.name not in op.parameters]
        names = [*(name for name in read if name is not None), *own]
        for name in names:
            order.setdefault(name, len(order))
        if own:
            nx.add_path(together, names)
    groups = []
    for members in nx.connected_components(together):
        names = sorted(members, key=lambda name: (order.get(name, len(order)), on[name]))
        group = QuantizerGroup(
            tuple(name for name in names if name in parameters),
            tuple(name for name in names if name not in parameters),
        )
        groups.append((min(order.get(name, len(order)) for name in names), on[names[0]], group))
    return quantizers, [group for *_, group in sorted(groups, key=lambda one: one[:2])]


def _behind(product: Product, on: Mapping[str, int]) -> str | None:
    """The quantized tensor that a product is, or only has another shape of."""
    current: Product | None = product
    while current is not None and current.name not in on:
        producer = current.producer
        is_shape = producer is not None and producer.type in op_types_to_ignore and producer.inputs
        current = producer.inputs[0] if producer is not None and is_shape else None
    return current.name if current is not None else None


def find_supported_candidates(
    quantizer_groups: Sequence[QuantizerGroup],
    amp_candidates: Sequence[Candidate],
    supported_kernels: Mapping[str, Sequence[Mapping[str, Any]]],
    quantizer_to_op_type: Mapping[str, Sequence[str]],
    use_all_amp_candidates: bool,
) -> tuple[dict[QuantizerGroup, list[Candidate]], list[Candidate]]:
    """The candidates of each group, and those that all groups have.

    Args:
        quantizer_groups: the groups.
        amp_candidates: what is wanted.
        supported_kernels: what the device has, by op type, and ``defaults``; a type without any has all.
        quantizer_to_op_type: the types of the ops that a quantizer is for.
        use_all_amp_candidates: whatever the device has.
    """

    def is_supported(group: QuantizerGroup, candidate: Candidate) -> bool:
        names = (*group.activation_quantizers, *group.parameter_quantizers)
        types = {op_type for name in names for op_type in quantizer_to_op_type.get(name, ())}
        return all(_has_kernel(supported_kernels, op_type, candidate) for op_type in types)

    found = {
        group: [one for one in amp_candidates if use_all_amp_candidates or is_supported(group, one)]
        for group in quantizer_groups
    }
    common = [one for one in amp_candidates if all(one in own for own in found.values() if own)]
    return found, common or list(amp_candidates)


def _has_kernel(
    supported: Mapping[str, Sequence[Mapping[str, Any]]], op_type: str, candidate: Candidate
) -> bool:
    kernels: Iterable[Mapping[str, Any]] = supported.get(op_type) or supported.get("defaults") or ()
    known = [tuple(_side(kernel.get(side)) for side in ("activation", "param")) for kernel in kernels]
    return not known or any(
        all(wanted is None or wanted == one for wanted, one in zip(kernel, candidate, strict=True))
        for kernel in known
    )


def _side(formats: Mapping[str, Any] | None) -> tuple[int, QuantizationDataType] | None:
    return (formats["bitwidth"], formats["dtype"]) if formats is not None else None
