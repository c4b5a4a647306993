"""A recurrent network that forecasts: an LSTM whose weights alone have 8 bits.

`python forecast.py`. The state of a recurrent op stays float on CPUs, since errors of it would come around
again and again; `qc help ort-cpu` tells such rules of a target.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import qc

HIDDEN, LENGTH = 64, 100
NETWORK = f"""<ir_version: 10, opset_import: ["": 21]>
forecast (float[{LENGTH}, 1, 1] x) => (float[{LENGTH}, 1] y, float[{LENGTH}, {HIDDEN}] states) {{
    all, last, cell = LSTM <hidden_size = {HIDDEN}> (x, w, r, b)
    states = Reshape (all, rows)
    y = Gemm (states, readout, offset)
}}"""


def waves(count: int, seed: int) -> np.ndarray:
    """Sums of two sines, float32, shape ``(count, LENGTH + 1, 1, 1)``."""
    random = np.random.default_rng(seed)
    periods, phases = random.uniform(8, 30, (count, 2, 1)), random.uniform(0, 2 * np.pi, (count, 2, 1))
    time = np.arange(LENGTH + 1)
    return np.sin(2 * np.pi * time / periods + phases).mean(axis=1).astype(np.float32)[..., None, None]


# Random weights, and the best readout of the states that they make (an echo state network).
random = np.random.default_rng(0)
shapes = {"w": (1, 4 * HIDDEN, 1), "r": (1, 4 * HIDDEN, HIDDEN), "b": (1, 8 * HIDDEN)}
constants = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
constants |= {"rows": np.array([-1, HIDDEN]), "readout": np.zeros((HIDDEN, 1), np.float32)}
constants["offset"] = np.zeros(1, np.float32)
model = onnx.parser.parse_model(NETWORK)
model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
session = onnxruntime.InferenceSession(model.SerializeToString())
training = waves(60, seed=1)
states = np.vstack([session.run(["states"], {"x": wave[:-1]})[0] for wave in training])
normal = states.T @ states + len(states) * 1e-4 * np.eye(HIDDEN)  # small readouts, which rounding harms less
readout = np.linalg.solve(normal, states.T @ training[:, 1:, 0, 0].ravel()).astype(np.float32)
(tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "readout")
tensor.CopyFrom(numpy_helper.from_array(readout[:, None], "readout"))
del model.graph.output[1]
onnx.save(model, "model.onnx")

compiled = qc.compile("model.onnx", "w8a8", data=[{"x": wave[:-1]} for wave in training[:20]])
compiled.save("model.q.onnx")
for name, path in (("float", "model.onnx"), ("quantized", "model.q.onnx")):
    session = onnxruntime.InferenceSession(path)
    misses = [session.run(None, {"x": wave[:-1]})[0] - wave[1:, 0] for wave in waves(20, seed=2)]
    print(f"{name} error {np.sqrt(np.mean(np.square(misses))):.4f}")
print(f"size {Path('model.q.onnx').stat().st_size / Path('model.onnx').stat().st_size:.2f}")
