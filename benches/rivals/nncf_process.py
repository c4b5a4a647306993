"""NNCF, which quantizes for OpenVINO, in a Python of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import onnx

from qc.ir.executor import Feed

from .aimet_process import write_arrays


def quantize(
    python: str, model: Path, feeds: Iterable[Feed], *, max_drop: float = 0.0, minutes: float = 10.0
) -> tuple[onnx.ModelProto, float]:
    """What ``nncf.quantize`` makes of a model, and the seconds that it took.

    Args:
        python: a Python that has NNCF.
        max_drop: the share of the cosine with float that may be lost; 0 for no control of the accuracy.
        minutes: how long it may take.

    Raises:
        RuntimeError: NNCF failed, with the last line that it says, or was not done in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(folder, "feeds", list(feeds))
        output, file = Path(folder, "quantized.onnx"), Path(folder, "job.json")
        job = {"model": str(model), "feeds": f"{folder}/feeds.npz", "output": str(output)}
        file.write_text(json.dumps({**job, "max_drop": max_drop}))
        command = [python, str(Path(__file__).with_name("nncf_quantize.py")), str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * minutes)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done after {minutes:g} minutes") from None
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1][:120])
        return onnx.load(output), json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
