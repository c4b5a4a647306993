"""Writes the pages below docs/passes from the passes and pipelines themselves.

python docs/generate.py            writes them
python docs/generate.py --check    exit code 1 if they are not what would be written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qc import pipeline_names, resolve_pipeline
from qc.cli.combinators import CombinatorDescription, describe_combinator
from qc.cli.docstrings import markdown, paragraphs
from qc.passes import OptionDescription, PassDescription, Stage, describe, registry
from qc.passes.framework.context import NEEDS
from qc.passes.framework.pipeline import COMBINATORS

FOLDER = Path(__file__).with_name("passes")

INTRODUCTION = """\
# Passes

The pages of this folder are written by `docs/generate.py` from the passes themselves; change them, not the
pages. `qc help PASS` shows the same on a terminal.

A pipeline is a list of passes: `fold-constants,calibrate{method=mse},insert-qdq`. Options stand in braces,
separated by blanks. Passes come in three stages, and a pipeline never goes back to an earlier one."""

STAGES = {
    Stage.FLOAT: ("Float graph", "They rewrite the float model; its outputs stay, but for rounding."),
    Stage.ANNOTATE: (
        "Quantizers",
        "They decide what is quantized and find the numbers. Each may assume that all passes of the float "
        "graph are done, but not that ops, weights and biases stay as they are: `smooth`, `correct-bias`, "
        "`round-weights`, `reestimate-batch-norms` and `import-qdq` rewrite them.",
    ),
    Stage.LOWER: ("Lowering", "They make files out of the quantized model and leave it as it is."),
}


def pages() -> dict[str, str]:
    """The text of every page by the name of its file: for each pass and combinator, and a list of all."""
    # Passes of plugins that happen to be installed are not part of qc.
    passes = [describe(cls) for cls in registry() if cls.__module__.startswith("qc.passes.")]
    combinators = [describe_combinator(cls) for cls in COMBINATORS.values()]
    index = [INTRODUCTION]
    for stage, (title, what) in STAGES.items():
        index += [f"## {title}", what, _list([each for each in passes if each.stage is stage])]
    index += [
        "## Combinators",
        "They run other passes: `fixpoint<max=4>(fold-constants,eliminate-identity)`.",
        _list(combinators),
        *_pipelines(),
    ]
    described = {f"{each.name}.md": _page(each) for each in [*passes, *combinators]}
    return {"index.md": "\n\n".join(index) + "\n", **described}


def _list(described: Sequence[PassDescription | CombinatorDescription]) -> str:
    rows = [_row(f"[{each.name}]({each.name}.md)", markdown(each.summary)) for each in described]
    return "\n".join([_row("name", "what it does"), "|---|---|", *rows])


def _page(described: PassDescription | CombinatorDescription) -> str:
    needs = [NEEDS[need][0] for need in described.needs] if isinstance(described, PassDescription) else []
    sentence = [f"Needs {' and '.join(needs)}."] if needs else []
    parts = [f"# {described.name}", *_text(described.docstring), *sentence, *_options(described.options)]
    return "\n\n".join(parts) + "\n"


def _pipelines() -> Iterator[str]:
    yield "## Pipelines that come with qc"
    for name in pipeline_names():
        file = resolve_pipeline(name)
        steps = "\n".join(f"{step}," for step in file.pipeline.steps).removesuffix(",")
        yield f"### {name}"
        target = f" Made for the target `{file.target}`." if file.target else ""
        yield f"{file.description[:1].upper()}{file.description[1:]}.{target}"
        yield f"```\n{steps}\n```"


def _text(docstring: str) -> Iterator[str]:
    for text, keeps_lines in paragraphs(docstring):
        yield text if keeps_lines else markdown(text)


def _options(options: Sequence[OptionDescription]) -> Iterator[str]:
    if options:
        rows = ["| option | accepts | default | meaning |", "|---|---|---|---|"]
        rows += [_row(f"`{o.name}`", o.type, f"`{o.default}`", markdown(o.help)) for o in options]
        yield "\n".join(rows)


def _row(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def main() -> int:
    """Writes or checks the pages."""
    parser = argparse.ArgumentParser(description="Writes the pages below docs/passes.")
    parser.add_argument("--check", action="store_true", help="only check that the pages are up to date")
    written = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    if there == written:
        return 0
    if parser.parse_args().check:
        sys.stderr.write("docs/passes is out of date; write it anew with: python docs/generate.py\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    for name in there.keys() - written.keys():
        (FOLDER / name).unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
