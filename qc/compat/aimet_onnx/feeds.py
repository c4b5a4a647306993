"""Data in the forms that scripts for AIMET-ONNX have it in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from onnx import ModelProto

from qc.runtime import Data, load_data, model_inputs

from .errors import ArgumentError

Given = np.ndarray | Sequence[np.ndarray] | dict[str, np.ndarray]


def feed_of(model: ModelProto, given: Given) -> dict[str, np.ndarray]:
    """One feed.

    Args:
        given: an array, one for each input in the order of the model, or a dictionary of them.

    Raises:
        UsageError: there are more arrays than inputs, or fewer.
    """
    if isinstance(given, dict):
        return given
    arrays = [given] if isinstance(given, np.ndarray) else list(given)
    names = [info.name for info in model_inputs(model) if not info.optional]
    if len(arrays) != len(names):
        raise ArgumentError(f"{len(arrays)} arrays do not fit the {len(names)} inputs of the model")
    return dict(zip(names, arrays, strict=True))


def feeds_of(model: ModelProto, batches: Iterable[Any], count: int | None = None) -> Data:
    """The first feeds of an iterable, as many as asked for.

    Raises:
        UsageError: as for :func:`feed_of`, or there are fewer.
    """
    found = [feed_of(model, batch) for batch in islice(batches, count)]
    if count is not None and len(found) < count:
        raise ArgumentError(f"there are {len(found)} batches, fewer than {count}")
    return load_data(found, model_inputs(model))
