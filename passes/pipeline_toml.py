"""Pipelines in TOML files: the text form under ``passes``, or one ``[[pass]]`` table for each step.

::

    target = "ort-cpu"

    [pipeline]
    name = "w8a8"
    description = "8-bit weights and activations"
    passes = "fold-constants,eliminate-identity"

    [[pass]]
    name = "fixpoint"
    max = 4
    [[pass.pass]]
    name = "fold-constants"

    [[pass]]
    name = "calibrate"
    method = "mse"

    [[precision]]
    op_type = "BatchNormalization"
    precision = "float16"

Both ways may be used in one file; the tables follow the text. Within a combinator ``passes`` works too.
A pipeline that has a name stands for its passes in either: ``"w8a8{calibrate.method=mse},to-encodings"``, or
a table with ``name = "w8a8"`` and ``calibrate.method = "mse"``.
The ``[[precision]]`` tables become a pass ``set-precision`` right before ``calibrate``. A table
``[record]``, in which ``qc auto`` writes how it found a pipeline, counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qc.ir.errors import UsageError, nearest

from .framework.options import C, OptionError, build, changed_options
from .framework.overrides import with_option
from .framework.pipeline import COMBINATORS, Combinator, Pipeline, Step
from .framework.pipeline_text import NO_NAMES, NamedPipelines, parse_pipeline, step_class
from .framework.registry import Registry, registry
from .framework.target import Target, load_target
from .framework.toml_source import TOP, TomlSource, Where, parse_toml, read_text, toml_value
from .quantize.precision.rules import rules_of_tables
from .quantize.set_precision import with_precision

_TOP = ("target", "pipeline", "pass", "precision", "record")
_HEAD = ("name", "description", "passes")
_INNER = ("pass", "passes")


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline with what a TOML file says about it.

    Attributes:
        name: by default the stem of the file.
        target: name or path of the target the pipeline is made for; None if it does not say.
        says_target: the file and the line that name the target, for error messages.
    """

    pipeline: Pipeline
    name: str = ""
    description: str = ""
    target: str | None = None
    says_target: str = field(default="", compare=False)

    def own_target(self) -> Target | None:
        """The target that the file names; None if it names none.

        Raises:
            UsageError: there is no such target; the sentence begins with the place that names it.
        """
        try:
            return load_target(self.target) if self.target else None
        except UsageError as error:
            raise UsageError(f"{self.says_target}: {error}" if self.says_target else str(error)) from error


def load_pipeline_file(
    path: str | Path, known: Registry | None = None, named: NamedPipelines = NO_NAMES
) -> PipelineFile:
    """Reads a pipeline file, which may name those of ``named``.

    Raises:
        UsageError: the file cannot be read, is not valid TOML, or names something that does not exist.
    """
    return loads(read_text(path, "pipeline file"), str(path), known, named)


def loads(
    text: str,
    source: str = "pipeline.toml",
    known: Registry | None = None,
    named: NamedPipelines = NO_NAMES,
) -> PipelineFile:
    """Reads the text of a pipeline file; ``source`` is what errors call it.

    Raises:
        UsageError: naming the file, and the line where it can be told.
    """
    document = parse_toml(text, source)
    reader = _Reader(TomlSource(text, source, _count_tables(document)), known or registry(), named)
    return reader.read(document, default_name=Path(source).stem)


def dumps(file: PipelineFile) -> str:
    """Writes a pipeline file with one table for each step; :func:`loads` gives back an equal object."""
    lines = [] if file.target is None else [f"target = {toml_value(file.target)}", ""]
    lines += ["[pipeline]", f"name = {toml_value(file.name)}"]
    if file.description:
        lines.append(f"description = {toml_value(file.description)}")
    if not file.pipeline.steps:
        lines.append('passes = ""')
    _write_steps(file.pipeline.steps, "pass", lines)
    return "\n".join(lines) + "\n"


def _count_tables(table: Mapping[str, Any]) -> int:
    """How many tables of steps there are, those inside combinators included."""
    entries = table.get("pass", [])
    inner = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return len(inner) + sum(_count_tables(entry) for entry in inner)


