"""Writes quantsim configurations as TOML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .config import QuantsimConfig


def config_toml(config: QuantsimConfig) -> str:
    """The configuration as TOML, which reads as the same configuration.

    Op types and parameters are one line each; supergroups are one line for each chain of ops.
    """
    return "\n".join(_lines(config.plain())).strip() + "\n"


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    content = dict(content)
    if "supergroup_pass_list" in content:
        yield f"supergroup_pass_list = {_text(content.pop('supergroup_pass_list'))}"
    if "supergroups" in content:
        yield "supergroups = ["
        yield from (f"  {_text(group)}," for group in content.pop("supergroups"))
        yield "]"
    for section, entries in content.items():
        yield f"\n[{section}]"
        yield from (f"{_key(key)} = {_text(entry)}" for key, entry in entries.items())


def _text(item: object) -> str:
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, Mapping):
        inside = ", ".join(f"{_key(key)} = {_text(value)}" for key, value in item.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(item, list | tuple):
        return f"[{', '.join(map(_text, item))}]"
    return _quoted(item) if isinstance(item, str) else repr(item)


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else _quoted(key)


def _quoted(text: str) -> str:
    """A basic string of TOML: that of JSON, but with the one control character escaped that JSON allows."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
