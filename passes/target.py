"""Targets: data files that say what a device runs in integers, in which formats, and what shares a grid."""

from __future__ import annotations

import functools
import tomllib
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from qc.ir.errors import UsageError, nearest
from qc.ir.formats import parse_format
from qc.ir.plugins import plugins
from qc.ir.quant import QuantSpec
from qc.ir.scopes import CONTROL_FLOW
from qc.patterns import Supergroup, chain, is_block, supergroup_names, supergroups
from qc.patterns.attributes import known_attributes, nearest_op_type

from .toml_source import TomlSource

Runs = Literal["integer", "between", "carry", "float"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FormatRule(_Strict):
    """The number format of one kind of tensor."""

    dtype: str
    symmetric: bool = False
    narrow: bool = False

    @field_validator("dtype")
    @classmethod
    def _is_known(cls, dtype: str) -> str:
        try:
            parse_format(dtype)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return dtype

    def spec(self) -> QuantSpec:
        """The per-tensor spec of this rule."""
        return QuantSpec(parse_format(self.dtype), self.symmetric, self.narrow)


class OpRule(_Strict):
    """How the target runs an op or a region.

    If, Loop and Scan compute nothing themselves: for them ``carry`` lets their bodies run as the main graph
    does, and ``float`` keeps all that is inside in float.

    Attributes:
        runs: ``integer`` whenever its weight or inputs allow; ``between`` only between integer producers and
            integer readers (where it saves conversions); ``carry``: moves data, so it runs in whatever grid
            its input has; ``float``: never in integers.
        output: whether the result is quantized ``always``, or only ``when-read`` by integer readers alone.
        output_range: a fixed range for the result, for functions whose range is known.
        share_grid: all data inputs and the output must have one grid.
        per_channel: the weight has one scale per output channel.
        why: the reason shown for a tensor that stays float because of this rule.
    """

    runs: Runs = "integer"
    output: Literal["always", "when-read"] = "always"
    output_range: tuple[float, float] | None = None
    share_grid: bool = False
    per_channel: bool = True
    why: str | None = None
    _asked_by: str = PrivateAttr("")

    @property
    def asked_by(self) -> str:
        """Where it stands: ``ort-cpu.toml, line 25``; empty for a rule that comes from no file."""
        return self._asked_by

    def in_float(self, why: str, asked_by: str) -> OpRule:
        """The same rule for what runs in float after all."""
        rule = self.model_copy(update={"runs": "float", "why": why})
        rule._asked_by = asked_by
        return rule


class OwnSupergroup(_Strict):
    """A supergroup that a target file defines: ops that follow each other.

    Attributes:
        name: what its matches are called; no supergroup of qc or a plugin has the name.
        op_list: the types of the ops. Each reads the one before as its first input, or as any input if those
            may be swapped; only the last result may be used elsewhere.
    """

    name: str
    op_list: tuple[str, ...]
    _rule: OpRule = PrivateAttr(default_factory=OpRule)

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if not name.isidentifier():
            raise ValueError(f"'{name}' is not made of letters, digits and underscores")
        if name in supergroup_names():
            raise ValueError(f"there is a supergroup '{name}' already; choose another name")
        return name

    @field_validator("op_list")
    @classmethod
    def _is_chain(cls, op_list: tuple[str, ...]) -> tuple[str, ...]:
        if len(op_list) < 2:
            raise ValueError("a supergroup is made of at least two ops")
        for op_type in op_list:
            _require_op(op_type)
        return op_list


_CARRY = OpRule(runs="carry")


class Target(_Strict):
    """What a device wants. Every field comes from a TOML file.

    Attributes:
        activation, weight: formats where a pass does not ask for others.
        quantize_bias: biases become 32-bit integers of scale input times weight.
        extension_domain: operator domain for quantize ops of types that the model's opset does not have.
        default: the rule for ops that ``ops`` does not list; If, Loop and Scan ``carry`` unless it does.
        foreign: the rule for ops of other domains than ONNX's.
        ops: rules by ONNX op type.
        supergroups: those that this target adds to qc's.
        regions: rules by supergroup, or by a shell pattern such as ``conv_*``; the first that fits holds. A
            supergroup that no rule fits counts as the ops it is made of. A block (``qc list-supergroups``) is
            several operators to most devices, so it counts as one only where a rule has its exact name. A
            supergroup that the target adds needs no rule: it runs in integers.
    """

    name: str
    summary: str
    activation: FormatRule
    weight: FormatRule
    quantize_bias: bool = True
    extension_domain: str = ""
    default: OpRule
    foreign: OpRule = OpRule(runs="float", why="an operator that ONNX does not define")
    ops: dict[str, OpRule] = Field(default_factory=dict)
    supergroups: tuple[OwnSupergroup, ...] = ()
    regions: dict[str, OpRule] = Field(default_factory=dict)

    @field_validator("ops")
    @classmethod
    def _are_ops(cls, ops: dict[str, OpRule]) -> dict[str, OpRule]:
        for name, rule in ops.items():
            _require_op(name)
            if name in CONTROL_FLOW and rule.runs not in ("carry", "float"):
                raise ValueError(f"'{name}' computes nothing; it runs 'carry', or 'float' with its bodies")
        return ops

    @field_validator("supergroups")
    @classmethod
    def _have_names(cls, groups: tuple[OwnSupergroup, ...]) -> tuple[OwnSupergroup, ...]:
        names = [group.name for group in groups]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two supergroups are named '{name}'; rename one of them")
        return groups

    @field_validator("regions")
    @classmethod
    def _are_supergroups(cls, regions: dict[str, OpRule], info: ValidationInfo) -> dict[str, OpRule]:
        known = [*supergroup_names(), *(group.name for group in info.data.get("supergroups", ()))]
        for pattern in regions:
            if not any(_names(pattern, name) for name in known):
                raise ValueError(f"'{pattern}' fits no supergroup{nearest(pattern, list(known))}")
        return regions

    def rule_for(self, op_type: str, domain: str = "") -> OpRule:
        """The rule of an op type."""
        default = _CARRY if op_type in CONTROL_FLOW else self.default
        return self.foreign if domain else self.ops.get(op_type, default)

    def region_rule(self, name: str) -> OpRule | None:
        """The rule of a supergroup; None if the target does not know it."""
        return next((rule for pattern, rule in self.region_rules.items() if _names(pattern, name)), None)

    @property
    def region_rules(self) -> dict[str, OpRule]:
        """The rules by supergroup: those of ``regions``, then those of supergroups of its own without one."""
        return self.regions | {g.name: g._rule for g in self.supergroups if g.name not in self.regions}

    def known_supergroups(self) -> tuple[Supergroup, ...]:
        """The supergroups that are one operator here: those of the target itself, then those of its rules."""
        named = (name for name in supergroup_names() if self.region_rule(name) is not None)
        return (*self.own_supergroups(), *supergroups(named))

    def own_supergroups(self) -> tuple[Supergroup, ...]:
        """The supergroups that this target adds."""
        return tuple(_chain(group.name, group.op_list) for group in self.supergroups)


def _require_op(op_type: str) -> None:
    """Raises ValueError for what is no op of ONNX."""
    if known_attributes(op_type) is None:
        raise ValueError(f"ONNX has no op '{op_type}'{nearest_op_type(op_type)}")


@functools.cache
def _chain(name: str, op_list: tuple[str, ...]) -> Supergroup:
    return Supergroup(name, chain(*op_list), f"{', '.join(op_list)}, one after the other", "chain")


def _names(pattern: str, supergroup: str) -> bool:
    """Whether a pattern of ``regions`` names a supergroup; a block is named by nothing but its own name."""
    return pattern == supergroup if is_block(supergroup) else fnmatchcase(supergroup, pattern)


def target_names() -> list[str]:
    """The targets that come with qc and with plugins."""
    return sorted(_files())


def load_target(name: str) -> Target:
    """A target that comes with qc or a plugin, or one from a TOML file of your own.

    Args:
        name: a name from :func:`target_names`, or a path that ends in ``.toml``.

    Raises:
        UsageError: no such target, or the file does not describe one.
    """
    if name.endswith(".toml"):
        try:
            return _parse(Path(name).read_text(encoding="utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"target file '{name}' cannot be read: {error}") from error
    files = _files()
    if name not in files:
        known = ", ".join(sorted(files))
        raise UsageError(
            f"unknown target '{name}'{nearest(name, list(files))}; known: {known}, or a .toml file"
        )
    return _parse(files[name].read_text(encoding="utf-8"), name)


@functools.cache
def _files() -> dict[str, Traversable]:
    """The target files of qc and of the folders ``targets`` beside the modules of plugins, by name.

    Raises:
        UsageError: two of them have the same name.
    """
    owners: dict[str, str] = {}
    files: dict[str, Traversable] = {}
    packages = [("qc", "qc.passes")]
    packages += [(p.name, p.module.__name__) for p in plugins() if hasattr(p.module, "__path__")]
    for owner, package in packages:
        folder = resources.files(package) / "targets"
        for item in folder.iterdir() if folder.is_dir() else ():
            name, dot, suffix = item.name.rpartition(".")
            if (dot, suffix) != (".", "toml"):
                continue
            if name in files:
                raise UsageError(
                    f"{owners[name]} and plugin '{owner}' both have a target '{name}'; rename one of them"
                )
            owners[name] = owner if owner == "qc" else f"plugin '{owner}'"
            files[name] = item
    return files


def _parse(text: str, source: str) -> Target:
    try:
        target = Target.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"target '{source}' is not valid TOML: {error}") from error
    except ValidationError as error:
        # A misspelt key is unknown, and the right one is missing: the former says more.
        first = min(error.errors(), key=lambda problem: problem["type"] == "missing")
        raise UsageError(f"target '{source}': {_sentence(first)}") from error
    _locate_rules(target, TomlSource(text, source, 0), source)
    return target


def _locate_rules(target: Target, text: TomlSource, source: str) -> None:
    """Tells every rule where it stands."""
    file = source if source.endswith(".toml") else f"{source}.toml"
    places: list[tuple[str, str | None, OpRule]] = [
        ("default", None, target.default),
        ("foreign", None, target.foreign),
    ]
    places += [("ops", name, rule) for name, rule in target.ops.items()]
    places += [("regions", name, rule) for name, rule in target.regions.items()]
    places += [(f"supergroups.{index}", None, group._rule) for index, group in enumerate(target.supergroups)]
    for table, name, rule in places:
        line = text.line(table, name) or text.line(f"{table}.{name}") or text.line(f'{table}."{name}"')
        rule._asked_by = f"{file}, line {line}" if line else ""


def _sentence(problem: ErrorDetails) -> str:
    *table, key = (str(part) for part in problem["loc"])
    place = f" in {_called(table)}" if table else ""
    if problem["type"] == "missing":
        return f"'{key}' is missing{place}"
    if problem["type"] == "extra_forbidden":
        known = list(_class_of(table).model_fields)
        return f"there is no '{key}'{place}{nearest(key, known)}; known here: {', '.join(known)}"
    if problem["type"] in ("model_type", "dict_type"):
        return f"'{key}'{place} must be a table"
    said = problem["msg"].removeprefix("Value error, ")
    return f"'{key}'{place}: {said[:1].lower() + said[1:] if not said.startswith('ONNX') else said}"


def _called(table: list[str]) -> str:
    """How a table of a target file is called; those that repeat are counted."""
    repeated = len(table) > 1 and table[1].isdigit()
    return f"number {int(table[1]) + 1} of [[{table[0]}]]" if repeated else f"[{'.'.join(table)}]"


def _class_of(table: list[str]) -> type[_Strict]:
    """The class that holds the keys of a table of a target file."""
    if not table:
        return Target
    kinds: dict[str, type[_Strict]] = {
        "activation": FormatRule,
        "weight": FormatRule,
        "supergroups": OwnSupergroup,
    }
    return kinds.get(table[0], OpRule)
