"""Draw a model, with its regions and quantizers."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path

import qc
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError, nearest
from qc.ir.model import Model
from qc.options import option
from qc.passes.lower.qdq.fit_kernels import unfit_kernels
from qc.patterns import find_all, supergroups
from qc.progress import RichProgress
from qc.report.overlays import OVERLAYS, measure_overlays
from qc.view import Crop, dot_source, graph_collection, html_page

from ..command import Command
from ..files import writing
from ..jobs import Task, is_to_compile, start
from ..options import Job
from ..output import print_warning, print_written, standard_error

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
        qc view model.onnx --data calibration.npz --overlay error --overlay time
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
    overlays: tuple[str, ...] = option(
        (),
        f"Let the page colour ops by their {', '.join(OVERLAYS[:-1])} or {OVERLAYS[-1]}; may be repeated.",
        "--overlay",
        metavar="|".join(OVERLAYS),
    )
    open_browser: bool = option(False, "Open the page in the browser.", "--open")

    def run(self) -> None:
        path, crop = self._path(), self._crop()
        self._check_overlays(path)
        compiles = is_to_compile(self.job)
        task = start(self.job, [path], compiles=compiles, role="the calibration data")
        if self.overlays:
            picture = self._coloured(task, crop)
        else:
            model = task.decide().ir if compiles else _as_it_is(self.job)
            picture = _PAGES[path.suffix](model, self.job.label, crop)
        with writing(path), atomic_write(path) as file:
            file.write(picture.encode())
        if not self.job.quiet:
            print_written([path])
        if self.open_browser and not webbrowser.open(path.resolve().as_uri()):
            print_warning(f"there is no browser to open '{path}' with")

    def _check_overlays(self, path: Path) -> None:
        for one in self.overlays:
            if one not in OVERLAYS:
                raise UsageError(
                    f"ops are coloured by {', '.join(OVERLAYS)}, not by '{one}'{nearest(one, [*OVERLAYS])}"
                )
        if self.overlays and _PAGES[path.suffix] is not html_page:
            raise UsageError(f"--overlay is for pages, and '{path}' is none")
        if self.overlays and self.job.data is None and self.job.random_data is None:
            raise UsageError("--overlay measures the compiled model, which needs --data, or --random-data")

    def _coloured(self, task: Task, crop: Crop | None) -> str:
        """The page of the compiled model with what was measured of its ops."""
        compiled = task.compile()
        with RichProgress(standard_error()) as progress:
            found = measure_overlays(
                compiled,
                task.data,
                self.overlays,
                threads=task.compilation.threads,
                device=task.compilation.device,
                progress=progress,
            )
        return html_page(compiled.ir, self.job.label, crop, found)

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
