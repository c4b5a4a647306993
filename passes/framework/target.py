"""Targets: data files that say what a device runs in integers, in which formats, and what shares a grid."""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails

from qc.ir.base.plugins import cached_for_plugins, plugins
from qc.ir.errors import UsageError, nearest
from qc.ir.facts.scopes import CONTROL_FLOW
from qc.ir.quant.formats import parse_format
from qc.ir.quant.spec import PerChannel
from qc.patterns import Supergroup, chain, is_block, supergroup_names, supergroups
from qc.patterns.attributes import all_attributes, known_attributes

from .target_costs import Costs
from .target_rules import FormatRule, OpRule, OwnSupergroup, Strict, require_op
from .target_support import OpSupport, Support, load_support, weight_form
from .target_tables import Grids, Lowering, Models
from .toml_source import TomlSource, parse_toml, read_text

_CARRY = OpRule(runs="carry")
_WHOLE: dict[str, type[Strict]] = {"models": Models, "grids": Grids, "lowering": Lowering}
ArithmeticKind = Literal[
    "exact",
    "alike",
    "joined",
    "moved",
    "matrix",
    "codes",
    "average",
    "reduced",
    "sum",
    "product",
    "quotient",
    "softmax",
    "prelu",
    "layer-norm",
    "rms-norm",
    "logarithm",
    "float16",
]


