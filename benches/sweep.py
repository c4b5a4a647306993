"""A thousand settings of one simulation against a thousand plain runs of it.

    python benches/sweep.py mobilenetv2

Every setting turns one quantizer off or gives it another width, and is made and run once, in turns with plain
runs. Time is the processor time of the process with one thread; medians are compared. The last columns are
for a session that can set the grids of weights too, and rounds them at every run.
Ends with exit code 1 above the limit.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Iterator

import click
from models.networks import NETWORKS, feeds
from rich.console import Console
from rich.table import Table

import qc

LIMIT = 1.10
_WEIGHT_SETTINGS = 25


def settings(simulation: qc.Simulation) -> Iterator[dict[str, int | str]]:
    """Off and six widths for each quantizer in turn, again and again."""
    choices: tuple[int | str, ...] = ("off", 2, 3, 4, 6, 7, 16)
    return (
        {name: choice} for choice, name in itertools.cycle(itertools.product(choices, simulation.quantizers))
    )


def in_turns(plain: qc.Simulation, varied: qc.Simulation, count: int) -> float:
    """The median time of making and running a setting over that of a plain run."""
    feed = next(feeds(1))
    plain.run(feed)
    varied.run(feed)
    times: tuple[list[float], list[float]] = ([], [])
    for setting in itertools.islice(settings(varied), count):
        start = time.process_time()
        plain.run(feed)
        middle = time.process_time()
        varied.with_encodings(setting).run(feed)
        times[0].append(middle - start)
        times[1].append(time.process_time() - middle)
    return statistics.median(times[1]) / statistics.median(times[0])


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[NETWORK]...", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--count", default=1000, show_default=True, help="Settings to run.")
def main(names: tuple[str, ...], count: int) -> None:
    """Prints one row per network."""
    table = Table(
        "network", "quantizers", "settings", "to plain runs", "limit", "with weights", "to plain runs"
    )
    missed = False
    for name in names or ("mobilenetv2",):
        compiled = qc.compile(NETWORKS[name](), "w8a8", data=lambda: feeds(4), target="ort-cpu")
        simulation = compiled.open_simulation(threads=1)
        ratio = in_turns(simulation, simulation, count)
        weights = compiled.open_simulation(settable_weights=True, threads=1)
        with_weights = in_turns(simulation, weights, min(count, _WEIGHT_SETTINGS))
        missed |= ratio > LIMIT
        numbers = (len(simulation.quantizers), count, f"{ratio:.3f}", f"{LIMIT:.2f}", len(weights.quantizers))
        table.add_row(name, *map(str, numbers), f"{with_weights:.2f}")
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
