"""Sound models, from which the hostile ones are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from random import Random

from onnx import ModelProto
from support.corpus import Sample, exported_samples, external_model, operator_samples, own_samples

_LARGEST = 200_000  # bytes; mutants of large models only cost time


@dataclass(frozen=True)
class Source:
    """A sound model and the files that its external data lies in."""

    name: str
    model: ModelProto
    files: dict[str, bytes]


def pick(rng: Random) -> Source:
    """One source; half of the time from the first group, whose models hold the unusual things."""
    (group,) = rng.choices(_GROUPS, weights=(4, 2, 2))
    return rng.choice(group())


def gather() -> None:
    """Makes all sources, which takes some seconds, so that no mutant has to wait for it."""
    for group in _GROUPS:
        group()


@cache
def _own() -> list[Source]:
    return [Source("external", *external_model()), *_sources(own_samples())]


@cache
def _exported() -> list[Source]:
    return _sources(exported_samples())


@cache
def _operators() -> list[Source]:
    return _sources(operator_samples())


_GROUPS = (_own, _exported, _operators)


def _sources(samples: Iterable[Sample]) -> list[Source]:
    small = (sample for sample in samples if sample.model.ByteSize() <= _LARGEST)
    return [Source(sample.name, sample.model, {}) for sample in small]
