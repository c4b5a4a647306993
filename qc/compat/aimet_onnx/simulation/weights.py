"""Settings for the weights of several nodes at once, by type of op or by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from qc.ir.errors import nearest
from qc.passes.quantize.quantsim.nodes import Node

from ..defs import QSpec, qtype
from ..deprecation import warn_deprecated
from ..errors import ArgumentError
from ..qc_quantize_op import QcQuantizeOp
from .quantized_model import QuantizedModel

Names = Collection[str] | None


def set_param_type(
    sim: QuantizedModel,
    param_type: QSpec | qtype | str,
    *,
    op_types: str | Collection[str] | None = None,
    nodes_to_include: Names = None,
    nodes_to_exclude: Names = None,
    strict: bool = True,
) -> None:
    """Sets the specification of the parameters of nodes that are quantized, but for biases.

    Args:
        param_type: a specification, or only the number format.
        op_types: the types of the nodes; default: all.
        nodes_to_include: their names, instead of types.
        nodes_to_exclude: names of nodes to leave as they are.
        strict: raise where a parameter cannot be set so, such as blocks that do not divide it; else skip it.

    Raises:
        UsageError: a name does not exist, names and types are given, or strict and a parameter cannot be set
            so.
    """
    spec = param_type if isinstance(param_type, QSpec) else QSpec(qtype.as_qtype(param_type))
    nodes = _chosen(sim, op_types, nodes_to_include, nodes_to_exclude)
    named = (item for node in nodes for item in sim._placement.parameters_of(node))
    ops = (sim.qc_quantize_op_dict[name] for slot, name in named if slot != "bias")
    _set((op for op in ops if op.enabled), spec, strict)


def set_blockwise_quantization_for_weights(
    sim: QuantizedModel,
    op_types: str | Collection[str],
    bitwidth: int,
    symmetric: bool,
    block_size: int | None,
    strict: bool = False,
    nodes_to_exclude: Collection[str] | None = None,
    *,
    excluded_nodes: Names = None,
) -> None:
    """Gives weights one scale for each block of input channels at each output channel.

    Args:
        block_size: elements in a block; 0 or None for no blocks.

    Other args and errors are those of :func:`set_param_type`.
    """
    if (block_size or 0) < 0:
        raise ArgumentError(
            f"block_size is {block_size}; it must divide the input channels, or be 0 for no blocks"
        )
    spec = QSpec.blockwise(qtype.int(bitwidth), block_size, symmetric=symmetric)
    _set(
        _weights(sim, _chosen(sim, op_types, None, _excluded(nodes_to_exclude, excluded_nodes))), spec, strict
    )


def set_lpbq_for_params(
    sim: QuantizedModel,
    bitwidth: int,
    block_size: int,
    *,
    op_types: str | Collection[str] | None = None,
    nodes_to_include: Names = None,
    nodes_to_exclude: Names = None,
    strict: bool | None = None,
) -> None:
    """Gives weights blocks whose scales are integers of ``bitwidth`` bits times one float per output channel.

    Args:
        op_types, nodes_to_include: the types of the nodes, or their names; one of the two must be given.
        nodes_to_exclude: names of nodes to leave as they are; with types only.
        strict: raise where blocks do not divide a weight; else skip it. Only with types: nodes that are
            named must all have such a weight.

    Raises:
        UsageError: not one of types and names is given, a name does not exist, or strict and a weight cannot
            be set so.
    """
    if op_types is None and nodes_to_include is None:
        raise ArgumentError("give either op_types or nodes_to_include")
    if nodes_to_include and strict is not None:
        raise ArgumentError("strict goes with op_types only; nodes_to_include is always strict")
    nodes = _chosen(sim, op_types, nodes_to_include, nodes_to_exclude)
    spec = QSpec.lpbq(qtype.int(bitwidth), block_size, scale_bits=bitwidth)
    _set(_weights(sim, nodes), spec, bool(strict or nodes_to_include))


def set_grouped_blockwise_quantization_for_weights(
    sim: QuantizedModel,
    op_types: str | Collection[str],
    bitwidth: int,
    decompressed_bw: int,
    block_size: int,
    strict: bool = False,
    nodes_to_exclude: Collection[str] | None = None,
    *,
    excluded_nodes: Names = None,
) -> None:
    """The older form of :func:`set_lpbq_for_params`; the integer scales have the bits that are left.

    Raises:
        UsageError: the decompressed width is not above that of the codes.
    """
    warn_deprecated("set_grouped_blockwise_quantization_for_weights", "set_lpbq_for_params")
    if decompressed_bw <= bitwidth:
        raise ArgumentError(
            f"decompressed_bw is {decompressed_bw}; it must be above the bitwidth, {bitwidth}"
        )
    spec = QSpec.lpbq(qtype.int(bitwidth), block_size, decompressed_bw - bitwidth)
    _set(
        _weights(sim, _chosen(sim, op_types, None, _excluded(nodes_to_exclude, excluded_nodes))), spec, strict
    )


def clamp_activation_encodings(quant_sim: QuantizedModel, clamp_val: float) -> None:
    """Limits the range of every calibrated activation to ``[-clamp_val, clamp_val]``."""
    for op in dict.fromkeys(quant_sim.get_all_quantizers()[1]):
        op.clip_and_recompute_encodings(clamp_val)


def _chosen(
    sim: QuantizedModel, op_types: str | Collection[str] | None, included: Names, excluded: Names
) -> list[Node]:
    """The nodes of some types or names, in order; of neither, all."""
    if included and (op_types or excluded):
        raise ArgumentError("nodes_to_include goes neither with op_types nor with nodes_to_exclude")
    nodes = sim._placement.nodes.nodes
    known = set().union(*map(_names, nodes))
    for name in (*(included or ()), *(excluded or ())):
        if name not in known:
            raise ArgumentError(f"the model has no node '{name}'{nearest(name, sorted(known))}")
    if included:
        return [node for node in nodes if _names(node) & set(included)]
    types = {op_types} if isinstance(op_types, str) else set(op_types) if op_types is not None else None
    return [
        node
        for node in nodes
        if (types is None or types & {node.op_type, *(op.op_type for op in node.ops)})
        and not _names(node) & set(excluded or ())
    ]


def _excluded(nodes: Names, nodes_by_old_name: Names) -> Names:
    """Nodes to leave as they are, by either of two names of the argument."""
    if nodes_by_old_name is None:
        return nodes
    warn_deprecated("excluded_nodes", "nodes_to_exclude", 4)
    if nodes is not None:
        raise ArgumentError("excluded_nodes is the older name of nodes_to_exclude; give one of them")
    return nodes_by_old_name


def _names(node: Node) -> set[str]:
    return {op.name for op in node.ops}


def _weights(sim: QuantizedModel, nodes: Collection[Node]) -> Iterator[QcQuantizeOp]:
    for node in nodes:
        for slot, name in sim._placement.parameters_of(node):
            if slot == "weight":
                yield sim.qc_quantize_op_dict[name]


def _set(ops: Iterator[QcQuantizeOp], spec: QSpec, strict: bool) -> None:
    for op in ops:
        try:
            op.set_qspec(spec)
        except ArgumentError:
            if strict:
                raise
