"""What every candidate does to the outputs in every group, by the metric that counts and by noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError
from qc.ir.executor import Feed
from qc.ir.quant.formats import IntFormat
from qc.runtime import Data, Metric, Simulation, parse_metric
from qc.runtime.evaluation.judge import Judged, Labels, judge
from qc.runtime.evaluation.simulation import OFF, ON, Setting
from qc.runtime.metrics.metric import Sample, Tally
from qc.runtime.sessions.runnable import Runnable

from .candidates import Candidate
from .groups import Group, Held, bits_of

# Of the samples, the part on which all groups are measured.
_FIRST_PART = 4
# The groups that hold so much of the harm are measured on the others, too.
_DECISIVE_SHARE = 0.95
# About so many runs measure these, on as many more samples as that allows.
_MOST_RUNS = 1024
# Samples are dealt to so many parts; how much these differ tells how far a drop can be trusted.
_PARTS = 4
# Groups that are measured in one pass over the samples.
_BATCH = 32

# How much more or less the errors of a group may count for those of others.
_MOST_INTERACTION = 2.0

# The numbers of a group and of a candidate, or of a group and what it does as compiled: while all else is in
# float, and while all else is as compiled.
Key = tuple[int, int | str]
_ALONE, _WITHIN = "alone", "within"
_FLOAT, _WHOLE, _STORED = (-1, "float"), (-1, "whole"), (-1, "stored")


@dataclass
class _Summed:
    """The score of each part of the samples, and the noise over all, as one :class:`Tally`."""

    metric: Metric
    noise: Tally[float] | None
    parts: list[Tally[float]] = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.parts = [self.metric.start() for _ in range(_PARTS)]

    def add(self, sample: Sample) -> None:
        self.parts[self.count % _PARTS].add(sample)
        self.count += 1
        if self.noise is not None:
            self.noise.add(sample)

    def value(self) -> np.ndarray:
        """How bad each part is, NaN without samples, and last the noise as a share of the signal."""
        sign = -1 if self.metric.higher_is_better else 1
        scores = [sign * part.value() for part in self.parts[: self.count]]
        scores += [math.nan] * (_PARTS - len(scores))
        noise = 10 ** (-self.noise.value() / 10) if self.noise is not None else math.nan
        return np.array([*scores, noise])


class HarmMeter:
    """Measures the harm of candidates in groups, all in one session of the simulation.

    The harm of a candidate is what it does while all else is in float, times the interaction of its group:
    the mean of 1 and how much more, or less, the group does as compiled while all else is as compiled, too.
    Where the metric is too coarse for so few samples, as a share of right answers is, noise at the outputs
    tells instead: the two are weighted by how well parts of the samples agree.

    Codes that an algorithm chose, and biases that go with them, are not in what is measured. How much less
    harm they do all together counts for each weight that has such codes.

    Args:
        compiled: the model as it is now; its quantizers have numbers.
        groups: of its quantizers.
        candidates: what to measure; floats do no harm.
        reference: the float model.
        metric: what counts.
        labels: one for each sample, for the metric.
        threads: threads within an op.
    """

    def __init__(
        self,
        compiled: Compiled,
        groups: Sequence[Group],
        candidates: Sequence[Candidate],
        reference: Runnable,
        metric: Metric,
        labels: Labels | None = None,
        threads: int | None = None,
    ) -> None:
        # Opened first: the simulation is made once, and from codes as they are.
        self._reference, self._stored = reference, compiled.open_simulation(threads=threads)
        self._whole = settable_simulation(compiled, threads)
        known = self._whole.quantizers
        self._off = self._whole.with_encodings(dict.fromkeys(known, OFF))
        self._held = [[one for one in group.quantizers if one.name in known] for group in groups]
        self._candidates = candidates
        self._integers = [number for number, one in enumerate(candidates) if not one.is_float]
        self._metric, self._labels = metric, labels
        self._sqnr: Metric | None = parse_metric("sqnr")
        try:
            self._sqnr.check(compiled.ir.origin)
        except UsageError:  # no output is a float tensor: the metric alone tells
            self._sqnr = None
        self._compiled = compiled
        self._grids: dict[tuple[str, int], Setting] = {}

    def harm(self, data: Data, samples: int, on_run: Callable[[], None] = lambda: None) -> list[list[float]]:
        """The harm by group and candidate, in the unit of the metric, or as noise where that tells nothing.

        A part of the samples is run for all groups, the others for those that do most harm there.

        Args:
            data: the samples.
            samples: how many to run at most; fewer if there are many groups.
            on_run: called after every run.
        """
        groups = range(len(self._held))
        first = max(2, samples // _FIRST_PART)
        found = self._measure(groups, data, 0, first, on_run) | self._as_stored(data, first)
        decisive = _most_harmful(_blended(found))
        most = _MOST_RUNS // (max(len(decisive), 1) * (len(self._integers) + 1))
        samples = min(samples, first + max(most, first))
        if samples > first and (data.length is None or data.length > first):
            for key, more in self._measure(decisive, data, first, samples, on_run).items():
                found[key] = (first * found[key] + (samples - first) * more) / samples
        harms = _blended(found)
        return [self._of_group(group, harms) for group in groups]

    def around(
        self, chosen: Sequence[int], data: Data, samples: int, on_run: Callable[[], None] = lambda: None
    ) -> tuple[list[list[float]], float]:
        """What more harm groups do in another candidate while all others have what is chosen for them.

        Looked at are the candidates next to that of a group, one that costs more and one that costs less.

        Args:
            chosen: the number of the candidate of each group.
            data, samples, on_run: as for :meth:`harm`.

        Returns:
            The harms by group and candidate, in the unit of the metric, or as noise where that tells nothing;
            below 0 where less harm is done, infinite where nothing was looked at. And that of the choice.
        """
        found: dict[Key, np.ndarray] = {}
        for index in range(0, len(chosen), _BATCH):
            groups = range(index, min(index + _BATCH, len(chosen)))
            found |= self._measure_around(chosen, groups, islice(data, samples), samples, on_run)
        harms = _blended(found)
        table = [[math.inf] * len(self._candidates) for _ in chosen]
        for group, number in enumerate(chosen):
            table[group][number] = 0.0
            for other in self._next_to(number):
                table[group][other] = harms[group, other]
        return table, harms[_WHOLE]

    def _measure_around(
        self,
        chosen: Sequence[int],
        groups: Sequence[int],
        feeds: Iterable[Feed],
        samples: int,
        on_run: Callable[[], None],
    ) -> dict[Key, np.ndarray]:
        """What a choice adds to how bad the model is, and what each step from there adds to that."""
        own: dict[str, Setting] = {}
        for group, number in enumerate(chosen):
            own |= self._settings(group, number)
        base = self._off.with_encodings(own)
        variants: dict[Key, Runnable] = {_FLOAT: self._off, _WHOLE: base}
        for group in groups:
            for number in self._next_to(chosen[group]):
                variants[group, number] = base.with_encodings(self._settings(group, number))
        labels = self._labels[:samples] if self._labels is not None else None
        bad = self._judge(self._off, variants, feeds, labels, on_run)
        unharmed, whole = bad.pop(_FLOAT), bad[_WHOLE]
        with np.errstate(invalid="ignore"):
            return {key: one - (unharmed if key == _WHOLE else whole) for key, one in bad.items()}

    def _settings(self, group: int, number: int) -> dict[str, Setting]:
        """The grids of a group in a candidate."""
        candidate = self._candidates[number]
        return {
            one.name: OFF if candidate.is_float else self._setting(one, candidate)
            for one in self._held[group]
        }

    def _next_to(self, number: int) -> list[int]:
        """The candidates beside one, as they cost."""
        order = sorted(
            range(len(self._candidates)), key=lambda one: (self._candidates[one].bit_operations, one)
        )
        place = order.index(number)
        return [order[other] for other in (place - 1, place + 1) if 0 <= other < len(order)]

    def _of_group(self, group: int, harms: Mapping[Key, float]) -> list[float]:
        """The harms of one group: none is below 0, nor below that of a candidate with more bits."""
        interaction = (1 + _ratio(harms[group, _WITHIN], harms[group, _ALONE], _MOST_INTERACTION)) / 2
        stored = _ratio(harms[_STORED], harms[_WHOLE], 1.0)
        found = [0.0] * len(self._candidates)
        for number in self._integers:
            candidate = self._candidates[number]
            is_stored = any(
                one.has_codes and bits_of(candidate, one) == one.bits for one in self._held[group]
            )
            found[number] = interaction * harms[group, number] * (stored if is_stored else 1.0)
        return [
            max(0.0, *(h for h, wide in zip(found, self._candidates, strict=True) if wide.is_as_wide_as(one)))
            for one in self._candidates
        ]

    def _measure(
        self, groups: Sequence[int], data: Data, start: int, stop: int, on_run: Callable[[], None]
    ) -> dict[Key, np.ndarray]:
        """What each adds to how bad the parts are, and to the noise."""
        found: dict[Key, np.ndarray] = {}
        for index in range(0, len(groups), _BATCH):
            labels = self._labels[start:stop] if self._labels is not None else None
            batch = groups[index : index + _BATCH]
            found |= self._measure_batch(batch, islice(data, start, stop), labels, on_run)
        return found

    def _measure_batch(
        self, groups: Sequence[int], feeds: Iterable[Feed], labels: Labels | None, on_run: Callable[[], None]
    ) -> dict[Key, np.ndarray]:
        variants: dict[Key, Runnable] = {_FLOAT: self._off, _WHOLE: self._whole}
        same: dict[Key, Key] = {}  # as compiled, a group often has one of the candidates
        for group in groups:
            held = self._held[group]
            own = {one.name: self._whole.quantizers[one.name].encoding or OFF for one in held}
            variants[group, _WITHIN] = self._whole.with_encodings({one.name: OFF for one in held})
            for number in self._integers:
                settings = self._settings(group, number)
                variants[group, number] = self._off.with_encodings(settings)
                if all(settings[name] is setting for name, setting in own.items()):
                    same[group, _ALONE] = group, number
            if (group, _ALONE) not in same:
                variants[group, _ALONE] = self._off.with_encodings(own)
        bad = self._judge(self._off, variants, feeds, labels, on_run)
        bad |= {key: bad[other] for key, other in same.items()}
        unharmed, whole = bad.pop(_FLOAT), bad[_WHOLE]
        with np.errstate(invalid="ignore"):
            return {key: whole - one if key[1] == _WITHIN else one - unharmed for key, one in bad.items()}

    def _as_stored(self, data: Data, stop: int) -> dict[Key, np.ndarray]:
        """What the model adds as it is lowered, against the float model: some passes change biases, too."""
        variants: dict[Key, Runnable] = {_FLOAT: self._reference, _STORED: self._stored}
        labels = self._labels[:stop] if self._labels is not None else None
        bad = self._judge(self._reference, variants, islice(data, stop), labels, lambda: None)
        with np.errstate(invalid="ignore"):
            return {_STORED: bad[_STORED] - bad[_FLOAT]}

    def _judge(
        self,
        reference: Runnable,
        variants: Mapping[Key, Runnable],
        feeds: Iterable[Feed],
        labels: Labels | None,
        on_run: Callable[[], None],
    ) -> dict[Key, np.ndarray]:
        noise = self._sqnr.start if self._sqnr is not None else lambda: None
        summed = {key: _Summed(self._metric, noise()) for key in variants}
        judged: list[Judged] = [(variant, [summed[key]]) for key, variant in variants.items()]
        judge(reference, judged, feeds, labels, on_run)
        return {key: one.value() for key, one in summed.items()}

    def _setting(self, held: Held, candidate: Candidate) -> Setting:
        """The grid of a quantizer at the width of a candidate, calibrated once."""
        bits = bits_of(candidate, held)
        if (held.name, bits) not in self._grids:
            self._grids[held.name, bits] = self._calibrated(held, bits)
        return self._grids[held.name, bits]

    def _calibrated(self, held: Held, bits: int) -> Setting:
        """As calibration found it: passes behind that move it know no other widths."""
        own = self._whole.quantizers[held.name].encoding
        grid_of = self._compiled.grids.get(held.id)
        if own is None or bits == held.bits or grid_of is None:
            return own or ON if bits == held.bits else bits
        assert isinstance(own.spec.format, IntFormat)
        narrow = own.spec.narrow or (held.is_weight and self._compiled.target.weight.narrow)
        return grid_of(own.spec.resized(IntFormat(bits, own.spec.format.signed), narrow))


def settable_simulation(compiled: Compiled, threads: int | None) -> Simulation:
    """One in which every weight can be set: those with chosen codes have the nearest ones instead.

    Biases are those of the float model: corrected ones would be an error where quantizers are off.
    """
    ir = compiled.ir
    with ir.transaction.trial():
        for quantizer in ir.quant.quantizers():
            if quantizer.codes is not None:
                ir.quant.drop_codes(ir.quant.sites_of(quantizer)[0].value.original, "to be changed")
        return compiled.open_simulation(settable_weights=True, float_biases=True, threads=threads)


def _blended(found: dict[Key, np.ndarray]) -> dict[Key, float]:
    """One number for the harm of each: the drop of the metric, and noise in its unit where that is unsure.

    Noise is put into the unit of the metric by what all drops and all noises are in sum. It is expected to be
    wrong by about as much as it is, so it counts less the better the drops of the parts agree.
    """
    drops, errors, noises = {}, {}, {}
    for key, vector in found.items():
        parts = vector[:-1][np.isfinite(vector[:-1])]
        drops[key] = float(parts.mean()) if parts.size else math.nan
        spread = float(parts.std(ddof=1)) if parts.size > 1 else 0.0
        errors[key] = spread / math.sqrt(parts.size) if spread else math.inf  # equal parts are too coarse
        noises[key] = float(vector[-1])
    if any(map(math.isnan, noises.values())):
        return {key: 0.0 if math.isnan(drop) else drop for key, drop in drops.items()}
    candidates = [key for key in found if isinstance(key[1], int)]
    total_drop = sum(drops[key] for key in candidates if drops[key] > 0)  # NaN is not
    total_noise = sum(noises[key] for key in candidates if noises[key] > 0)
    if not total_drop or not total_noise:
        return noises
    found_harms = {}
    for key, noise in noises.items():
        expected = noise * total_drop / total_noise
        trust = expected**2 / (expected**2 + errors[key] ** 2) if not math.isnan(drops[key]) else 0.0
        found_harms[key] = trust * drops[key] + (1 - trust) * expected if trust else expected
    return found_harms


def _ratio(after: float, before: float, most: float) -> float:
    """A ratio from 0 to the most; 1 where there is nothing to compare with."""
    return min(max(after / before, 0.0), most) if before > 0 else 1.0


def _most_harmful(harms: dict[Key, float]) -> list[int]:
    """The groups that hold nearly all of the harm, in their order."""
    worst: dict[int, float] = {}
    for group, harm in ((group, harm) for (group, of), harm in harms.items() if isinstance(of, int)):
        worst[group] = max(worst.get(group, 0.0), harm)
    total, held, found = sum(worst.values()), 0.0, []
    for group in sorted(worst, key=lambda group: -worst[group]):
        if held >= _DECISIVE_SHARE * total:
            break
        held += worst[group]
        found.append(group)
    return sorted(found)
