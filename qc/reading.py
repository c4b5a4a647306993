"""Reading a model: checked by ONNX, lifted, verified, and of an opset that can be quantized."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import starmap
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from qc.ir.errors import ModelError, UsageError
from qc.ir.facts.runtime_ops import MAIN_DOMAINS
from qc.ir.model import Model
from qc.ir.onnx.conversion import converted
from qc.ir.onnx.lift import lift
from qc.ir.onnx.load import check_model_or_path, load_model, model_folder, read_file
from qc.ir.onnx.lower import lower
from qc.ir.onnx.protos import model_tensors, walk_nodes, without_weights
from qc.ir.onnx.repair import is_untyped, repaired
from qc.ir.onnx.shape_inference import hide_ops_of_runtime, misfit
from qc.ir.tensor_ref import TensorRef
from qc.ir.verifier import verify_input
from qc.passes import Pass, PassContext
from qc.passes.lower.qdq.onnx_grids import OLDEST_OPSET
from qc.passes.simplify.convert_to_float32 import ConvertToFloat32
from qc.passes.simplify.fix_inputs import FixInputs
from qc.passes.simplify.fix_shapes import FixShapes
from qc.runtime import open_session

_RARELY_RUN = frozenset({TensorProto.BFLOAT16, TensorProto.DOUBLE})


def read_model(model: ModelProto | str | Path, base_dir: Path | None = None) -> Model:
    """Reads, mends, checks and lifts a model.

    Args:
        model: a model, or the path of one.
        base_dir: the folder that external data of a ``ModelProto`` is relative to.

    Raises:
        UsageError: it is neither a model nor a path.
        ModelError: it cannot be read, fails the ONNX checker, or its graph is inconsistent.
    """
    if isinstance(model, Model):
        raise UsageError("a model is read already; qc.ir.lower(model) gives it as an onnx.ModelProto")
    check_model_or_path(model)
    if isinstance(model, ModelProto):
        given, label = model, "the model"
    else:
        given, base_dir, label = read_file(model), model_folder(model), f"model '{model}'"
    proto, repairs = repaired(given)
    _check(proto, base_dir, label)
    ir = lift(proto, base_dir)
    if repairs:
        ir.given, ir.repairs = given, repairs
    verify_input(ir)
    return ir


def with_opset(ir: Model, wanted: int, latest: int) -> Model:
    """The model, converted to an opset if its own is older: to the first with quantize ops, or to ``wanted``.

    Where ONNX cannot convert it to ``wanted``, the first will do. Of a newer one than ``latest`` it is
    converted to that, or to the first that has its ops, or left as it is where ONNX cannot.

    Raises:
        ModelError: ONNX cannot convert it to one with quantize ops.
    """
    if "" not in ir.opset_imports:
        return ir
    wanted = min(wanted, latest)
    if ir.opset > latest:
        oldest = max(latest, _first_with_its_ops(ir))
        return _converted(ir, oldest)[0] or ir if oldest < ir.opset else ir
    if ir.opset >= max(OLDEST_OPSET, wanted):
        return ir
    if wanted > OLDEST_OPSET:
        found, _ = _converted(ir, wanted)
        if found is not None:
            return found
    if ir.opset >= OLDEST_OPSET:
        return ir
    found, reason = _converted(ir, OLDEST_OPSET)
    if found is None:
        why = f"the model has opset {ir.opset}, quantized models need {OLDEST_OPSET}, and ONNX "
        forgotten = _forgotten(ir)
        if forgotten:
            raise ModelError(f"{why}has no op {', '.join(forgotten)}: write it as others first")
        raise ModelError(f"{why}cannot convert it ({reason}): convert it first")
    return found


def _first_with_its_ops(ir: Model) -> int:
    """The first opset that has all ops in ONNX's domain, in whichever version."""
    nodes = walk_nodes(ir.origin.graph.node)
    kinds = {node.op_type for node in nodes if node.domain in MAIN_DOMAINS}
    return max((_first_versions().get(kind, 0) for kind in kinds), default=0)


@cache
def _first_versions() -> dict[str, int]:
    found: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found[schema.name] = min(schema.since_version, found.get(schema.name, schema.since_version))
    return found


def _forgotten(ir: Model) -> list[str]:
    """The kinds of ops in ONNX's domain that it never had, or that were experiments of its first years."""
    nodes = walk_nodes(ir.origin.graph.node)
    kinds = {node.op_type for node in nodes if node.domain in MAIN_DOMAINS}
    return sorted(kind for kind in kinds if not onnx.defs.has(kind))


def _converted(ir: Model, opset: int) -> tuple[Model | None, str]:
    """The model in another opset, or why there is none."""
    try:
        proto = converted(ir.origin, opset, ir.base_dir)
        if not all(starmap(_is_kept, zip(_interface(ir.origin), _interface(proto), strict=True))):
            return None, "its inputs or outputs would change"
        declare_as(proto, ir.origin)
        onnx.checker.check_model(checkable(proto))
        return lift(proto, ir.base_dir), ""
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        return None, " ".join(str(error).split())


