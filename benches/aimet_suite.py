"""AIMET-ONNX's own tests, on AIMET and on qc: which pass on both.

    python benches/aimet_suite.py --suite DIR --aimet-python AIMET/bin/python              all files
    python benches/aimet_suite.py --suite DIR --qc-python QC/bin/python bn_fold -v         some

DIR is ``TrainingExtensions/onnx/test`` of AIMET's repository, outside of this one. AIMET runs in a Python of
its own; its outcomes are kept (``--cache``), so that it is needed once. qc runs in a Python that has, beside
itself, what the tests import: torch, torchvision, pytest, pytest-timeout, onnxscript, onnxsim and
onnxruntime-extensions. There ``aimet_onnx`` is qc's layer (``qc.compat.aimet_onnx.install``).

What counts are the tests that AIMET itself passes. Left out are those that end at a name that is private to
AIMET, and those that ``rivals/aimet_suite.toml`` lists, each with the reason. Ends with exit code 1 if qc
passes less than 97 % of the others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from string import ascii_lowercase

import click
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
LIMIT = 0.97
SECONDS_PER_TEST = 300
PASSED, MISSED = "passed", "missed"
IS_PRIVATE = re.compile(r"'_[a-z]\w*' is a private name|has no attribute '_[a-z]|\._[a-z]\w* is not part of")
CACHE = Path.home() / ".cache" / "qc-aimet-suite" / "outcomes.json"

Outcomes = dict[str, tuple[str, str]]  # by test: what became of it, and the message


@click.command(help=__doc__)
@click.argument("files", nargs=-1)
@click.option("--suite", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--aimet-python", help="a Python with aimet-onnx 2.42; without one, kept outcomes are used")
@click.option("--qc-python", default=sys.executable, help="a Python with qc and what the tests import")
@click.option("--cache", type=click.Path(dir_okay=False, path_type=Path), default=CACHE, show_default=True)
@click.option("--forms", type=int, default=0, help="how many of the forms of one test to run; default: all")
@click.option("-v", "--verbose", is_flag=True, help="the message of every test that qc does not pass")
def main(
    files: Sequence[str],
    suite: Path,
    aimet_python: str | None,
    qc_python: str,
    cache: Path,
    forms: int,
    verbose: bool,
) -> None:
    chosen = [path for path in sorted(suite.glob("python/**/test_*.py")) if _is_chosen(path, files)]
    kept = json.loads(cache.read_text()) if cache.is_file() else {}
    ours: Outcomes = {}
    for path in chosen:
        name = str(path.relative_to(suite))
        if name not in kept and aimet_python:
            kept[name] = outcomes_of(path, suite, aimet_python, on_qc=False, forms=forms)
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps(kept, indent=1))
        if name in kept and any(outcome == "passed" for outcome, _ in kept[name].values()):
            ours |= outcomes_of(path, suite, qc_python, on_qc=True, forms=forms)
    passed = [
        test
        for path in chosen
        for test, (outcome, _) in kept.get(str(path.relative_to(suite)), {}).items()
        if outcome == "passed"
    ]
    if forms:  # those of which other forms ran do not count
        ran = {test.partition("[")[0] for test in ours}
        passed = [test for test in passed if test in ours or test.partition("[")[0] not in ran]
    if not passed:
        raise click.ClickException("no outcomes of AIMET are kept; give --aimet-python")
    sys.exit(0 if report(passed, ours, verbose) >= LIMIT else 1)


def _is_chosen(path: Path, files: Sequence[str]) -> bool:
    return "models" not in path.parts and (not files or any(name in path.stem for name in files))


def outcomes_of(path: Path, suite: Path, python: str, on_qc: bool, forms: int = 0) -> Outcomes:
    """Runs one file of tests; goes on behind a test that ended the process."""
    found: Outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "outcomes.jsonl"
        environment = os.environ | {
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "QC_SUITE_OUTCOMES": str(log),
            "QC_SUITE_FORMS": str(forms or ""),
            "QC_SUITE_INSTALL": "1" if on_qc else "",
        }
        while True:
            done = [item for test in found for item in ("--deselect", test)]
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "rivals.aimet_suite_plugin",
                f"--timeout={SECONDS_PER_TEST}",
            ]
            command = [python, "-m", "pytest", *options, "--rootdir", str(suite), str(path), *done]
            process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
            before = len(found)
            lines = log.read_text().splitlines() if log.is_file() else []
            found = {one["test"]: (one["outcome"], one["message"]) for one in map(json.loads, lines)}
            if process.returncode >= 0 or len(found) == before:
                return found


def reasons() -> list[tuple[Sequence[str], str]]:
    """The tests that qc does not pass on purpose, as patterns, and why."""
    with (HERE / "rivals" / "aimet_suite.toml").open("rb") as file:
        return [(group["tests"], group["reason"]) for group in tomllib.load(file)["group"]]


def _reason(test: str, message: str, known: Iterable[tuple[Sequence[str], str]]) -> str:
    if IS_PRIVATE.search(message):
        return "the test ends at a name that is private to AIMET"
    short = test.rpartition("/")[2]
    return next((why for tests, why in known if any(fnmatchcase(short, one) for one in tests)), "")


def report(passed: Sequence[str], ours: Mapping[str, tuple[str, str]], verbose: bool) -> float:
    """Prints a table by file and the misses; returns the share that qc passes, of those that count."""
    known = reasons()
    missed = [test for test in passed if ours.get(test, ("",))[0] != "passed"]
    explained = {test: _reason(test, ours.get(test, ("", ""))[1], known) for test in missed}
    letters = dict(zip(dict.fromkeys(filter(None, explained.values())), ascii_lowercase, strict=False))
    table = Table("file", "AIMET passes", "count", "qc passes", "missed", "left out with a reason")
    counts = {name: Counter[str]() for name in sorted({test.partition("::")[0] for test in passed})}
    for test in passed:
        counts[test.partition("::")[0]][explained.get(test, PASSED) or MISSED] += 1
    counts["together"] = sum(counts.values(), Counter())
    for name, count in counts.items():
        counted = count[PASSED] + count[MISSED]
        left_out = ", ".join(
            f"{count[reason]} {letter}" for reason, letter in letters.items() if count[reason]
        )
        cells = (count.total(), counted, count[PASSED], count[MISSED])
        table.add_row(name.removeprefix("python/"), *map(str, cells), left_out)
    console = Console(width=120)
    console.print(table)
    for reason, letter in letters.items():
        console.print(f"{letter}: {reason} ({counts['together'][reason]})", highlight=False)
    for test in (test for test in missed if not explained[test]):
        outcome, message = ours.get(test, ("not collected", ""))
        said = message if verbose else message.partition("\n")[0][:160]
        console.print(
            f"missed: {test.removeprefix('python/')}: {outcome}: {said}", highlight=False, markup=False
        )
    total = counts["together"]
    share = total[PASSED] / max(1, total[PASSED] + total[MISSED])
    console.print(f"{total[PASSED]} of {total[PASSED] + total[MISSED]} that count: {share:.1%}")
    return share


if __name__ == "__main__":
    main()
