"""Extras: groups of packages that only some of what qc can do needs."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """How to install one: of a package index, and of a clone."""
    return f"pip install 'qc-onnx[{extra}]', or '.[{extra}]' in a clone of qc"
