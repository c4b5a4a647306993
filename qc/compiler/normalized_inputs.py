"""Whether data is what a model normalizes by itself: the constants at its inputs tell what is expected.

A model that takes off 123.7 and divides by 58.4 wants pixels of 0 to 255, not numbers that were scaled or
normalized before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from qc.ir.executor import Feed
from qc.ir.tensor_ref import TensorRef
from qc.runtime.protos.wiring import GraphWiring, Node

_CARRIES = ("Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_LEAST_RANK = 3  # masks and lists of numbers, which have fewer axes, are computed with in other ways
# Pictures and features lie within 3 deviations of the mean that is taken off, and have one of 0.2 to 2 then.
_FARTHEST = 16.0
_MOST_SPREAD = 4.0
_LEAST_SHARE = 1 / 64  # of what is divided by, where nothing is taken off
_LEAST_SCALE = 1e-20  # what is scaled by less, or by more than one over it, is not normalized
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@dataclass
class _Normalized:
    """``x * scale + shift``, the first that becomes of an input; the typical number of each constant.

    Attributes:
        name: the input.
        first: the op that begins.
    """

    name: str
    first: Node | None = None
    scale: float = 1.0
    shift: float = 0.0

    def take(self, node: Node, number: float, is_first: bool) -> bool:
        """Goes on by an op with a constant; whether that is part of a normalization."""
        if node.op_type in ("Mul", "Div"):
            if number <= 0 or (node.op_type == "Div" and not is_first):  # what is turned around is a mask
                return False
            factor = 1 / number if node.op_type == "Div" else number
            if not _LEAST_SCALE < self.scale * factor < 1 / _LEAST_SCALE:
                return False
            self.scale, self.shift = self.scale * factor, self.shift * factor
        elif node.op_type == "Add" or is_first:
            self.shift += number if node.op_type == "Add" else -number
        else:
            return False
        self.first = self.first or node
        return True

    def strange(self, arrays: Sequence[np.ndarray]) -> str:
        """What the input does not fit by, in words; empty if it does."""
        if self.scale == 1 and not self.shift:
            return ""
        numbers = np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float64)
        deviation, unit = float(numbers.std()), 1 / self.scale
        done = [f"divides by {unit:.4g}"] if unit != 1 else []
        if self.shift:
            center = -self.shift * unit
            done.insert(0, f"takes {center:.4g} off")
            strange = 0 < _FARTHEST * deviation < abs(float(numbers.mean()) - center)
            strange |= unit != 1 and deviation > _MOST_SPREAD * unit
        else:
            strange = 0 < float(np.abs(numbers).max()) < _LEAST_SHARE * unit
        if self.first is None or not strange:
            return ""
        return f"the model normalizes '{self.name}' itself, it {' and '.join(done)} ({self.first.label})"


def unlike_normalization(model: ModelProto, base_dir: Path | None, feeds: Sequence[Feed]) -> str:
    """What the data does not fit by, in words; empty if it does, or if no op at an input tells anything.

    Args:
        model: the float model as it came.
        base_dir: the folder that its external data is relative to.
        feeds: some of the data.
    """
    for found in _normalized_inputs(model, base_dir):
        arrays = [feed[found.name] for feed in feeds if found.name in feed and feed[found.name].size]
        if arrays and all(array.ndim >= _LEAST_RANK and np.isfinite(array).all() for array in arrays):
            said = found.strange(arrays)
            if said:
                return said
    return ""


def _normalized_inputs(model: ModelProto, base_dir: Path | None) -> Iterator[_Normalized]:
    """What is done to each input before anything else."""
    wiring = GraphWiring(model.graph)
    for info in model.graph.input:
        if info.type.tensor_type.elem_type not in _FLOATS or wiring.constant(info.name) is not None:
            continue
        found, tensor = _Normalized(info.name), info.name
        while len(readers := wiring.readers[tensor]) == 1:
            (node,) = readers
            if node.op_type not in _CARRIES:
                number = _constant(node, tensor, base_dir)
                if number is None or not found.take(node, number, node.proto.input[0] == tensor):
                    break
            tensor = node.proto.output[0]
        yield found


def _constant(node: Node, tensor: str, base_dir: Path | None) -> float | None:
    """The typical number of the constant beside a tensor in an elementwise op; None if there is none."""
    if node.op_type not in ("Add", "Sub", "Mul", "Div"):
        return None
    constant = node.constant(1 if node.proto.input[0] == tensor else 0)
    if constant is None or constant.data_type not in _FLOATS:
        return None
    numbers = TensorRef(constant, base_dir).numpy().astype(np.float64)
    return float(np.median(numbers)) if numbers.size and np.isfinite(numbers).all() else None
