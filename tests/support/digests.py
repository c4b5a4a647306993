"""Digests of everything that qc makes of many models, to compare what two processes make of them."""

from __future__ import annotations

import hashlib

from qc.ir.errors import QcError
from qc.ir.onnx.lower import lower, serialize
from qc.ir.text import print_model
from qc.passes import Stage, registry

from .corpus import Sample, exported_samples, operator_samples, own_samples
from .folders import GOLDEN
from .golden import GoldenFile
from .pipelines import QUANTIZE
from .properties import artifacts, run

LOWERING = ",".join(cls.name for cls in registry() if cls.stage is Stage.LOWER)


def print_digests() -> None:
    """One line for each golden file, and for each of a good hundred models of the corpus."""
    for path in sorted(GOLDEN.glob("*/*.golden")):
        print(path.name, _digest(repr(GoldenFile.read(path).results()).encode()))
    for sample in own_samples() + exported_samples()[::4] + operator_samples()[::16]:
        print(sample.name, *_digests(sample))


def _digests(sample: Sample) -> list[str]:
    """Of the text, the bytes, the remarks, the notes and the artifacts; or the error."""
    try:
        ir, context, _ = run(f"{QUANTIZE},{LOWERING}", sample.model, sample.feed)
    except QcError as error:
        return [str(error)]
    remarks = "\n".join(map(str, [*ir.journal.remarks, *context.notes]))
    made = [print_model(ir).encode(), serialize(lower(ir)), remarks.encode(), *artifacts(context).values()]
    return [_digest(data) for data in made]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
