"""Settings for the weights of several nodes at once, by type of op or by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from qc.ir.errors import UsageError, nearest
from qc.passes.quantize.quantsim.nodes import Node

from .defs import QSpec, qtype
from .qc_quantize_op import QcQuantizeOp
from .quantized_model import QuantizedModel


def set_param_type(
    sim: QuantizedModel,
    param_type: QSpec | qtype | str,
    *,
    op_types: str | Collection[str] | None = None,
    nodes_to_include: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | None = None,
    strict: bool = True,
) -> None:
    """Sets the specification of the weights of nodes.

    Args:
        param_type: a specification, or only the number format.
        op_types: the types of the nodes.
        nodes_to_include: their names; one of the two must be given.
        nodes_to_exclude: names of nodes to leave as they are.
        strict: raise where a weight cannot be set so, such as blocks that do not divide it; else skip it.

    Raises:
        UsageError: no node is meant, a name does not exist, or strict and a weight cannot be set so.
    """
    spec = param_type if isinstance(param_type, QSpec) else QSpec(qtype.as_qtype(param_type))
    for op in _chosen(sim, op_types, nodes_to_include, nodes_to_exclude or ()):
        try:
            op.set_qspec(spec)
        except UsageError:
            if strict:
                raise


def set_blockwise_quantization_for_weights(
    sim: QuantizedModel,
    op_types: str | Collection[str],
    bitwidth: int,
    symmetric: bool,
    block_size: int,
    strict: bool = False,
    nodes_to_exclude: Collection[str] | None = None,
) -> None:
    """Gives weights one scale for each block of input channels at each output channel.

    Args and errors are those of :func:`set_param_type`.
    """
    spec = QSpec.blockwise(qtype.int(bitwidth), block_size, symmetric=symmetric)
    set_param_type(sim, spec, op_types=op_types, nodes_to_exclude=nodes_to_exclude, strict=strict)


def set_lpbq_for_params(
    sim: QuantizedModel,
    bitwidth: int,
    block_size: int,
    *,
    op_types: str | Collection[str] | None = None,
    nodes_to_include: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | None = None,
    strict: bool = False,
) -> None:
    """Gives weights blocks whose scales are integers of 4 bits times one float for each output channel.

    Args and errors are those of :func:`set_param_type`.
    """
    spec = QSpec.lpbq(qtype.int(bitwidth), block_size)
    names = {"nodes_to_include": nodes_to_include, "nodes_to_exclude": nodes_to_exclude}
    set_param_type(sim, spec, op_types=op_types, strict=strict, **names)


def set_grouped_blockwise_quantization_for_weights(
    sim: QuantizedModel,
    op_types: str | Collection[str],
    bitwidth: int,
    decompressed_bw: int,
    block_size: int,
    strict: bool = False,
    nodes_to_exclude: Collection[str] | None = None,
) -> None:
    """The older form of :func:`set_lpbq_for_params`; the integer scales have the bits that are left.

    Raises:
        UsageError: the decompressed width is not above that of the codes.
    """
    if decompressed_bw <= bitwidth:
        raise UsageError(f"decompressed_bw is {decompressed_bw}; it must be above the bitwidth, {bitwidth}")
    spec = QSpec.lpbq(qtype.int(bitwidth), block_size, decompressed_bw - bitwidth)
    set_param_type(sim, spec, op_types=op_types, nodes_to_exclude=nodes_to_exclude, strict=strict)


def clamp_activation_encodings(quant_sim: QuantizedModel, clamp_val: float) -> None:
    """Limits the range of every calibrated activation to ``[-clamp_val, clamp_val]``."""
    for op in dict.fromkeys(quant_sim.get_all_quantizers()[1]):
        op.clip_and_recompute_encodings(clamp_val)


def _chosen(
    sim: QuantizedModel,
    op_types: str | Collection[str] | None,
    included: Collection[str] | None,
    excluded: Collection[str],
) -> Iterator[QcQuantizeOp]:
    if (op_types is None) == (included is None):
        raise UsageError("give either op_types or nodes_to_include")
    types = {op_types} if isinstance(op_types, str) else set(op_types or ())
    weights = list(sim._placement.weights())
    known = [name for node, _ in weights for name in _names(node)]
    for name in (*(included or ()), *excluded):
        if name not in known:
            raise UsageError(f"there is no node '{name}' with a weight{nearest(name, known)}")
    found = [
        (node, weight)
        for node, weight in weights
        if (types & {node.op_type, *(op.op_type for op in node.ops)} or _names(node) & set(included or ()))
        and not _names(node) & set(excluded)
    ]
    if not found:
        raise UsageError(f"no node with a weight is one of {sorted(types or set(included or ()))}")
    return (sim.qc_quantize_op_dict[weight] for _, weight in found)


def _names(node: Node) -> set[str]:
    return {op.name for op in node.ops}
