"""The table of quantizers: which sites are quantized, and by which quantizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .analysis import QUANT, Epochs
from .errors import UsageError
from .graph import Op, Value
from .journal import CALIBRATE, PLACE, REMOVE, RESPEC, SKIP, TIE, Journal
from .quant.spec import Encoding, Quantizer, QuantSpec


class Site(NamedTuple):
    """A place that can be quantized: a value for all its readers, or one reading of it.

    ``op`` and ``port`` are None for a value site, and the reading op and its input port for a use site.
    """

    value: Value
    op: Op | None = None
    port: int | None = None

    def __str__(self) -> str:
        return f"'{self.value.name}'" if self.op is None else f"'{self.value.name}' into {self.op.label}"


class QuantTable:
    """Site to quantizer. Two sites are tied if they hold the same object. Decisions go to the journal.

    Every method that decides may raise LimitReached instead, see :class:`qc.ir.journal.Journal`.

    Attributes:
        scheme: how the ranges of activations were found, as encodings files call it (``quant_scheme``); empty
            if that is not known.
    """

    def __init__(self, journal: Journal | None = None, epochs: Epochs | None = None) -> None:
        self._journal = journal or Journal()
        self._epochs = epochs or Epochs()
        self._by_site: dict[Site, Quantizer] = {}
        self._sites: dict[int, dict[Site, None]] = {}
        self._touching: dict[Value | Op, dict[Site, None]] = {}
        self._skipped: dict[int, str] = {}
        self._last_id = 0
        self.scheme = ""

    # -- reading ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._by_site)

    def get(self, site: Site) -> Quantizer | None:
        """The quantizer at exactly this site."""
        return self._by_site.get(site)

    def of_value(self, value: Value) -> Quantizer | None:
        """The quantizer that all readers of ``value`` see; a stand-in without one has that of its tensor."""
        current: Value | None = value
        while current is not None:
            found = self._by_site.get(Site(current))
            if found is not None:
                return found
            current = current.captured
        return None

    def of_use(self, value: Value, op: Op, port: int) -> Quantizer | None:
        """The quantizer that input ``port`` of ``op`` sees: that of the use, else that of the value."""
        return self._by_site.get(Site(value, op, port)) or self.of_value(value)

    def sites(self) -> list[Site]:
        """All quantized sites in the order in which they were placed."""
        return list(self._by_site)

    def sites_of(self, quantizer: Quantizer) -> list[Site]:
        """The sites that hold ``quantizer``."""
        return list(self._sites.get(quantizer.id, ()))

    def sites_on(self, value: Value) -> list[Site]:
        """The quantized sites of ``value``: itself and its uses, in the order in which they were placed."""
        return list(self._touching.get(value, ()))

    def quantizers_on(self, value: Value) -> Iterator[Quantizer]:
        """The quantizers at the sites of ``value``, in the order in which these were placed."""
        return (self._by_site[site] for site in self._touching.get(value, ()))

    def quantizers(self) -> list[Quantizer]:
        """All quantizers in use, by id."""
        return sorted({q.id: q for q in self._by_site.values()}.values(), key=lambda q: q.id)

    def why_not(self, value: Value) -> str | None:
        """Why ``value`` was left unquantized, if a pass said so."""
        return self._skipped.get(value.id)

    def copy(self) -> QuantTable:
        """A table with the same quantizers at the same sites, to change without touching this one."""
        other = QuantTable(self._journal, self._epochs)
        other._by_site = dict(self._by_site)
        other._sites = {key: dict(sites) for key, sites in self._sites.items()}
        other._touching = {key: dict(sites) for key, sites in self._touching.items()}
        other._skipped = dict(self._skipped)
        other._last_id = self._last_id
        other.scheme = self.scheme
        return other

    def restore(self, other: QuantTable) -> None:
        """Takes over what a copy made earlier holds."""
        vars(self).update(vars(other.copy()))
        self._epochs.advance(QUANT)

    def touches(self, payload: Value | Op) -> bool:
        """Whether a site is on this value or on an input of this op."""
        return bool(self._touching.get(payload))

    # -- deciding -----------------------------------------------------------------------------------

    def place(
        self, site: Site, quantizer: QuantSpec | Quantizer, reason: str, asked_by: str = ""
    ) -> Quantizer:
        """Puts a new quantizer of a spec, or an existing quantizer, at a free site.

        Args:
            asked_by: the line of configuration that asked for it.

        Raises:
            UsageError: the site already holds another quantizer.
        """
        if site in self._by_site:
            raise UsageError(f"{site} already holds {self._by_site[site]}")
        id = self._last_id + 1 if isinstance(quantizer, QuantSpec) else quantizer.id
        self._act(PLACE, site, reason, id, asked_by)
        if isinstance(quantizer, QuantSpec):
            self._last_id = id
            quantizer = Quantizer(id, quantizer)
        self._hold(site, quantizer)
        self._skipped.pop(site.value.id, None)
        return quantizer

    def remove(self, site: Site, reason: str, asked_by: str = "") -> None:
        """Takes the quantizer of a site away."""
        self._act(REMOVE, site, reason, self._by_site[site].id, asked_by)
        self._release(site)

    def skip(self, value: Value, reason: str, asked_by: str = "", suggestion: str = "") -> None:
        """Records why a value is left unquantized; the last reason stands."""
        if self._skipped.get(value.id) == reason:
            return
        self._skipped[value.id] = reason
        self._epochs.advance(QUANT)
        self._journal.note(SKIP, value, str(Site(value)), reason, asked_by, suggestion)

    def tie(self, keep: Quantizer, others: Iterable[Quantizer], reason: str, asked_by: str = "") -> None:
        """Gives all sites of ``others`` the quantizer ``keep``.

        Raises:
            UsageError: one of the quantizers is frozen, or the formats or granularities differ.
        """
        for other in others:
            if other is keep:
                continue
            if other.frozen or keep.frozen:
                raise UsageError(f"{self.sites_of(other)[0]} cannot be tied: one of the quantizers is frozen")
            if (other.spec.format, other.spec.granularity) != (keep.spec.format, keep.spec.granularity):
                raise UsageError(f"'{other.spec}' cannot be tied to '{keep.spec}'")
            for site in self.sites_of(other):
                self._act(TIE, site, reason, keep.id, asked_by)
                self._release(site)
                self._hold(site, keep)

    def respec(self, quantizer: Quantizer, spec: QuantSpec, reason: str, asked_by: str = "") -> None:
        """Changes the spec of a quantizer, which opens it again; a frozen one is left alone."""
        if quantizer.frozen or quantizer.spec == spec:
            return
        self._act(RESPEC, self._named_site(quantizer), f"{spec}: {reason}", quantizer.id, asked_by)
        quantizer.spec, quantizer.encoding = spec, None
        self._epochs.advance(QUANT)

    def calibrate(self, quantizer: Quantizer, encoding: Encoding, reason: str) -> None:
        """Sets the numbers of a quantizer; a frozen one is left alone.

        A derived spec takes its granularity from them, since it follows from other quantizers as well.
        """
        if quantizer.frozen:
            return
        self._act(CALIBRATE, self._named_site(quantizer), reason, quantizer.id)
        if quantizer.spec.derived:
            quantizer.spec = quantizer.spec.with_granularity(encoding.spec.granularity)
        quantizer.encoding = encoding
        self._epochs.advance(QUANT)

    def freeze(self, quantizer: Quantizer) -> None:
        """Keeps the numbers of a quantizer from being changed."""
        quantizer.frozen = True
        self._epochs.advance(QUANT)

    def thaw(self, quantizer: Quantizer, reason: str, asked_by: str = "") -> None:
        """Lets the numbers of a frozen quantizer be changed again."""
        if quantizer.frozen:
            self._act(
                RESPEC, self._named_site(quantizer), f"no longer frozen: {reason}", quantizer.id, asked_by
            )
            quantizer.frozen = False
            self._epochs.advance(QUANT)

    def reopen(self, quantizer: Quantizer, reason: str) -> None:
        """Forgets the numbers of a quantizer, for another calibration; a frozen one is left alone."""
        if quantizer.frozen or quantizer.encoding is None:
            return
        self._act(RESPEC, self._named_site(quantizer), f"open again: {reason}", quantizer.id)
        quantizer.encoding = None
        self._epochs.advance(QUANT)

    def drop_open(self) -> None:
        """Takes away, without a remark, the quantizers without numbers, which a limit left open."""
        for quantizer in self.quantizers():
            if quantizer.encoding is None:
                for site in self.sites_of(quantizer):
                    self._release(site)
                    self._skipped[site.value.id] = "an action limit kept its quantizer from getting numbers"

    def move(self, old: Value, new: Value) -> None:
        """Carries the value site of ``old`` over to ``new``, which takes its place in the graph."""
        if Site(old) in self._by_site and Site(new) not in self._by_site:
            quantizer = self._release(Site(old))
            self._hold(Site(new), quantizer)

    def forget(self, payload: Value | Op) -> None:
        """Drops the sites of a value or an op that leaves the graph."""
        for site in list(self._touching.get(payload, ())):
            self._release(site)

    # -- internals ----------------------------------------------------------------------------------

    def _hold(self, site: Site, quantizer: Quantizer) -> None:
        self._by_site[site] = quantizer
        self._sites.setdefault(quantizer.id, {})[site] = None
        for payload in _touched(site):
            self._touching.setdefault(payload, {})[site] = None
        self._epochs.advance(QUANT)

    def _release(self, site: Site) -> Quantizer:
        quantizer = self._by_site.pop(site)
        del self._sites[quantizer.id][site]
        for payload in _touched(site):
            del self._touching[payload][site]
        self._epochs.advance(QUANT)
        return quantizer

    def _named_site(self, quantizer: Quantizer) -> Site:
        """The site that stands for all that hold ``quantizer``."""
        return next(iter(self._sites[quantizer.id]))

    def _act(self, kind: str, site: Site, reason: str, quantizer: int, asked_by: str = "") -> None:
        self._journal.act(kind, site.value, str(site), reason, quantizer, asked_by)


def _touched(site: Site) -> tuple[Value | Op, ...]:
    return (site.value,) if site.op is None else (site.value, site.op)
