"""Time of calibration per sample, by what is collected, as ratios to the float model in the same run.

    python benches/calibration.py resnet50 mobilenetv2 vit

One thread; the reader and the float model run in turns on every feed, and the medians are compared. Time is
the processor time of the process, which other programs on the machine disturb less than the clock. The
networks have the shapes of the real ones and random weights (see networks.py). Ends with exit code 1 above a
limit.
"""

from __future__ import annotations

import sys

import click
from networks import NETWORKS, feeds
from rich.console import Console
from rich.table import Table
from speed import Laps, observed, single

import qc
from qc.ir.executor import Observation
from qc.runtime import OrtExecutor

LIMITS = {
    "min-max": {"resnet50": 1.10, "mobilenetv2": 1.30, "vit": 1.10},
    "histogram": {"resnet50": 1.5, "mobilenetv2": 2.0, "vit": 1.5},
}
REQUESTS = {"min-max": Observation(), "histogram": Observation(histogram=True)}


def measure(name: str, samples: int) -> dict[str, float]:
    """The ratio of each kind of calibration."""
    model = NETWORKS[name]()
    compiled = qc.compile(model, "w8a8", data=lambda: feeds(1), target="ort-cpu")
    float_run, tensors = single(model), observed(compiled)
    ratios = {}
    for kind, request in REQUESTS.items():
        laps = Laps(float_run, samples)
        OrtExecutor(threads=1).observe(compiled.float_model, dict.fromkeys(tensors, request), laps)
        ratios[kind] = laps.ratio()
    return ratios


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[NETWORK]...", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--samples", default=21, show_default=True, help="Feeds to calibrate on.")
def main(names: tuple[str, ...], samples: int) -> None:
    """Prints one row per network and kind."""
    table = Table("network", "collected", "per sample / float", "limit")
    missed = False
    for name in names or NETWORKS:
        for kind, ratio in measure(name, samples).items():
            limit = LIMITS[kind][name]
            missed |= ratio > limit
            table.add_row(name, kind, f"{ratio:.3f}", f"{limit:.2f}")
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
