"""Rules that set the precision of chosen tensors by hand: their text form and their form in TOML.

::

    rule      = selector "=" settings [ "!" ]        "!" changes what is frozen, too
    selector  = [ kind ( ":" | "~" ) ] name          behind "~" the name is a regular expression
    kind      = "type" | "op" | "region" | "tensor"
    settings  = setting { "," setting }
    setting   = [ "w" BITS ] [ "a" BITS ]            other widths for what is quantized
              | [ part ":" ] ( FORMAT | "off" )      one format, or float32
    part      = "weight" | "activation"

Without a kind the name may be of any. The last "=" divides a rule, so that names may hold others. Blanks in
front of it are no part of a name but behind a backslash each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qc.ir.errors import UsageError, nearest
from qc.ir.quant.formats import Format, IntFormat, check_free, parse_format
from qc.ir.quant.spec import QuantSpec, is_fine

from ...framework.toml_source import TomlSource, parse_toml, read_text

KINDS = {"type": "op type", "op": "op", "region": "region", "tensor": "tensor"}
OFF = "off"

_PARTS = ("weight", "activation")
_SELECTOR = re.compile(rf"(?:({'|'.join(KINDS)})([:~]))?(.*(?:\\\s|\S))\s*", re.DOTALL)
_ESCAPED = re.compile(r"(?<!\\\s)(?:\\\s)+$")
_WIDTHS = re.compile(r"(?:w(\d{1,9}))?(?:a(\d{1,9}))?")
_TABLE_KEYS = ("precision", *_PARTS, "regex", "override")


@dataclass(frozen=True)
class Setting:
    """What one kind of tensor gets: another width in bits, a format, or neither (``off``)."""

    bits: int | None = None
    format: Format | None = None

    @property
    def is_off(self) -> bool:
        """Whether tensors become float32."""
        return self.bits is None and self.format is None

    @property
    def places(self) -> bool:
        """Whether tensors without a quantizer get one; a mere width changes only what is quantized."""
        return self.format is not None

    def spec(self, old: QuantSpec | None, is_weight: bool, narrow: bool = False) -> QuantSpec:
        """The spec of a tensor that had ``old``, or none; not to be asked of ``off``.

        What the old spec says beside its format holds where it still makes sense. Without one, weights are
        symmetric, and activations asymmetric. ``narrow`` is what the target asks of weights, for those whose
        old grid had fewer codes and so needed all of them.
        """
        format = self.format or self._widened(old, is_weight)
        if not isinstance(format, IntFormat):
            return QuantSpec(format)
        if old is None or not isinstance(old.format, IntFormat):
            return QuantSpec(format, symmetric=is_weight and format.signed)
        changed = replace(
            old,
            symmetric=old.symmetric and (format.signed or not old.format.signed),
            narrow=False,
            shifted=old.shifted and format == old.format,
            derived=False,
        )
        return changed.resized(format, old.narrow or (narrow and is_weight and not is_fine(old.format)))

    def _widened(self, old: QuantSpec | None, is_weight: bool) -> IntFormat:
        assert self.bits is not None
        signed = old.format.signed if old is not None and isinstance(old.format, IntFormat) else is_weight
        return IntFormat(self.bits, signed)


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        text: as it is written in a pipeline.
        kind: one of :data:`KINDS`; None for any.
        name: what is selected.
        regex: the name is a regular expression that all of a name has to match.
        weight, activation: what constants that were trained, and all other tensors, get; None for no change.
        override: change frozen quantizers, too.
        asked_by: where the rule stands, for the user.
    """

    text: str
    kind: str | None
    name: str
    regex: bool
    weight: Setting | None
    activation: Setting | None
    override: bool
    asked_by: str = ""

    def setting(self, is_weight: bool) -> Setting | None:
        """The setting of a kind of tensor."""
        return self.weight if is_weight else self.activation


def parse_rule(text: str, asked_by: str = "") -> Rule:
    """Reads the text form of a rule.

    Raises:
        UsageError: it is none.
    """
    selector, equals, settings = text.rpartition("=")
    match = _SELECTOR.fullmatch(selector.lstrip())
    if not equals or match is None:
        raise UsageError(f"'{text}' is no rule; write what it is for and what that gets, as in 'Conv=w4a8'")
    kind, mark, name = match[1], match[2], _ESCAPED.sub(lambda end: end[0].replace("\\", ""), match[3])
    if mark == "~":
        _check_regex(name, text)
    override = settings.rstrip().endswith("!")
    parts = _settings(settings.strip().removesuffix("!"), text)
    return Rule(
        text, kind, name, mark == "~", parts.get("weight"), parts.get("activation"), override, asked_by
    )


def _check_regex(name: str, text: str) -> None:
    try:
        re.compile(name)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"'{name}' in the rule '{text}' is no regular expression: {error}") from None


def _settings(settings: str, text: str) -> dict[str, Setting]:
    """The settings of a rule by part."""
    found: dict[str, Setting] = {}
    for word in settings.split(","):
        for part, setting in _setting(word.strip(), text).items():
            if part in found:
                raise UsageError(f"the rule '{text}' sets the {part} twice")
            found[part] = setting
    return found


