"""Compiling a model to judge it, and what of the result is compared with the float model."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

import qc
from qc.compiled import Compiled
from qc.ir.errors import UsageError
from qc.passes import PipelineFile
from qc.progress import RichProgress
from qc.runtime import Data

from .options import Job


def refuse_compile_options(job: Job, others: Mapping[str, object]) -> None:
    """Refuses options that say how to compile, where a quantized model is given instead.

    Raises:
        UsageError: one of them, or of ``others``, is given.
    """
    given = {**job.compile_options(), **others}
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is for compiling, which --quantized leaves out; give one of them")


def compile_job(
    job: Job,
    pipeline: PipelineFile,
    data: Data | None,
    progress: RichProgress,
    *,
    allow_unquantized: bool = False,
) -> Compiled:
    """Compiles the model of a job."""
    return qc.compile(
        job.model,
        pipeline,
        data=data,
        target=job.target,
        allow_unquantized=allow_unquantized,
        threads=job.threads,
        device=job.device,
        progress=progress,
        seed=job.seed,
    )


def candidates(compiled: Compiled) -> dict[str, ModelProto]:
    """The models that stand for a result: the simulation and, if there is a QDQ model, ``integer``."""
    found = {"simulation": compiled.simulation}
    if "qdq" in compiled.artifacts:
        found["integer"] = compiled.model
    return found
