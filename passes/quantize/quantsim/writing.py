"""Writes quantsim configurations as TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...framework.toml_source import toml_key, toml_value
from .config import QuantsimConfig


def config_toml(config: QuantsimConfig) -> str:
    """The configuration as TOML, which reads as the same configuration.

    Op types and parameters are one line each; supergroups are one line for each chain of ops.
    """
    return "\n".join(_lines(config.plain())).strip() + "\n"


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    content = dict(content)
    if "supergroup_pass_list" in content:
        yield f"supergroup_pass_list = {toml_value(content.pop('supergroup_pass_list'))}"
    if "supergroups" in content:
        yield "supergroups = ["
        yield from (f"  {toml_value(group)}," for group in content.pop("supergroups"))
        yield "]"
    for section, entries in content.items():
        yield f"\n[{section}]"
        yield from (f"{toml_key(key)} = {toml_value(entry)}" for key, entry in entries.items())