class Target(Strict):
    """What a device wants. Every field comes from a TOML file.

    Attributes:
        provider: the execution provider of ONNX Runtime that runs it; empty for other runtimes.
        support: what its runtime was seen to run, the name of a table; an op that it refuses stays float, and
            its weight has a scale for every channel only if it takes one.
        models, grids, lowering: what is asked of models and grids, and the forms that it runs quickly.
        machines: the machines that it is for, as :func:`platform.machine` names them; empty for all.
        activation, weight: formats where a pass does not ask for others.
        without_vnni: the target for processors of x86 without VNNI, if sums of codes saturate there.
        quantize_bias: biases become 32-bit integers of scale input times weight.
        costs: what kernels take, where quantizers are placed by it.
        arithmetic: how the device makes codes, by op type, and for what comes from outside by ``input``:
            ``exact`` if they are what rounding gives, ``alike`` if that is so where all that is moved is on
            one grid, ``joined`` where the grid of the result covers those of what is joined, ``moved`` if
            the codes of another grid are multiplied, ``matrix`` for sums of products, ``codes`` for sums of
            codes, ``average`` for means of windows, ``reduced`` for sums along an axis, ``sum``, ``product``
            and ``quotient`` for those of two tensors, ``softmax``, ``prelu``, ``layer-norm``, ``rms-norm``,
            ``logarithm``, and ``float16`` for codes that are rounded to that first; see
            :mod:`qc.ir.quant.device_arithmetic`. Simulations of the device need it.
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
    provider: str = ""
    support: Support | None = None
    machines: tuple[str, ...] = ()
    without_vnni: str = ""
    activation: FormatRule
    weight: FormatRule
    models: Models = Models()
    grids: Grids = Grids()
    lowering: Lowering = Lowering()
    quantize_bias: bool = True
    costs: Costs | None = None
    arithmetic: dict[str, ArithmeticKind] = Field(default_factory=dict)
    default: OpRule
    foreign: OpRule = OpRule(runs="float", why="an operator of another domain than ONNX's own")
    ops: dict[str, OpRule] = Field(default_factory=dict)
    supergroups: tuple[OwnSupergroup, ...] = ()
    regions: dict[str, OpRule] = Field(default_factory=dict)

    @field_validator("support", mode="before")
    @classmethod
    def _is_table(cls, support: object) -> object:
        return load_support(support) if isinstance(support, str) else support

    @model_validator(mode="after")
    def _as_supported(self) -> Self:
        for name, seen in self.support.ops.items() if self.support is not None else ():
            self.ops[name] = self._seen_to_run(self.ops.get(name, self.default), seen)
        return self

    def _seen_to_run(self, rule: OpRule, seen: OpSupport) -> OpRule:
        """A rule as far as the runtime was seen to run the op."""
        assert self.support is not None
        data, weight = self.activation.dtype, weight_form(parse_format(self.weight.dtype), PerChannel(0))
        if rule.runs == "integer" and data not in seen.data:
            return rule.in_float(f"{self.support.runtime} does not run it in {data}", "")
        if seen.weights and not seen.takes(data, weight):
            return rule.model_copy(update={"per_channel": False})
        return rule

    @field_validator("ops")
    @classmethod
    def _are_ops(cls, ops: dict[str, OpRule]) -> dict[str, OpRule]:
        for name, rule in ops.items():
            require_op(name)
            rule.require_attributes(name, known_attributes(name) or frozenset())
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
        for pattern, rule in regions.items():
            rule.require_attributes(pattern, all_attributes())
            if not any(_names(pattern, name) for name in known):
                raise ValueError(f"'{pattern}' fits no supergroup{nearest(pattern, list(known))}")
        return regions

    def dimensions_of(self, op_type: str, domain: str = "") -> int:
        """The most dimensions of the data with which its runtime runs an op; 0 for any number."""
        seen = self.support.ops.get(op_type) if self.support is not None and not domain else None
        own = self.models.most_dimensions
        runs = max(seen.ranks, default=own) if seen is not None else own
        return self.rule_for(op_type, domain).most_dimensions or runs

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


@functools.cache
def _chain(name: str, op_list: tuple[str, ...]) -> Supergroup:
    return Supergroup(name, chain(*op_list), f"{', '.join(op_list)}, one after the other", "chain")


def _names(pattern: str, supergroup: str) -> bool:
    """Whether a pattern of ``regions`` names a supergroup; a block is named by nothing but its own name."""
    return pattern == supergroup if is_block(supergroup) else fnmatchcase(supergroup, pattern)


def target_names() -> list[str]:
    """The targets that come with qc and with plugins."""
    return sorted(_files())


def load_target(target: str | Path | Target) -> Target:
    """A target that comes with qc or a plugin, or one from a TOML file of your own.

    Args:
        target: a name from :func:`target_names`, or a path that ends in ``.toml``; a target is given back.

    Raises:
        UsageError: no such target, or the file does not describe one.
    """
    if isinstance(target, Target):
        return target
    name = str(target)
    if name.endswith(".toml"):
        return _parse(read_text(name, "target file"), name)
    files = _files()
    if name not in files:
        known = ", ".join(sorted(files))
        raise UsageError(
            f"unknown target '{name}'{nearest(name, list(files))}; known: {known}, or a .toml file; "
            "'qc list-targets' says what each is for"
        )
    return _parse(files[name].read_text(encoding="utf-8"), name)


@cached_for_plugins
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


def _parse(text: str, source: str, extending: tuple[str, ...] = ()) -> Target:
    """The target of a file; of one that extends another, what it does not say is as it is there."""
    document = parse_toml(text, f"target '{source}'")
    base = _base(document.pop("extends", None), source, (*extending, source))
    try:
        target = Target.model_validate(_merged(base, document))
    except ValidationError as error:
        # A misspelt key is unknown, and the right one is missing: the former says more.
        first = min(error.errors(), key=lambda problem: problem["type"] == "missing")
        raise UsageError(f"target '{source}': {_sentence(first)}") from error
    if base is not None:
        _inherit_places(target, base)
    _locate_rules(target, TomlSource(text, source, 0), source)
    return target


def _base(name: object, source: str, extending: tuple[str, ...]) -> Target | None:
    """The target that a file extends: one of qc or a plugin, but not itself."""
    if name is None:
        return None
    files = _files()
    if not isinstance(name, str) or name not in files:
        known = ", ".join(sorted(files))
        raise UsageError(f"target '{source}' extends '{name}', which is no target; known: {known}")
    if name in extending:
        raise UsageError(f"target '{source}' extends itself, by way of '{name}'")
    return _parse(files[name].read_text(encoding="utf-8"), name, extending)


def _merged(base: Target | None, document: dict[str, Any]) -> dict[str, Any]:
    """What a file says, and in most of its tables what else the target that it extends says."""
    if base is None:
        return document
    said = base.model_dump(exclude_defaults=True)
    merged = said | document
    for table in (*_WHOLE, "ops", "regions"):
        own = document.get(table, {})
        if isinstance(own, dict):
            merged[table] = own | {key: rule for key, rule in said.get(table, {}).items() if key not in own}
    return merged


def _inherit_places(target: Target, base: Target) -> None:
    """Tells the rules that come from ``base`` where they stand there; those of the file itself follow."""
    target.default._asked_by = base.default.asked_by
    target.foreign._asked_by = base.foreign.asked_by
    for own, rules in ((target.ops, base.ops), (target.regions, base.regions)):
        for name, rule in rules.items():
            own[name]._asked_by = rule.asked_by


def _locate_rules(target: Target, text: TomlSource, source: str) -> None:
    """Tells every rule of the file where it stands."""
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
        if line:
            rule._asked_by = f"{file}, line {line}"


def _sentence(problem: ErrorDetails) -> str:
    *table, key = (str(part) for part in problem["loc"])
    place = f" in {_called(table)}" if table else ""
    if problem["type"] == "missing":
        return f"'{key}' is missing{place}"
    home = next((name for name, kind in _WHOLE.items() if key in kind.model_fields), None)
    if problem["type"] == "extra_forbidden" and home is not None and not table:
        return f"'{key}' belongs in the table [{home}]"
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


def _class_of(table: list[str]) -> type[Strict]:
    """The class that holds the keys of a table of a target file."""
    if not table:
        return Target
    kinds: dict[str, type[Strict]] = {
        "activation": FormatRule,
        "weight": FormatRule,
        "supergroups": OwnSupergroup,
        "costs": Costs,
        **_WHOLE,
    }
    return kinds.get(table[0], OpRule)
