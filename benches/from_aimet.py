"""The scripts of examples/from-aimet on AIMET and on qc: seconds, memory, scores, size of the installation.

    python benches/from_aimet.py --aimet-python AIMET/bin/python

AIMET runs in a Python of its own. Seconds are processor time of the whole process, with one thread; memory
is the largest resident set. The folder of packages is counted whole, with pip.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parents[1] / "examples" / "from-aimet"
SCRIPTS = ("quantsim_export.py", "adaround_mixed.py", "block_weights.py")
PYTHON = click.Path(exists=True, dir_okay=False)
IS_SCORE = re.compile(r"\w+ +[01]\.\d{3}")  # AIMET writes its log to the same place


class Measured(NamedTuple):
    """What a script took and printed.

    Attributes:
        seconds: of the processor, user and system.
        memory: the largest resident set, in MiB.
        scores: the lines that hold one, joined.
    """

    seconds: float
    memory: float
    scores: str


@click.command(help=__doc__)
@click.option("--aimet-python", type=PYTHON, required=True, help="a Python that has aimet-onnx 2.42")
@click.option("--qc-python", type=PYTHON, default=sys.executable, help="a Python that has qc")
def main(aimet_python: str, qc_python: str) -> None:
    """Prints the table."""
    libraries = {"AIMET": [aimet_python], "qc": [qc_python, "-m", "qc.compat.aimet_onnx"]}
    table = Table("", "seconds", "memory", "score")
    for script in SCRIPTS:
        for library, command in libraries.items():
            seconds, memory, scores = measured([*command, str(FOLDER / script)])
            table.add_row(f"{script}, {library}", f"{seconds:.1f}", f"{memory:,.0f} MiB", scores)
    for library, python in (("AIMET", aimet_python), ("qc", qc_python)):
        table.add_row(f"site-packages, {library}", "", f"{installed(python):,.2f} GiB", "")
    Console().print(table)


def measured(command: Sequence[str]) -> Measured:
    """Runs a script in a process whose children are its own, so that the system counts nothing else."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        return executor.submit(_run, command).result()


def _run(command: Sequence[str]) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [*command, "--output", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    scores = [" ".join(line.split()) for line in run.stdout.splitlines() if IS_SCORE.fullmatch(line)]
    return Measured(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, ", ".join(scores))


def installed(python: str) -> float:
    """What the packages beside a Python take on the disk, in GiB."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run(
        [python, "-c", asked], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    blocks = (path.lstat().st_blocks for path in Path(folder).rglob("*"))
    return sum(blocks) * 512 / 2**30


if __name__ == "__main__":
    main()
