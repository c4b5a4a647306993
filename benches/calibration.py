"""Time to open and run a model in which every tensor is observed, and how it grows with their number.

    python benches/calibration.py

A chain of ops on a few numbers, so that hardly anything but opening counts. Times are processor time. Growth
is that of the seconds beyond that of the tensors, from the smallest chain to the largest. What calibration
costs per sample is in speed.py. Ends with exit code 1 when growth is above the limit.
"""

from __future__ import annotations

import sys
import time

import click
import numpy as np
from models.large_graph import chain
from rich.console import Console
from rich.table import Table

from qc.ir.executor import Observation
from qc.runtime import OrtExecutor

LENGTHS = (800, 1600, 3200, 6400)
REQUESTS = {
    "min-max": Observation(),
    "histogram": Observation("histogram"),
    "moments": Observation("moments"),
}
GROWTH_LIMIT = 2.0


def measure(length: int, request: Observation) -> float:
    """Seconds to observe all tensors of a chain on one sample."""
    model = chain(length)
    names = [name for node in model.graph.node for name in node.output]
    start = time.process_time()
    OrtExecutor(threads=1).observe(model, dict.fromkeys(names, (request,)), [{"x": np.ones(4, np.float32)}])
    return time.process_time() - start


@click.command(help=(__doc__ or "").partition("\n")[0])
def main() -> None:
    """Prints one row for each kind of statistics."""
    table = Table("seconds", *(f"{length:,} ops" for length in LENGTHS), "growth", "limit")
    missed = False
    measure(8, Observation())  # what is loaded when first needed takes no part
    for kind, request in REQUESTS.items():
        seconds = [measure(length, request) for length in LENGTHS]
        growth = seconds[-1] / seconds[0] / (LENGTHS[-1] / LENGTHS[0])
        missed |= growth > GROWTH_LIMIT
        table.add_row(kind, *(f"{value:.2f}" for value in seconds), f"{growth:.2f}", f"{GROWTH_LIMIT:g}")
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
