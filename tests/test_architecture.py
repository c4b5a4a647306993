"""The import arrows of the design: which room may use which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "ir": set(),
    "patterns": {"ir"},
    "runtime": {"ir"},
    "passes": {"ir", "patterns"},
}
# The folders of the runtime: each uses only those before it.
RUNTIME_FOLDERS = [
    "native",
    "protos",
    "statistics",
    "data",
    "observers",
    "sessions",
    "metrics",
    "executors",
    "speed",
    "evaluation",
    "execution",
]
LIBRARIES = {"onnxruntime": "runtime", "onnx_graphsurgeon": "ir"}
MAX_LINES = 400


def _sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            if node.module == "qc":
                yield from (f"qc.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_use_only_the_rooms_below_them(room: str) -> None:
    for path in _sources(room):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "qc":
                used = parts[1] if len(parts) > 1 else "the front door"
                assert used == room or used in ALLOWED[room], f"{path.relative_to(ROOT)} imports {name}"


def _relative_imports(path: Path) -> Iterator[str]:
    """The first parts of the names that ``path`` imports from the folder above its own."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("folder", RUNTIME_FOLDERS)
def test_folders_of_the_runtime_use_only_those_before_them(folder: str) -> None:
    before = RUNTIME_FOLDERS[: RUNTIME_FOLDERS.index(folder)]
    sources = _sources(f"runtime/{folder}")
    assert sources
    for path in sources:
        for used in _relative_imports(path):
            assert used in before, f"{path.relative_to(ROOT)} imports from {used}"


def test_every_file_of_the_runtime_is_in_a_listed_folder() -> None:
    for path in _sources("runtime"):
        assert path.parent.name in (*RUNTIME_FOLDERS, "runtime"), path.relative_to(ROOT)


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_do_not_import_each_other_by_folder_name(room: str) -> None:
    for path in _sources(room):
        for name in _imports(path):
            assert name.split(".")[0] not in ALLOWED, f"{path.relative_to(ROOT)} imports {name} without 'qc.'"


@pytest.mark.parametrize(("library", "room"), LIBRARIES.items())
def test_some_libraries_are_used_in_one_room_only(library: str, room: str) -> None:
    for other in ALLOWED:
        for path in _sources(other):
            if other != room:
                used = {name.split(".")[0] for name in _imports(path)}
                assert library not in used, f"{path} imports {library}"


@pytest.mark.parametrize("room", [*ALLOWED, "qc"])
def test_files_stay_readable(room: str) -> None:
    long = [path for path in _sources(room) if len(path.read_text().splitlines()) > MAX_LINES]
    assert not long, f"over {MAX_LINES} lines: {long}"
