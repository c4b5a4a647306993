"""Runs AIMET on models and writes what it makes of them; needs a Python that has AIMET, not qc.

It reads jobs, a JSON object in each line, and says ``done`` after each. A job has ``model``, a path;
``config``, and perhaps ``scheme``, ``parameters`` and ``activations``; perhaps ``method``, which is adaround
or seq_mse, and ``steps``, its iterations or candidates; and ``folder``, where ``feeds.npz`` lies to calibrate
on and ``run.npz`` to run then. There it writes

* ``result.json``: ``encodings`` as AIMET exports them (1.0.0), ``ties`` as lists of tensor names that hold
  one quantizer, and ``seconds`` that the method took; or ``error`` if AIMET fails
* ``outputs.npz``: what its simulation makes of the feeds

A job with a ``setting`` is one for ``aimet_settings.py``, which writes all forms of the simulation instead.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx
from aimet_onnx import QuantizationSimModel, apply_adaround, apply_seq_mse

from .aimet_process import read_arrays, write_arrays
from .aimet_settings import simulate


def main() -> None:
    """Does one job after the other; what AIMET itself prints goes to the standard error output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            result = simulated(job) if "setting" in job else quantize(job)
        except Exception as error:  # whatever AIMET fails with is a result to report
            result = {"error": f"{type(error).__name__}: {error}"}
        Path(job["folder"], "result.json").write_text(json.dumps(result), encoding="utf-8")
        print("done", file=answers, flush=True)


def simulated(job: dict[str, Any]) -> dict[str, object]:
    """Makes all forms of a simulation in one of the settings of ``aimet_settings.py``."""
    model, feeds = onnx.load(job["model"]), read_arrays(job["folder"], "feeds")
    simulate("aimet_onnx", model, feeds, job["config"], job["setting"], job["folder"])
    return {}


def quantize(job: dict[str, Any]) -> dict[str, object]:
    """Places, calibrates, runs and exports."""
    feeds = read_arrays(job["folder"], "feeds")
    model = onnx.load(job["model"])
    names = [output.name for output in model.graph.output]
    sim = QuantizationSimModel(
        model,
        config_file=job["config"],
        quant_scheme=job.get("scheme", "min_max"),
        param_type=job.get("parameters", "int8"),
        activation_type=job.get("activations", "int8"),
        dummy_input=feeds[0],
    )
    start = time.perf_counter()
    if "method" in job:
        apply = {"adaround": apply_adaround, "seq_mse": apply_seq_mse}[job["method"]]
        apply(sim, feeds, int(job["steps"]))
    seconds = time.perf_counter() - start
    sim.compute_encodings(feeds)
    results = [
        dict(zip(names, sim.session.run(None, feed), strict=True))
        for feed in read_arrays(job["folder"], "run")
    ]
    write_arrays(job["folder"], "outputs", results)
    holders: dict[int, list[str]] = {}
    for name, quantizer in sim.qc_quantize_op_dict.items():
        if quantizer.enabled:
            holders.setdefault(id(quantizer), []).append(name)
    with tempfile.TemporaryDirectory() as folder:
        sim.export(folder, "model", export_model=False)
        encodings = json.loads((Path(folder) / "model.encodings").read_text(encoding="utf-8"))
    ties = [names for names in holders.values() if len(names) > 1]
    return {"encodings": encodings, "ties": ties, "seconds": seconds}


if __name__ == "__main__":
    main()
