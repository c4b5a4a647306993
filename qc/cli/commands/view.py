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
from ..jobs import StartedJob, is_to_compile, start
from ..options import Job
from ..output import print_warning, print_written, standard_error

DEFAULT_RADIUS = 6
# What draws a model, and the suffixes of its files, by the name of the format.
_FORMATS = {
    "html": (html_page, (".html", ".htm")),
    "dot": (dot_source, (".dot", ".gv")),
    "model-explorer": (graph_collection, (".json",)),
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

    if_quantized = "'qc view MODEL.onnx' without data and options for compiling shows it as it is"

    job: Job
    output: Path | None = option(
        None,
        "Where it goes.  [default: MODEL with the suffix of the format in the current folder]",
        "-o",
        metavar="FILE",
    )
    format: str | None = option(
        None,
        "A page; source for Graphviz; or a graph for Model Explorer.  [default: by the suffix of FILE, "
        ".html, .dot or .json; without FILE a page]",
        "--format",
        metavar="|".join(_FORMATS),
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
        format, crop = self._format(), self._crop()
        path = self.output or Path(f"{Path(self.job.model).stem}{_FORMATS[format][1][0]}")
        self._check_pages(format)
        compiles = is_to_compile(self.job)
        task = start(self.job, [path], compiles=compiles, role="the calibration data")
        if self.overlays:
            picture = self._coloured(task, crop)
        else:
            model = task.decide().ir if compiles else _as_it_is(self.job)
            draw, _ = _FORMATS[format]
            picture = draw(model, self.job.label, crop)
        with writing(path), atomic_write(path) as file:
            file.write(picture.encode())
        if not self.job.quiet:
            print_written([path])
        if self.open_browser and not webbrowser.open(path.resolve().as_uri()):
            print_warning(f"there is no browser to open '{path}' with")

    def _check_pages(self, format: str) -> None:
        """Raises UsageError for what only a page can do, and for overlays that there are not."""
        if self.open_browser and format != "html":
            raise UsageError(f"--open is for pages, and {format} is none")
        for one in self.overlays:
            if one not in OVERLAYS:
                raise UsageError(
                    f"ops are coloured by {', '.join(OVERLAYS)}, not by '{one}'{nearest(one, [*OVERLAYS])}"
                )
        if self.overlays and format != "html":
            raise UsageError(f"--overlay is for pages, and {format} is none")
        if self.overlays and self.job.data is None and self.job.random_data is None:
            raise UsageError("--overlay measures the compiled model, which needs --data, or --random-data")

    def _coloured(self, task: StartedJob, crop: Crop | None) -> str:
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

    def _format(self) -> str:
        """The format, as it is named or by the suffix of the file; raises UsageError if there is no such."""
        if self.format is not None:
            if self.format not in _FORMATS:
                close = nearest(self.format, [*_FORMATS])
                raise UsageError(f"a model is drawn as {', '.join(_FORMATS)}, not as '{self.format}'{close}")
            return self.format
        if self.output is None:
            return "html"
        for name, (_, suffixes) in _FORMATS.items():
            if self.output.suffix in suffixes:
                return name
        raise UsageError(
            f"'{self.output}' is neither a page nor for Graphviz or Model Explorer: name it .html, .dot or "
            f".json, or give --format {'|'.join(_FORMATS)}"
        )

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
