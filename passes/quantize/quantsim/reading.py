"""Reads quantsim configurations: AIMET's JSON, the same in TOML, and those that come with qc."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from qc.ir.base.strict_json import load_json
from qc.ir.errors import UsageError, nearest

from ...framework.toml_source import parse_toml, read_text
from .config import QuantsimConfig

CONFIG_SUFFIXES = (".json", ".toml")  # of files; other names are those of configurations that come with qc

_WORDS = {"True": True, "False": False}


@dataclass(frozen=True)
class ConfigFile:
    """A configuration and where it stands.

    Attributes:
        name: how messages call the file.
    """

    config: QuantsimConfig
    name: str

    def key(self, *path: str) -> str:
        """How a remark names a key: ``htp_v73.toml, op_type.Softmax.encoding_constraints``."""
        return f"{self.name}, {'.'.join(path)}"


def config_names() -> list[str]:
    """The configurations that come with qc."""
    return sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if _is_toml(item))


def config_path(name: str) -> str:
    """The file of a configuration that comes with qc; raises UsageError if there is none."""
    _check_known(name)
    return str(_folder() / f"{name}.toml")


def load_config(name: str) -> ConfigFile:
    """A configuration that comes with qc, or one from a file.

    Args:
        name: a name from :func:`config_names`, or a path that ends in ``.json`` (as AIMET writes it) or
            ``.toml``.

    Raises:
        UsageError: there is none, it cannot be read, or it says what no configuration can.
    """
    if name.endswith(CONFIG_SUFFIXES):
        return parse_config(read_text(name, "configuration file"), name)
    _check_known(name)
    return parse_config((_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def parse_config(text: str, source: str) -> ConfigFile:
    """A configuration from the text of a file.

    Args:
        source: the name of the file; one that ends in ``.json`` holds JSON, any other one TOML.

    Raises:
        UsageError: one sentence with the file, the key and the reason.
    """
    content = (
        _with_booleans(load_json(text, f"'{source}'"), (), source)
        if source.endswith(".json")
        else parse_toml(text, f"'{source}'")
    )
    try:
        config = QuantsimConfig.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        # A misspelt key is unknown, and the right one is missing: the former says more.
        first = min(error.errors(), key=lambda problem: problem["type"] == "missing")
        raise UsageError(f"'{source}': {_sentence(first)}") from error
    return ConfigFile(config, Path(source).name)


def _with_booleans(content: object, path: tuple[str, ...], source: str) -> object:
    """The content with AIMET's strings "True" and "False" as booleans."""
    if isinstance(content, dict):
        return {key: _with_booleans(item, (*path, key), source) for key, item in content.items()}
    if isinstance(content, list):
        return [_with_booleans(item, (*path, str(index)), source) for index, item in enumerate(content)]
    if isinstance(content, bool):
        raise UsageError(f"""'{source}': '{_dotted(path)}' must be the text "{content}" in JSON, in quotes""")
    if isinstance(content, float) and content != content:
        raise UsageError(f"'{source}': '{_dotted(path)}' must be a finite number, not NaN")
    return _WORDS.get(content, content) if isinstance(content, str) else content


def _sentence(problem: ErrorDetails) -> str:
    path = [str(part) for part in problem["loc"]]
    place = f"'{_dotted(path)}'" if path else "the file"
    if problem["type"] == "missing":
        return f"{place} is missing"
    if problem["type"] == "extra_forbidden":
        known = _keys(path[:-1])
        return f"there is no key {place}{nearest(path[-1], known)}; known here: {', '.join(known)}"
    if problem["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"{place} must be a table, not {problem['input']!r}"
    if problem["type"] == "value_error":
        return f"{place}: {problem['msg'].removeprefix('Value error, ')}"
    said = problem["msg"]
    return f"{place}: {said[:1].lower()}{said[1:]}, not {problem['input']!r}"


def _check_known(name: str) -> None:
    known = config_names()
    if name not in known:
        raise UsageError(
            f"there is no configuration '{name}'{nearest(name, known)}; known: {', '.join(known)}, or a file "
            "that ends in .json or .toml"
        )


def _dotted(path: Iterable[str]) -> str:
    """A path of keys as one reads it: ``supergroups[0].op_list``."""
    text = ""
    for part in path:
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text


def _keys(path: list[str]) -> list[str]:
    """The keys that are allowed in the section at ``path``."""
    section: Any = QuantsimConfig
    for part in path:
        if isinstance(section, type) and issubclass(section, BaseModel):
            section = section.model_fields[part].annotation
        else:  # an entry of a list or a dictionary: what it holds is its last argument but for '...'
            section = [kind for kind in section.__args__ if kind is not ...][-1]
        if getattr(section, "__args__", None) and type(None) in section.__args__:
            section = section.__args__[0]
    return list(section.model_fields)


def _folder() -> Traversable:
    return resources.files(__package__ or "qc.passes.quantize.quantsim") / "configs"


def _is_toml(item: Traversable) -> bool:
    return item.name.endswith(".toml")
