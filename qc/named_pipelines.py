"""Pipelines that come with qc, as TOML files in ``qc/pipelines``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from qc.ir.errors import UsageError, nearest
from qc.passes import Pipeline, PipelineFile, load_pipeline_file, loads, parse_pipeline, registry
from qc.passes.quantize.calibration.calibration import CalibrationPass


def pipeline_names() -> list[str]:
    """The pipelines that come with qc."""
    return sorted(
        item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml")
    )


def resolve_pipeline(pipeline: str | Path | Pipeline | PipelineFile, runs_code: bool = True) -> PipelineFile:
    """A pipeline from its name, its text, the path of a TOML file, or an object.

    Text that ends in ``.toml`` is a path; a single word that names a pipeline of qc is that pipeline;
    everything else is pipeline text such as ``fold-constants,calibrate{method=mse}``. Pipelines may be named
    in text and in files: ``w8a8{calibrate.method=percentile},to-encodings``. The first that is made for a
    target says which, if nothing else does. Where ``runs_code`` is false, as for the files of strangers,
    ``file.py:Class`` is refused.

    Raises:
        UsageError: no such pipeline, pass or option, or a file that cannot be read.
    """
    if isinstance(pipeline, PipelineFile):
        return pipeline
    if isinstance(pipeline, Pipeline):
        return PipelineFile(pipeline)
    if not isinstance(pipeline, str | Path):
        raise UsageError(
            f"a pipeline is a name, text such as 'fold-constants,calibrate', the path of a .toml file, or "
            f"a Pipeline object, not {type(pipeline).__name__}"
        )
    text = str(pipeline)
    named = _NamedPipelines()
    if text.endswith(".toml"):
        file = load_pipeline_file(Path(text), named=named)
        return file if file.target is not None else replace(file, target=named.target)
    if text in pipeline_names():
        return _load(text)
    try:
        pipeline = parse_pipeline(text, named=named, runs_code=runs_code)
        if not named.read:
            return PipelineFile(pipeline)
        return replace(named.read[0], pipeline=pipeline, name=text, target=named.target)
    except UsageError as error:
        hint = nearest(text, pipeline_names()) if text.isidentifier() else ""
        if not hint:
            raise
        known = ", ".join(pipeline_names())
        raise UsageError(f"'{text}' is neither a pipeline nor a pass{hint}; pipelines: {known}") from error


def until_calibration(file: PipelineFile) -> Pipeline:
    """The steps of a pipeline up to the one that calibrates.

    Raises:
        UsageError: there is none, or it does not calibrate on statistics.
    """
    steps = file.pipeline.steps
    for index, step in enumerate(steps):
        found = [inner for inner in Pipeline((step,)).passes() if isinstance(inner, CalibrationPass)]
        sequential = next((one for one in found if one.is_sequential), None)
        if sequential is not None:
            raise UsageError(
                f"pipeline '{file.name}': {sequential} looks at the "
                "tensors themselves, one sample after the other; there are no statistics to collect for it"
            )
        if found:
            return Pipeline(steps[: index + 1])
    raise UsageError(
        f"pipeline '{file.name}' has no pass 'calibrate', for which statistics could be collected"
    )


def _load(name: str) -> PipelineFile:
    text = (_folder() / f"{name}.toml").read_text(encoding="utf-8")
    return loads(text, f"{name}.toml", named=_NamedPipelines())


class _NamedPipelines(Mapping[str, Pipeline]):
    """The pipelines that come with qc, by name; each is read when it is asked for.

    Attributes:
        read: the files that were asked for so far.
    """

    def __init__(self) -> None:
        self.read: list[PipelineFile] = []

    @property
    def target(self) -> str | None:
        """That of the first which is made for one."""
        return next((file.target for file in self.read if file.target is not None), None)

    def __getitem__(self, name: str) -> Pipeline:
        """The pipeline of a name; raises UsageError if a plugin has a pass of that name, too."""
        if name not in pipeline_names():
            raise KeyError(name)
        if name in registry().names():
            raise UsageError(f"'{name}' is a pipeline of qc and a pass of a plugin; rename the pass")
        self.read.append(_load(name))
        return self.read[-1].pipeline

    def __iter__(self) -> Iterator[str]:
        return iter(pipeline_names())

    def __len__(self) -> int:
        return len(pipeline_names())


def _folder() -> Traversable:
    return resources.files("qc") / "pipelines"
