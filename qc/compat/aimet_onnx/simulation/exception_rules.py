"""What a device wants of norms and of products of two activations, whatever a script asks for."""

from __future__ import annotations

from collections.abc import Iterator

from ..defs import QuantizationDataType
from ..meta.operations import Op
from ..qc_quantize_op import QcQuantizeOp
from .quantized_model import QuantizedModel

_SCALED_BY_OUTPUT = ("GroupNormalization", "InstanceNormalization", "RMSNormalization")
_SCALED_ALONE = ("LayerNormalization", "BatchNormalization")
_OLD_DEVICES = ("V66", "V68", "V69")

Asked = Iterator[tuple[QcQuantizeOp, int, bool]]  # quantizers, each with the width and symmetry to give it


def apply_exception_rules(sim: QuantizedModel) -> bool:
    """Changes widths and symmetry as the configuration of a simulation does when it is made.

    What is off, frozen or a float is left alone.

    Returns:
        Whether anything changed.
    """
    version = sim._placement.config.defaults.hw_version
    ops = sim.connected_graph.ordered_ops
    asked = (one for op in ops for one in _of_op(sim, op, version))
    return sum(_set(*one) for one in asked if _is_free(one[0])) > 0


def _of_op(sim: QuantizedModel, op: Op, version: str | None) -> Asked:
    if op.type in (*_SCALED_BY_OUTPUT, *_SCALED_ALONE):
        yield from _of_norm(sim, op, version)
    elif op.type == "MatMul" and version is not None and op.inputs[1].name not in sim.param_names:
        yield from _of_product(sim, op, version)


def _of_norm(sim: QuantizedModel, op: Op, version: str | None) -> Asked:
    """Parameters of a norm have 8 bits at least."""
    _, made, parameters = sim.get_op_quantizers(op)
    result = made[0] if made and made[0].enabled else None
    for quantizer in parameters.values():
        bits = max(quantizer.bitwidth, 8)
        if op.type in _SCALED_ALONE:
            bits = 8 if version in _OLD_DEVICES else bits
            yield quantizer, bits, bits >= 16
        elif result is None:
            yield quantizer, bits, False
        else:
            yield quantizer, result.bitwidth, result.use_symmetric_encodings


def _of_product(sim: QuantizedModel, op: Op, version: str) -> Asked:
    """A second factor of 16 bits is symmetric, and has a first one of 16 bits; old devices have 8 there."""
    first, second = (sim._placement.effective(one.name) for one in op.inputs[:2])
    if first is None or second is None or not (_is_integer(first) and _is_integer(second)):
        return
    if version in _OLD_DEVICES:
        yield second, 8, True
    elif second.bitwidth == 16:
        yield second, 16, True
        yield first, 16, first.use_symmetric_encodings


def _set(quantizer: QcQuantizeOp, bits: int, symmetric: bool) -> bool:
    if (quantizer.bitwidth, quantizer.use_symmetric_encodings) == (bits, symmetric):
        return False
    quantizer.set_bitwidth(bits)
    quantizer.use_symmetric_encodings = symmetric
    return True


def _is_integer(quantizer: QcQuantizeOp) -> bool:
    return quantizer.data_type is QuantizationDataType.int


def _is_free(quantizer: QcQuantizeOp) -> bool:
    return quantizer.enabled and _is_integer(quantizer) and not quantizer.is_encoding_frozen()
