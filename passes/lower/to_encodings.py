"""Lowers to an encodings file: the grids beside the float model, in AIMET's formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from onnx import ModelProto

from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import rounded
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Quantizer
from qc.ir.rewriter import Rewriter

from ..encodings import Document, TensorRecord, by_layer, check_axes, dump_encodings
from ..encodings.from_model import records_of
from ..framework.base import Pass, Stage, option
from ..framework.context import Artifact, PassContext
from .rounding.activation_codes import ActivationCodes, code_activations
from .rounding.moved import place_moved


@dataclass(frozen=True)
class ToEncodings(Pass):
    """Makes an encodings file in one of AIMET's formats, to go with the float model.

    A file has one entry for each tensor: of a tensor whose readers hold different grids the first is written.
    2.0.0 and 2.1.0 have no 16-bit floats: such tensors are left out. Both kinds of omission leave a note.
    0.6.1 and 1.0.0 have no 8-bit floats, which is an error. Two kinds of tensors are part of 2.0.0 and 2.1.0
    only: biases, which readers of the others derive from the scales of input and weight, and what only holds
    numbers of other tensors, such as the result of a Reshape, which has their grid. A file by layers, written
    as ``_torch.encodings``, leaves out tensors inside of layers, with a note.

    A file has no codes. If an algorithm chose some, the float model with the weights that they stand for is
    made as well, ``.rounded.onnx``: it is what the file goes with.
    """

    name = "to-encodings"
    stage = Stage.LOWER
    makes = "encodings"

    version: Literal["0.6.1", "1.0.0", "2.0.0", "2.1.0"] = option("1.0.0", "version of the file format")
    layout: Literal["tensors", "layers"] = option(
        "tensors", "list tensors, or the layers that the exporter named ops after (0.6.1 and 1.0.0)"
    )
    moved: bool = option(True, "list what only holds numbers of other tensors, in 2.0.0 and 2.1.0")
    activations: ActivationCodes = option(
        "unsigned", "codes of activations in 2.0.0 and 2.1.0: the others say only what is symmetric"
    )

    def run(self, model: Model, context: PassContext) -> None:
        with model.transaction.trial():
            if self.version.startswith("2"):
                if self.moved:
                    place_moved(model)
                code_activations(model, self.activations)
            self._write(model, context)

    def _write(self, model: Model, context: PassContext) -> None:
        has_biases = self.version.startswith("2")
        records = records_of(model, context.notes.append, has_biases)
        kept = [record for record in records if self._can_say(record, context.notes.append)]
        document = Document(self.version, kept, "the model", _arguments(records, model.quant.scheme))
        if not has_biases:
            check_axes(document, model, "use 2.0.0, by --opt to-encodings.version=2.0.0")
        if self.layout == "layers":
            document, unnamed = by_layer(document, model)
            context.notes += [f"'{name}' lies inside a layer; left out" for name in unnamed]
        suffix = ".encodings" if self.layout == "tensors" else "_torch.encodings"
        context.add_artifact(self.makes, Artifact("encodings", dump_encodings(document), suffix))
        chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
        if chosen:
            context.add_artifact("rounded", Artifact("onnx", _rounded(model, chosen), ".rounded.onnx"))

    def _can_say(self, record: TensorRecord, note: Callable[[str], object]) -> bool:
        if record.has_scale or not self.version.startswith("2"):
            return True
        note(f"'{record.name}' is {record.format}, which encodings files {self.version} lack; left out")
        return False


def _rounded(model: Model, quantizers: list[Quantizer]) -> ModelProto:
    """The float model with the numbers that chosen codes stand for, which are nearest to these codes."""
    rewriter = Rewriter(model)
    with rewriter.trial():
        for quantizer in quantizers:
            value = model.quant.sites_of(quantizer)[0].value.original
            assert value.const is not None
            rewriter.set_constant(value, rounded(value.const.numpy(), quantizer))
        return lower(model)


def _arguments(records: list[TensorRecord], scheme: str) -> dict[str, object]:
    """What the older versions say about the whole model; widths are taken from the first of each kind."""
    weights = [record for record in records if record.is_parameter and record.format.bits < 32]
    activations = [record for record in records if not record.is_parameter]
    return {
        **({"quant_scheme": scheme} if scheme else {}),
        "param_bitwidth": (weights or records)[0].format.bits if records else 8,
        "activation_bitwidth": (activations or records)[0].format.bits if records else 8,
        "dtype": "int" if all(isinstance(record.format, IntFormat) for record in records) else "float",
        "is_symmetric": all(record.symmetric for record in weights),
        "per_channel_quantization": any(record.granularity == "channel" for record in weights),
    }
