"""The loop in which models are judged: beside a reference, on one feed after the other.

The verdict after a compilation has a loop of its own (``qc/verdict/measure.py``), which ends by the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from qc.ir.errors import DataError
from qc.ir.executor import Feed

from ..metrics.metric import Sample, Tally
from ..sessions.runnable import Runnable

Labels = Sequence[Any] | np.ndarray


# Something that runs, and what is summed up of its outputs. The reference itself can be judged, too.
Judged = tuple[Runnable, Sequence[Tally[Any]]]


def judge(
    reference: Runnable,
    judged: Sequence[Judged],
    feeds: Iterable[Feed],
    labels: Labels | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> int:
    """Runs everything on every feed and adds the outputs to the tallies; no outputs are held any longer.

    Args:
        reference: what is right.
        judged: what is compared with it; it gives the outputs of the reference, and maybe others.
        labels: one for each feed, for the tallies.
        on_run: called after every run of something that is judged.

    Returns:
        How many feeds there were.

    Raises:
        DataError: there are more labels than feeds, or fewer.
        ModelError: something does not run.
    """
    count = 0
    for feed, label in labelled(feeds, labels):
        expected = reference.run(feed)
        for runnable, tallies in judged:
            outputs = expected if runnable is reference else runnable.run(feed)
            sample = Sample(count, outputs, expected, feed, label)
            for tally in tallies:
                tally.add(sample)
            on_run()
            del outputs, sample  # or they would be held until those of the next feed are there
        del expected
        count += 1
    return count


def labelled(feeds: Iterable[Feed], labels: Labels | None) -> Iterator[tuple[Feed, Any]]:
    """The feeds with their labels, None where there are none.

    Raises:
        DataError: there are more labels than feeds, or fewer.
    """
    count = 0
    for index, feed in enumerate(feeds):
        if labels is not None and index >= len(labels):
            check_labels(labels, index + 1, "at least ")
        yield feed, labels[index] if labels is not None else None
        count += 1
    check_labels(labels, count)


def check_labels(labels: Labels | None, feeds: int, known: str = "") -> None:
    """Raises DataError if there are labels, and not one for each of so many feeds."""
    if labels is not None and len(labels) != feeds:
        given = "is 1 label" if len(labels) == 1 else f"are {len(labels)} labels"
        raise DataError(f"there {given} for {known}{feeds} feeds; give one for each feed")
