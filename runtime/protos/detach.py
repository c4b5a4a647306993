"""Taking models apart and putting them together without copying their weights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto

from qc.ir.onnx.protos import copy_fields
from qc.ir.tensor_ref import TensorRef

_LARGE = 1 << 16

# Tensors of these types pass between numpy and ONNX Runtime as they are.
NATIVE_TYPES = frozenset(
    {
        TensorProto.FLOAT16,
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
        TensorProto.BOOL,
    }
)


class ModelParts(NamedTuple):
    """A model whose large weights are apart, so that it can be sent to another process whatever its size."""

    light: ModelProto
    weights: dict[str, np.ndarray]
    base_dir: Path | None

    @classmethod
    def of(cls, model: ModelProto, base_dir: Path | None) -> ModelParts:
        """Takes a model apart; raises ModelError as :func:`detach_weights`."""
        return cls(*detach_weights(model), base_dir)


def detach_weights(model: ModelProto) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """Splits a model into a light proto and the arrays of its large initializers.

    In the light proto those initializers keep type and shape and claim to lie in a file that nobody reads.
    Only arrays that ONNX Runtime can take from numpy are detached; neither ``model`` nor its data is copied
    more than once.

    Raises:
        ModelError: an initializer holds fewer or more bytes than its shape says.
    """
    light = ModelProto()
    copy_fields(model, light, leave_out=("graph",))
    copy_fields(model.graph, light.graph, leave_out=("initializer",))
    weights: dict[str, np.ndarray] = {}
    for tensor in model.graph.initializer:
        reference = TensorRef(tensor)
        if reference.is_external or tensor.data_type not in NATIVE_TYPES or reference.nbytes < _LARGE:
            light.graph.initializer.append(tensor)
            continue
        weights[tensor.name] = np.ascontiguousarray(reference.numpy())
        stub = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="in memory")
    return light, weights
