"""4-bit weights with one scale for each channel, for each block, and for each block in two levels (LPBQ).

python block_weights.py --output FOLDER                                     with AIMET
python -m qc.compat.aimet_onnx block_weights.py --output FOLDER             with qc
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnxruntime
from aimet_onnx.quantsim import (
    QuantizationSimModel,
    set_blockwise_quantization_for_weights,
    set_lpbq_for_params,
)
from digits import accuracy, digits, feeds, network

BLOCK = 12
LAYERS = ("Conv", "Gemm")


def main(folder: Path) -> None:
    """Prints the share of digits that each model knows, and writes its encodings."""
    pictures, labels = digits(1000, seed=2)
    exact = onnxruntime.InferenceSession(network().SerializeToString())
    print(f"{'float':12}{accuracy(exact, pictures, labels):.3f}")
    for kind in ("channels", "blocks", "lpbq"):
        sim = QuantizationSimModel(network(), param_type="int4", activation_type="int16")
        if kind == "blocks":
            set_blockwise_quantization_for_weights(sim, LAYERS, 4, True, BLOCK, strict=False)
        if kind == "lpbq":
            set_lpbq_for_params(sim, 4, BLOCK, op_types=LAYERS, strict=False)
        sim.compute_encodings(feeds(64))
        sim.export(str(folder), kind, encoding_version="1.0.0")
        print(f"{kind:12}{accuracy(sim.session, pictures, labels):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args().output
    chosen.mkdir(parents=True, exist_ok=True)
    main(chosen)
