"""How much groups of quantizers harm, by any metric: off, alone, or in another format, in one session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from qc.ir.executor import Feed

from ..metrics.metric import Metric
from ..sessions.runnable import Runnable
from .judge import Labels, judge
from .simulation import OFF, Setting, Simulation

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class Harm(Generic[Group]):
    """The result of :func:`harm`: a metric by the groups of quantizers.

    Attributes:
        feeds: how many feeds were run.
        whole: the metric as the simulation is set.
        changed: the metric with one group changed, all others as they are.
        alone: the metric with one group as it is, all others off; empty if it was not asked for.
    """

    feeds: int
    whole: float
    changed: dict[Group, float]
    alone: dict[Group, float]


def harm(
    simulation: Simulation,
    groups: Mapping[Group, Collection[str]],
    metric: Metric,
    feeds: Iterable[Feed],
    *,
    setting: Setting = OFF,
    alone: bool = False,
    reference: Runnable | None = None,
    labels: Labels | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> Harm[Group]:
    """Changes one group of quantizers after the other and measures what that does, all in one session.

    Args:
        simulation: with its settings.
        groups: the quantizers of every group, by their names or tensors.
        metric: what is measured.
        feeds: what to run on.
        setting: what the quantizers of a group are set to.
        alone: measure every group with all other quantizers off, too.
        reference: what is right; default: the simulation with all quantizers off.
        labels: as for :func:`judge`.
        on_run: called after every run but those of the reference.

    Raises:
        UsageError: as for :meth:`Simulation.with_encodings`, or the metric does not fit.
        DataError, ModelError: as for :func:`judge`.
    """
    off = simulation.with_encodings(dict.fromkeys(simulation.quantizers, OFF))
    encodings = {name: held.encoding or OFF for name, held in simulation.quantizers.items()}
    variants: list[Simulation] = [simulation]
    for names in groups.values():
        variants.append(simulation.with_encodings(dict.fromkeys(names, setting)))
        if alone:
            held = map(simulation.quantizer_name, names)
            variants.append(off.with_encodings({name: encodings[name] for name in held}))
    judged = [(variant, [metric.start()]) for variant in variants]
    count = judge(reference or off, judged, feeds, labels, on_run)
    whole, *values = (tallies[0].value() for _, tallies in judged)
    step = 2 if alone else 1
    return Harm(
        count,
        whole,
        dict(zip(groups, values[::step], strict=True)),
        dict(zip(groups, values[1::2], strict=True)) if alone else {},
    )
