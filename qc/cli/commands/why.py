"""Tell why a tensor is quantized as it is, or stays float."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.text import Text

from qc.ir.errors import listed
from qc.ir.graph import Value
from qc.ir.journal import Remark
from qc.ir.quant.spec import Encoding, Quantizer
from qc.options import argument
from qc.rendering.terminal import Fact, facts_grid
from qc.rendering.words import printable
from qc.why import Story, story_of

from ..command import Command
from ..jobs import start
from ..options import Job
from ..output import standard_output

_READERS = 6


@dataclass(frozen=True, kw_only=True)
class Why(Command):
    """Tells everything that was done and decided about TENSOR of MODEL.onnx, and why.

    An op stands for its first result.

    Without data the passes that need it are left out, and quantizers have no numbers.

    Examples:
        qc why model.onnx conv1 --data calibration.npz
    """

    if_quantized = (
        "'qc why FLOAT.onnx TENSOR' is for the float model that it was made of, and 'qc view MODEL.onnx' "
        "shows the grids that it has"
    )

    job: Job
    tensor: str = argument("TENSOR")

    def run(self) -> None:
        compiled = start(self.job, role="the calibration data").decide()
        standard_output().show(facts_grid(_facts(story_of(compiled.ir, self.tensor))))


def _facts(story: Story) -> Iterator[Fact]:
    if story.removed_by is not None:
        yield "tensor", printable(f"'{story.tensor}', which is not in the compiled model any more")
        yield "removed", printable(f"by {story.removed_by.title}")
        if story.successor is not None:
            yield "replaced", printable(f"by '{story.successor.name}'")
    for value in story.values:
        yield "tensor", printable(f"'{value.name}': {value.type}, {_place(value)}")
        region = _region(value)
        if region is not None:
            yield "region", printable(region)
    for site, quantizer in story.sites:
        where = "for all readers" if site.op is None else f"into {site.op.label}"
        yield "quantizer", printable(f"{quantizer.name} {where}: {_quantizer(quantizer)}")
    if story.tied:
        yield "tied to", printable(", ".join(str(site) for site in story.tied))
    for reason in story.why_not:
        yield "float", printable(reason)
    if story.remarks:
        yield "history", Group(*(_remark(remark) for remark in story.remarks))


def _place(value: Value) -> str:
    producer = value.producer
    if producer is not None:
        made = f"made by {producer.label}"
    else:
        made = "a constant" if value.const is not None else "an input"
    readers = [use.op.label for use in value.uses]
    read = f"read by {listed(readers, _READERS)}" if readers else "read by no op"
    return f"{made}, {read}" + (", a graph output" if value.is_output else "")


def _region(value: Value) -> str | None:
    producer = value.producer
    region = producer.region if producer is not None else None
    if region is None:
        return None
    return f"{'inside' if region.is_inner(value) else 'the result of'} {region}"


def _quantizer(quantizer: Quantizer) -> str:
    if quantizer.encoding is None:
        return f"{quantizer.spec}, not calibrated"
    return f"{quantizer.spec}, {_numbers(quantizer.encoding)}"


def _numbers(encoding: Encoding) -> str:
    low, high = float(np.min(encoding.minimum)), float(np.max(encoding.maximum))
    if encoding.scale.ndim == 0:
        grid = f"scale {float(encoding.scale):.6g}, zero point {int(encoding.zero_point)}"
    else:
        smallest, largest = float(encoding.scale.min()), float(encoding.scale.max())
        grid = f"{encoding.scale.size} scales from {smallest:.6g} to {largest:.6g}"
    return f"{grid}, range {low:.6g} to {high:.6g}"


def _remark(remark: Remark) -> Text:
    number = f"{remark.number} " if remark.number else ""
    text = Text(printable(f"{number}{remark.pass_name}: {remark.kind} {remark.subject}: {remark.reason}"))
    if remark.asked_by:
        text.append(printable(f"\n  asked by {remark.asked_by}"), "dim")
    if remark.suggestion:
        text.append(printable(f"\n  {remark.suggestion}"), "dim")
    return text
