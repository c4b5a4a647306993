"""How fast results run beside the float model on this machine, and what makes them faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from onnx import ModelProto

from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.ir.errors import QcError
from qc.ir.model import Model
from qc.runtime import Data, Latency, OpenModel
from qc.runtime.speed.latency import pinned_processors, time_in_turns

_SECONDS, _ROUNDS = 2.0, 500
# What is less than this share faster is as fast.
_NOISE = 0.02
# Two sessions of one model differ by up to this share, and by more in a quarter of the rounds.
_AS_FAST = 0.005


class Pace:
    """Times models beside the float model, in turns, on the first sample.

    Args:
        compilation: the float model, and the threads to run with; one if it does not tell.
        data: the samples.
    """

    def __init__(self, compilation: Compilation, data: Data) -> None:
        self._threads = compilation.threads or 1
        self._base_dir = compilation.base_dir
        self._feed = next(iter(data))
        self._reference = self._opened(compilation.reference())

    def of(self, made: Compiled) -> Latency:
        """The latency of a result, with its ratio to that of the float model."""
        with pinned_processors(self._threads):
            models = [self._reference, self._opened(made.model)]
            latency = time_in_turns(models, self._feed, _SECONDS, _ROUNDS).latencies[1]
        assert latency is not None
        return latency

    def _opened(self, model: ModelProto | str | Path) -> OpenModel:
        return OpenModel(model, base_dir=self._base_dir, threads=self._threads)


def is_slower(latency: Latency) -> bool:
    """Whether a model is slower than float in three quarters of the rounds, so not by chance."""
    return latency.ratio_quartiles[0] > 1 + _AS_FAST


def may_be_slower(latency: Latency) -> bool:
    """Whether a model is slower than float in most rounds, which may be chance."""
    return latency.ratio > 1 + _AS_FAST


def quicker_rules(
    pace: Pace, compile: Callable[[Sequence[str]], Compiled], made: Compiled, rules: Sequence[str]
) -> list[str]:
    """Rules that leave kinds of ops in float with which a result is the fastest, found one after the other.

    Args:
        pace: times results.
        compile: what some rules make; where quantizers stand and what they are must be that of the result.
        made: what ``rules`` make.
        rules: what to begin with.

    Returns:
        These, and maybe more.
    """
    chosen, ratio = list(rules), pace.of(made).ratio
    for op_type in _quantized_types(made.ir):
        trial = [*chosen, f"type:{op_type}=off"]
        try:
            found = pace.of(compile(trial)).ratio
        except QcError:  # nothing would be left in integers
            continue
        if found < ratio * (1 - _NOISE):
            chosen, ratio = trial, found
    return chosen


def _quantized_types(model: Model) -> Iterator[str]:
    """The types of ops whose results or data are quantized, the most frequent first."""
    found: Counter[str] = Counter()
    for op in model.ops():
        read = enumerate(op.inputs)
        if any(value is not None and model.quant.of_use(value, op, port) is not None for port, value in read):
            found[op.op_type] += 1
    return (op_type for op_type, _ in found.most_common())
