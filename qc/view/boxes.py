"""The boxes of a picture: how large they are and how they are drawn. Sizes are in pixels."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.rendering.words import printable

from . import layout
from .modules import Module
from .palette import format_class
from .picture import Box, Row

PADDING = 10.0
TITLE, NAME, ROW = 17.0, 16.0, 16.0  # heights of lines of text
_PILL, _REFERENCE = 26.0, 20.0
_PILLS = ("input", "output", "reference")
_LONGEST = 32  # characters of a name

# Widths of characters as part of the font's size: of a sans-serif font, by group, and of a monospaced one.
_NARROW, _WIDE = frozenset("iljtfrI.,:;|!'()[]/ "), frozenset("mwMW@%")
_MONOSPACED = 0.605
_TITLE_SIZE, _SMALL_SIZE = 13.5, 12.0
_STATE = 8.0  # beside the mark of an op that reads floats or quantized numbers


def key_of(subject: Op | Module | Value | Graph) -> str:
    """What identifies an op, a module, a tensor or a graph within the page."""
    if isinstance(subject, Module):
        return f"module-{subject.key}"
    if isinstance(subject, Graph):
        parent = subject.parent
        model = subject.model
        assert isinstance(model, Model)
        siblings = model.functions if parent is None else parent.subgraphs
        number = next((i for i, one in enumerate(siblings.values(), start=1) if one is subject), 0)
        return f"graph-{parent.id if parent is not None else 0}-{number}"
    return f"{'op' if isinstance(subject, Op) else 'tensor'}-{subject.id}"


def size_of(box: Box, lines: int) -> layout.Box:
    """How large a box is with its text, and with room for the lines that leave it."""
    if box.kind in _PILLS:
        height = _REFERENCE if box.kind == "reference" else _PILL
        return layout.Box(_small_width(shortened(box.title)) + 2 * PADDING + 6, height)
    widths = [_title_width(shortened(box.title)), _small_width(shortened(box.name))]
    widths += [_small_width(_row_text(row)) for row in box.rows]
    height = TITLE + bool(box.name) * NAME + len(box.rows) * ROW + 2 * PADDING - 4
    ports = (lines - 1) * layout.OUT_GAP / 0.7
    return layout.Box(max(64.0, ports, max(widths) + 2 * (PADDING + _STATE)), height)


def shortened(name: str) -> str:
    """The end of a long name, where names of one model differ, with its control characters escaped.

    It begins with a whole part of the name, if there is a short one.
    """
    text = printable(name)
    if len(text) <= _LONGEST:
        return text
    end = text[1 - _LONGEST :]
    slash = end.find("/")
    return f"…{end[slash:] if 0 <= slash < _LONGEST // 2 else end}"


def draw_box(parent: Element, box: Box, size: layout.Box, centre: tuple[float, float]) -> None:
    """Draws a box around its centre."""
    left, top = centre[0] - size.width / 2, centre[1] - size.height / 2
    group = SubElement(
        parent,
        "g",
        {
            "class": f"box {box.kind}{_state(box)}",
            "data-card": key_of(box.subject),
            "transform": f"translate({pixels(left)},{pixels(top)})",
        },
    )
    SubElement(group, "title").text = printable(box.name or box.title)
    radius = size.height / 2 if box.kind in _PILLS else 7.0
    SubElement(group, "rect", _rectangle(0, 0, size.width, size.height, radius, "body"))
    if box.kind in _PILLS:
        _text(group, "name", size.width / 2, size.height / 2 + 4, shortened(box.title))
        return
    if box.quantized is not None:
        SubElement(group, "rect", _rectangle(3.5, 7, 3, size.height - 14, 1.5, "state"))
    _draw_text(group, box, size)


def _draw_text(group: Element, box: Box, size: layout.Box) -> None:
    middle, y = size.width / 2, PADDING + TITLE - 7
    _text(group, "title", middle, y, shortened(box.title))
    if box.name:
        y += NAME
        _text(group, "name", middle, y, shortened(box.name))
    for row in box.rows:
        y += ROW
        style = "opens" if isinstance(row.target, Graph) else format_class(row.format)
        text = _text(group, f"row {style}", middle, y, _row_text(row))
        if row.target is not None:
            text.set("data-card", key_of(row.target))


def _state(box: Box) -> str:
    opens = " opens" if any(isinstance(row.target, Graph) for row in box.rows) else ""
    if box.quantized is None:
        return opens
    return f"{opens} quantized" if box.quantized else f"{opens} floating"


def _row_text(row: Row) -> str:
    return shortened(f"{row.text} {row.format}".strip())


def _text(parent: Element, style: str, x: float, y: float, content: str) -> Element:
    text = SubElement(parent, "text", {"class": style, "x": pixels(x), "y": pixels(y)})
    text.text = content
    return text


def _rectangle(x: float, y: float, width: float, height: float, radius: float, style: str) -> dict[str, str]:
    numbers = {"x": x, "y": y, "width": width, "height": height, "rx": radius}
    return {"class": style, **{name: pixels(number) for name, number in numbers.items()}}


def pixels(number: float) -> str:
    """A length or a coordinate, to the tenth of a pixel."""
    return f"{number:.1f}".removesuffix(".0")


def _title_width(text: str) -> float:
    widths = (
        0.34 if c in _NARROW else 0.9 if c in _WIDE else 0.7 if c.isupper() or c.isdigit() else 0.64
        for c in text
    )
    return sum(widths) * _TITLE_SIZE


def _small_width(text: str) -> float:
    return len(text) * _MONOSPACED * _SMALL_SIZE
