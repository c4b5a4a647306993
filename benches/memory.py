"""Peak memory of calibration with few and with many samples; it must not depend on their number.

    python benches/memory.py --network mobilenetv2

Every measurement is a process of its own that quantizes the network from a stream of feeds; the peak resident
size is what the operating system reports at its end. The process that starts them imports little, because a
child begins with the peak of its parent.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import click

SAMPLES = (16, 512)
LIMIT = 1.05


def measure(network: str, samples: int) -> float:
    """Quantizes in this very process; the peak resident size in MB."""
    from models.networks import NETWORKS, feeds

    import qc

    qc.compile(NETWORKS[network](), "w8a8", data=lambda: feeds(samples), target="ort-cpu")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--network", default="mobilenetv2", show_default=True, help="resnet50, mobilenetv2 or vit.")
@click.option("--samples", type=int, help="Measure one number of samples in this process and print it.")
def main(network: str, samples: int | None) -> None:
    """Prints the two peaks and their ratio; exit code 1 if it is above the limit."""
    if samples is not None:
        click.echo(f"{measure(network, samples):.1f}")
        return
    peaks = []
    for count in SAMPLES:
        command = [sys.executable, __file__, "--network", network, "--samples", str(count)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks.append(float(output.split()[-1]))
        click.echo(f"{network}  {count:4} samples  peak {peaks[-1]:7.1f} MB")
    ratio = peaks[1] / peaks[0]
    click.echo(f"{network}  ratio {ratio:.3f}  (limit {LIMIT})")
    sys.exit(0 if ratio <= LIMIT else 1)


if __name__ == "__main__":
    main()
