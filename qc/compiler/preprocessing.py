"""Whether data looks as what a model was trained on: its first normalization remembers what it saw.

A BatchNormalization holds the mean and variance of its input in training. Data that lacks preprocessing, such
as pictures from 0 to 255 for a model that wants them normalized, is far from them. Where exporters have
folded it into a convolution, the bias is as large as what the convolution made in training. Of a model that
normalizes its inputs itself the constants tell what it wants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import ModelProto

from qc.ir.errors import QcError
from qc.ir.executor import Feed
from qc.ir.tensor_ref import TensorRef
from qc.runtime import Data, OpenModel, Spread
from qc.runtime.protos.wiring import Node, all_nodes

from ..rendering.words import in_three_digits
from .normalized_inputs import unlike_normalization

# On the right data of trained networks the ratio is 0.3 to 1.4, on their raw pictures 16 to 180.
_MOST_SPREAD = 4.0
# On pictures scaled to 0 to 1, which most of them do not want, it is 0.06 to 0.8, and the mean is off by 0.1
# to 0.6 deviations; on the right data, by 0 to 0.1.
_LEAST_SPREAD_OF_SCALED = 0.6
_LEAST_SHIFT_OF_SCALED = 0.15
# With biases 0.2 to 5.2, and 45 to 750.
_MOST_BESIDE_BIAS = 20.0
_RAW = 16.0  # values up to here are of pictures that were scaled
_SAMPLES = 4
_LEAST_POSITIONS = 16  # numbers of a channel, to speak of a variance


class _Normalization(NamedTuple):
    """An op that tells what its input, or what it makes, was in training.

    Attributes:
        node: the op.
        tensor: what to look at, with channels along axis 1.
    """

    node: Node
    tensor: str


def unlike_training(model: ModelProto, base_dir: Path | None, data: Data) -> list[str]:
    """A note if the first normalization sees numbers of another size than in training.

    Args:
        model: the float model as it came.
        base_dir: the folder that its external data is relative to.
        data: the calibration data, of which 4 samples are looked at.
    """
    try:
        feeds = list(islice(Spread(data), _SAMPLES))
        said = unlike_normalization(model, base_dir, feeds) or _unlike_statistics(model, base_dir, feeds)
    except QcError:  # no judge of data then
        return []
    if not said:
        return []
    low, high = _ends(feeds)
    return [
        f"{said}: the calibration data, from {low:.4g} to {high:.4g}, seems to lack the preprocessing "
        "that the model was trained with (scale, mean and deviation of its inputs), and ranges will be wrong"
    ]


def _unlike_statistics(model: ModelProto, base_dir: Path | None, feeds: Sequence[Feed]) -> str:
    """What is wrong by the first op that tells of its input in training; empty for nothing."""
    found = _first_normalization(model)
    if found is None:
        return ""
    part = OpenModel(model, base_dir=base_dir, outputs=[found.tensor], threads=1)
    seen = [part.run(feed)[found.tensor] for feed in feeds]
    names = {one.name for one in part.session.get_inputs()}
    read = [{name: array for name, array in feed.items() if name in names} for feed in feeds]
    low, high = _ends(read)
    if low > high or not all(one.ndim >= 2 and np.isfinite(one).all() for one in seen):
        return ""
    channels = np.concatenate([np.moveaxis(one, 1, 0).reshape(one.shape[1], -1) for one in seen], axis=1)
    if channels.shape[1] < _LEAST_POSITIONS:
        return ""
    if found.node.op_type == "BatchNormalization":
        return _normalized(found.node, base_dir, channels, is_scaled=low >= 0 and 0.5 < high <= 1)
    return _biased(found.node, base_dir, channels, low, high)


def _ends(feeds: Sequence[Feed]) -> tuple[float, float]:
    """The smallest and the largest float; infinite if there is none."""
    arrays = [array for feed in feeds for array in feed.values() if array.dtype.kind == "f" and array.size]
    return (
        min((float(array.min()) for array in arrays), default=math.inf),
        max((float(array.max()) for array in arrays), default=-math.inf),
    )


def _first_normalization(model: ModelProto) -> _Normalization | None:
    """The first BatchNormalization of the main graph, else its first convolution with a bias."""
    nodes = [node for node in all_nodes(model.graph) if node.graph.owner is None]
    for node in nodes:
        if (
            node.op_type == "BatchNormalization"
            and node.constant(3) is not None
            and node.constant(4) is not None
        ):
            return _Normalization(node, node.proto.input[0])
    for node in nodes:
        if node.op_type == "Conv" and node.constant(2) is not None:
            return _Normalization(node, node.proto.output[0])
    return None


def _normalized(node: Node, base_dir: Path | None, channels: np.ndarray, is_scaled: bool) -> str:
    """What is wrong by the running mean and variance of a BatchNormalization; empty for nothing."""
    mean, variance = node.constant(3), node.constant(4)
    if mean is None or variance is None:
        return ""
    epsilon = node.attribute("epsilon")
    least = epsilon.f if epsilon is not None else 1e-5
    trained = TensorRef(variance, base_dir).numpy().astype(np.float64)
    if np.ptp(trained) == 0:  # nothing was trained
        return ""
    ratio = float(
        np.median(np.sqrt((np.var(channels, axis=1, dtype=np.float64) + least) / (trained + least)))
    )
    away = np.abs(np.mean(channels, axis=1, dtype=np.float64) - TensorRef(mean, base_dir).numpy())
    shift = float(np.median(away / np.sqrt(trained + least)))
    lacks_mean = is_scaled and ratio < _LEAST_SPREAD_OF_SCALED and shift > _LEAST_SHIFT_OF_SCALED
    if 1 / _MOST_SPREAD <= ratio <= _MOST_SPREAD and not lacks_mean:
        return ""
    times = in_three_digits(ratio)
    return f"{node.label} sees {times} times the spread that its running variance has from training"


def _biased(node: Node, base_dir: Path | None, channels: np.ndarray, low: float, high: float) -> str:
    """What is wrong by the bias of a convolution, where the data may be raw; empty for nothing."""
    bias = node.constant(2)
    if bias is None or low < 0 or high <= _RAW:
        return ""
    typical = float(np.median(np.abs(TensorRef(bias, base_dir).numpy())))
    deviations = np.std(channels, axis=1, dtype=np.float64)
    ratio = float(np.median(deviations)) / typical if typical else 0.0
    if ratio <= _MOST_BESIDE_BIAS:
        return ""
    return f"{node.label} makes numbers {in_three_digits(ratio)} times as large as its bias"
