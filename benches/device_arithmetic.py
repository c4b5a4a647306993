"""Codes of the HTP's emulator against qc's simulations, op by op.

    python benches/device_arithmetic.py                    every kind of op
    python benches/device_arithmetic.py Conv --seeds 8     one, on more random grids
    python benches/device_arithmetic.py --bits 16          data of uint16
    python benches/device_arithmetic.py --record FILE.npz  what tests compare with where there is no emulator

Every model is one op, or two that the device runs as one, between quantize and dequantize ops of uint8 with
random scales and zero points. Ops of one input see all codes, the others random ones. "simulation" rounds
what floats give, "device" is ``to-simulation{device=qnn-htp}``; both as the share of codes that are those
of the emulator and the largest difference in steps; "rms" is the root of the mean square of all. Of 16 bits
there is no other simulation than the plain one, and the factors that rescale sums have few bits, as qc makes
them, unless ``--any-factor`` is given. Needs the extra ``qnn``.
"""

from __future__ import annotations

import io
from pathlib import Path

import click
import numpy as np
from models.device_kinds import KINDS
from models.one_op import OneOp
from onnx import ModelProto, numpy_helper
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.errors import QcError
from qc.runtime.devices.known import DEVICES, open_device, version_of

DEVICE = "qnn-htp"
SIMULATIONS = {8: ("", "{device=qnn-htp}"), 16: ("",)}  # options, by the bits of data


def codes(model: ModelProto, made: np.ndarray) -> np.ndarray:
    """The codes of a result, whose scale and zero point the last node reads."""
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    scale, zero_point = (constants[name] for name in model.graph.node[-1].input[1:3])
    return (np.rint(np.asarray(made, np.float64) / scale) + zero_point).astype(zero_point.dtype)


def simulated(model: ModelProto, feed: dict[str, np.ndarray], options: str) -> np.ndarray:
    """The codes of a simulation."""
    compiled = qc.compile(model, f"import-qdq, to-simulation{options}")
    return codes(model, next(iter(qc.Simulation(compiled.simulation).run(feed).values())))


def compared(found: np.ndarray, wanted: np.ndarray) -> tuple[int, int, int, float]:
    """Equal codes, codes, the largest difference, and the sum of the squares of all."""
    apart = np.abs(found.astype(int) - wanted.astype(int))
    return int((apart == 0).sum()), apart.size, int(apart.max()), float(np.square(apart).sum())


def row(name: str, bits: int, fits: bool, seeds: int, recorded: dict[str, np.ndarray]) -> list[str]:
    """One line of the table; the first model is kept in ``recorded``."""
    columns: dict[str, list[tuple]] = {option: [] for option in SIMULATIONS[bits]}
    for seed in range(seeds):
        one = OneOp(np.random.default_rng(seed), bits, fits)
        model = KINDS[name](one)
        try:
            wanted = codes(model, next(iter(open_device(DEVICE).open(model).run(one.feed).values())))
        except QcError as error:
            return [name, f"refused: {error}"[:60], "", "", "", "", ""]
        for options, counts in columns.items():
            counts.append(compared(simulated(model, one.feed, options), wanted))
        if not seed:
            recorded[f"{name}/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
            recorded[f"{name}/codes"] = wanted
            recorded |= {f"{name}/{given}": array for given, array in one.feed.items()}
    cells = [name]
    for counts in columns.values():
        equal, total, apart, squares = zip(*counts, strict=True)
        rms = (sum(squares) / sum(total)) ** 0.5
        cells += [f"{sum(equal) / sum(total):.3%}", str(max(apart)), f"{rms:.2f}"]
    return cells


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--seeds", default=2, help="How many random models of every kind.")
@click.option("--bits", default=8, type=click.IntRange(8, 16), help="Of the codes of data: 8 or 16.")
@click.option("--any-factor", is_flag=True, help="Of 16 bits: factors of any number of bits.")
@click.option(
    "--record", type=click.Path(path_type=Path), help="Keep the first of every kind, with its codes."
)
def main(names: tuple[str, ...], seeds: int, bits: int, any_factor: bool, record: Path | None) -> None:
    console, recorded, fits = Console(width=120), {}, bits == 16 and not any_factor
    console.print(f"{DEVICE}: {DEVICES[DEVICE].package} {version_of(DEVICES[DEVICE])}")
    titles = ("simulation", "steps", "rms", "device", "steps", "rms")[: 3 * len(SIMULATIONS[bits])]
    table = Table("op", *titles, box=None)
    for name in KINDS:
        if not names or name in names:
            table.add_row(*row(name, bits, fits, seeds, recorded))
    console.print(table)
    if record is not None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **recorded)
        record.write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
