"""What all pages for the browser have in common: their frame, and their colours, light and dark."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template

from qc.report import printable


def html_document(title: str, style: str, body: str) -> str:
    """A self-contained page.

    Args:
        title: plain text.
        style: CSS, which may use the colours of ``theme.css``.
        body: HTML.
    """
    return Template(_resource("document.html")).substitute(
        title=escape(printable(title)), style=_resource("theme.css") + style, body=body.rstrip()
    )


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
