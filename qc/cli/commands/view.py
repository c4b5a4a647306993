"""Draw a model, with its regions and quantizers."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path

import qc
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.options import option
from qc.passes.lower.qdq.fit_kernels import unfit_kernels
from qc.patterns import find_all, supergroups
from qc.view import Crop, dot_source, graph_collection, html_page

from ..command import Command
from ..files import writing
from ..jobs import is_to_compile, start
from ..options import Job
from ..output import print_warning, print_written

DEFAULT_RADIUS = 6
_PAGES = {
    ".html": html_page,
    ".htm": html_page,
    ".dot": dot_source,
    ".gv": dot_source,
    ".json": graph_collection,
}


@dataclass(frozen=True, kw_only=True)
class View(Command):
    """Draws MODEL.onnx as a page for the browser, which needs nothing else.

    The model is drawn as it is, with its supergroups. With a pipeline, passes, a target or data it is
    compiled first, and drawn with the quantizers and the reason of every decision.

    Examples:
        qc view model.onnx --open
        qc view model.onnx --data calibration.npz --around conv1 --radius 4
    """

    job: Job
    output: Path | None = option(
        None,
        "A page, .html; source for Graphviz, .dot; or a graph for Model Explorer, .json.  "
        "[default: MODEL.html in the current folder]",
        "-o",
        metavar="FILE",
    )
    around: str | None = option(None, "Show only what is around a tensor or op.", metavar="NAME")
    radius: int | None = option(None, f"How many ops far from it.  [default: {DEFAULT_RADIUS}]", metavar="N")
    open_browser: bool = option(False, "Open the page in the browser.", "--open")

    def run(self) -> None:
        path, crop = self._path(), self._crop()
        compiles = is_to_compile(self.job)
        task = start(self.job, [path], compiles=compiles, role="the calibration data")
        model = task.decide().ir if compiles else _as_it_is(self.job)
        picture = _PAGES[path.suffix](model, self.job.label, crop)
        with writing(path), atomic_write(path) as file:
            file.write(picture.encode())
        if not self.job.quiet:
            print_written([path])
        if self.open_browser and not webbrowser.open(path.resolve().as_uri()):
            print_warning(f"there is no browser to open '{path}' with")

    def _path(self) -> Path:
        """Where the picture goes; raises UsageError if it has another suffix."""
        path = self.output or Path(f"{Path(self.job.model).stem}.html")
        if path.suffix not in _PAGES:
            raise UsageError(
                f"'{path}' is neither a page nor for Graphviz or Model Explorer: name it .html, .dot or .json"
            )
        if self.open_browser and _PAGES[path.suffix] is not html_page:
            raise UsageError(f"--open is for pages, and '{path}' is none")
        return path

    def _crop(self) -> Crop | None:
        """The part to show."""
        if self.around is not None:
            return Crop(self.around, self.radius or DEFAULT_RADIUS)
        if self.radius is not None:
            raise UsageError("--radius is for --around, which is not given")
        return None


def _as_it_is(job: Job) -> Model:
    """The model with its supergroups as regions."""
    model = qc.read_model(job.model)
    unfit_kernels(model)
    for graph in model.graphs():
        for match in find_all(graph, supergroups()):
            model.add_region(match.region(), match.name)
    return model
