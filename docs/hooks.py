"""What `make site` adds to the pages: files beside this folder, examples of passes, and the Python API."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from qc.cli.docstrings import markdown as as_markdown

ROOT = Path(__file__).parents[1]

# Files beside this folder that are pages, too.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benches/README.md": "benches.md",
    "benches/measured.md": "measured.md",
    "examples/README.md": "examples/index.md",
}
ROOMS = ("qc", "qc.ir", "qc.patterns", "qc.passes", "qc.runtime")
LANGUAGES = {".py": "python", ".toml": "toml", ".c": "c", ".cpp": "cpp"}  # of the files of examples
LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Puts every pass and example into the navigation."""
    passes = [f"passes/{path.name}" for path in sorted((ROOT / "docs/passes").glob("*.md"), key=_index_first)]
    examples = ["examples/index.md", *(f"examples/{folder.name}.md" for folder in _examples())]
    lists = {"passes/": {"Passes": passes}, "examples/": {"Examples": examples}}
    for section in config.nav:
        for title, entries in section.items():
            section[title] = [
                lists.get(entry, entry) if isinstance(entry, str) else entry for entry in entries
            ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are no files of this folder."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    for folder in _examples():
        files.append(File.generated(config, f"examples/{folder.name}.md", content=_example(folder)))
    for room in ROOMS:
        place = f"api/{room.removeprefix('qc.')}.md"
        files.append(File.generated(config, place, content="\n\n".join(_room(room)) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to files beside this folder at their pages, and shows an example of each pass."""
    place = page.file.src_uri
    source = next((source for source, made in PAGES.items() if made == place), f"docs/{place}")
    if place.startswith("examples/") and place not in PAGES.values():
        source = f"{place.removesuffix('.md')}/README.md"

    def point(link: re.Match) -> str:
        text, path, anchor = link.groups(default="")
        target = os.path.normpath(Path(source).parent / path)
        made = PAGES.get(target, target.removeprefix("docs/"))
        if target.startswith("examples/") and target not in PAGES:
            made = "/".join(target.split("/")[:2]) + ".md"
        if made == target and (ROOT / target).exists():
            return text  # a file of the sources that has no page
        return f"[{text}]({os.path.relpath(made, Path(place).parent)}{anchor})"

    markdown = LINK.sub(point, markdown)
    goldens = sorted((ROOT / "tests/golden" / Path(place).stem).glob("*.golden"))
    if place.startswith("passes/") and goldens:
        text = min((golden.read_text(encoding="utf-8") for golden in goldens), key=len)
        markdown += f"\n## An example of the tests\n\n```\n{text.rstrip()}\n```\n"
    return markdown


def _index_first(path: Path) -> tuple[bool, str]:
    return path.stem != "index", path.name


def _examples() -> list[Path]:
    return sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir())


def _example(folder: Path) -> str:
    """An example: its README, if it has one, and the text of its files."""
    readme = folder / "README.md"
    parts = [readme.read_text(encoding="utf-8") if readme.exists() else f"# {folder.name}"]
    for path in sorted(folder.rglob("*.*")):
        if path.suffix in LANGUAGES and path.stat().st_size:
            text = path.read_text(encoding="utf-8").rstrip()
            parts.append(f"## {path.relative_to(folder)}\n\n```{LANGUAGES[path.suffix]}\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _room(name: str) -> Iterator[str]:
    """The page of a package: what it says of itself, and each of its public names."""
    room = import_module(name)
    yield f"# {name}"
    yield as_markdown(room.__doc__ or "")
    for public in sorted(room.__all__):
        if not hasattr(getattr(room, public), "__path__"):  # packages have pages of their own
            yield f"::: {name}.{public}"


class Signatures(griffe.Extension):
    """What pages say of functions and classes, where that is not what stands in their source."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Docstrings have the roles of reStructuredText for names; pages have Markdown."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """A function that takes what a class takes has the arguments of the class, and their description."""
        if not any(str(decorator.value).startswith("taking(") for decorator in func.decorators):
            return
        function = getattr(import_module(func.module.path), func.name)
        func.docstring = griffe.Docstring(as_markdown(inspect.getdoc(function) or ""), parent=func)
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    each.name,
                    annotation=each.annotation,
                    kind=griffe.ParameterKind(each.kind.description),
                    default=None if each.default is each.empty else repr(each.default),
                )
                for each in inspect.signature(function).parameters.values()
            )
        )
