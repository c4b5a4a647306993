"""The precision of every op at a glance, in the order of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from qc.diff.wiring import GraphWiring, Read, Wiring
from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_traits import is_parameter
from qc.ir.graph import Op
from qc.ir.model import Model

from .palette import format_class
from .words import TIMES, format_of


class OpPrecision(NamedTuple):
    """An op.

    Attributes:
        data, weights: the classes of their formats; empty for an op without.
        title: all formats in words.
    """

    data: str
    weights: str
    title: str


def precision_map(model: Model) -> list[OpPrecision]:
    """All ops that read float numbers, quantized or not; those of bodies come after the main graph.

    Ops that read nothing but what a region makes within run as one with others, and are left out.
    """
    wiring = Wiring(model)
    return [found for scope in wiring.scopes.values() for op in scope.ops for found in _precision(scope, op)]


def float_reads(scope: GraphWiring, op: Op) -> list[Read]:
    """The numbers that an op computes on, quantized or not: no parameters, and nothing within a region."""
    region = op.region
    return [
        read
        for port, read in enumerate(scope.reads[op])
        if read is not None
        and (read.quantizations or read.value.is_float)
        and not is_parameter(op, port)
        and not (region is not None and region.is_inner(read.value))
    ]


def _precision(scope: GraphWiring, op: Op) -> Iterator[OpPrecision]:
    reads = float_reads(scope, op)
    if reads:
        weights = [read for read in reads if constant_data(read.value) is not None]
        data = [read for read in reads if read not in weights]
        told = f" {TIMES} ".join(format_of(read) or "float" for read in reads)
        yield OpPrecision(_style(data), _style(weights), f"{op.label}: {told}")


def _style(reads: list[Read]) -> str:
    """The class of what is read first; float wins, as it decides how an op runs."""
    formats = [format_of(read) for read in reads]
    return format_class("" if "" in formats else formats[0]) if formats else ""