def runnable_form(model: ModelProto | str | Path) -> ModelProto | str | Path:
    """The model itself, or computed in float32 where ONNX Runtime lacks kernels for bfloat16 or float64.

    Raises:
        ModelError: the model cannot be read.
    """
    proto = model if isinstance(model, ModelProto) else load_model(model)
    interface = (info.type.tensor_type.elem_type for info in (*proto.graph.input, *proto.graph.output))
    if _RARELY_RUN.isdisjoint([*interface, *(tensor.data_type for tensor in model_tensors(proto))]):
        return model
    try:
        open_session(model, optimize=False, threads=1)
    except ModelError:
        ir = read_model(model)
        ConvertToFloat32().run(ir, PassContext())
        return lower(ir)
    return model


def with_fixed_inputs(
    model: ModelProto | str | Path, base_dir: Path | None, passes: Sequence[Pass]
) -> ModelProto | str | Path:
    """The model with the values of inputs that passes give them for good; itself without such passes.

    Args:
        passes: those of a pipeline, of which all but ``fix-shapes`` and ``fix-inputs`` are left out.

    Raises:
        ModelError: the model cannot be read.
        UsageError: it has no such inputs.
    """
    fixing = [step for step in passes if isinstance(step, FixShapes | FixInputs)]
    if not any(isinstance(step, FixInputs) for step in fixing):
        return model
    ir = read_model(model, base_dir if isinstance(model, ModelProto) else None)
    for step in fixing:
        step.run(ir, PassContext())
    return lower(ir)


def _interface(proto: ModelProto) -> list[onnx.ValueInfoProto]:
    return [*proto.graph.input, *proto.graph.output]


def _is_kept(before: onnx.ValueInfoProto, after: onnx.ValueInfoProto) -> bool:
    """Whether an input or output is the same: lengths that were free may be inferred, others not change."""
    old, new = before.type.tensor_type, after.type.tensor_type
    if before.name != after.name or old.elem_type != new.elem_type:
        return False
    if not (old.HasField("shape") and new.HasField("shape")):
        return True
    lengths = list(zip(old.shape.dim, new.shape.dim, strict=False))
    fits = all(
        a.dim_value == b.dim_value for a, b in lengths if a.HasField("dim_value") and b.HasField("dim_value")
    )
    return fits and len(old.shape.dim) == len(new.shape.dim)


def declare_as(proto: ModelProto, original: ModelProto) -> None:
    """Declares the shapes of the interface as before: the converter fills in those that it can infer."""
    for value, before in zip(_interface(proto), _interface(original), strict=True):
        value.type.CopyFrom(before.type)


def _check(model: ModelProto, base_dir: Path | None, label: str) -> None:
    for tensor in model_tensors(model):
        TensorRef(tensor, base_dir).check()
    try:
        onnx.checker.check_model(checkable(model))
    except onnx.checker.ValidationError as error:
        reason = " ".join(str(error).partition("==> Context")[0].split())
        if model.ir_version > onnx.IR_VERSION:
            reason = (
                f"it has version {model.ir_version} of ONNX's format, and the newest known here is "
                f"{onnx.IR_VERSION}: save it with ir_version = {onnx.IR_VERSION}, or install a newer onnx"
            )
        elif "topologically sorted" in reason:
            reason = _unordered(model, base_dir) or reason
        raise ModelError(f"{label} fails the ONNX checker: {reason}") from error
    except Exception as error:  # protobuf's at 2 GiB, and what the checker's C++ library raises as it is
        raise ModelError(f"{label} cannot be checked: {' '.join(str(error).split())}") from error
    found = misfit(without_weights(model))
    if found:
        _refuse_misfit(model, base_dir, f"{label} has shapes that do not fit at {found}")


def _refuse_misfit(model: ModelProto, base_dir: Path | None, sentence: str) -> None:
    """Raises ModelError unless ONNX Runtime opens the model: it does not mind what is declared wrongly."""
    try:
        open_session(model, base_dir=base_dir, optimize=False)
    except ModelError as error:
        raise ModelError(sentence) from error


def _unordered(model: ModelProto, base_dir: Path | None) -> str:
    """Why nodes cannot be in order: a tensor that nothing makes, or a cycle; empty if they only are not."""
    try:
        verify_input(lift(model, base_dir))
    except ModelError as error:
        return str(error).removeprefix("the model is invalid: ")
    return ""


def checkable(model: ModelProto) -> ModelProto:
    """A copy without weights, and without what the checker demands and no runtime needs.

    It wants a shape of every input and output, although the rank may be unknown; it refuses data in files
    that are linked, be it by hard links; and it knows nothing of ops that ONNX Runtime alone has.
    """
    light = without_weights(model)
    hide_ops_of_runtime(light)
    for tensor in model_tensors(light):
        if not TensorRef(tensor).has_data:
            tensor.dims[:] = [0]
    for info in (*light.graph.input, *light.graph.output):
        if is_untyped(info):
            tensor_type = info.type.tensor_type
            tensor_type.elem_type = tensor_type.elem_type or onnx.TensorProto.FLOAT
            tensor_type.shape.SetInParent()
    return light
