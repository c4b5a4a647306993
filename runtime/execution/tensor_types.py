"""Types of all tensors of a model, from ONNX's shape inference and, where that does not know, from a run."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TypeProto, helper

from qc.ir.errors import QcError
from qc.ir.executor import Feed

from ..executors.in_process import OrtExecutor
from ..protos.detach import detach_weights


def tensor_types(model: ModelProto, base_dir: Path | None, feed: Feed | None) -> dict[str, TypeProto]:
    """The types of the tensors of the main graph, as far as they can be known.

    Args:
        model: the model; not changed.
        base_dir: the folder that its external data is relative to.
        feed: what to run it on; the lengths that inference leaves open are then those of this run.
    """
    types = _inferred(model)
    names = [name for node in model.graph.node for name in node.output if name]
    given = {dim.dim_param for info in model.graph.input for dim in info.type.tensor_type.shape.dim}
    open_names = [name for name in names if not _is_settled(types.get(name), given)]
    if feed is not None and open_names:
        types.update(_seen(model, base_dir, feed, open_names))
    return {name: type for name, type in types.items() if _is_declared(type)}


def _inferred(model: ModelProto) -> dict[str, TypeProto]:
    light, _ = detach_weights(model)
    with contextlib.suppress(Exception):  # best effort: what is declared remains
        light = onnx.shape_inference.infer_shapes(light, data_prop=True)
    graph = light.graph
    return {info.name: info.type for info in (*graph.value_info, *graph.output, *graph.input)}


def _is_declared(type: TypeProto) -> bool:
    """Whether a graph input can be of this type: the element type and the rank are known."""
    if type.HasField("tensor_type"):
        return bool(type.tensor_type.elem_type) and type.tensor_type.HasField("shape")
    return type.WhichOneof("value") is not None


def _is_settled(type: TypeProto | None, given: Collection[str]) -> bool:
    """Whether all lengths are numbers, or names that inputs of the model have."""
    if type is None or not _is_declared(type):
        return False
    dims = type.tensor_type.shape.dim
    return all(dim.HasField("dim_value") or (dim.dim_param and dim.dim_param in given) for dim in dims)


def _seen(model: ModelProto, base_dir: Path | None, feed: Feed, names: list[str]) -> dict[str, TypeProto]:
    """The types of tensors in one run; nothing if the model cannot be run."""
    executor = OrtExecutor(threads=1, optimize=False)
    try:
        arrays = next(executor.run(model, [feed], names, base_dir=base_dir))
    except QcError:
        return {}
    return {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
        if isinstance(array, np.ndarray)
    }
