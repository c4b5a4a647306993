"""Golden files: a pipeline, a model, and everything that running the one on the other must give.

A file is made of sections that begin with ``--- name``. The first two are written by hand, the others by
``pytest --update-golden``::

    --- run
    pipeline: insert-quantizers, calibrate
    target: npu
    data: 3
    --- model
    g (float[1, 4] x) => (float[1, 2] y) <float[4, 2] w> {
        y = MatMul(x, w)
    }
    --- ir
    ...

``target`` is ``ort-cpu`` if left out; ``data`` is the number of random feeds to calibrate on, none if left
out. The model is in ONNX's text syntax; see :func:`support.models.parse` for its weights.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from onnx import ModelProto

from qc.ir import lift
from qc.ir.errors import QcError
from qc.ir.text import print_model
from qc.passes import Pipeline, parse_pipeline

from .folders import ROOT
from .models import parse, random_feeds
from .pipelines import apply

WRITTEN = ("run", "model")
_LINE = re.compile(r"(?<=\.toml), line \d+")  # would change with every edit of a target


@dataclass(frozen=True)
class GoldenFile:
    """One file: what to run, and what is expected, by section."""

    path: Path
    run: dict[str, str]
    model: str
    expected: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> GoldenFile:
        """Raises ValueError if a section or a setting is missing or unknown."""
        sections = dict(_sections(path.read_text(encoding="utf-8")))
        if not set(WRITTEN) <= set(sections):
            raise ValueError(f"{path.name} needs the sections {' and '.join(WRITTEN)}")
        pairs = (line.partition(":") for line in sections.pop("run").splitlines() if line.strip())
        run = {key.strip(): value.strip() for key, _, value in pairs}
        unknown = set(run) - {"pipeline", "target", "data"}
        if unknown or "pipeline" not in run:
            raise ValueError(f"{path.name} has no pipeline, or settings nobody knows: {sorted(unknown)}")
        return cls(path, run, sections.pop("model"), sections)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that runs."""
        return parse_pipeline(self.run["pipeline"])

    def results(self) -> dict[str, str]:
        """What running the pipeline gives: all sections but those written by hand."""
        return dict(_results(self))

    def write(self, results: dict[str, str]) -> None:
        """Replaces the expected sections."""
        run = "".join(f"{key}: {value}\n" for key, value in self.run.items())
        sections = {"run": run, "model": self.model, **results}
        text = "".join(f"--- {name}\n{body.rstrip()}\n" for name, body in sections.items())
        self.path.write_text(text, encoding="utf-8")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for part in f"\n{text}".split("\n--- ")[1:]:
        name, _, body = part.partition("\n")
        yield name.strip(), f"{body.rstrip()}\n"


def _results(file: GoldenFile) -> Iterator[tuple[str, str]]:
    model = parse(file.model)
    count = int(file.run.get("data", "0"))
    feeds = random_feeds(model, count) if count else None
    try:
        with contextlib.chdir(ROOT):
            ir, context, _ = apply(file.run["pipeline"], model, file.run.get("target", "ort-cpu"), feeds)
    except QcError as error:
        yield "error", f"{type(error).__name__}: {error}\n"
        return
    yield "ir", print_model(ir)
    yield from _listed("remarks", (_LINE.sub("", str(remark)) for remark in ir.journal.remarks))
    yield from _listed("notes", context.notes)
    for name, artifact in context.artifacts.items():
        if isinstance(artifact.payload, ModelProto):
            yield f"artifact {name}", print_model(lift(artifact.payload))
        else:
            yield f"artifact {name}", str(artifact.payload).replace(version("qc-onnx"), "<version>")


def _listed(name: str, items: object) -> Iterator[tuple[str, str]]:
    lines = [str(item) for item in items]  # type: ignore[attr-defined]
    if lines:
        yield name, "".join(f"{line}\n" for line in lines)
