"""The page: a self-contained HTML file that shows a model in a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from qc.diff.wiring import Wiring
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.rendering.html import page
from qc.rendering.words import count, printable

from .boxes import key_of, shortened
from .cards import Cards
from .modules import Module
from .overlays import Overlay
from .palette import format_class, region_classes
from .picture import Box, Picture
from .scenes import Crop, pictures_of
from .svg import Drawing, draw


def html_page(model: Model, title: str, crop: Crop | None = None, overlays: Sequence[Overlay] = ()) -> str:
    """An HTML page that shows all graphs of a model, with its regions and quantizers.

    Nothing is loaded from elsewhere. All names are escaped.

    Args:
        crop: the part to show; default: all of it.
        overlays: what ops can be coloured by; the first is at the beginning.

    Raises:
        UsageError: there are too many ops to be shown, or no tensor of the name in ``crop``.
    """
    wiring = Wiring(model)
    pictures = pictures_of(wiring, crop)
    regions = region_classes(region.name for region in model.regions)
    drawings = [draw(picture, regions) for picture in pictures]
    data = {
        "facts": list(_facts(pictures)),
        "formats": _formats(pictures),
        "regions": _regions(pictures, regions),
        "scenes": [_scene(*pair) for pair in zip(pictures, drawings, strict=True)],
        "overlays": [_overlay(one, pictures) for one in overlays],
        "cards": Cards(wiring, overlays).document(pictures),
    }
    return page("view/page.html", title=title, drawings=drawings, data=data)


def _scene(picture: Picture, drawing: Drawing) -> dict[str, Any]:
    return {
        "key": key_of(picture.subject),
        "parent": key_of(picture.parent) if picture.parent is not None else "",
        "label": _short_label(picture),
        **_owner(picture),
        "ops": sum(_op_count(box) for box in picture.boxes),
        "hidden": picture.hidden,
        "width": drawing.width,
        "height": drawing.height,
    }


def _overlay(overlay: Overlay, pictures: Sequence[Picture]) -> dict[str, Any]:
    subjects = dict.fromkeys(box.subject for picture in pictures for box in picture.boxes)
    drawn = [one for one in subjects if isinstance(one, Op | Module)]
    marks = {key_of(one): mark for one in drawn if (mark := overlay.mark(one)) is not None}
    told = {"name": overlay.name, "title": overlay.title, "ends": overlay.ends}
    return {**told, "is_relative": overlay.is_relative, "marks": marks}


def _op_count(box: Box) -> int:
    if isinstance(box.subject, Module):
        return sum(1 for _ in box.subject.ops)
    return int(isinstance(box.subject, Op))


def _short_label(picture: Picture) -> str:
    """Where a graph or module is within the next outer one."""
    if isinstance(picture.subject, Module):
        return printable(picture.label)
    parent = picture.graph.parent
    if parent is None:
        return printable(picture.label or "main graph")
    return printable(next(key for key, graph in parent.subgraphs.items() if graph is picture.graph))


def _owner(picture: Picture) -> dict[str, str]:
    """The op that holds a graph; nothing for a module and for what stands at the top."""
    op = picture.graph.parent
    if op is None or isinstance(picture.subject, Module):
        return {"owner": "", "owner_label": ""}
    name = f" '{shortened('/'.join(op.name.split('/')[-2:]))}'" if op.name else ""
    return {"owner": key_of(op), "owner_label": f"{op.op_type}{name}"}


def _facts(pictures: Sequence[Picture]) -> Iterator[list[str]]:
    boxes = [box for picture in pictures for box in picture.boxes if box.kind == "op"]
    yield ["ops", f"{len(boxes):,}"]
    hidden = sum(picture.hidden for picture in pictures)
    if hidden:
        yield ["not shown", count(hidden, "op")]
    with_floats = [box for box in boxes if box.quantized is not None]
    quantized = sum(bool(box.quantized) for box in with_floats)
    if quantized:
        yield ["quantized ops", f"{quantized:,} of {len(with_floats):,}"]


def _formats(pictures: Sequence[Picture]) -> list[tuple[str, str, int]]:
    """Class, name and number of tensors of every format, constants included."""
    seen: dict[tuple[object, str], None] = {}
    for picture in pictures:
        for line in picture.lines:
            seen.update(dict.fromkeys((line.value, end.format) for end in line.ends))
        for box in picture.boxes:
            seen.update(dict.fromkeys((row.target, row.format) for row in box.rows if row.format))
    counted = Counter(format for _, format in seen)
    return [
        (format_class(format), format or "not quantized", counted[format])
        for format in sorted(counted, key=lambda name: (not name, name))
    ]


def _regions(pictures: Sequence[Picture], classes: dict[str, str]) -> list[tuple[str, str, int]]:
    """Class, name and number of regions of every name that is drawn."""
    drawn = {box.region: None for picture in pictures for box in picture.boxes if box.region is not None}
    counted = Counter(region.name for region in drawn)
    return [(style, printable(name), counted[name]) for name, style in classes.items() if counted[name]]
