"""Pages that ``qc view`` makes, and models that are long enough for them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
from onnx import TensorProto, helper


class Page(HTMLParser):
    """A page as a browser takes it apart: the text of the data and the drawings, and all elements."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.text = Path(path).read_text(encoding="utf-8")
        self.elements: list[str] = []
        self.references: list[str] = []
        self._data = ""
        self._open = ""
        self.feed(self.text)
        self.data: dict[str, Any] = json.loads(self._data)
        self.drawings = [
            ElementTree.fromstring(svg) for svg in re.findall(r"<svg viewBox.*?</svg>", self.text, re.DOTALL)
        ]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        found = dict(attributes)
        self.references += [value for key, value in attributes if key in ("src", "href") and value]
        self._open = "data" if found.get("id") == "data" else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, text: str) -> None:
        if self._open:
            self._data += text

    def boxes(self, drawing: int = 0) -> list[list[str]]:
        """The lines of text in every box."""
        groups = (
            group for group in self.drawings[drawing].iter("g") if "box" in group.get("class", "").split()
        )
        return [[text.text or "" for text in group.iter("text")] for group in groups]

    def card(self, name: str, kind: str = "Tensor") -> dict[str, str]:
        """What is told about an op or a tensor, by the words in front."""
        (card,) = (one for one in self.data["cards"].values() if (one["name"], one["kind"]) == (name, kind))
        found: dict[str, str] = {}
        for label, parts in (*card["facts"], *card["history"]):
            text = "".join(text for text, _ in parts)
            found[label] = f"{found[label]}; {text}" if label in found else text
        return found


def chain(count: int, names: list[str] | None = None) -> onnx.ModelProto:
    """Neg after Neg."""
    nodes = [
        helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], name=names[i] if names else "")
        for i in range(count)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def branches() -> onnx.ModelProto:
    """An If, whose branches capture a tensor."""
    return onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x, bool c) => (float[2] y) {
            h = Exp(x)
            y = If (c) <
                then_branch = t () => (float[2] a) { a = Relu(h) },
                else_branch = e () => (float[2] b) { n = Neg(h) b = Abs(n) }
            >
        }"""
    )
