"""Writes docs/passes.md from the passes and pipelines themselves.

python docs/generate.py            writes the page
python docs/generate.py --check    exit code 1 if the page is not what would be written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qc import pipeline_names, resolve_pipeline
from qc.cli.combinators import describe_combinator
from qc.cli.docstrings import markdown, paragraphs
from qc.passes import OptionDescription, PassDescription, Stage, describe, registry
from qc.passes.framework.context import NEEDS
from qc.passes.framework.pipeline import COMBINATORS

PAGE = Path(__file__).with_name("passes.md")

INTRODUCTION = """\
# Passes

This page is written by `docs/generate.py` from the passes themselves; change them, not the page.
`qc help PASS` shows the same on a terminal.

A pipeline is a list of passes: `fold-constants,calibrate{method=mse},insert-qdq`. Options stand in braces,
separated by blanks. Passes come in three stages, and a pipeline never goes back to an earlier one."""

STAGES = {
    Stage.FLOAT: ("Float graph", "They rewrite the float model; its outputs do not change."),
    Stage.ANNOTATE: (
        "Quantizers",
        "They decide what is quantized and find the numbers; the graph stays as it is.",
    ),
    Stage.LOWER: ("Lowering", "They make files out of the quantized model and leave it as it is."),
}


def passes_page() -> str:
    """The page: passes by stage, combinators, and the pipelines that come with qc."""
    return "\n\n".join([INTRODUCTION, *_stages(), *_combinators(), *_pipelines()]) + "\n"


def _stages() -> Iterator[str]:
    # Passes of plugins that happen to be installed are not part of qc.
    own = [describe(cls) for cls in registry() if cls.__module__.startswith("qc.passes.")]
    for stage, (title, what) in STAGES.items():
        yield f"## {title}"
        yield what
        for description in own:
            if description.stage is stage:
                yield from _pass(description)


def _pass(description: PassDescription) -> Iterator[str]:
    yield f"### {description.name}"
    yield from _text(description.docstring)
    needs = [NEEDS[need][0] for need in description.needs]
    if needs:
        yield f"Needs {' and '.join(needs)}."
    yield from _options(description.options)


def _combinators() -> Iterator[str]:
    yield "## Combinators"
    yield "They run other passes: `fixpoint<max=4>(fold-constants,eliminate-identity)`."
    for cls in COMBINATORS.values():
        description = describe_combinator(cls)
        yield f"### {description.name}"
        yield from _text(description.docstring)
        yield from _options(description.options)


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
    """Writes or checks the page."""
    parser = argparse.ArgumentParser(description="Writes docs/passes.md.")
    parser.add_argument("--check", action="store_true", help="only check that the page is up to date")
    page = passes_page()
    if not parser.parse_args().check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write("docs/passes.md is out of date; write it anew with: python docs/generate.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
