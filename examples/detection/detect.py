"""Boxes out of NonMaxSuppression: what is in front of it runs in integers, boxes are judged by their overlap.

`python detect.py`. The number of boxes differs from picture to picture, so outputs cannot be compared
number by number: `matches` is what counts for a detector.
"""

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import qc

SIZE, SQUARE, CHANNELS = 192, 7, 16
NETWORK = f"""<ir_version: 10, opset_import: ["": 21]>
detector (float[1, 1, {SIZE}, {SIZE}] image) => (float[found, 4] boxes) {{
    blurred = Conv <pads = [1, 1, 1, 1]> (image, blur)
    edges = Relu (blurred)
    squares = Conv <pads = [3, 3, 3, 3]> (edges, pattern, threshold)
    scores = Sigmoid (squares)
    row = Reshape (scores, one_class)
    kept = NonMaxSuppression (places, row, most, overlap, least)
    index = Gather <axis = 1> (kept, last)
    all_boxes = Squeeze (places, first_axis)
    boxes = Gather (all_boxes, index)
}}"""


def network() -> onnx.ModelProto:
    """Finds bright squares by their pattern: bright inside, dark around."""
    gains = np.linspace(0.5, 1.5, CHANNELS)
    corner = np.stack(np.mgrid[:SIZE, :SIZE], axis=-1).reshape(-1, 2) - SQUARE / 2
    constants = {
        "blur": (gains[:, None, None, None] * np.full((1, 1, 3, 3), 1 / 9)).astype(np.float32),
        "pattern": np.full((1, CHANNELS, SQUARE, SQUARE), 40 / SQUARE**2 / CHANNELS, np.float32),
        "threshold": np.array([-24], np.float32),
        "places": np.concatenate([corner, corner + SQUARE], axis=1)[None].astype(np.float32),
        "one_class": np.array([1, 1, -1]),
        "most": np.array([10]),
        "overlap": np.array([0.1], np.float32),
        "least": np.array([0.5], np.float32),
        "last": np.array(2),
        "first_axis": np.array([0]),
    }
    model = onnx.parser.parse_model(NETWORK)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def pictures(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Dark pictures with noise and three bright squares each, which do not touch."""
    random = np.random.default_rng(seed)
    feeds = []
    for _ in range(count):
        image = random.normal(0.1, 0.05, (1, 1, SIZE, SIZE)).astype(np.float32)
        for cell in random.choice(9, 3, replace=False):
            down, along = np.array(divmod(cell, 3)) * SIZE // 3 + random.integers(1, SIZE // 3 - SQUARE, 2)
            image[..., down : down + SQUARE, along : along + SQUARE] += random.uniform(0.8, 1)
        feeds.append({"image": image})
    return feeds


def matches(found: np.ndarray, wanted: np.ndarray) -> float:
    """The share of boxes (top, left, bottom, right; one in a row) with a partner that overlaps by half."""
    low = np.maximum(found[:, None, :2], wanted[None, :, :2])
    high = np.minimum(found[:, None, 2:], wanted[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=-1)
    return 2 * np.count_nonzero(common > 2 / 3 * SQUARE**2) / (len(found) + len(wanted))


if __name__ == "__main__":
    onnx.save(network(), "model.onnx")
    compiled = qc.compile("model.onnx", "w8a8", data=pictures(40, seed=0))
    compiled.save("model.q.onnx")
    models = [onnxruntime.InferenceSession(path) for path in ("model.onnx", "model.q.onnx")]
    tests = pictures(20, seed=1)
    pairs = [[model.run(None, feed)[0].reshape(-1, 4) for model in models] for feed in tests]
    print(f"boxes {sum(len(boxes) for boxes, _ in pairs)}")
    print(f"matched {np.mean([matches(found, wanted) for wanted, found in pairs]):.3f}")
    print(f"integer {qc.check('model.q.onnx', 'ort-cpu', tests).share:.3f}")
