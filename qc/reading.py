"""Reading a model: checked by ONNX, lifted, verified, and of an opset that can be quantized."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, version_converter

from qc.ir.errors import ModelError, UsageError
from qc.ir.model import Model
from qc.ir.onnx.lift import lift, load_model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.protos import model_tensors
from qc.ir.onnx.screening import screen_model
from qc.ir.verifier import verify_input
from qc.passes import PassContext
from qc.passes.lower.insert_qdq import OLDEST_OPSET
from qc.passes.simplify.convert_to_float32 import ConvertToFloat32
from qc.runtime import open_session

_RARELY_RUN = frozenset({TensorProto.BFLOAT16, TensorProto.DOUBLE})


def read_model(model: ModelProto | str | Path) -> Model:
    """Reads, checks and lifts a model.

    Raises:
        UsageError: it is neither a model nor a path.
        ModelError: it cannot be read, fails the ONNX checker, or its graph is inconsistent.
    """
    if not isinstance(model, ModelProto | str | Path):
        raise UsageError(f"a model is an onnx.ModelProto or the path of a file, not {type(model).__name__}")
    if isinstance(model, ModelProto):
        screen_model(model)
        _check(model, "the model")
        ir = lift(model)
    else:
        proto = load_model(model)
        _check(str(model), f"model '{model}'")
        ir = lift(proto, Path(model).resolve().parent)
    verify_input(ir)
    return ir


def with_quantize_ops(ir: Model) -> Model:
    """The model, converted to the first opset that has quantize ops if its own is older.

    Raises:
        ModelError: ONNX cannot convert it.
    """
    if "" not in ir.opset_imports or ir.opset >= OLDEST_OPSET:
        return ir
    try:
        proto = version_converter.convert_version(ir.origin, OLDEST_OPSET)
        onnx.checker.check_model(proto)
        reason = "" if _interface(proto) == _interface(ir.origin) else "its inputs or outputs would change"
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        reason = " ".join(str(error).split())
    if reason:
        raise ModelError(
            f"the model has opset {ir.opset}, quantized models need {OLDEST_OPSET}, and ONNX cannot convert "
            f"it ({reason}): convert it first"
        )
    return lift(proto, ir.base_dir)


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


def _interface(proto: ModelProto) -> list[tuple[str, onnx.TypeProto]]:
    return [(value.name, value.type) for value in (*proto.graph.input, *proto.graph.output)]


def _check(model: ModelProto | str, label: str) -> None:
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        reason = " ".join(str(error).partition("==> Context")[0].split())
        raise ModelError(f"{label} fails the ONNX checker: {reason}") from error
    except ValueError as error:  # the checker serializes a ModelProto, which cannot exceed 2 GiB
        raise ModelError(
            f"{label} cannot be checked in memory: {error}; save it and give its path"
        ) from error
    except Exception as error:  # its C++ library raises what the file system or protobuf say, as it is
        raise ModelError(f"{label} cannot be checked: {' '.join(str(error).split())}") from error
