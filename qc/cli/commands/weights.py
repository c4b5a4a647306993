"""Show or write the quantized weights of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.facts.weights import QuantizedWeight, Weights
from qc.options import argument, option
from qc.rendering.table import Column, Table, text
from qc.rendering.terminal import Fact, facts_grid
from qc.rendering.words import count, file_size, printable
from qc.weights import check_suffix, read_weights, save_weights

from ..command import Command
from ..files import InputFile, check_outputs, writing
from ..output import standard_output

_SHOWN_CODES = 16


@dataclass(frozen=True, kw_only=True)
class WeightsCommand(Command):
    """Lists the quantized weights of MODEL.onnx, or shows those that are named.

    MODEL.onnx is a QDQ model, whoever made it, or a float model with --encodings.

    Examples:
        qc weights model.q.onnx
        qc weights model.q.onnx conv1.weight -o weights.npz --packed
    """

    model: str = argument("MODEL.onnx")
    names: tuple[str, ...] = argument("[NAME]...", ())
    encodings: str | None = option(None, "Encodings file with the grids of a float model.", metavar="FILE")
    output: Path | None = option(None, "Write .npz or .safetensors, and show nothing.", "-o", metavar="FILE")
    packed: bool = option(False, "In the file, pack codes of 2 and 4 bits into bytes.")

    def run(self) -> None:
        if self.output is None and self.packed:
            raise UsageError("--packed is about a file; add -o FILE.npz")
        if self.output is not None:
            check_suffix(self.output)
            read = [InputFile(Path(file), "an input") for file in (self.model, self.encodings) if file]
            check_outputs([self.output], read)
        weights = read_weights(self.model, self.encodings)
        if not weights:
            raise UsageError(
                f"no weight of '{self.model}' is quantized; give a QDQ model, or the grids with --encodings "
                "FILE"
            )
        chosen = {name: weights[name] for name in self.names} or weights
        if self.output is not None:
            with writing(self.output):
                save_weights(chosen, self.output, self.packed)
        elif self.names:
            for weight in chosen.values():
                standard_output().show(facts_grid(_facts(weight)))
        else:
            standard_output().show(_table(weights), wrap=False)


def _table(weights: Weights) -> Table:
    columns = (text("weight"), text("shape"), text("format"), text("scales"), Column("size", file_size))
    table = Table(columns)
    for weight in weights.values():
        size = weight.source.size * weight.encoding.spec.format.storage_bits // 8
        table.add(weight.name, str(list(weight.shape)), weight.format, _scales(weight), size)
    return table


def _scales(weight: QuantizedWeight) -> str:
    if weight.axis is None:
        return "1"
    along = f"along axis {weight.axis}"
    if weight.block_size is None:
        return f"{weight.scale.size} {along}"
    return f"{weight.scale.size} for blocks of {weight.block_size} {along}"


def _facts(weight: QuantizedWeight) -> Iterator[Fact]:
    codes, scale, zero_point = weight.qdata, weight.scale, weight.zero_point
    yield "weight", printable(f"'{weight.name}': {list(weight.shape)}, {weight.encoding.spec}")
    if codes.size:
        yield "codes", f"{codes.min()} to {codes.max()}, {count(int(np.unique(codes).size), 'value')} in use"
    yield "scale", f"{_scales(weight)}, {_span(scale)}"
    yield "zero point", _span(zero_point)
    yield "rounding", _error(weight)
    shown = " ".join(str(code) for code in codes.ravel()[:_SHOWN_CODES])
    yield "begins with", shown + (" ..." if codes.size > _SHOWN_CODES else "")


def _span(numbers: np.ndarray) -> str:
    if not numbers.size:
        return "none"
    low, high = numbers.min(), numbers.max()
    return f"{low:.9g}" if low == high else f"{low:.9g} to {high:.9g}"


def _error(weight: QuantizedWeight) -> str:
    """How far the codes are from the numbers of the model."""
    source = weight.source.numpy().astype(np.float64)
    error = np.abs(weight.dequantize() - source)
    if not error.any():
        return "none: the numbers of the model are on the grid"
    power = float(np.sum(np.square(source)) / np.sum(np.square(error)))
    return f"at most {error.max():.3g} off, {10 * np.log10(power):.1f} dB"
