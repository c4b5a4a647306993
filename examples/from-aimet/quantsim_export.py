"""Simulates a network in 8 bits, exports it with its encodings and as QDQ, and reads both back.

python quantsim_export.py --output FOLDER                                   with AIMET
python -m qc.compat.aimet_onnx quantsim_export.py --output FOLDER           with qc
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
import onnxruntime
from aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight
from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim
from digits import accuracy, digits, feeds, network


def main(folder: Path) -> None:
    """Prints the share of digits that each model knows."""
    pictures, labels = digits(1000, seed=2)
    exact = onnxruntime.InferenceSession(network().SerializeToString())

    model = network()
    fold_all_batch_norms_to_weight(model)
    sim = QuantizationSimModel(model, param_type="int8", activation_type="int8", config_file="htp_v73")
    sim.compute_encodings(feeds(64))
    sim.export(str(folder), "digits")
    onnx.save(sim.to_onnx_qdq(), folder / "digits.qdq.onnx")

    again = QuantizationSimModel(onnx.load(folder / "digits.onnx"), config_file="htp_v73")
    load_encodings_to_sim(again, str(folder / "digits.encodings"))
    sessions = {
        "float": exact,
        "simulated": sim.session,
        "reloaded": again.session,
        "qdq": onnxruntime.InferenceSession(folder / "digits.qdq.onnx"),
    }
    for name, session in sessions.items():
        print(f"{name:12}{accuracy(session, pictures, labels):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args().output
    chosen.mkdir(parents=True, exist_ok=True)
    main(chosen)
