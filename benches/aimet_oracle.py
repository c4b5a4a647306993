"""Runs AIMET on one model and writes its encodings (1.0.0) and ties; needs a Python that has AIMET, not qc.

python aimet_oracle.py MODEL CONFIG FEEDS.npz OUT.json

The archive holds the feeds as ``INDEX/NAME``. The result is a JSON object: ``encodings`` as AIMET exports
them, ``ties`` as lists of tensor names that hold one quantizer, or ``error`` if AIMET fails.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from aimet_onnx import QuantizationSimModel


def main(model: str, config: str, feeds: str, output: str) -> None:
    """Writes what AIMET makes of a model."""
    try:
        result = quantize(onnx.load(model), config, list(read_feeds(feeds)))
    except Exception as error:  # whatever AIMET fails with is a result to report
        result = {"error": f"{type(error).__name__}: {error}"}
    Path(output).write_text(json.dumps(result), encoding="utf-8")


def read_feeds(path: str) -> list[dict[str, np.ndarray]]:
    """The feeds of an archive."""
    feeds: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path) as archive:
        for key in archive.files:
            index, _, name = key.partition("/")
            feeds.setdefault(int(index), {})[name] = archive[key]
    return [feeds[index] for index in sorted(feeds)]


def quantize(model: onnx.ModelProto, config: str, feeds: list[dict[str, np.ndarray]]) -> dict[str, object]:
    """Places, calibrates and exports."""
    sim = QuantizationSimModel(model, config_file=config, dummy_input=feeds[0])
    sim.compute_encodings(feeds)
    holders: dict[int, list[str]] = {}
    for name, quantizer in sim.qc_quantize_op_dict.items():
        if quantizer.enabled:
            holders.setdefault(id(quantizer), []).append(name)
    with tempfile.TemporaryDirectory() as folder:
        sim.export(folder, "model", export_model=False)
        encodings = json.loads((Path(folder) / "model.encodings").read_text(encoding="utf-8"))
    return {"encodings": encodings, "ties": [names for names in holders.values() if len(names) > 1]}


if __name__ == "__main__":
    main(*sys.argv[1:])
