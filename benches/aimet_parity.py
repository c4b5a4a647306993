"""Placement and min-max ranges against AIMET's own: one line for each model and configuration.

    python benches/aimet_parity.py --aimet-python AIMET/bin/python                 all models
    python benches/aimet_parity.py --aimet-python AIMET/bin/python digits -v       some, with every difference
    python benches/aimet_parity.py --aimet-python AIMET/bin/python --combinations  operators by settings

The models and ``score.py`` lie in a folder of their own (``--models``). AIMET runs in a Python of its own, on
the same first samples; what it gives is kept in ``benches/results`` while model and samples stay the same.
Compared are the encodings files (1.0.0): which tensors are listed, in which section, width, symmetry,
granularity, number of scales, scales to float32 rounding, offsets, and which tensors share a quantizer. A
difference counts as documented if the remark of qc about the tensor names the defect of AIMET behind it (see
docs/aimet-differences.md). Ends with exit code 1 if there is any other. With ``--combinations`` small models,
one for each kind of operator (or those that are named), are compared in every setting and every form; see
``rivals/aimet_combinations.py``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from models.labelled import RESULTS, load_tasks, models_option
from rivals.aimet_combinations import compare_all
from rivals.aimet_process import Aimet, Answer, Feed
from rivals.aimet_ties import defects_of, ties_of

import qc
from qc.ir.model import Model
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.runtime import OrtExecutor

CONFIGS = ("default", "htp_v73")
PIPELINE = (
    "convert-to-float32,fold-constants{{max_megabytes=0}},configure-quantizers{{config={config}}},"
    "calibrate-as-aimet{{rounded_parameters=true}},to-encodings"
)
SAMPLES = 2
SECTIONS = ("activation_encodings", "param_encodings")
# A chain of float32 operations, computed in another order, moves an extreme value by this much at most.
TOLERANCE = 1e-4
# AIMET makes scales of numbers near zero larger: to 2^-23, to what keeps 32-bit sums from overflow, or, where
# one end of a range is fixed, to that of a range of 0.01 (C2).
SMALLEST_SCALE = "smallest scale"
NEAR_ZERO = 2.0**-16
NARROWEST_RANGE = 0.01


@dataclass(frozen=True)
class Difference:
    """What differs about a tensor, and the defects of AIMET that explain it."""

    tensor: str
    what: str
    documented: str


def feeds_of(task: Any, path: Path) -> list[Feed]:
    """The first samples for calibration; random ones for a model without a task."""
    if task is not None:
        return list(itertools.islice(task().calib(), SAMPLES))
    graph = onnx.load(path, load_external_data=False).graph
    rng = np.random.default_rng(0)
    constants = {tensor.name for tensor in graph.initializer}
    # One along free dimensions, which fits whatever must agree with another input.
    return [{i.name: _random(i, rng) for i in graph.input if i.name not in constants} for _ in range(SAMPLES)]


def _random(info: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    tensor = info.type.tensor_type
    shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return (rng.normal(size=shape) if dtype.kind == "f" else rng.integers(0, 4, shape)).astype(dtype)


def of_aimet(aimet: Aimet, path: Path, config: str, feeds: list[Feed], cache: Path) -> Answer:
    """What AIMET gives, without outputs, from the cache if it is there."""
    digest = hashlib.sha256(path.read_bytes() + config.encode())
    for feed in feeds:
        digest.update(b"".join(feed[name].tobytes() for name in sorted(feed)))
    kept = cache / f"aimet-{path.stem}-{config}-{digest.hexdigest()[:16]}.json"
    if not kept.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        found = replace(aimet.ask(path, feeds, config=config), outputs=())
        kept.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return Answer(**json.loads(kept.read_text(encoding="utf-8")))


def of_qc(path: Path, config: str, feeds: list[Feed]) -> tuple[Model, dict[str, Any]]:
    """The compiled model, and its encodings file."""
    model = qc.read_model(path)
    context = PassContext(data=feeds, executor=OrtExecutor())
    run_pipeline(parse_pipeline(PIPELINE.format(config=config)), model, context)
    return model, json.loads(str(context.artifacts["encodings"].payload))


def differences(
    model: Model, ours: dict[str, Any], theirs: Answer, tolerance: float = TOLERANCE
) -> Iterator[Difference]:
    """All that is not the same, by tensor; what is tied otherwise is explained by any tensor of the tie."""
    defects = defects_of(model)
    ties = ties_of(model)
    changed = ties ^ {tuple(sorted(names)) for names in theirs.ties}

    def documented(*names: str) -> str:
        related = sorted(other for group in changed if not set(names).isdisjoint(group) for other in group)
        return next((defects[name] for name in (*names, *related) if name in defects), "")

    mine, given = _by_name(ours), _by_name(theirs.encodings)
    for name in sorted({*mine, *given}):
        if name not in mine or name not in given:
            yield Difference(name, f"only {'qc' if name in mine else 'AIMET'}", documented(name))
            continue
        what = _difference(mine[name], given[name], tolerance)
        if what:
            yield Difference(name, what, SMALLEST_SCALE if what == SMALLEST_SCALE else documented(name))
    for names in sorted(changed):
        said = f"tied by {'qc' if names in ties else 'AIMET'} only"
        yield Difference(", ".join(names), said, documented(*names))


def _by_name(encodings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: {**entry, "section": s} for s in SECTIONS for entry in encodings[s]}


def _difference(ours: dict[str, Any], theirs: dict[str, Any], tolerance: float) -> str:
    for key in ("section", "dtype", "bw", "is_sym", "enc_type"):
        if ours.get(key) != theirs.get(key):
            return f"{key} {ours.get(key)}, AIMET {theirs.get(key)}"
    scales, expected = np.array(ours["scale"]), np.array(theirs["scale"])
    if scales.shape != expected.shape:
        return f"{scales.size} scales, AIMET {expected.size}"
    if not np.allclose(scales, expected, rtol=tolerance, atol=0):
        least = expected.min()
        is_limit = least < NEAR_ZERO or np.isclose(least * (2 ** theirs["bw"] - 1), NARROWEST_RANGE)
        if is_limit and np.allclose(np.maximum(scales, least), expected, rtol=tolerance, atol=0):
            return SMALLEST_SCALE
        return f"scale {scales.ravel()[0]:.6g}, AIMET {expected.ravel()[0]:.6g}"
    offset = np.max(np.abs(np.array(ours["offset"]) - np.array(theirs["offset"])))
    return f"offset differs by {offset:g}" if offset > 1 else ""  # one step at a tie


def _line(name: str, config: str, found: list[Difference], count: int) -> str:
    documented = Counter(d.documented for d in found if d.documented)
    words = [f"{name:22} {config:8} {count:4} tensors of AIMET"]
    words += [f"{number} as documented ({reason})" for reason, number in sorted(documented.items())]
    unexplained = sum(not d.documented for d in found)
    words.append(f"{unexplained} OTHERWISE" if unexplained else "otherwise equal" if documented else "equal")
    return ", ".join(words)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@click.option("--aimet-python", metavar="PYTHON", required=True, help="A Python that has AIMET.")
@models_option
@click.option("--config", "configs", multiple=True, default=CONFIGS, help="A configuration; may be repeated.")
@click.option("--combinations", is_flag=True, help="Small models by settings, in every form.")
@click.option("-v", "--verbose", is_flag=True, help="List every difference.")
def main(
    names: tuple[str, ...],
    aimet_python: str,
    models: Path,
    configs: tuple[str, ...],
    combinations: bool,
    verbose: bool,
) -> None:
    """Prints one line for each model and configuration."""
    if combinations:
        with Aimet(aimet_python) as aimet:
            sys.exit(1 if compare_all(aimet, names, configs, verbose) else 0)
    tasks = load_tasks(models)
    paths = {name: models / "models" / task.model for name, task in tasks.items()}
    known = set(paths.values())
    paths |= {path.stem: path for path in sorted((models / "models").glob("*.onnx")) if path not in known}
    chosen = names or sorted(paths, key=lambda name: (not paths[name].exists(), str(paths[name])))
    failed = False
    with Aimet(aimet_python) as aimet:
        for name in chosen:
            if name not in paths:
                raise click.ClickException(f"unknown model '{name}'; known: {', '.join(paths)}")
            if not paths[name].is_file():
                click.echo(f"{name:22} is not there")
                continue
            feeds = feeds_of(tasks.get(name), paths[name])
            for config in configs:
                failed |= _compare(name, config, paths[name], feeds, aimet, verbose)
    sys.exit(1 if failed else 0)


def _compare(name: str, config: str, path: Path, feeds: list[Feed], aimet: Aimet, verbose: bool) -> bool:
    """Prints the line of a model; whether there is a difference that nothing explains."""
    theirs = of_aimet(aimet, path, config, feeds, RESULTS)
    if theirs.error:
        click.echo(f"{name:22} {config:8} AIMET fails: {theirs.error.splitlines()[0][:120]}")
        return False
    try:
        model, ours = of_qc(path, config, feeds)
    except qc.ir.errors.QcError as error:
        click.echo(f"{name:22} {config:8} qc fails: {error}")
        return True
    found = list(differences(model, ours, theirs))
    click.echo(_line(name, config, found, len(_by_name(theirs.encodings))))
    for difference in found if verbose else ():
        click.echo(
            f"    {difference.tensor}: {difference.what} ({difference.documented or 'not documented'})"
        )
    return any(not difference.documented for difference in found)


if __name__ == "__main__":
    main()
