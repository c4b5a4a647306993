"""What every pass must keep to on any model; a pass is covered by being registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

from qc.ir.errors import QcError, VerificationError
from qc.ir.model import Model
from qc.ir.onnx.lower import lower, serialize
from qc.ir.text import print_model
from qc.passes import Pass, PassContext, Stage

from .pipelines import QUANTIZE, WatchedContext, apply, run_model

Feed = Mapping[str, np.ndarray] | None


def _load_encodings(model: ModelProto, feed: Feed, folder: Path) -> str:
    """The pass with a file of the grids that ``calibrate`` finds."""
    context = run(f"{QUANTIZE},to-encodings", model, feed)[1]
    path = folder / "grids.encodings"
    path.write_text(str(context.artifacts["encodings"].payload), encoding="utf-8")
    return f"load-encodings{{file={str(path)!r} unknown=ignore}}"


def _fix_shapes(model: ModelProto, feed: Feed, folder: Path) -> str:
    """The pass with the lengths that the data has."""
    fed = feed or {}
    lengths = [
        f"{dim.dim_param}={length}"
        for info in model.graph.input
        if info.name in fed
        for dim, length in zip(info.type.tensor_type.shape.dim, fed[info.name].shape, strict=True)
        if dim.dim_param
    ]
    return f"fix-shapes{{lengths={lengths[:1]!r}}}"


def _fix_inputs(model: ModelProto, feed: Feed, folder: Path) -> str:
    """The pass with the value that the data has."""
    single = [f"{name}={array.item():.17g}" for name, array in (feed or {}).items() if np.size(array) == 1]
    return f"fix-inputs{{values={single[:1]!r}}}"


# Passes that cannot run without options, and how to give them some for a model.
WRITTEN: dict[str, Callable[[ModelProto, Feed, Path], str]] = {
    "fix-inputs": _fix_inputs,
    "fix-shapes": _fix_shapes,
    "load-encodings": _load_encodings,
    "set-precision": lambda *_: "set-precision{rules=['type~[^CGM].*=float16']}",  # but weighted ops
}


# Passes that do something for some targets only, with one of these.
TARGETS = dict.fromkeys(
    ("decompose-ops", "fuse-supergroups", "limit-masks", "limit-ranks", "unroll-loops"), "qnn-htp"
)
TARGETS["split-projections"] = "openvino"


def run(pipeline: str, model: ModelProto | Model, feed: Feed) -> tuple[Model, WatchedContext, int]:
    """Runs a pipeline and verifies after every pass; the model, the context, and the number of actions."""
    target, feeds = TARGETS.get(pipeline, "ort-cpu"), [feed] * 2 if feed is not None else None
    ir, context, report = apply(pipeline, model, target, feeds)
    return ir, context, report.actions


def prefixes(cls: type[Pass]) -> list[str]:
    """What runs before a pass: what the default pipeline has there, or nothing, or all that comes earlier."""
    order = QUANTIZE.split(",")
    if cls.stage is Stage.FLOAT:
        return [""]
    if cls.name in order:
        return [",".join(order[: order.index(cls.name)])]
    if cls.stage is Stage.LOWER:
        return [QUANTIZE]
    placed = QUANTIZE.removesuffix(",calibrate")
    return ["", *([placed] if cls.tolerance else []), QUANTIZE]  # weights on a grid are not scaled any more


def check_pass(cls: type[Pass], prefix: str, model: ModelProto, feed: Feed, folder: Path) -> bool:
    """Runs a pass on a model, and checks all that it claims.

    Returns:
        Whether it did anything; a model that it, or a pass before it, refuses with an error is left alone.
    """
    given = serialize(model)
    try:
        text = WRITTEN[cls.name](model, feed, folder) if cls.name in WRITTEN else cls.name
        ir = run(prefix, model, feed)[0]
        before = print_model(ir), serialize(lower(ir))
        ir, context, actions = run(text, ir, feed)
    except VerificationError:
        raise
    except QcError:
        return False
    assert serialize(model) == given, "the model that was given is changed"
    read = vars(context).get("read", set())
    assert read <= cls.needs | cls.uses, f"it reads {read}, which it does not declare"
    after = print_model(ir), serialize(lower(ir))
    assert actions or decided(after) == decided(before), "the model is changed without an action"
    ir, again, repeated = run(text, ir, feed)
    if cls.idempotent:
        assert not repeated, f"a second run makes {repeated} actions"
        assert (print_model(ir), serialize(lower(ir))) == after
    if cls.stage is Stage.LOWER:
        assert after == before
        assert artifacts(context) == artifacts(again)
    if actions and (cls.stage is Stage.FLOAT or cls.tolerance):
        check_outputs(model, lower(ir), feed, cls.tolerance, cls.name != "fix-shapes")
    return bool(actions or context.artifacts)


def decided(printed: tuple[str, bytes]) -> tuple[list[str], bytes]:
    """Without the reasons why tensors stay float, which need no action."""
    text, lowered = printed
    return [line for line in text.splitlines() if not line.startswith("float ")], lowered


def artifacts(context: PassContext) -> dict[str, bytes]:
    """What the lowering passes made, as bytes."""
    payloads = {name: artifact.payload for name, artifact in context.artifacts.items()}
    return {
        name: serialize(payload) if isinstance(payload, ModelProto) else str(payload).encode()
        for name, payload in payloads.items()
    }


def check_outputs(
    model: ModelProto, rewritten: ModelProto, feed: Feed, tolerance: float, keeps_interface: bool = True
) -> None:
    """ONNX Runtime gives the same on both models; one that it cannot run, or without data, is left alone."""
    assert not keeps_interface or interface(rewritten) == interface(model)
    if feed is None:
        return
    try:
        expected = run_model(model, feed)
    except QcError:
        return
    for name, array in run_model(rewritten, feed).items():
        check_array(array, expected[name], tolerance)


def check_array(array: object, expected: object, tolerance: float) -> None:
    """Equal, or for floats as near as ``tolerance`` times the largest magnitude."""
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fV" or not tolerance:
        np.testing.assert_array_equal(array, expected)  # type: ignore[arg-type]
        return
    finite = np.abs(expected[np.isfinite(expected)])
    margin = tolerance * float(finite.max(initial=0.0))
    np.testing.assert_allclose(array, expected, rtol=0, atol=margin)  # type: ignore[arg-type]


def interface(model: ModelProto) -> list[bytes]:
    """Names and types of the inputs that have no default, and of the outputs."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in defaults]
    return [info.SerializeToString() for info in (*inputs, *model.graph.output)]
