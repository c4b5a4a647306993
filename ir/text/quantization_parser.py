"""Reads the lines behind the graphs: regions, quantizers, and the reasons why tensors stay float."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from ..errors import UsageError
from ..graph import Op, Region
from ..model import Model
from ..quant.formats import Format, IntFormat, parse_format
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
from .runs import accept_to
from .scanner import Scanner
from .value_types import read_type

_ID = re.compile(r"q\d{1,9}(?!\w)")
_NUMBER = re.compile(r"[-\d]|inf|nan")
_FORMAT = re.compile(r"[a-z]{1,8}[a-z0-9]{1,12}(?!\w)")
_STATES = frozenset(state.value for state in QuantizerState)


class QuantizationReader:
    """Reads what lies beside the graphs of a model, behind them.

    Args:
        graphs: what was read before.
    """

    def __init__(self, model: Model, scanner: Scanner, graphs: GraphReader) -> None:
        self._model = model
        self._scanner = scanner
        self._graphs = graphs
        self._sites: dict[int, list[Site]] = {}
        self._quantizers: dict[int, Quantizer] = {}
        self._placed: list[int] = []

    def read(self) -> None:
        """Everything up to the end of the text."""
        scanner = self._scanner
        reasons: list[tuple[Site, str]] = []
        while not scanner.at_end():
            if scanner.accept_word("region"):
                self._read_region()
            elif scanner.accept_word("quantizer"):
                self._read_quantizer()
            elif scanner.accept_word("placed"):
                self._read_placed()
            elif scanner.accept_word("scheme"):
                self._model.quant.scheme = scanner.string("how ranges were found")
            elif scanner.accept_word("float"):
                reasons.append(self._read_reason())
            else:
                raise scanner.error("function, region, quantizer, placed, scheme, float or the end")
        self._place()
        for site, reason in reasons:
            self._model.quant.skip(site.value, reason)

    # -- lines --------------------------------------------------------------------------------------

    def _read_region(self) -> None:
        scanner, references = self._scanner, self._graphs.references
        region = scanner.word("the name of a region")
        captures = scanner.items(self._read_capture, ")") if scanner.accept("(") else []
        scope = self._scope()
        scanner.expect(":")
        ops = scanner.series(lambda: self._read_op(scope))
        values = {key: references.own_value(scope, name, start) for key, name, start in captures}
        self._model.add_region(Region(region, scope.graph, tuple(ops), values), "parsed")

    def _read_capture(self) -> tuple[str, str, int]:
        key = self._scanner.word("the name of a captured value")
        self._scanner.expect("=")
        start = self._scanner.position
        return key, self._graphs.references.name(), start

    def _read_op(self, scope: ParsedScope) -> Op:
        start = self._scanner.position
        references = self._graphs.references
        return scope.ops[references.op_place(scope, references.op_name(), start)].op

    def _read_quantizer(self) -> None:
        scanner, start = self._scanner, self._scanner.position
        id = self._read_id()
        if id in self._quantizers:
            raise scanner.problem(f"there is a second q{id}", start)
        scanner.expect_word("on")
        sites = scanner.series(self._read_site)
        scanner.expect(":")
        spec = read_spec(scanner)
        state = QuantizerState(scanner.keyword())
        scanner.expect(state.value)
        quantizer = Quantizer(id, spec, frozen=state is QuantizerState.FROZEN)
        if state is QuantizerState.CALIBRATED or (quantizer.frozen and scanner.sees("scale")):
            quantizer.encoding = self._read_encoding(quantizer)
        self._quantizers[id], self._sites[id] = quantizer, sites

    def _read_id(self) -> int:
        return int(self._scanner.take(_ID, "the id of a quantizer, such as q1")[1:])

    def _read_site(self) -> Site:
        scanner, references, start = self._scanner, self._graphs.references, self._scanner.position
        name, into, port = references.name(), None, None
        if scanner.accept_word("into"):
            into = references.op_name()
            scanner.expect("[")
            port = scanner.count("an input port")
            scanner.expect("]")
        scope = self._scope()
        value = references.own_value(scope, name, start)
        if into is None or port is None:
            return Site(value)
        op = scope.ops[references.op_place(scope, into, start)].op
        inputs = scope.graph.op_inputs(op)
        if port >= len(inputs) or inputs[port] is not value:
            raise scanner.problem(f"{name} is not input {port} of this op", start)
        return Site(value, op, port)

    def _read_placed(self) -> None:
        left = Counter({id: len(sites) for id, sites in self._sites.items()})
        left.subtract(self._placed)

        def run() -> None:
            start, first = self._scanner.position, self._read_id()
            last = self._read_id() if accept_to(self._scanner) else first
            for id in range(first, last + 1):
                left[id] -= 1
                if left[id] < 0:
                    raise self._scanner.problem(f"q{id} has not so many sites", start)
                self._placed.append(id)

        self._scanner.series(run)

    def _read_reason(self) -> tuple[Site, str]:
        scanner, start = self._scanner, self._scanner.position
        name = self._graphs.references.name()
        value = self._graphs.references.own_value(self._scope(), name, start)
        scanner.expect(":")
        return Site(value), scanner.string("a reason")

    def _scope(self) -> ParsedScope:
        start = self._scanner.position
        scope = self._graphs.scopes.get(self._graphs.references.path())
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

    # -- placing ------------------------------------------------------------------------------------

    def _place(self) -> None:
        table = self._model.quant
        order = self._placed or [id for id, sites in self._sites.items() for _ in sites]
        if len(order) != sum(map(len, self._sites.values())):
            raise self._scanner.problem("'placed' does not name every site")
        left = {id: iter(sites) for id, sites in self._sites.items()}
        for id in order:
            site = next(left[id])
            if table.get(site) is not None:
                raise self._scanner.problem(f"{site} has two quantizers")
            table.place(site, self._quantizers[id], "parsed")
        table._last_id = max(self._quantizers, default=0)


def read_spec(scanner: Scanner) -> QuantSpec:
    """What ``str`` makes of a spec."""
    start, format = scanner.position, _read_format(scanner)
    symmetric = scanner.accept_word("symmetric")
    if not symmetric and isinstance(format, IntFormat):
        scanner.expect_word("asymmetric")
    narrow = scanner.accept_word("narrow")
    one_sided = scanner.accept_word("one-sided")
    shifted = scanner.accept_word("shifted")
    granularity = _read_granularity(scanner)
    limits = _read_range(scanner) if scanner.accept_word("range") else None
    derived = scanner.accept_word("derived")
    try:
        spec = QuantSpec(format, symmetric, narrow, granularity, limits, derived, one_sided, shifted)
    except UsageError as error:
        raise scanner.problem(str(error), start) from error
    if scanner.keyword() not in _STATES:
        raise scanner.error("a property of a quantizer, or open, calibrated or frozen")
    return spec


def _read_format(scanner: Scanner) -> Format:
    start = scanner.position
    try:
        return parse_format(scanner.take(_FORMAT, "a number format, such as int8"))
    except UsageError as error:
        raise scanner.problem(str(error), start) from error


def _read_granularity(scanner: Scanner) -> Granularity:
    if scanner.accept_word("channel"):
        scanner.expect("(")
        granularity: Granularity = PerChannel(scanner.integer("an axis"))
    elif scanner.accept_word("block"):
        granularity = PerBlock(*_read_block(scanner))
    elif scanner.accept_word("two-level"):
        axis, size = _read_block(scanner)
        scanner.expect(",")
        granularity = TwoLevelBlock(axis, size, scanner.integer("bits of the scales", 1, 8))
    else:
        return PerTensor()
    scanner.expect(")")
    return granularity


def _read_block(scanner: Scanner) -> tuple[int, int]:
    """The axis and the size of blocks."""
    scanner.expect("(")
    axis = scanner.integer("an axis")
    scanner.expect(",")
    return axis, scanner.integer("a size", lowest=1)


def _read_range(scanner: Scanner) -> tuple[float, float]:
    scanner.expect("(")
    lowest = scanner.real()
    scanner.expect(",")
    highest = scanner.real()
    scanner.expect(")")
    return lowest, highest