class _Reader:
    """Reads one document; ``where`` names a table as :class:`TomlSource` does."""

    def __init__(self, source: TomlSource, known: Registry, named: NamedPipelines) -> None:
        self._source = source
        self._known = known
        self._named = named
        self._tables = 0

    def read(self, document: dict[str, Any], default_name: str) -> PipelineFile:
        head = document.get("pipeline", {})
        if not isinstance(head, dict):
            raise self._source.error("'pipeline' must be a table, [pipeline]", TOP, "pipeline")
        self._check_keys(document, _TOP, TOP)
        self._check_keys(head, _HEAD, "pipeline")
        if "passes" not in head and "pass" not in document:
            raise self._source.error(
                'no pipeline in it; give passes = "..." in [pipeline], or [[pass]] tables'
            )
        pipeline = Pipeline([*self._text_steps(head, "pipeline"), *self._table_steps(document, TOP)])
        return PipelineFile(
            with_precision(pipeline, rules_of_tables(document.get("precision", []), self._source)),
            name=self._text(head, "name", "pipeline") or default_name,
            description=self._text(head, "description", "pipeline") or "",
            target=self._text(document, "target", TOP),
            says_target=self._source.place(TOP, "target"),
        )

    def _text_steps(self, table: Mapping[str, Any], where: Where) -> Sequence[Step]:
        text = self._text(table, "passes", where)
        try:
            return parse_pipeline(text or "", self._known, self._named).steps
        except UsageError as error:
            raise self._source.error(str(error), where, "passes") from None

    def _table_steps(self, table: Mapping[str, Any], where: Where) -> list[Step]:
        entries = table.get("pass", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._source.error("'pass' must be an array of tables, [[pass]]", where, "pass")
        return [step for entry in entries for step in self._steps(entry)]

    def _steps(self, table: dict[str, Any]) -> Sequence[Step]:
        """The step of one table, or those of the pipeline that it names."""
        where, self._tables = self._tables, self._tables + 1
        name = self._text(table, "name", where)
        if name is None:
            raise self._source.error("a [[pass]] table has no name", where)
        pipeline = self._named.get(name)
        if pipeline is not None:
            return self._changed(pipeline.steps, table, where)
        try:
            owner = step_class(name, self._known, self._named)
        except UsageError as error:
            raise self._source.error(str(error), where, "name") from None
        inner = [key for key in _INNER if key in table]
        values = {key: value for key, value in table.items() if key not in ("name", *_INNER)}
        if issubclass(owner, Combinator):
            steps = [*self._text_steps(table, where), *self._table_steps(table, where)]
            return [self._build(owner, values, where, steps=steps)]
        if inner:
            sentence = f"'{name}' is a pass and holds no other passes; only {' and '.join(COMBINATORS)} do"
            raise self._source.error(sentence, where, inner[0])
        return [self._build(owner, values, where)]

    def _changed(self, steps: Sequence[Step], table: Mapping[str, Any], where: int) -> Sequence[Step]:
        """The steps of a pipeline with the options of its passes that a table has, as tables of theirs."""
        for name, given in table.items():
            options = {name: given} if name != "name" else {}
            if isinstance(given, dict) and given:
                options = {f"{name}.{option}": value for option, value in given.items()}
            for option, value in options.items():
                try:
                    steps = with_option(steps, option, value)
                except UsageError as error:
                    raise self._source.error(str(error), where, name) from None
        return steps

    def _build(self, owner: type[C], values: dict[str, Any], where: int, **fixed: object) -> C:
        try:
            return build(owner, values, **fixed)
        except OptionError as error:
            raise self._source.error(str(error), where, error.option) from None
        except UsageError as error:
            raise self._source.error(str(error), where) from None

    def _text(self, table: Mapping[str, Any], key: str, where: Where) -> str | None:
        value = table.get(key)
        if value is not None and not isinstance(value, str):
            raise self._source.error(f"'{key}' must be text, not {value!r}", where, key)
        return value

    def _check_keys(self, table: Mapping[str, Any], known: Sequence[str], where: Where) -> None:
        for key in table:
            if key not in known:
                hint = nearest(key, list(known)) or f"; known here: {', '.join(known)}"
                raise self._source.error(f"unknown key '{key}'{hint}", where, key)


def _write_steps(steps: Sequence[Step], header: str, lines: list[str]) -> None:
    for step in steps:
        lines += ["", f"[[{header}]]", f"name = {toml_value(step.name)}"]
        lines += [f"{name} = {toml_value(value)}" for name, value in changed_options(step).items()]
        if isinstance(step, Combinator):
            _write_steps(step.steps, f"{header}.pass", lines)
