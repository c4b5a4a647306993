"""AdaRound and mixed precision: 4-bit convolutions, an 8-bit product, BatchNormalization in float16.

python adaround_mixed.py --output FOLDER                                    with AIMET
python -m qc.compat.aimet_onnx adaround_mixed.py --output FOLDER            with qc
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
import onnxruntime
from aimet_onnx import apply_adaround, float16, int8
from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim, set_param_type
from digits import accuracy, digits, feeds, network


def simulation(model: onnx.ModelProto) -> QuantizationSimModel:
    """The network with weights of 4 bits, but for the last ones and those of normalizations."""
    sim = QuantizationSimModel(model, param_type="int4")
    set_param_type(sim, int8, op_types=["Gemm"])
    for op in sim.connected_graph.ordered_ops:
        if op.type == "BatchNormalization":
            for quantizer in sim.get_op_quantizers(op)[2].values():
                if quantizer.enabled:
                    quantizer.set_precision(float16)
    return sim


def main(folder: Path, steps: int) -> None:
    """Prints the share of digits that each model knows."""
    pictures, labels = digits(1000, seed=2)
    nearest = simulation(network())
    nearest.compute_encodings(feeds(64))

    sim = simulation(network())
    apply_adaround(sim, feeds(64), num_iterations=steps)
    sim.compute_encodings(feeds(64))
    sim.export(str(folder), "digits")

    again = simulation(onnx.load(folder / "digits.onnx"))
    load_encodings_to_sim(again, str(folder / "digits.encodings"), strict=False)
    sessions = {
        "float": onnxruntime.InferenceSession(network().SerializeToString()),
        "nearest": nearest.session,
        "learned": sim.session,
        "reloaded": again.session,
    }
    for name, session in sessions.items():
        print(f"{name:12}{accuracy(session, pictures, labels):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=500, help="of AdaRound, for each layer")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    main(chosen.output, chosen.steps)
