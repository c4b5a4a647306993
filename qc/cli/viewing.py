"""``qc view MODEL.onnx``: a picture of a model, for the browser or for Graphviz."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import qc
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.passes.lower.qdq.fit_kernels import unfit_kernels
from qc.patterns import find_all, supergroups
from qc.view import Crop, dot_source, html_page

from .deciding import compile_decisions, compiles
from .files import FileType, WordType, check_outputs, writing
from .option_types import CountType
from .options import Job, JobCommand, chosen, job_options
from .output import print_warning, print_written

DEFAULT_RADIUS = 6
_PAGES = {".html": html_page, ".htm": html_page, ".dot": dot_source, ".gv": dot_source}


@dataclass(frozen=True)
class Wishes:
    """What is wanted of the picture, besides the job itself."""

    output: Path | None
    around: str | None
    radius: int | None
    open_browser: bool

    def path(self, job: Job) -> Path:
        """Where the picture goes; raises UsageError if it is neither a page nor for Graphviz."""
        path = self.output or Path(f"{Path(job.model).stem}.html")
        if path.suffix not in _PAGES:
            raise UsageError(f"'{path}' is neither a page nor for Graphviz: name a file .html or .dot")
        if self.open_browser and _PAGES[path.suffix] is not html_page:
            raise UsageError(f"--open is for pages, and '{path}' is for Graphviz")
        return path

    def crop(self) -> Crop | None:
        """The part to show."""
        if self.around is not None:
            return Crop(self.around, self.radius or DEFAULT_RADIUS)
        if self.radius is not None:
            raise UsageError("--radius is for --around, which is not given")
        return None


@click.command("view", cls=JobCommand, short_help="Draw a model, with its regions and quantizers.")
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FileType(),
    help="A page, .html, or source for Graphviz, .dot.  [default: MODEL.html in the current folder]",
)
@click.option("--around", metavar="TENSOR", type=WordType(), help="Show only what is around a tensor.")
@click.option(
    "--radius", metavar="N", type=CountType(), help=f"How many ops far from it.  [default: {DEFAULT_RADIUS}]"
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
def view_command(**given: Any) -> None:
    """Draws MODEL.onnx as a page for the browser, which needs nothing else.

    The model is drawn as it is, with its supergroups. With a pipeline, passes, a target or data it is
    compiled first, and drawn with the quantizers and the reason of every decision.
    """
    job = chosen(Job, given)
    wishes = chosen(Wishes, given)
    path, crop = wishes.path(job), wishes.crop()
    pipeline = job.chosen_pipeline() if compiles(job) else None
    check_outputs([path], job.inputs(job.read(), pipeline, "the calibration data"))
    model = _as_it_is(job) if pipeline is None else compile_decisions(job, pipeline).ir
    picture = _PAGES[path.suffix](model, job.label, crop)
    with writing(path), atomic_write(path) as file:
        file.write(picture.encode())
    if not job.quiet:
        print_written([path])
    if wishes.open_browser and not webbrowser.open(path.resolve().as_uri()):
        print_warning(f"there is no browser to open '{path}' with")


def _as_it_is(job: Job) -> Model:
    """The model with its supergroups as regions."""
    model = qc.read_model(job.model)
    unfit_kernels(model)
    for graph in model.graphs():
        for match in find_all(graph, supergroups()):
            model.add_region(match.region(), match.name)
    return model
