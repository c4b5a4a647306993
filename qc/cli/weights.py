"""``qc weights MODEL.onnx [NAME]...``: quantized weights, shown or written to a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from qc.ir.errors import UsageError
from qc.ir.facts.weights import QuantizedWeight, Weights
from qc.report.table import Column, Table, text
from qc.report.terminal import Fact, facts_grid
from qc.report.words import count, file_size, printable
from qc.weights import check_suffix, read_weights, save_weights

from .files import FileType, InputFile, WordType, check_outputs, writing
from .output import standard_output

_SHOWN_CODES = 16


@click.command("weights", short_help="Show or write the quantized weights of a model.")
@click.argument("model", metavar="MODEL.onnx", type=WordType())
@click.argument("names", metavar="[NAME]...", nargs=-1, type=WordType())
@click.option(
    "--encodings", metavar="FILE", type=WordType(), help="Encodings file with the grids of a float model."
)
@click.option(
    "-o", "--output", metavar="FILE", type=FileType(), help="Write .npz or .safetensors, and show nothing."
)
@click.option("--packed", is_flag=True, help="In the file, pack codes of 2 and 4 bits into bytes.")
def weights_command(
    model: str, names: tuple[str, ...], encodings: str | None, output: Path | None, packed: bool
) -> None:
    """Lists the quantized weights of MODEL.onnx, or shows those that are named.

    MODEL.onnx is a QDQ model, whoever made it, or a float model with --encodings.
    """
    if output is None and packed:
        raise UsageError("--packed is about a file; add -o FILE.npz")
    if output is not None:
        check_suffix(output)
        read = [InputFile(Path(file), "an input") for file in (model, encodings) if file is not None]
        check_outputs([output], read)
    weights = read_weights(model, encodings)
    if not weights:
        raise UsageError(
            f"no weight of '{model}' is quantized; give a QDQ model, or the grids with --encodings FILE"
        )
    chosen = {name: weights[name] for name in names} or weights
    if output is not None:
        with writing(output):
            save_weights(chosen, output, packed)
    elif names:
        for weight in chosen.values():
            standard_output().show(facts_grid(_facts(weight)))
    else:
        standard_output().show(_table(weights))


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
