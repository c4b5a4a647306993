"""Pictures in folders: quantize a classifier, judge it by its labels, and see what runs in integers.

`python classify.py` needs `pip install 'qc-onnx[pictures]'`. The same from the shell, with its files:

    qc model.onnx --data pictures --preset inception --crop 32
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from PIL import Image

import qc

NETWORK = """<ir_version: 10, opset_import: ["": 21]>
classifier (float[n, 3, 32, 32] image) => (float[n, 4] scores, float[n, 32] features) {
    c1 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (image, w1)
    r1 = Relu (c1)
    c2 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (r1, w2)
    r2 = Relu (c2)
    pooled = GlobalAveragePool (r2)
    features = Flatten (pooled)
    scores = Gemm (features, w3, b3)
}"""


def draw(kind: int, random: np.random.Generator) -> Image.Image:
    """Stripes of one of two directions, wide or narrow."""
    place = np.mgrid[:32, :32][kind % 2] + random.integers(8)
    stripes = place // (2 if kind < 2 else 5) % 2
    pixels = 60 + 120 * stripes[..., None] * random.uniform(0.5, 1, 3) + random.normal(0, 10, (32, 32, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


random = np.random.default_rng(0)
for index in range(200):
    folder = Path("pictures") / "abcd"[index % 4]
    folder.mkdir(parents=True, exist_ok=True)
    draw(index % 4, random).save(folder / f"{index}.png")

# Random filters and the best last layer for what they find: enough for stripes. Yours comes from an exporter.
model = onnx.parser.parse_model(NETWORK)
shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (32, 4), "b3": (4,)}
weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
pictures = qc.DataFiles("pictures", preset="inception", crop=(32, 32))  # 0 to 255 becomes -1 to 1
data = qc.runtime.load_data(pictures, qc.runtime.model_inputs(model))
session = onnxruntime.InferenceSession(model.SerializeToString())
features = np.vstack([session.run(["features"], feed)[0] for feed in data])
wanted = np.eye(4)[data.labels]
solution = np.linalg.lstsq(np.c_[features, np.ones(len(features))], wanted, rcond=None)[0].astype(np.float32)
for tensor, array in zip(model.graph.initializer[2:], (solution[:-1], solution[-1]), strict=True):
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
del model.graph.output[1]
onnx.save(model, "model.onnx")


def accuracy(path: str) -> float:
    """The share of pictures whose folder a model names."""
    session = onnxruntime.InferenceSession(path)
    found = [session.run(None, feed)[0].argmax() for feed in data]
    return float(np.mean(np.array(found) == data.labels))


compiled = qc.compile("model.onnx", "w8a8", data=pictures)
compiled.save("model.q.onnx")
integer = qc.check("model.q.onnx", "ort-cpu").share
print(f"float {accuracy('model.onnx'):.3f}")
print(f"quantized {accuracy('model.q.onnx'):.3f}")
print(f"integer {integer:.3f}")
