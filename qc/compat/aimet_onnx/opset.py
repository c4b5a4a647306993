"""A model with its quantizers in a newer opset, for grids that the operators of its own cannot say."""

from __future__ import annotations

from onnx import version_converter

import qc
from qc.ir.errors import ModelError, UsageError
from qc.ir.formats import FloatFormat
from qc.ir.lower import lower
from qc.ir.model import Model
from qc.ir.quant import PerBlock, Quantizer
from qc.ir.quant_table import Site
from qc.ir.scopes import tensors_by_name
from qc.passes import Pipeline

_BLOCKS = 21  # the first opset whose quantize ops have blocks


def for_quantize_ops(model: Model) -> Model:
    """The model, or one of a newer opset with the same quantizers if it has blocks or floats of 8 bits.

    Raises:
        ModelError: ONNX cannot convert the model.
        UsageError: a tensor has a grid for one of its readers only, which cannot be carried over.
    """
    if model.opset >= _BLOCKS or not any(map(_needs_newer, model.quant.quantizers())):
        return model
    try:
        newer = version_converter.convert_version(lower(model), _BLOCKS)
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        raise ModelError(
            f"blocks and floats of 8 bits need opset {_BLOCKS}, the model has {model.opset}, and ONNX cannot "
            f"convert it ({' '.join(str(error).split())}): convert it first"
        ) from error
    converted = qc.compile(newer, Pipeline([]), allow_unquantized=True).ir
    _carry_over(model, converted)
    return converted


def _needs_newer(quantizer: Quantizer) -> bool:
    format = quantizer.spec.format
    scaled = isinstance(format, FloatFormat) and format.scaled
    return scaled or isinstance(quantizer.spec.granularity, PerBlock)


def _carry_over(model: Model, converted: Model) -> None:
    values = tensors_by_name(converted.graph)
    made: dict[Quantizer, Quantizer] = {}
    for site in model.quant.sites():
        held, value = model.quant.get(site), values.get(site.value.name)
        if site.op is not None or value is None:
            raise UsageError(f"{site} cannot be carried over to opset {_BLOCKS}: convert the model first")
        assert held is not None and held.encoding is not None
        reason = f"as in opset {model.opset}"
        known = held in made
        made[held] = converted.quant.place(Site(value), made.get(held, held.spec), reason)
        if not known:
            converted.quant.calibrate(made[held], held.encoding, reason)
