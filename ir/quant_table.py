"""The table of quantizers: which sites are quantized, and by which quantizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import NamedTuple

import numpy as np

from .analysis import QUANT
from .errors import UsageError
from .graph import Op, Value
from .journal import CALIBRATE, PLACE, REMOVE, RESPEC, SKIP, TIE, Remark
from .quant.spec import Encoding, Quantizer, QuantSpec
from .transaction import Transaction

_ASPECTS = (QUANT,)


class Site(NamedTuple):
    """A place that can be quantized: a value for all its users, or one use of it.

    ``op`` and ``port`` are None for a value site, and the reading op and its input port for a use site.
    """

    value: Value
    op: Op | None = None
    port: int | None = None

    def __str__(self) -> str:
        return f"'{self.value.name}'" if self.op is None else f"'{self.value.name}' into {self.op.label}"


class _Placed(NamedTuple):
    """A quantizer at a site, with a number that grows from one placing to the next."""

    number: int
    quantizer: Quantizer


class _Numbered:
    """Sites in the order of their numbers, which nearly always is the one in which they come.

    What is taken back comes in late. They are put in order when they are read next, and not before: a weight
    can be read at ten thousand sites.
    """

    __slots__ = ("_highest", "_in_order", "_sites")

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}
        self._highest = -1
        self._in_order = True

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[Site]:
        if not self._in_order:
            self._sites, self._in_order = dict(sorted(self._sites.items())), True
        return iter(self._sites.values())

    def add(self, number: int, site: Site) -> None:
        """Takes a site in."""
        self._sites[number] = site
        self._in_order &= number > self._highest
        self._highest = max(number, self._highest)

    def discard(self, number: int) -> None:
        """Lets the site of a number go."""
        del self._sites[number]


_NOWHERE = _Numbered()


class QuantTable:
    """Site to quantizer. Two sites are tied if they hold the same object. Decisions go to the journal.

    Every method that decides is an action of its own, or part of the block of the transaction that is open.
    It may raise LimitReached instead, see :class:`qc.ir.journal.Journal`.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._by_site: dict[Site, _Placed] = {}
        self._sites: defaultdict[int, _Numbered] = defaultdict(_Numbered)  # by quantizer
        self._touching: defaultdict[Value | Op, _Numbered] = defaultdict(_Numbered)
        self._skipped: dict[int, str] = {}
        self._numbers = count()
        self._last_id = 0
        self._scheme = ""

    # -- reading ------------------------------------------------------------------------------------

    @property
    def scheme(self) -> str:
        """How the ranges of activations were found, as encodings files call it (``quant_scheme``).

        Empty if that is not known.
        """
        return self._scheme

    @scheme.setter
    def scheme(self, scheme: str) -> None:
        with self._transaction.atomic():
            self._change(self, _scheme=scheme)

    def __len__(self) -> int:
        return len(self._by_site)

    def get(self, site: Site) -> Quantizer | None:
        """The quantizer at exactly this site."""
        found = self._by_site.get(site)
        return found.quantizer if found is not None else None

    def of_value(self, value: Value) -> Quantizer | None:
        """The quantizer that all users of ``value`` see, which may be that of what it captures."""
        current: Value | None = value
        while current is not None:
            found = self._by_site.get(Site(current))
            if found is not None:
                return found.quantizer
            current = current.captured
        return None

    def of_use(self, value: Value, op: Op, port: int) -> Quantizer | None:
        """The quantizer that input ``port`` of ``op`` sees: that of the use, else that of the value."""
        return self.get(Site(value, op, port)) or self.of_value(value)

    def sites(self) -> list[Site]:
        """All quantized sites in the order in which they were placed."""
        return sorted(self._by_site, key=lambda site: self._by_site[site].number)

    def sites_of(self, quantizer: Quantizer) -> list[Site]:
        """The sites that hold ``quantizer``."""
        return list(self._sites.get(quantizer.id, _NOWHERE))

    def sites_on(self, payload: Value | Op) -> list[Site]:
        """The quantized sites of a value or an op, in the order in which they were placed.

        Those of a value are itself and its uses, those of an op its inputs.
        """
        return list(self._touching.get(payload, _NOWHERE))

    def touches(self, payload: Value | Op) -> bool:
        """Whether a site is on this value or on an input of this op."""
        return bool(self._touching.get(payload))

    def quantizers_on(self, value: Value) -> Iterator[Quantizer]:
        """The quantizers at the sites of ``value``, in the order in which these were placed."""
        return (self._by_site[site].quantizer for site in self._touching.get(value, _NOWHERE))

    def quantizers(self) -> list[Quantizer]:
        """All quantizers in use, by id."""
        found = {placed.quantizer.id: placed.quantizer for placed in self._by_site.values()}
        return [found[id] for id in sorted(found)]

    def why_not(self, value: Value) -> str | None:
        """Why ``value`` was left unquantized, if a pass said so."""
        return self._skipped.get(value.id)

    # -- deciding -----------------------------------------------------------------------------------

    def place(
        self, site: Site, quantizer: QuantSpec | Quantizer, reason: str, asked_by: str = ""
    ) -> Quantizer:
        """Puts a new quantizer of a spec, or an existing quantizer, at a free site.

        Args:
            asked_by: the line of configuration that asked for it.

        Raises:
            UsageError: the site already holds another quantizer, or this one has the codes of another tensor.
        """
        held = self.get(site)
        if held is not None:
            raise UsageError(f"{site} already holds {held}")
        id = self._last_id + 1 if isinstance(quantizer, QuantSpec) else quantizer.id
        if isinstance(quantizer, Quantizer) and quantizer.codes is not None:
            self._check_is_alone(quantizer, site.value)
        with self._action(PLACE, site, reason, id, asked_by):
            if isinstance(quantizer, QuantSpec):
                self._change(self, _last_id=id)
                quantizer = Quantizer(id, quantizer)
            self._put(site, quantizer)
            self._transaction.drop(_ASPECTS, self._skipped, site.value.id)
        return quantizer

    def remove(self, site: Site, reason: str, asked_by: str = "") -> None:
        """Takes the quantizer of a site away."""
        with self._action(REMOVE, site, reason, self._by_site[site].quantizer.id, asked_by):
            self._take(site)

    def skip(self, value: Value, reason: str, asked_by: str = "", suggestion: str = "") -> None:
        """Records why a value is left unquantized; the last reason stands."""
        if self._skipped.get(value.id) != reason:
            with self._transaction.atomic():
                self._transaction.put(_ASPECTS, self._skipped, value.id, reason)
            remark = Remark(SKIP, value, str(Site(value)), reason, None, asked_by, suggestion)
            self._transaction.journal.note(remark)

    def tie(self, keep: Quantizer, others: Iterable[Quantizer], reason: str, asked_by: str = "") -> None:
        """Gives all sites of ``others`` the quantizer ``keep``.

        Raises:
            UsageError: one of the quantizers is frozen or has codes that were chosen for its tensor, or the
                formats or granularities differ.
        """
        for other in others:
            theirs = self.sites_of(other)
            if other is keep or not theirs:
                continue
            if other.frozen or keep.frozen:
                raise UsageError(f"{theirs[0]} cannot be tied: one of the quantizers is frozen")
            for one, site in ((keep, theirs[0]), (other, self._first_site(keep))):
                if one.codes is not None:
                    self._check_is_alone(one, site.value)
            if (other.spec.format, other.spec.granularity) != (keep.spec.format, keep.spec.granularity):
                raise UsageError(f"'{other.spec}' cannot be tied to '{keep.spec}'")
            for site in theirs:
                with self._action(TIE, site, reason, keep.id, asked_by):
                    self._take(site)
                    self._put(site, keep)

    def respec(self, quantizer: Quantizer, spec: QuantSpec, reason: str, asked_by: str = "") -> None:
        """Changes the spec of a quantizer, which opens it again; a frozen one is left alone."""
        if not quantizer.frozen and quantizer.spec != spec:
            with self._action_on(RESPEC, quantizer, f"{spec}: {reason}", asked_by):
                self._change(quantizer, spec=spec, encoding=None, codes=None)

    def calibrate(self, quantizer: Quantizer, encoding: Encoding, reason: str) -> None:
        """Sets the numbers of a quantizer; one that is frozen, or whose codes were chosen, is left alone.

        A derived spec takes its granularity from them, since it follows from other quantizers as well.
        """
        if quantizer.is_fixed:
            return
        spec = quantizer.spec
        if spec.derived:
            spec = spec.with_granularity(encoding.spec.granularity)
        with self._action_on(CALIBRATE, quantizer, reason):
            self._change(quantizer, spec=spec, encoding=encoding)

    def choose_codes(self, quantizer: Quantizer, codes: np.ndarray, reason: str) -> None:
        """Sets the codes of a constant on the grid that its quantizer has, which may be frozen.

        Lowerings and measures take them instead of the nearest ones, and later passes leave the grid alone.
        A new spec, a reopened quantizer, and other numbers for the constant drop them.

        Args:
            codes: integers, in the shape of the constant.

        Raises:
            UsageError: the quantizer has no integer grid yet, or is not that of one constant alone; or the
                codes are not in its shape, or not on the grid.
        """
        site = self._first_site(quantizer)
        values = {site.value.original for site in self.sites_of(quantizer)}
        const = site.value.original.const
        if quantizer.encoding is None or const is None or len(values) > 1:
            raise UsageError(f"codes are chosen for a constant with a grid of its own, which {site} has not")
        lowest, highest = quantizer.spec.code_range
        codes = np.asarray(codes)
        whole = np.issubdtype(codes.dtype, np.integer) and codes.shape == const.shape
        if not whole or codes.min(initial=lowest) < lowest or codes.max(initial=highest) > highest:
            raise UsageError(
                f"the codes of {site} must be integers from {lowest} to {highest}, in the shape "
                f"{list(const.shape)}, not {codes.dtype} in {list(codes.shape)} or beyond"
            )
        with self._action_on(CALIBRATE, quantizer, reason):
            self._change(quantizer, codes=codes.astype(np.int32))

    def drop_codes(self, value: Value, reason: str) -> None:
        """Forgets the codes that were chosen for a constant, also in bodies; it gets other numbers."""
        held = dict.fromkeys(one for alias in _aliases(value) for one in self.quantizers_on(alias))
        for quantizer in [one for one in held if one.codes is not None]:
            with self._action_on(RESPEC, quantizer, f"no chosen codes: {reason}"):
                self._change(quantizer, codes=None)

    def freeze(self, quantizer: Quantizer) -> None:
        """Keeps the numbers of a quantizer from being changed."""
        with self._transaction.atomic():
            self._change(quantizer, frozen=True)

    def thaw(self, quantizer: Quantizer, reason: str, asked_by: str = "") -> None:
        """Lets the numbers of a frozen quantizer be changed again."""
        if quantizer.frozen:
            with self._action_on(RESPEC, quantizer, f"no longer frozen: {reason}", asked_by):
                self._change(quantizer, frozen=False)

    def reopen(self, quantizer: Quantizer, reason: str) -> None:
        """Forgets the numbers of a quantizer, for another calibration; a frozen one is left alone."""
        if not quantizer.frozen and quantizer.encoding is not None:
            with self._action_on(RESPEC, quantizer, f"open again: {reason}"):
                self._change(quantizer, encoding=None, codes=None)

    def drop_open(self) -> None:
        """Takes away, without a remark, the quantizers without numbers, which a limit left open."""
        reason = "an action limit kept its quantizer from getting numbers"
        with self._transaction.atomic():
            for site in self.sites():
                if self._by_site[site].quantizer.encoding is None:
                    self._take(site)
                    self._transaction.put(_ASPECTS, self._skipped, site.value.id, reason)

    def move(self, old: Site, new: Site) -> None:
        """Carries the quantizer of a site over to one that takes its place in the graph, if that is free."""
        if old in self._by_site and new not in self._by_site:
            self._transaction.change(_ASPECTS, (self._move, old, new), (self._move, new, old))

    # -- internals ----------------------------------------------------------------------------------

    def _check_is_alone(self, quantizer: Quantizer, value: Value) -> None:
        """Raises UsageError if a quantizer with chosen codes is that of another tensor."""
        site = next(iter(self._sites.get(quantizer.id, _NOWHERE)), None)
        if site is not None and site.value.original is not value.original:
            raise UsageError(
                f"'{value.name}' cannot have the grid of {site}, whose codes were chosen for it alone"
            )

    def _change(self, owner: object, **fields: object) -> None:
        for field, value in fields.items():
            self._transaction.set(_ASPECTS, owner, field, value)

    def _put(self, site: Site, quantizer: Quantizer) -> None:
        placed = _Placed(next(self._numbers), quantizer)
        self._transaction.change(_ASPECTS, (self._hold, site, placed), (self._release, site))

    def _take(self, site: Site) -> None:
        placed = self._by_site[site]
        self._transaction.change(_ASPECTS, (self._release, site), (self._hold, site, placed))

    def _hold(self, site: Site, placed: _Placed) -> None:
        self._by_site[site] = placed
        for held in self._holding(site, placed):
            held.add(placed.number, site)

    def _release(self, site: Site) -> _Placed:
        placed = self._by_site.pop(site)
        for held in self._holding(site, placed):
            held.discard(placed.number)
        return placed

    def _holding(self, site: Site, placed: _Placed) -> Iterator[_Numbered]:
        """Where a site is listed: with its quantizer, its value and its op."""
        yield self._sites[placed.quantizer.id]
        yield self._touching[site.value]
        if site.op is not None:
            yield self._touching[site.op]

    def _move(self, old: Site, new: Site) -> None:
        self._hold(new, self._release(old))

    def _action_on(
        self, kind: str, quantizer: Quantizer, reason: str, asked_by: str = ""
    ) -> AbstractContextManager[Remark]:
        """An action on a quantizer, named after its first site."""
        return self._action(kind, self._first_site(quantizer), reason, quantizer.id, asked_by)

    def _first_site(self, quantizer: Quantizer) -> Site:
        """Where a quantizer was placed first; raises UsageError if it is nowhere."""
        for site in self._sites.get(quantizer.id, _NOWHERE):
            return site
        raise UsageError(f"quantizer q{quantizer.id} is at no site of the model")

    def _action(
        self, kind: str, site: Site, reason: str, quantizer: int, asked_by: str = ""
    ) -> AbstractContextManager[Remark]:
        return self._transaction.action(Remark(kind, site.value, str(site), reason, quantizer, asked_by))


def _aliases(value: Value) -> Iterator[Value]:
    """A tensor, and what captures it in bodies."""
    yield value
    for op in value.capturing:
        for body in op.subgraphs.values():
            for inner in body.values():
                if inner.captured is value:
                    yield from _aliases(inner)
