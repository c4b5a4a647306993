"""Reads the lines behind the graphs: regions, quantizers, and the reasons why tensors stay float."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

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
from .parsed_scope import ParsedScope
from .reader import Mention, Reader
from .runs import TO
from .scanner import Scanner
from .tensors import TensorReader
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
        tensors: reads scales and zero points that are very many.
        scopes: the graphs that were read before, by how the text names them.
    """

    def __init__(
        self, model: Model, reader: Reader, tensors: TensorReader, scopes: Mapping[str, ParsedScope]
    ) -> None:
        self._model = model
        self._reader = reader
        self._tensors = tensors
        self._scopes = scopes
        self._sites: dict[int, deque[Site]] = {}
        self._quantizers: dict[int, Quantizer] = {}
        self._placed: list[tuple[Site, Quantizer]] = []
        self._reasons: list[tuple[Site, str]] = []
        self._int32 = partial(reader.integer, "a zero point", -(1 << 31), (1 << 31) - 1)

    def read(self) -> None:
        """Everything up to the end of the text."""
        reader = self._reader
        statements = {
            "region": self._read_region,
            "quantizer": self._read_quantizer,
            "placed": self._read_placed,
            "scheme": self._read_scheme,
            "float": self._read_reason,
        }
        while not reader.at_end():
            word = reader.keyword()
            if word not in statements:
                raise reader.error(f"function, {', '.join(statements)} or the end")
            reader.expect(word)
            statements[word]()
        left = [(site, self._quantizers[id]) for id, sites in self._sites.items() for site in sites]
        table = self._model.quant
        for site, quantizer in (*self._placed, *left):
            if table.get(site) is not None:
                raise reader.problem(f"{site} has two quantizers")
            table.place(site, quantizer, "parsed")
        table._last_id = max(self._quantizers, default=0)
        for site, reason in self._reasons:
            table.skip(site.value, reason)

    def _read_region(self) -> None:
        reader = self._reader
        region = reader.word("the name of a region")
        captures = reader.items(self._read_capture, ")") if reader.accept("(") else []
        scope = self._scope()
        reader.expect(":")
        ops = reader.series(lambda: reader.op(scope, reader.op_mention()))
        values = {key: reader.own_value(scope, mention) for key, mention in captures}
        self._model.add_region(Region(region, scope.graph, tuple(ops), values), "parsed")

    def _read_capture(self) -> tuple[str, Mention]:
        key = self._reader.word("the name of a captured value")
        self._reader.expect("=")
        return key, self._reader.mention()

    def _read_quantizer(self) -> None:
        reader, start = self._reader, self._reader.position
        id = self._read_id()
        if id in self._quantizers:
            raise reader.problem(f"there is a second q{id}", start)
        reader.expect_word("on")
        self._sites[id] = deque(reader.series(self._read_site))
        reader.expect(":")
        spec = read_spec(reader)
        state = QuantizerState(reader.keyword())
        reader.expect(state.value)
        quantizer = self._quantizers[id] = Quantizer(id, spec, frozen=state is QuantizerState.FROZEN)
        if state is QuantizerState.CALIBRATED or (quantizer.frozen and reader.sees("scale")):
            quantizer.encoding = self._read_encoding(quantizer)
            if reader.accept("codes="):
                quantizer.codes = self._read_numbers(f"codes of q{id}", self._int32).astype(np.int32)

    def _read_id(self) -> int:
        return int(self._reader.take(_ID, "the id of a quantizer, such as q1")[1:])

    def _read_site(self) -> Site:
        reader, into, port = self._reader, None, 0
        mention = reader.mention()
        if reader.accept_word("into"):
            into = reader.op_mention()
            reader.expect("[")
            port = reader.integer("an input port", 0)
            reader.expect("]")
        scope = self._scope()
        value = reader.own_value(scope, mention)
        if into is None:
            return Site(value)
        op = reader.op(scope, into)
        inputs = op.inputs
        if port >= len(inputs) or inputs[port] is not value:
            raise reader.problem(f"{mention.name} is not input {port} of this op", mention.start)
        return Site(value, op, port)

    def _read_placed(self) -> None:
        """The order in which the sites came into the table."""
        reader, start = self._reader, self._reader.position

        def run() -> None:
            first = self._read_id()
            last = self._read_id() if reader.accept(TO) else first
            for id in range(first, last + 1):
                if not self._sites.get(id):
                    raise reader.problem(f"q{id} has not so many sites", start)
                self._placed.append((self._sites[id].popleft(), self._quantizers[id]))

        reader.series(run)
        if any(self._sites.values()):
            raise reader.problem("'placed' does not name every site", start)

    def _read_scheme(self) -> None:
        self._model.quant.scheme = self._reader.string("how ranges were found")

    def _read_reason(self) -> None:
        mention = self._reader.mention()
        site = Site(self._reader.own_value(self._scope(), mention))
        self._reader.expect(":")
        self._reasons.append((site, self._reader.string("a reason")))

    def _scope(self) -> ParsedScope:
        start = self._reader.position
        scope = self._scopes.get(self._reader.path())
        if scope is None:
            raise self._reader.problem("there is no such graph", start)
        return scope

    def _read_encoding(self, quantizer: Quantizer) -> Encoding:
        reader, start = self._reader, self._reader.position
        reader.expect("scale=")
        scale = self._read_numbers(f"scale of q{quantizer.id}", reader.real)
        reader.expect("zero_point=")
        zero = self._read_numbers(f"zero point of q{quantizer.id}", self._int32)
        if not zero.ndim:
            zero = np.full(scale.shape, zero)
        try:
            return Encoding(quantizer.spec, scale, zero)
        except UsageError as error:
            raise reader.problem(str(error), start) from error

    def _read_numbers(self, key: str, read: Callable[[], float]) -> np.ndarray:
        reader = self._reader
        if reader.accept("["):
            return np.asarray(reader.items(read, "]"))
        if reader.looks_at(_NUMBER):
            return np.asarray(read())
        tensor = self._tensors.read(read_type(reader), key)
        return TensorRef(tensor, self._model.base_dir).numpy()


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
        limits = None
        if scanner.accept_word("range"):
            scanner.expect("(")
            lowest = scanner.real()
            scanner.expect(",")
            limits = lowest, scanner.real()
            scanner.expect(")")
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
