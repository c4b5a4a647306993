"""Time and peak memory of ``round-weights``, and how they grow with layers and with samples.

    python benches/sequential.py

A transformer in which each block has weights of its own, of few numbers, so that what counts is what a layer
costs beside its arithmetic: with more and more blocks, and with more and more samples. Each measurement is a
process of its own. Time is processor time of the pass alone, without calibration. Ends with exit code 1 when
a limit is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import click
import numpy as np
from rich.console import Console
from rich.table import Table

BLOCKS = (4, 16, 64)
SAMPLES = (64, 256, 1024)
GROWTH_LIMIT, MEMORY_LIMIT = 1.3, 1.2
PREPARE = "fold-constants,eliminate-dead-code,match-supergroups,insert-quantizers{weight=int4}"
PREPARE += ",annotate-per-channel,tie-quantizers,calibrate"


def measure(blocks: int, samples: int) -> dict[str, float]:
    """Seconds of the pass and the peak of this process in MB."""
    from models.large_graph import BATCH, TOKENS, WIDTH, LargeTransformer, model_of_blocks
    from scale import peak

    from qc.ir import lift
    from qc.passes import PassContext, parse_pipeline, run_pipeline
    from qc.passes.framework.target import load_target
    from qc.runtime import OrtExecutor

    class OwnWeights(LargeTransformer):
        def block(self, x: str) -> str:
            self.make_weights()
            return super().block(x)

    rng = np.random.default_rng(0)
    mask = np.zeros((BATCH, 1, TOKENS, TOKENS), np.float32)
    feeds = [
        {"x": rng.normal(size=(BATCH, TOKENS, WIDTH)).astype(np.float32), "mask": mask}
        for _ in range(samples)
    ]
    model = lift(model_of_blocks(OwnWeights(0), blocks))
    context = PassContext(data=feeds, executor=OrtExecutor(threads=1), target=load_target("ort-cpu"))
    run_pipeline(parse_pipeline(PREPARE), model, context)
    start = time.process_time()
    run_pipeline(parse_pipeline("round-weights"), model, context)
    return {"seconds": time.process_time() - start, "megabytes": peak() / 1e6}


def measured(blocks: int, samples: int) -> dict[str, float]:
    """Runs :func:`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", str(blocks), str(samples)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--measure", "sizes", type=(int, int), help="Blocks and samples to measure in this process.")
def main(sizes: tuple[int, int] | None) -> None:
    """Prints a row for each size, and the growth from the first to the last."""
    if sizes is not None:
        click.echo(json.dumps(measure(*sizes)))
        return
    missed = False
    table = Table("blocks", "samples", "seconds", "MB", "growth", "limit")
    for cases, name, limit in (
        ([(blocks, 16) for blocks in BLOCKS], "seconds", GROWTH_LIMIT),
        ([(BLOCKS[0], samples) for samples in SAMPLES], "megabytes", MEMORY_LIMIT),
    ):
        found = [measured(*case) for case in cases]
        growth = found[-1][name] / found[0][name] / (cases[-1][0] / cases[0][0])  # of that for each block
        missed |= growth > limit
        for case, one in zip(cases, found, strict=True):
            last = (f"{growth:.2f} ({name})", f"{limit:g}") if one is found[-1] else ("", "")
            table.add_row(*map(str, case), f"{one['seconds']:.2f}", f"{one['megabytes']:.0f}", *last)
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
