"""What of a model is quantized, for a terminal and as JSON."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from typing import Any

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from qc.coverage import Coverage, Multiplied, UnquantizedTensor
from qc.ir.errors import listed

from .terminal import Fact
from .words import count, printable, share_of

# How much of a summary is shown: all of it fits on a screen of 24 lines.
_OP_TYPES = 20
_REASONS = 4
_NAMES = 3

# How passes name an op within a reason: "Conv 'conv_1'", "Conv of 'x'", "layer_norm at Add 'y'".
_LABEL = re.compile(r"(?:(\w+) at )?(\w+) (?:of )?'[^']*'")


@dataclass(frozen=True)
class ReasonGroup:
    """Float tensors that stay float for the same reason on different ops.

    Attributes:
        reason: the reason, with the types of the ops in place of their names.
        names: the tensors in graph order.
    """

    reason: str
    names: tuple[str, ...]


def group_by_reason(tensors: Iterable[UnquantizedTensor]) -> list[ReasonGroup]:
    """Groups tensors whose reasons differ only in the op they name; the largest group first."""
    groups: dict[str, list[UnquantizedTensor]] = {}
    for tensor in tensors:
        groups.setdefault(_LABEL.sub("\0", tensor.reason), []).append(tensor)
    found = [_group(key.split("\0"), members) for key, members in groups.items()]
    return sorted(found, key=lambda group: -len(group.names))


def _group(words: Sequence[str], members: Sequence[UnquantizedTensor]) -> ReasonGroup:
    """What is between the ops of a reason, with the types of those that are named at each place."""
    named = [[match[1] or match[2] for match in _LABEL.finditer(one.reason)] for one in members]
    places = [_types(list(dict.fromkeys(types))) for types in zip(*named, strict=False)]
    reason = "".join(chain.from_iterable(zip_longest(words, places, fillvalue="")))
    return ReasonGroup(reason, tuple(one.name for one in members))


def coverage_summary(coverage: Coverage) -> list[Fact]:
    """The coverage on one screen: tensors by format, ops by type, and why the rest stays float."""
    facts: list[Fact] = [("quantized", _quantized(coverage))]
    facts += _multiplied(coverage.multiplied)
    if coverage.formats:
        facts.append(("formats", _formats(coverage)))
    if coverage.ops and not coverage.has_weights_alone:
        facts.append(("ops", _ops(coverage)))
    if coverage.unquantized:
        facts.append(("float", _reasons(coverage)))
    if coverage.inner:
        facts.append(
            ("inside", f"{count(coverage.inner, 'float tensor')} within fused ops, not counted above")
        )
    return facts


def unquantized_table(coverage: Coverage) -> RenderableType:
    """Every float tensor that stayed float, with the reason."""
    if not coverage.unquantized:
        return Text("every float tensor is quantized")
    lines = []
    for tensor in coverage.unquantized:
        lines += [Text(printable(tensor.name)), Text(f"  {printable(tensor.reason)}", style="dim")]
    return Group(*lines)


def coverage_document(coverage: Coverage) -> dict[str, Any]:
    """The whole coverage as plain values for JSON."""
    return {
        "quantized_tensors": coverage.quantized,
        "rounded_tensors": coverage.rounded,
        "formats": coverage.formats,
        "ops": {
            op_type: {"quantized": done, "total": total} for op_type, (done, total) in coverage.ops.items()
        },
        "multiplications": asdict(coverage.multiplied),
        "tensors_inside_fused_ops": coverage.inner,
        "float_tensors": [asdict(tensor) for tensor in coverage.unquantized],
    }


def _quantized(coverage: Coverage) -> str:
    """``15 of 15 ops, 100.0% of the multiplications, 37 of 38 float tensors``; see ``integer_share``."""
    tensors = f"{coverage.quantized:,} of {count(coverage.total, 'float tensor')}"
    if coverage.has_weights_alone:
        return f"weights alone, {tensors}"
    parts = [f"{coverage.quantized_ops:,} of {count(coverage.total_ops, 'op')}"]
    if coverage.multiplied.total:
        parts.append(share_of(coverage.multiplied.share, "multiplications"))
    parts.append(tensors)
    return ", ".join([*parts, *([coverage.rounded_words] if coverage.rounded else [])])


def _multiplied(found: Multiplied) -> Iterator[Fact]:
    """What the quantized share of the multiplications does not tell."""
    if found.dynamic:
        share = share_of(found.dynamic / found.total, "multiplications")
        yield "dynamic", f"{share} are of data that is quantized in every run"
    if found.weights:
        share = share_of(found.weights / found.total, "multiplications")
        yield "weights", f"{share} are of float data by quantized weights"


def _formats(coverage: Coverage) -> Table:
    numbers: Counter[str] = Counter()
    for spec, number in coverage.formats.items():
        numbers[_in_words(spec)] += number
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right")
    grid.add_column()
    for words, number in sorted(numbers.items(), key=lambda item: (-item[1], item[0])):
        grid.add_row(str(number), words)
    return grid


def _in_words(spec: str) -> str:
    """The text of a spec for readers: ``int8 symmetric, per channel`` for ``int8 ... narrow channel(0)``.

    Whether the lowest code is left out, and which axis holds the channels, is for the coverage in JSON.
    """
    number_format, *words = spec.replace(", ", ",").split()
    if "derived" in words:  # only a bias takes its scale from others
        return f"{number_format} biases"
    parts = [" ".join([number_format, *(word for word in words if word.endswith("symmetric"))])]
    for word in words:
        kind, _, values = word.rstrip(")").partition("(")
        if kind == "channel":
            parts.append("per channel")
        elif kind == "block":
            parts.append(f"in blocks of {values.rpartition(',')[2]}")
        elif kind == "range":
            low, high = map(float, values.split(","))
            ends = (f"from {low:.6g}" if low > -math.inf else "", f"to {high:.6g}" if high < math.inf else "")
            parts.append(" ".join(end for end in ends if end))
    return ", ".join(parts)


def _ops(coverage: Coverage) -> RenderableType:
    """``Conv 52/52`` for each op type: those that run quantized first, then those that do not."""
    ordered = sorted(coverage.ops.items(), key=lambda item: (not item[1][0], -item[1][1], item[0]))
    items = []
    for op_type, (done, total) in ordered[:_OP_TYPES]:
        style = "green" if done == total else "yellow" if done else "dim"
        items.append(Text(f"{op_type} {done}/{total}", style=style))
    columns = Columns(items, padding=(0, 2))
    if len(ordered) <= _OP_TYPES:
        return columns
    return Group(columns, Text(f"and {count(len(ordered) - _OP_TYPES, 'other type')}", style="dim"))


def _reasons(coverage: Coverage) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right")
    grid.add_column(overflow="fold")
    groups = group_by_reason(coverage.unquantized)
    for group in groups[:_REASONS]:
        names = _Names([printable(name) for name in group.names])
        grid.add_row(str(len(group.names)), Group(Text(printable(group.reason)), names))
    rest = groups[_REASONS:]
    if rest:
        number = sum(len(group.names) for group in rest)
        grid.add_row(str(number), f"more, for {count(len(rest), 'other reason')}")
    return grid


def _types(op_types: Sequence[str]) -> str:
    shown = "/".join(op_types[:_NAMES])
    return f"{shown}/..." if len(op_types) > _NAMES else shown


class _Names:
    """The first names, as many as fit on one line, and how many more there are."""

    def __init__(self, names: Sequence[str]) -> None:
        last = min(len(names), _NAMES)
        self._forms = [_some(names, shown) for shown in range(last, 0, -1)]
        self._forms.append(_some(names, 1, width=10))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = (form for form in self._forms if cell_len(form) <= options.max_width)
        yield Text(next(fitting, self._forms[-1]), style="dim", overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [cell_len(form) for form in self._forms]
        return Measurement(min(*widths, options.max_width), min(max(widths), options.max_width))


def _some(names: Sequence[str], limit: int, width: int = 24) -> str:
    """The first names, and how many more there are."""
    return listed([_short(name, width) for name in names], limit)


def _short(name: str, width: int) -> str:
    """The end of a long name, where names of one model differ."""
    return name if len(name) <= width else f"...{name[-width + 3 :]}"
