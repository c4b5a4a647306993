"""AdaRound and mixed precision in one simulation: 4-bit convolutions, BatchNormalization in float16.

    python examples/adaround_mixed/adaround_mixed.py --output adaround-mixed

Weights have 4 bits and what convolutions read 8. Precision may be set before or after the weights are learned
(``--precision-first``). What is exported is read back, and gives the same results: the float model with its
encodings file, and the QDQ model. The network is made on the spot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import onnx
import onnxruntime
from digits import accuracy, digits, network

from qc.compat.aimet_onnx import QuantizationSimModel, apply_adaround, float16, load_encodings_to_sim

FEEDS = 64


@dataclass(frozen=True)
class Accuracies:
    """The share of digits that are known: in float, with the nearest codes, and with those of AdaRound."""

    exact: float
    nearest: float
    learned: float
    reloaded: float
    qdq: float


def set_precision(sim: QuantizationSimModel) -> None:
    """Computes BatchNormalization in float16, and lets the Relu behind it keep 8 bits."""
    for op in sim.connected_graph.ordered_ops:
        if op.type == "BatchNormalization":
            sim.untie(op.outputs[0].name)
            _, made, parameters = sim.get_op_quantizers(op)
            for quantizer in (*made, *parameters.values()):
                if quantizer.enabled:
                    quantizer.set_precision(float16)


def run(folder: Path, precision_first: bool) -> Accuracies:
    """Quantizes the network, exports it to a folder, and reads that back."""
    model = network()
    pictures, labels = digits(1000, seed=2)
    feeds = [{"x": picture[None]} for picture in digits(FEEDS, seed=3)[0]]

    plain = QuantizationSimModel(model, param_type="int4")
    set_precision(plain)
    plain.compute_encodings(feeds)

    sim = QuantizationSimModel(model, param_type="int4")
    if precision_first:
        set_precision(sim)
    apply_adaround(sim, feeds, num_iterations=500)
    if not precision_first:
        set_precision(sim)
    sim.compute_encodings(feeds)
    sim.export(folder, "digits")
    onnx.save(sim.to_onnx_qdq(prequantize_constants=True), folder / "digits.qdq.onnx")

    again = QuantizationSimModel(folder / "digits.onnx", param_type="int4")
    load_encodings_to_sim(again, folder / "digits.encodings", strict=False)
    sessions = (
        onnxruntime.InferenceSession(model.SerializeToString()),
        plain.session,
        sim.session,
        again.session,
        onnxruntime.InferenceSession(folder / "digits.qdq.onnx"),
    )
    return Accuracies(*(accuracy(session, pictures, labels) for session in sessions))


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("adaround-mixed"), help="A folder.")
@click.option("--precision-first", is_flag=True, help="Set precision before the weights are learned.")
def main(output: Path, precision_first: bool) -> None:
    """Prints the accuracy of each model."""
    for name, share in vars(run(output, precision_first)).items():
        print(f"{name:10}{share:.3f}")


if __name__ == "__main__":
    main()
