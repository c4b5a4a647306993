"""Lowers to an encodings file: the grids beside the float model, in the AIMET format 1.0.0."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from qc.ir.formats import IntFormat
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.op_traits import weight_port
from qc.ir.quant import Encoding, PerBlock, PerChannel, Quantizer
from qc.ir.quant_table import Site

from ..base import Pass, Stage
from ..context import Artifact, PassContext
from .rewire import numbers


@dataclass(frozen=True)
class ToEncodings(Pass):
    """Makes an encodings file in the AIMET format 1.0.0, to go with the float model.

    Offsets follow the unsigned convention of that format: the code of real zero counted from the lowest code
    of the type, negated. The format has one entry per tensor: of a tensor whose readers hold different grids
    the first is written, with a note. 8-bit floats are not part of the format and are left out, with a note.
    """

    name = "to-encodings"
    stage = Stage.LOWER

    def run(self, model: Model, context: PassContext) -> None:
        activations, parameters = [], []
        for value, (site, quantizer) in _by_tensor(model, context).items():
            entry = _entry(value, site, numbers(quantizer, value))
            if entry is None:
                context.notes.append(
                    f"'{value.name}' has a format that encodings 1.0.0 does not know; left out"
                )
            elif value.const is not None:
                parameters.append(entry)
            else:
                activations.append(entry)
        document = {
            "version": "1.0.0",
            "producer": {"package": "qc-onnx", "version": version("qc-onnx")},
            "activation_encodings": activations,
            "param_encodings": parameters,
            "quantizer_args": _arguments(model),
        }
        text = json.dumps(document, indent=4, sort_keys=True) + "\n"
        context.add_artifact("encodings", Artifact("encodings", text, ".encodings"))


def _by_tensor(model: Model, context: PassContext) -> dict[Value, tuple[Site, Quantizer]]:
    """One site and quantizer for each tensor; derived biases are left out, the reader computes them."""
    found: dict[Value, tuple[Site, Quantizer]] = {}
    for site in model.quant.sites():
        quantizer = model.quant.get(site)
        if quantizer is None or quantizer.spec.derived:
            continue
        known = found.setdefault(site.value, (site, quantizer))
        if known[1] is not quantizer:
            context.notes.append(
                f"'{site.value.name}' has several grids; the encodings file holds that of {known[0]}"
            )
    return found


def _entry(value: Value, site: Site, encoding: Encoding) -> dict[str, object] | None:
    format, granularity = encoding.spec.format, encoding.spec.granularity
    if not isinstance(format, IntFormat):
        if format.scaled:
            return None
        return {"name": value.name, "enc_type": "PER_TENSOR", "dtype": "FLOAT", "bw": format.bits}
    scale, offset = encoding.scale, format.lowest - encoding.zero_point.astype(np.float64)
    entry: dict[str, object] = {
        "name": value.name,
        "dtype": "INT",
        "bw": format.bits,
        "is_sym": encoding.spec.symmetric,
    }
    entry["enc_type"] = "PER_TENSOR"
    if isinstance(granularity, PerChannel):
        entry["enc_type"] = "PER_CHANNEL"
    elif isinstance(granularity, PerBlock):
        entry |= {"enc_type": "PER_BLOCK", "block_size": granularity.size}
        if _is_output_last(site.op):
            scale, offset = scale.T, offset.T
    entry["scale"] = [float(number) for number in np.ravel(scale)]
    entry["offset"] = [float(number) for number in np.ravel(offset)]
    return entry


def _is_output_last(op: Op | None) -> bool:
    """Whether the weight stores output channels last; the format lists blocks output channel by channel."""
    return (
        op is not None
        and weight_port(op) is not None
        and (op.is_type("MatMul") or (op.is_type("Gemm") and not op.attribute("transB", 0)))
    )


def _arguments(model: Model) -> dict[str, object]:
    specs = [quantizer.spec for quantizer in model.quant.quantizers() if not quantizer.spec.derived]
    weights = [
        quantizer.spec
        for quantizer in model.quant.quantizers()
        if not quantizer.spec.derived
        and all(site.value.const is not None for site in model.quant.sites_of(quantizer))
    ]
    activations = [spec for spec in specs if spec not in weights] or specs
    integer = all(isinstance(spec.format, IntFormat) for spec in specs)
    return {
        "quant_scheme": "min_max",
        "param_bitwidth": (weights or specs)[0].format.bits if specs else 8,
        "activation_bitwidth": activations[0].format.bits if specs else 8,
        "dtype": "int" if integer else "float",
        "is_symmetric": all(spec.symmetric for spec in weights),
        "per_channel_quantization": any(isinstance(spec.granularity, PerChannel) for spec in weights),
    }
