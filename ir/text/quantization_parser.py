"""Reads the lines behind the graphs: regions, quantizers, and the reasons why tensors stay float."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

import numpy as np

from ..errors import UsageError
from ..graph import Region
from ..model import Model
from ..quant.formats import IntFormat, parse_format
from ..quant.spec import (
    Encoding,
    Granularity,
    PerBlock,
    PerChannel,
    PerTensor,
    Quantizer,
    QuantizerState,
    QuantSpec,
    TwoLevelBlock,
)
from ..quant_table import Site
from ..tensor_ref import TensorRef
from .graph_parser import GraphReader
from .parsed_scope import ParsedScope
from .references import Mention
from .runs import accept_to
from .scanner import Scanner
from .value_types import read_type

_ID = re.compile(r"q\d{1,9}(?!\w)")
_NUMBER = re.compile(r"[-\d]|inf|nan")
_FORMAT = re.compile(r"[a-z]{1,8}[a-z0-9]{1,12}(?!\w)")
_STATES = frozenset(state.value for state in QuantizerState)
_GRANULARITIES: dict[str, tuple[Callable[..., Granularity], int]] = {
    "channel": (PerChannel, 1),
    "block": (PerBlock, 2),
    "two-level": (TwoLevelBlock, 3),
}
_INT64 = (-(1 << 63), (1 << 63) - 1)
_ARGUMENTS = (("an axis", *_INT64), ("a size", 1, _INT64[1]), ("bits of the scales", 1, 8))


class QuantizationReader:
    """Reads what lies beside the graphs of a model, behind them.

    Args:
        graphs: what was read before.
    """

    def __init__(self, model: Model, scanner: Scanner, graphs: GraphReader) -> None:
        self._model = model
        self._scanner = scanner
        self._graphs = graphs
        self._references = graphs.references
        self._sites: dict[int, deque[Site]] = {}
        self._quantizers: dict[int, Quantizer] = {}
        self._placed: list[tuple[Site, Quantizer]] = []
        self._reasons: list[tuple[Site, str]] = []

    def read(self) -> None:
        """Everything up to the end of the text."""
        scanner = self._scanner
        statements = {
            "region": self._read_region,
            "quantizer": self._read_quantizer,
            "placed": self._read_placed,
            "scheme": self._read_scheme,
            "float": self._read_reason,
        }
        while not scanner.at_end():
            word = scanner.keyword()
            if word not in statements:
                raise scanner.error(f"function, {', '.join(statements)} or the end")
            scanner.expect(word)
            statements[word]()
        self._place()
        for site, reason in self._reasons:
            self._model.quant.skip(site.value, reason)

    # -- lines --------------------------------------------------------------------------------------

    def _read_region(self) -> None:
        scanner, references = self._scanner, self._references
        region = scanner.word("the name of a region")
        captures = scanner.items(self._read_capture, ")") if scanner.accept("(") else []
        scope = self._scope()
        scanner.expect(":")
        ops = scanner.series(lambda: references.op(scope, references.op_mention()))
        values = {key: references.own_value(scope, mention) for key, mention in captures}
        self._model.add_region(Region(region, scope.graph, tuple(ops), values), "parsed")

    def _read_capture(self) -> tuple[str, Mention]:
        key = self._scanner.word("the name of a captured value")
        self._scanner.expect("=")
        return key, self._references.mention()

    def _read_quantizer(self) -> None:
        scanner, start = self._scanner, self._scanner.position
        id = self._read_id()
        if id in self._quantizers:
            raise scanner.problem(f"there is a second q{id}", start)
        scanner.expect_word("on")
        self._sites[id] = deque(scanner.series(self._read_site))
        scanner.expect(":")
        spec = read_spec(scanner)
        state = QuantizerState(scanner.keyword())
        scanner.expect(state.value)
        quantizer = self._quantizers[id] = Quantizer(id, spec, frozen=state is QuantizerState.FROZEN)
        if state is QuantizerState.CALIBRATED or (quantizer.frozen and scanner.sees("scale")):
            quantizer.encoding = self._read_encoding(quantizer)
            if scanner.accept("codes="):
                quantizer.codes = self._read_numbers(f"codes of q{id}", self._int32).astype(np.int32)

    def _read_id(self) -> int:
        return int(self._scanner.take(_ID, "the id of a quantizer, such as q1")[1:])

    def _read_site(self) -> Site:
        scanner, references = self._scanner, self._references
        mention = references.mention()
        into: tuple[Mention, int] | None = None
        if scanner.accept_word("into"):
            reader = references.op_mention()
            scanner.expect("[")
            into = reader, scanner.count("an input port")
            scanner.expect("]")
        scope = self._scope()
        value = references.own_value(scope, mention)
        if into is None:
            return Site(value)
        op, port = references.op(scope, into[0]), into[1]
        inputs = scope.graph.op_inputs(op)
        if port >= len(inputs) or inputs[port] is not value:
            raise scanner.problem(f"{mention.name} is not input {port} of this op", mention.start)
        return Site(value, op, port)

    def _read_placed(self) -> None:
        """The order in which the sites came into the table."""
        start, scanner = self._scanner.position, self._scanner

        def run() -> None:
            first = self._read_id()
            last = self._read_id() if accept_to(scanner) else first
            for id in range(first, last + 1):
                if not self._sites.get(id):
                    raise scanner.problem(f"q{id} has not so many sites", start)
                self._placed.append((self._sites[id].popleft(), self._quantizers[id]))

        scanner.series(run)
        if any(self._sites.values()):
            raise scanner.problem("'placed' does not name every site", start)

    def _read_scheme(self) -> None:
        self._model.quant.scheme = self._scanner.string("how ranges were found")

    def _read_reason(self) -> None:
        mention = self._references.mention()
        site = Site(self._references.own_value(self._scope(), mention))
        self._scanner.expect(":")
        self._reasons.append((site, self._scanner.string("a reason")))

    def _scope(self) -> ParsedScope:
        start = self._scanner.position
        scope = self._graphs.scopes.get(self._references.path())
        if scope is None:
            raise self._scanner.problem("there is no such graph", start)
        return scope

    # -- numbers ------------------------------------------------------------------------------------

    def _read_encoding(self, quantizer: Quantizer) -> Encoding:
        scanner, start = self._scanner, self._scanner.position
        scanner.expect("scale=")
        scale = self._read_numbers(f"scale of q{quantizer.id}", scanner.real)
        scanner.expect("zero_point=")
        zero = self._read_numbers(f"zero point of q{quantizer.id}", self._int32)
        if not zero.ndim:
            zero = np.full(scale.shape, zero)
        try:
            return Encoding(quantizer.spec, scale, zero)
        except UsageError as error:
            raise scanner.problem(str(error), start) from error

    def _int32(self) -> int:
        return self._scanner.integer("a zero point", -(1 << 31), (1 << 31) - 1)

    def _read_numbers(self, key: str, read: Callable[[], float]) -> np.ndarray:
        scanner = self._scanner
        if scanner.accept("["):
            return np.asarray(scanner.items(read, "]"))
        if scanner.looks_at(_NUMBER):
            return np.asarray(read())
        tensor = self._graphs.tensors.read(read_type(scanner), key)
        return TensorRef(tensor, self._model.base_dir).numpy()

    def _place(self) -> None:
        table, quantizers = self._model.quant, self._quantizers
        left = [(site, quantizers[id]) for id, sites in self._sites.items() for site in sites]
        for site, quantizer in (*self._placed, *left):
            if table.get(site) is not None:
                raise self._scanner.problem(f"{site} has two quantizers")
            table.place(site, quantizer, "parsed")
        table._last_id = max(quantizers, default=0)


def read_spec(scanner: Scanner) -> QuantSpec:
    """What ``str`` makes of a spec."""
    start = scanner.position
    try:
        format = parse_format(scanner.take(_FORMAT, "a number format, such as int8"))
        symmetric = scanner.accept_word("symmetric")
        if not symmetric and isinstance(format, IntFormat):
            scanner.expect_word("asymmetric")
        narrow, one_sided, shifted = map(scanner.accept_word, ("narrow", "one-sided", "shifted"))
        granularity = _read_granularity(scanner)
        limits = _read_range(scanner) if scanner.accept_word("range") else None
        derived = scanner.accept_word("derived")
        spec = QuantSpec(format, symmetric, narrow, granularity, limits, derived, one_sided, shifted)
    except UsageError as error:
        raise scanner.problem(str(error), start) from error
    if scanner.keyword() not in _STATES:
        raise scanner.error("a property of a quantizer, or open, calibrated or frozen")
    return spec


def _read_granularity(scanner: Scanner) -> Granularity:
    word = scanner.keyword()
    numbers: list[int] = []
    if word not in _GRANULARITIES:
        return PerTensor()
    scanner.expect(word)
    kind, count = _GRANULARITIES[word]
    for what, lowest, highest in _ARGUMENTS[:count]:
        scanner.expect("," if numbers else "(")
        numbers.append(scanner.integer(what, lowest, highest))
    scanner.expect(")")
    return kind(*numbers)


def _read_range(scanner: Scanner) -> tuple[float, float]:
    scanner.expect("(")
    lowest = scanner.real()
    scanner.expect(",")
    highest = scanner.real()
    scanner.expect(")")
    return lowest, highest