def _setting(word: str, text: str) -> dict[str, Setting]:
    part, colon, format = word.rpartition(":")
    if colon and part not in _PARTS:
        raise UsageError(f"the rule '{text}' sets the {' or the '.join(_PARTS)}, not '{part}'")
    widths = _WIDTHS.fullmatch(word)
    try:
        if word and widths is not None:
            bits = zip(_PARTS, widths.groups(), strict=True)
            return {part: Setting(bits=check_free(IntFormat(int(n), True)).bits) for part, n in bits if n}
        setting = Setting() if format == OFF else Setting(format=check_free(parse_format(format)))
    except UsageError as error:
        raise UsageError(
            f"the rule '{text}': {error}; or 'off' for float, or widths such as 'w4a8'"
        ) from None
    return dict.fromkeys([part] if colon else _PARTS, setting)


# -- TOML -------------------------------------------------------------------------------------------------


def rules_of_tables(tables: object, source: TomlSource) -> list[Rule]:
    """Reads ``[[precision]]`` tables: one selector, and ``precision``, or ``weight`` and ``activation``.

    Raises:
        UsageError: naming the file, and the line where it can be told.
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise source.error("'precision' must be an array of tables, [[precision]]", key="precision")
    rules = []
    for index, table in enumerate(tables):
        where = f"precision.{index}"
        try:
            rules.append(parse_rule(_text_of_table(table), source.place(where)))
        except UsageError as error:
            raise source.error(str(error), where) from None
    return rules


def load_rules(path: str | Path) -> list[Rule]:
    """Reads a TOML file that holds ``[[precision]]`` tables and nothing else.

    Raises:
        UsageError: it cannot be read, is not valid TOML, or holds no rules.
    """
    text = read_text(path, "precision file")
    document = parse_toml(text, str(path))
    source = TomlSource(text, str(path), 0)
    other = next((key for key in document if key != "precision"), None)
    if other is not None:
        raise source.error(f"unknown key '{other}'; a precision file holds [[precision]] tables", key=other)
    rules = rules_of_tables(document.get("precision", []), source)
    if not rules:
        raise source.error("no [[precision]] table in it")
    return rules


def _text_of_table(table: Mapping[str, Any]) -> str:
    """The text form of the rule that a table describes."""
    selectors = {"op_type" if kind == "type" else kind: kind for kind in KINDS}
    known = [*selectors, *_TABLE_KEYS]
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"unknown key '{key}'{nearest(key, known)}; known here: {', '.join(known)}")
        wanted = bool if key in ("regex", "override") else str
        if not isinstance(value, wanted):
            raise UsageError(
                f"'{key}' must be {'true or false' if wanted is bool else 'text'}, not {value!r}"
            )
    given = [key for key in selectors if key in table]
    if len(given) != 1:
        raise UsageError(f"a [[precision]] table has one of {', '.join(selectors)}, not {len(given)}")
    settings = [table["precision"]] if "precision" in table else []
    settings += [f"{part}:{table[part]}" for part in _PARTS if part in table]
    if not settings:
        raise UsageError("a [[precision]] table needs 'precision', or 'weight' or 'activation'")
    mark = "~" if table.get("regex", False) else ":"
    override = "!" if table.get("override", False) else ""
    return f"{selectors[given[0]]}{mark}{_escaped(table[given[0]])}={','.join(settings)}{override}"


def _escaped(name: str) -> str:
    """A name as a rule has it, with backslashes in front of the blanks at its end."""
    stem = name.rstrip()
    return stem + "".join(f"\\{blank}" for blank in name[len(stem) :])


def rule_texts(given: Mapping[str, str]) -> tuple[str, ...]:
    """What the values of a dictionary say for its keys, as rules.

    Raises:
        UsageError: a key is no text.
    """
    other = next((key for key in given if not isinstance(key, str)), None)
    if other is not None:
        raise UsageError(f"a key of precision is text such as 'Conv', not {other!r}")
    return tuple(f"{_escaped(key)}={said}" for key, said in given.items())


def rules_of(
    given: str | Path | Rule | Iterable[str | Rule] | Mapping[str, str], asked_by: str = "precision"
) -> list[Rule]:
    """Rules as they are given in Python: the path of a ``.toml`` file, one rule, or several.

    Those of a dictionary are what its values say for its keys: ``{"Conv": "w4a8"}``.

    Args:
        asked_by: how messages call a place where rules are given as text.

    Raises:
        UsageError: the file or a rule cannot be read.
    """
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".toml")):
        return load_rules(given)
    if isinstance(given, Mapping):
        given = rule_texts(given)
    rules = []
    for rule in given if isinstance(given, Iterable) and not isinstance(given, str) else [given]:
        if not isinstance(rule, str | Rule):
            raise UsageError(f"a rule of precision is text such as 'Conv=w4a8', not {rule!r}")
        rules.append(rule if isinstance(rule, Rule) else parse_rule(rule, f"{asked_by} '{rule}'"))
    return rules
