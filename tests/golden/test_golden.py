"""Every pass has a golden file, and gives what its golden files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import GoldenFile

from qc.passes import registry

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*/*.golden"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden_file(path: Path, request: pytest.FixtureRequest) -> None:
    file = GoldenFile.read(path)
    results = file.results()
    if request.config.getoption("--update-golden"):
        file.write(results)
        return
    assert list(results) == list(file.expected), "other sections than expected; see --update-golden"
    for name, text in results.items():
        assert text.rstrip() == file.expected[name].rstrip(), f"section '{name}' of {path.name}"


def test_every_pass_has_a_golden_file() -> None:
    missing = [name for name in registry().names() if not list((FOLDER / name).glob("*.golden"))]
    assert not missing, "a pass needs a golden file in tests/golden/<name of the pass>/"


def test_golden_files_are_those_of_their_pass() -> None:
    for path in FILES:
        assert path.parent.name in registry(), f"there is no pass '{path.parent.name}'"
        names = [step.name for step in GoldenFile.read(path).pipeline.passes()]
        assert path.parent.name in names, f"{path} does not run its pass"
