"""What a device wants of norms, products of two activations, and grouped transposed convolutions."""

from __future__ import annotations

from qc.ir.facts.op_table import WEIGHTED
from qc.ir.quant.spec import PerTensor

from .configuration import Configuration
from .drafts import Draft
from .nodes import Node

_SCALED_BY_OUTPUT = ("GroupNormalization", "InstanceNormalization", "RMSNormalization")
_SCALED_ALONE = ("LayerNormalization", "BatchNormalization")
_OLD_DEVICES = ("V66", "V68", "V69")


def apply_exceptions(configuration: Configuration) -> None:
    """Changes widths, symmetry and granularity where the device has rules of its own."""
    nodes = configuration.nodes.nodes
    for node in nodes:
        _make_dynamic_weight_symmetric(configuration, node)
    for node in nodes:
        if node.is_type(*_SCALED_BY_OUTPUT, *_SCALED_ALONE):
            _fit_norm(configuration, node)
        elif node.is_type("MatMul"):
            _fit_matmul(configuration, node)
        elif node.is_type("ConvTranspose") and node.attribute("group", 1) > 1:
            for _, draft in configuration.parameters(node):
                draft.granularity = PerTensor()


def _make_dynamic_weight_symmetric(configuration: Configuration, node: Node) -> None:
    """An activation in the place of a weight has the symmetry of weights."""
    if not node.is_type(*WEIGHTED) or _has_own_weight(configuration, node):
        return
    draft = configuration.drafts.effective(node.input(1))
    if draft is None:
        return
    rule = configuration.config.op_type.get(node.op_type)
    slot = rule.params.get("weight") if rule is not None else None
    symmetric = slot.is_symmetric if slot is not None else None
    if symmetric is None:
        symmetric = bool(configuration.config.defaults.params.is_symmetric)
    if draft.symmetric != symmetric:
        draft.symmetric = symmetric
        draft.notes.append(f"{'' if symmetric else 'a'}symmetric as the weight of {node.label}")


def _has_own_weight(configuration: Configuration, node: Node) -> bool:
    """Whether input 1 itself is a parameter; one behind a Transpose is not."""
    found = (p for p, _ in configuration.parameters(node) if p.slot == "weight")
    return any(parameter.value is node.input(1) or not parameter.transposed for parameter in found)


def _fit_norm(configuration: Configuration, node: Node) -> None:
    outputs = list(node.made)
    result = configuration.drafts.get(outputs[0]) if outputs else None
    for _, draft in configuration.parameters(node):
        if not draft.enabled or not draft.is_integer:
            continue
        bits = max(draft.bits, 8)
        if node.is_type(*_SCALED_BY_OUTPUT):
            is_on = result is not None and result.enabled
            draft.symmetric = is_on and result is not None and result.symmetric
            if is_on and result is not None:
                bits = result.bits
            draft.set_bits(bits)
        else:
            draft.set_bits(8 if configuration.config.defaults.hw_version in _OLD_DEVICES else bits)
            draft.symmetric = draft.bits >= 16


def _fit_matmul(configuration: Configuration, node: Node) -> None:
    """A product of two activations takes int8 or int16 in certain pairs only."""
    version = configuration.config.defaults.hw_version
    if version is None or _has_own_weight(configuration, node):
        return
    first = configuration.drafts.effective(node.input(0))
    second = configuration.drafts.effective(node.input(1))
    if first is None or second is None or not (first.is_integer and second.is_integer):
        return
    if version in _OLD_DEVICES:
        _require(second, 8, f"{version} multiplies by 8-bit symmetric tensors in {node.label}")
    elif second.bits == 16:
        _require(second, 16, f"{version} multiplies by symmetric 16-bit tensors in {node.label}")
        if first.bits != 16:
            first.set_bits(16)
            first.notes.append(f"16 bits, as the other factor of {node.label}")


def _require(draft: Draft, bits: int, why: str) -> None:
    if draft.bits != bits or not draft.symmetric:
        draft.set_bits(bits)
        draft.symmetric = True
        draft.notes.append(why)
