"""Running passes on small models, and running what they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from qc.ir import lift
from qc.ir.model import Model
from qc.ir.verifier import verify
from qc.passes import PassContext, PipelineReport, parse_pipeline, run_pipeline
from qc.passes.framework.context import NEEDS
from qc.passes.framework.target import load_target
from qc.runtime import OrtExecutor, open_session, run_session

PREPARE = "fold-constants,eliminate-identity,fold-batch-norms,share-constants,eliminate-dead-code"
PLACE = "match-supergroups,insert-quantizers,annotate-per-channel,tie-quantizers"
# With products that are too small to be quicker in integers.
PLACE_SLOWER = PLACE.replace("insert-quantizers", "insert-quantizers{slower=integer}")
QUANTIZE = f"{PREPARE},{PLACE},calibrate"

Feeds = Iterable[Mapping[str, np.ndarray]]


class WatchedContext(PassContext):
    """Tells which of its services were read."""

    def __getattribute__(self, name: str) -> Any:
        if name in NEEDS:
            vars(self).setdefault("read", set()).add(name)
        return super().__getattribute__(name)


def apply(
    pipeline: str, model: ModelProto | Model, target: str = "ort-cpu", feeds: Feeds | None = None
) -> tuple[Model, WatchedContext, PipelineReport]:
    """Runs pipeline text on a model, verifying after every pass; none of the front door's demands hold."""
    ir = model if isinstance(model, Model) else lift(model)
    context = WatchedContext(
        data=list(feeds) if feeds is not None else None,
        executor=OrtExecutor(threads=1),
        target=load_target(target),
        verify=verify,
        check_analyses=True,
    )
    report = run_pipeline(parse_pipeline(pipeline), ir, context)
    return ir, context, report


def artifact(context: PassContext, name: str) -> ModelProto:
    """A model that a lowering pass made."""
    payload = context.artifacts[name].payload
    assert isinstance(payload, ModelProto)
    return payload


def run_model(
    model: ModelProto, feed: Mapping[str, np.ndarray], optimize: bool = False
) -> dict[str, np.ndarray]:
    """The outputs by name; ONNX Runtime runs every node as it is written unless ``optimize``."""
    session = open_session(model, optimize=optimize, threads=1)
    names = [output.name for output in model.graph.output]
    return dict(zip(names, run_session(session, feed, names), strict=True))


def check(model: ModelProto) -> None:
    """The ONNX checker with shape inference."""
    onnx.checker.check_model(model, full_check=True)
