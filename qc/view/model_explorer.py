"""A model as a graph collection in JSON, which Model Explorer opens.

The form is that of its builder of graphs: a namespace nests nodes in layers that fold, an edge stands at the
node that it leads to, and a node names the graphs that it holds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from qc.diff.wiring import Wiring
from qc.ir.graph import Graph, Op
from qc.ir.model import Model
from qc.rendering.words import printable

from .boxes import key_of
from .modules import scopes_of
from .picture import Box, Line, Picture
from .scenes import Crop, pictures_of
from .words import element_type, shape_text


def graph_collection(model: Model, title: str, crop: Crop | None = None) -> str:
    """All graphs of a model as JSON, with number formats, regions and the scopes in names.

    Args:
        crop: the part to show; default: all of it.

    Raises:
        UsageError: no tensor of the name in ``crop``.
    """
    wiring = Wiring(model)
    pictures = pictures_of(wiring, crop, is_page=False)
    labels = Counter(picture.label for picture in pictures)
    names = {
        picture.graph: printable(picture.label or "main")
        + (f" ({key_of(picture.graph)})" if labels[picture.label] > 1 else "")
        for picture in pictures
    }
    graphs = [{"id": names[picture.graph], "nodes": list(_nodes(picture, names))} for picture in pictures]
    text = json.dumps({"label": printable(title), "graphs": graphs}, ensure_ascii=False, indent=1)
    return f"{text}\n"


def _nodes(picture: Picture, graphs: Mapping[Graph, str]) -> Iterator[dict[str, Any]]:
    names = {box: _name(box, number) for number, box in enumerate(picture.boxes)}
    edges: dict[Box, list[dict[str, str]]] = {}
    made: dict[Box, list[Line]] = {}
    for line in picture.lines:
        made.setdefault(line.source, []).append(line)
        for end in line.ends:
            found = edges.setdefault(end.box, [])
            source = {"sourceNodeId": names[line.source], "sourceNodeOutputId": key_of(line.value)}
            found.append({**source, "targetNodeInputId": str(len(found))})
    for box, name in names.items():
        yield {
            "id": name,
            "label": printable(box.title),
            "namespace": _namespace(box),
            "subgraphIds": [graphs[graph] for graph in _graphs_in(box) if graph in graphs],
            "attrs": [{"key": key, "value": printable(value)} for key, value in _attributes(box)],
            "incomingEdges": edges.get(box, []),
            "outputsMetadata": [_output(line) for line in made.get(box, [])],
        }


def _name(box: Box, number: int) -> str:
    """Several references may stand for one tensor, and an input may be an output."""
    return key_of(box.subject) if box.kind == "op" else f"{box.kind}-{number}"


def _namespace(box: Box) -> str:
    return "/".join(map(printable, scopes_of(box.subject))) if isinstance(box.subject, Op) else ""


def _graphs_in(box: Box) -> Iterator[Graph]:
    yield from (row.target for row in box.rows if isinstance(row.target, Graph))


def _attributes(box: Box) -> Iterator[tuple[str, str]]:
    if box.name:
        yield "name", box.name
    if box.region is not None:
        yield "region", str(box.region)
    if box.quantized is not None:
        yield "reads", "quantized numbers only" if box.quantized else "float numbers"
    for row in box.rows:
        name, _, value = row.text.partition(" ")
        yield name, f"{value} {row.format}".strip()


def _output(line: Line) -> dict[str, Any]:
    """A tensor: its name, type, shape and number format."""
    value = line.value
    told = {
        "tensor": value.name,
        "type": element_type(value.type.elem_type),
        "tensor_shape": shape_text(value.type.shape),
        "format": line.format,
    }
    attributes = [{"key": key, "value": printable(text)} for key, text in told.items() if text]
    return {"id": key_of(value), "attrs": attributes}
