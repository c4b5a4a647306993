"""Inputs of a model, arrays for them, and comparing what data gives with what it should."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qc.runtime import Data, InputInfo

IMAGE = InputInfo("image", TensorProto.FLOAT, ("batch", 3, 2))
LENGTH = InputInfo("length", TensorProto.INT64, ())
MASK = InputInfo("mask", TensorProto.BOOL, (2, 2))
ANYTHING = InputInfo("anything", TensorProto.FLOAT, None)
DEFAULT = InputInfo("gain", TensorProto.FLOAT, (1,), optional=True)
STATE = InputInfo("state", TensorProto.UNDEFINED, None)


def images(count: int) -> np.ndarray:
    return np.arange(count * 6, dtype=np.float32).reshape(count, 3, 2)


def shapes(data: Data) -> list[dict[str, tuple[int, ...]]]:
    return [{name: array.shape for name, array in feed.items()} for feed in data]


def equal(data: Data, feeds: list[dict[str, np.ndarray]]) -> bool:
    read = list(data)
    return len(read) == len(feeds) and all(
        got.keys() == feed.keys()
        and all(
            np.array_equal(got[name], feed[name]) and got[name].dtype == feed[name].dtype for name in feed
        )
        for got, feed in zip(read, feeds, strict=True)
    )
