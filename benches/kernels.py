"""Time of the native kernels as ratios to a copy of the same tensor in the same run.

    python benches/kernels.py --rounds 15

One thread, processor time, runs in turns, medians. Tensors of two sizes: one that fits into the second cache
together with its result, and one that is larger than all caches. Where tensors fit into the cache, a turn is
twenty calls, since the run before has left other tensors there. Copy and kernels write to memory that has
been written before. What a call from Python costs is measured on an empty tensor and taken away. Ends with
exit code 1 if an integer format takes more than 1.3 times the copy.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable

import click
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import FloatFormat
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.runtime.native import kernels

LIMIT = 1.3
CALLS = {"in cache": 20, "in memory": 1}  # of a turn
CHANNELS = 1024
BYTES = {"in cache": 1 << 19, "in memory": 1 << 28}
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
GRANULARITIES: dict[str, Granularity] = {
    "per tensor": PerTensor(),
    "per channel, first axis": PerChannel(0),
    "per channel, last axis": PerChannel(-1),
    "per block of 32, last axis": PerBlock(-1, 32),
    "per block of 32, first axis": PerBlock(0, 32),
}

Run = Callable[[], object]


def encoding_for(format: str, granularity: Granularity, shape: tuple[int, int]) -> Encoding:
    """A grid with a scale of its own for every group, which covers most of a normal distribution."""
    spec = QuantSpec.of(format, granularity=granularity)
    size: tuple[int, ...] = ()
    if isinstance(granularity, PerChannel):
        size = (shape[granularity.axis],)
    elif isinstance(granularity, PerBlock):
        axis = granularity.axis % 2
        size = tuple(-(-n // granularity.size) if i == axis else n for i, n in enumerate(shape))
    scale = np.random.default_rng(0).uniform(0.02, 0.03, size).astype(np.float32)
    return Encoding(spec, scale, np.zeros(size, np.int32))


def quantizers(x: np.ndarray, y: np.ndarray) -> dict[str, Run]:
    """Fake quantization of ``x`` to ``y`` in every way; names of integer formats begin with ``int``."""

    def run(format: str, granularity: Granularity, rounding: Rounding = Rounding.HALF_EVEN) -> Run:
        encoding = encoding_for(format, granularity, x.shape)
        return lambda: kernels.fake_quantize(x, encoding, rounding, out=y)

    runs = {f"int8 {name}": run("int8", granularity) for name, granularity in GRANULARITIES.items()}
    for rounding in (Rounding.HALF_AWAY, Rounding.HALF_UP):
        runs[f"int8 per tensor, {rounding.value}"] = run("int8", PerTensor(), rounding)
    for name in ("float16", "bfloat16", "float8e4m3fn", "float8e5m2"):
        runs[FloatFormat(name).name] = run(name, PerTensor())
    return runs


def observers(x: np.ndarray) -> dict[str, Run]:
    """The statistics of ``x``."""
    return {
        "range": lambda: kernels.observe(x),
        "range per channel, first axis": lambda: kernels.observe(x, axis=0),
        "range per channel, last axis": lambda: kernels.observe(x, axis=1),
        "range and histogram": lambda: kernels.observe(x, histogram=True),
    }


def seconds_of(runs: dict[str, Run], rounds: int, calls: int) -> dict[str, list[float]]:
    """Processor seconds of a call of every run, in turns of so many calls, after one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round in range(-1, rounds):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(calls):
                run()
            if round >= 0:
                times[name].append((time.process_time() - start) / calls)
    return times


def ratios(dtype: np.dtype, place: str, rounds: int) -> dict[str, float]:
    """The time of every kernel on a tensor in the cache or in memory, over that of a copy."""
    shape = (BYTES[place] // dtype.itemsize // CHANNELS, CHANNELS)
    x = np.random.default_rng(1).standard_normal(shape, np.float32).astype(dtype)
    y, empty = np.zeros_like(x), np.zeros((0, CHANNELS), dtype)
    in_place = x.copy()
    runs = {
        "copy": lambda: ctypes.memmove(y.ctypes.data, x.ctypes.data, x.nbytes),
        **quantizers(x, y),
        "int8 per tensor, in place": quantizers(in_place, in_place)["int8 per tensor"],
        **observers(x),
    }
    idle = {
        "copy": lambda: ctypes.memmove(empty.ctypes.data, empty.ctypes.data, 0),
        "quantize": quantizers(empty, empty)["int8 per tensor"],
        "observe": observers(empty)["range"],
    }
    seconds = {
        name: statistics.median(times) for name, times in seconds_of(runs, rounds, CALLS[place]).items()
    }
    # A call that has nothing to do takes so little that anything else disturbs it.
    calls = {name: min(times) for name, times in seconds_of(idle, 11, CALLS["in cache"]).items()}
    observing = observers(x).keys()
    copy = seconds.pop("copy") - calls["copy"]
    return {
        name: (taken - calls["observe" if name in observing else "quantize"]) / copy
        for name, taken in seconds.items()
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rounds", default=15, show_default=True, help="Runs of every kernel on a tensor in memory.")
@click.option("--instruction-set", help="One that this processor has; the best by default.")
def main(rounds: int, instruction_set: str | None) -> None:
    """Prints one row per kernel."""
    if instruction_set:
        kernels.use_instruction_set(instruction_set)
    columns = {
        (name, place): ratios(np.dtype(dtype), place, rounds)
        for name, dtype in TYPES.items()
        for place in BYTES
    }
    table = Table("times a copy", *(f"{name}, {place}" for name, place in columns))
    missed = False
    for row in next(iter(columns.values())):
        values = [column[row] for column in columns.values()]
        missed |= row.startswith("int") and max(values) > LIMIT
        table.add_row(row, *(f"{value:.2f}" for value in values))
    Console(width=160).print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
