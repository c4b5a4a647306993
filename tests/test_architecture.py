"""The import arrows of the design: which room may use which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
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
    "devices",
]
LIBRARIES = {"onnxruntime": "runtime", "onnx_graphsurgeon": "ir"}
MAX_LINES = 400


# The floors of the IR: each uses only those before it; "core" are the files in ir/ itself.
IR_FLOORS = ["errors", "base", "quant", "core", "facts", "onnx", "text"]
# The floors of the passes likewise; "core" are the files in passes/ itself.
PASS_FLOORS = ["framework", "encodings", "simplify", "lower", "quantize", "optimize", "core"]
# The floors of the front door: files and folders that stand side by side are one floor.
FRONT_FLOORS = [
    {
        "options",
        "reading",
        "progress",
        "named_pipelines",
        "coverage",
        "checking",
        "saturation",
        "processor",
        "versions",
    },
    {"diff"},
    {"rendering"},
    {"view"},
    {"compiler"},
    {"layers", "sensitivity", "weights", "why", "near_matches"},
    {"search", "auto"},
    {"verdict"},
    {"report"},
    {"compat", "bridges"},
    {"cli", "__main__"},
]


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


def _module(path: Path) -> str:
    """The dotted name of a source; the rooms are imported as parts of qc."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "qc" else ["qc", *parts])


def _all_imports(path: Path) -> Iterator[str]:
    """What a source imports by absolute names, wherever it does and for whatever use."""
    package = _module(path).split(".") if path.name == "__init__.py" else _module(path).split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _import_graph(room: str) -> nx.DiGraph:
    """Which module of a room imports which."""
    names = {_module(path): path for path in _sources(room)}
    graph = nx.DiGraph()
    for name, path in names.items():
        for used in _all_imports(path):
            module = used if used in names else used.rpartition(".")[0]
            if module in names and module != name:
                graph.add_edge(name, module)
    return graph


@pytest.mark.parametrize("room", [*ALLOWED, "qc"])
def test_no_modules_import_each_other_in_a_circle(room: str) -> None:
    groups = nx.strongly_connected_components(_import_graph(room))
    circles = [sorted(group) for group in groups if len(group) > 1]
    assert not circles, f"modules that import each other, be it for typing only: {circles}"


@pytest.mark.parametrize(("room", "floors"), [("ir", IR_FLOORS), ("passes", PASS_FLOORS)])
def test_floors_of_a_room_use_only_those_before_them(room: str, floors: list[str]) -> None:
    def floor(module: str) -> int:
        name = module.split(".")[2]
        return floors.index(name if name in floors else "core")

    for module, used in _import_graph(room).edges:
        if module != f"qc.{room}":  # which gives out what all floors have
            assert floor(used) <= floor(module), f"{module} imports {used}"


def test_floors_of_the_front_door_use_only_those_before_them() -> None:
    height = {name: number for number, floor in enumerate(FRONT_FLOORS) for name in floor}
    for module, used in _import_graph("qc").edges:
        if "qc" not in (module, used):  # which gives out what all floors have
            floor, below = (height[name.split(".")[1]] for name in (module, used))
            assert below <= floor, f"{module} imports {used}"


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
    native = [path for path in (ROOT / room).rglob("csrc/**/*") if path.suffix in (".h", ".cpp", ".cu")]
    long = [path for path in (*_sources(room), *native) if len(path.read_text().splitlines()) > MAX_LINES]
    assert not long, f"over {MAX_LINES} lines: {long}"
