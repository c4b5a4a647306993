"""What a page colours its ops by: their bits, errors, times or the harm of their quantizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from qc.diff.wiring import GraphWiring, Read, Wiring
from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.rendering.words import decibels, milliseconds

from .modules import Module, ops_of
from .precision import float_reads
from .words import TIMES

_FLOAT_BITS = 32
_HARMLESS = 60.0  # dB, at which 8 bits are exact enough for anything


@dataclass(frozen=True)
class Overlay:
    """Numbers of ops, and how a page shows them.

    Attributes:
        name: in a word.
        title: what the numbers are, for the legend.
        ends: what no colour and full colour stand for.
        values: by op.
        combine: the number of a module from those of its ops.
        strength: how much colour a number has, 0 to 1.
        words: a number in words.
        is_relative: whether the most coloured box of each picture has full colour.
    """

    name: str
    title: str
    ends: tuple[str, str]
    values: Mapping[Op, float]
    combine: Callable[[Iterable[float]], float]
    strength: Callable[[float], float]
    words: Callable[[float], str]
    is_relative: bool = False

    def mark(self, subject: Op | Module) -> tuple[float, str] | None:
        """The colour of an op or a module, and its number in words; None if nothing is known of it."""
        ops = [subject] if isinstance(subject, Op) else ops_of(subject.items)
        found = [self.values[op] for op in ops if op in self.values]
        if not found:
            return None
        value = self.combine(found)
        return round(min(max(self.strength(value), 0.0), 1.0), 3), self.words(value)


def bits_overlay(model: Model) -> Overlay:
    """By how wide the numbers are that an op reads: the widest data, times the weights."""
    found = {op: float(bits) for scope in Wiring(model).scopes.values() for op, bits in _bits(scope)}
    whole = math.log2(_FLOAT_BITS**2)
    ends = f"4 {TIMES} 4", f"float {TIMES} float"
    title = f"bits of data {TIMES} bits of weights"

    def strength(bits: float) -> float:
        return (math.log2(bits) - 4) / (whole - 4)

    return Overlay("bits", title, ends, found, max, strength, lambda bits: f"{bits:.0f} bit operations")


def time_overlay(model: Model, seconds: Mapping[str, float], whole: float) -> Overlay:
    """By the share of the time.

    Args:
        model: what is drawn.
        seconds: of ops, by how messages name them.
        whole: of all that runs.
    """
    found = {op: seconds[op.label] for op in model.ops() if op.label in seconds}

    def words(value: float) -> str:
        return f"{milliseconds(value)}, {value / whole:.1%}"

    def strength(value: float) -> float:
        return math.sqrt(value / whole)  # what takes a hundredth of the most is seen as well

    title = "time of a run on this machine"
    ends = "none", "most in a picture"
    return Overlay("time", title, ends, found, math.fsum, strength, words, is_relative=True)


def error_overlay(model: Model, errors: Mapping[str, float]) -> Overlay:
    """By the SQNR that rounding one tensor alone gives, in dB; the worst at an op.

    Args:
        model: what is drawn.
        errors: of ops, by how messages name them.
    """
    found = {op: errors[op.label] for op in model.ops() if op.label in errors}
    return _noise("error", "error of rounding one tensor alone", found)


def sensitivity_overlay(model: Model, harms: Mapping[str, float]) -> Overlay:
    """By the SQNR of the outputs while one quantizer alone is on, in dB; the worst at an op.

    Args:
        model: what is drawn.
        harms: of tensors, by name; those of constants count for the ops that read them.
    """
    found: dict[Op, float] = {}
    for scope in Wiring(model).scopes.values():
        for op in scope.ops:
            constants = [read.value for read in scope.reads[op] if read and constant_data(read.value)]
            values = [value for value in (*scope.results[op], *constants) if value is not None]
            own = [harms[value.name] for value in values if value.name in harms]
            if own:
                found[op] = min(own)
    return _noise("sensitivity", "error of the outputs by its quantizers alone", found)


def _noise(name: str, title: str, found: Mapping[Op, float]) -> Overlay:
    ends = decibels(_HARMLESS), decibels(0.0)
    return Overlay(name, title, ends, found, min, lambda value: 1 - value / _HARMLESS, decibels)


def _bits(scope: GraphWiring) -> Iterator[tuple[Op, int]]:
    """The product of the widths of data and of weights; for what reads no constants, of two of its inputs."""
    for op in scope.ops:
        reads = float_reads(scope, op)
        weights = [_width(read) for read in reads if constant_data(read.value) is not None]
        data = [_width(read) for read in reads if constant_data(read.value) is None]
        if data:
            yield op, max(data) * (weights or data)[0]  # a bias comes behind the weights


def _width(read: Read) -> int:
    return read.quantizations[-1].spec.format.bits if read.quantizations else _FLOAT_BITS
