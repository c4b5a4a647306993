"""Source text for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from qc.diff.wiring import Wiring
from qc.ir.graph import Region
from qc.ir.model import Model
from qc.rendering.words import printable

from .palette import format_class
from .picture import Box, Line, Picture
from .scenes import Crop, pictures_of
from .words import short_shape

# Graphviz has no style sheet; colours that can be told apart on white.
_COLOURS = {
    "float": "#98a2b3",
    "bits-8u": "#1f77d0",
    "bits-8": "#0f9d7a",
    "bits-4": "#d9730d",
    "bits-16": "#8a4fd6",
    "bits-32": "#a3741c",
    "small-float": "#d33d84",
}
_SHAPES = {
    "op": "shape=box style=rounded",
    "input": "shape=oval style=bold",
    "output": "shape=oval style=bold",
    "reference": "shape=oval style=dashed",
}


def dot_source(model: Model, title: str, crop: Crop | None = None) -> str:
    """A Graphviz digraph of all graphs of a model, with regions and subgraphs as clusters.

    Args:
        crop: the part to show; default: all of it.

    Raises:
        UsageError: no tensor of the name in ``crop``.
    """
    lines = [f"digraph {_quoted(title)} {{", "  node [fontname=monospace fontsize=10];"]
    pictures = pictures_of(Wiring(model), crop, is_page=False)
    for number, picture in enumerate(pictures):
        body = _body(picture, f"g{number}_")
        lines += _cluster(f"graph_{number}", picture.label, body) if picture.label else body
    return "\n".join([*lines, "}"]) + "\n"


def _body(picture: Picture, prefix: str) -> list[str]:
    names = {box: f"{prefix}{number}" for number, box in enumerate(picture.boxes)}
    regions: dict[Region | None, list[str]] = {None: []}
    for box, name in names.items():
        regions.setdefault(box.region, []).append(f"  {name} [label={_label(box)} {_SHAPES[box.kind]}];")
    found = regions.pop(None)
    for number, (region, nodes) in enumerate(regions.items()):
        found += _cluster(f"{prefix}region_{number}", region.name if region is not None else "", nodes)
    return [*found, *(edge for line in picture.lines for edge in _edges(line, names))]


def _cluster(name: str, label: str, body: list[str]) -> list[str]:
    inside = [f"  {line}" for line in body]
    return [f"  subgraph cluster_{name} {{", f"    label={_quoted(label)};", *inside, "  }"]


def _label(box: Box) -> str:
    rows = [f"{row.text} {row.format}".strip() for row in box.rows]
    return _quoted(*filter(None, (box.title, box.name, *rows)))


def _edges(line: Line, names: dict[Box, str]) -> Iterator[str]:
    for end in line.ends:
        told = " ".join(filter(None, (end.format, short_shape(line.value.type.shape))))
        colour = _COLOURS[format_class(end.format)]
        look = f'color="{colour}" fontcolor="{colour}" tooltip={_quoted(line.value.name)}'
        yield f"  {names[line.source]} -> {names[end.box]} [label={_quoted(told)} {look}];"


def _quoted(*lines: str) -> str:
    """Text between quotes, one line below the other."""
    escaped = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
