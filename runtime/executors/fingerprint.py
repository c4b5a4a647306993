"""Short digests of models and feeds, by which stored statistics know what they were collected from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

from qc.ir.executor import Feed
from qc.ir.onnx.protos import model_tensors
from qc.ir.tensor_ref import TensorRef


def model_fingerprint(
    light: ModelProto, weights: Mapping[str, np.ndarray], base_dir: Path | None = None
) -> str:
    """The SHA-256 of a model with all its constants, in hexadecimal.

    Args:
        light: the model without the large weights, see :func:`qc.runtime.protos.detach.detach_weights`.
        weights: these weights.
        base_dir: the folder that external data is relative to.

    Raises:
        ModelError: external data is missing.
    """
    digest = hashlib.sha256(light.SerializeToString(deterministic=True))
    for name, array in weights.items():
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    for tensor in model_tensors(light):
        reference = TensorRef(tensor, base_dir)
        if reference.is_external and tensor.name not in weights:
            digest.update(np.ascontiguousarray(reference.numpy()).view(np.uint8).data)
    return digest.hexdigest()


def feed_fingerprint(feed: Feed) -> int:
    """The first 64 bits of the SHA-256 of a feed."""
    digest = hashlib.sha256()
    for name in sorted(feed):
        digest.update(f"{name}\0".encode())
        _update(digest, feed[name])
    return int.from_bytes(digest.digest()[:8], "little")


def _update(digest: hashlib._Hash, value: object) -> None:
    """Adds an input, which may be a tensor, a sequence of tensors or a map of them."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        digest.update(f"{value.dtype.str}{value.dtype.name}{value.shape}\0".encode())
        digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    elif isinstance(value, (np.ndarray, list, tuple)):
        digest.update(f"{type(value).__name__} of {len(value)}\0".encode())
        for item in value:
            _update(digest, item)
    else:
        digest.update(f"{value!r}\0".encode())
