"""Taking models apart and putting them together without copying their weights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto

from qc.ir.onnx.protos import without_initializers
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
    light, left_out = without_initializers(model, _is_detachable)
    return light, {name: np.ascontiguousarray(TensorRef(one).numpy()) for name, one in left_out.items()}


def _is_detachable(tensor: TensorProto) -> bool:
    reference = TensorRef(tensor)
    return not reference.is_external and tensor.data_type in NATIVE_TYPES and reference.nbytes >= _LARGE
