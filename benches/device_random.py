"""Random networks on a device: does it compute what the QDQ model says?

    python benches/device_random.py --on openvino --networks 1000
    python benches/device_random.py --on openvino --networks 1000 --free-batch

Every network (models/drawn_networks.py) is compiled for the device's target and run by the device and by ONNX
Runtime without optimizations. A network is wrong if an output has less than 30 dB to the one of ONNX Runtime,
and at least 3 dB less than quantization leaves of the float output. What the device cannot open, or computes
wrongly, in float, is left out. With a free batch they are calibrated with 7 elements and run 40. Prints a
line for each network that is wrong or refused, and the numbers of all; ends with exit code 1 if there is one.
"""

from __future__ import annotations

import sys
from collections import Counter

import click
import numpy as np
import onnxruntime
from models.drawn_networks import DrawnNetwork
from onnx import ModelProto
from rich.console import Console
from rich.progress import track

import qc
from qc.ir.errors import QcError
from qc.ir.executor import Feed
from qc.runtime.devices.known import open_device

ALIKE = 30.0  # dB between a device and ONNX Runtime that show the same arithmetic
NOISE = 3.0  # dB that a device may lose of what quantization leaves
OPTIONS = {"openvino": {"INFERENCE_PRECISION_HINT": "f32"}}
FEEDS = 6
CALIBRATED, RUN = 7, 40  # elements of a free batch, which no other axis and fewer than all channels have
EQUAL = 60.0  # dB between two computations of the float model
Outputs = list[np.ndarray]


def decibels(wanted: np.ndarray, found: np.ndarray) -> float:
    """The ratio of a tensor to the difference of another one; -inf for one of another shape."""
    if wanted.shape != found.shape:
        return float("-inf")
    signal = np.sum(np.square(wanted, dtype=np.float64))
    noise = np.sum(np.square(wanted.astype(np.float64) - found))
    return float(10 * np.log10(max(signal, 1e-20) / max(noise, 1e-20)))


def by_runtime(model: ModelProto, feed: Feed) -> Outputs:
    """What ONNX Runtime computes without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed))


def by_device(device: str, model: ModelProto, feed: Feed) -> Outputs:
    """What a device computes."""
    made = open_device(device, OPTIONS.get(device, {})).open(model).run(feed)
    return [made[output.name] for output in model.graph.output]


def is_right(wanted: Outputs, found: Outputs, floats: Outputs) -> bool:
    """Whether a device computes the QDQ model, as far as quantization leaves enough to tell."""
    return all(
        decibels(one, other) >= min(ALIKE, decibels(of_float, one) - NOISE)
        for one, other, of_float in zip(wanted, found, floats, strict=True)
    )


def verdict(device: str, pipeline: str, network: DrawnNetwork) -> str:
    """``right``, ``wrong``, why it is refused, or ``left out``."""
    model, (feed,) = network.model(), network.feeds(1, network.free and RUN)
    floats = by_runtime(model, feed)
    if not all(np.isfinite(one).all() for one in floats):
        return "left out"
    data = network.feeds(FEEDS)
    try:
        compiled = qc.compile(model, pipeline, target=device, data=data, threads=1, allow_unquantized=True)
        found = by_device(device, compiled.model, feed)
    except QcError as error:
        return f"refused: {error}"
    wanted = by_runtime(compiled.model, feed)
    return "right" if is_right(wanted, found, floats) else "wrong"


def is_right_in_float(device: str, network: DrawnNetwork) -> bool:
    """Whether a device computes the float model."""
    model, (feed,) = network.model(), network.feeds(1, network.free and RUN)
    try:
        found = by_device(device, model, feed)
    except QcError:
        return False
    wanted = by_runtime(model, feed)
    return all(decibels(one, other) > EQUAL for one, other in zip(wanted, found, strict=True))


@click.command(help=__doc__)
@click.option("--on", "device", default="openvino", help="The device, whose target has its name.")
@click.option("--pipeline", default="w8a8", help="What the networks are compiled by.")
@click.option("--networks", default=500, help="How many.")
@click.option("--first", default=0, help="The number of the first.")
@click.option("--free-batch", is_flag=True, help="Whether the networks take any number of elements.")
def main(device: str, pipeline: str, networks: int, first: int, free_batch: bool) -> None:
    batch = CALIBRATED if free_batch else 0
    console, counts = Console(width=200), Counter[str]()
    for number in track(range(first, first + networks), "networks", console=console, transient=True):
        found = verdict(device, pipeline, DrawnNetwork(number, batch))
        if found not in ("right", "left out") and not is_right_in_float(device, DrawnNetwork(number, batch)):
            found = "left out"
        counts[found.split(":")[0]] += 1
        if found.startswith(("refused", "wrong")):
            ops = " ".join(node.op_type for node in DrawnNetwork(number, batch).model().graph.node)
            console.print(f"{number}: {found[:120]}  ({ops})")
    console.print(", ".join(f"{count} {found}" for found, count in sorted(counts.items())))
    sys.exit(1 if counts["refused"] or counts["wrong"] else 0)


if __name__ == "__main__":
    main()
