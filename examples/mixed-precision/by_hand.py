"""Precision by hand: weights of 4 bits and activations of 8, BatchNormalizations in float16.

`python by_hand.py`. BatchNormalizations that cannot be folded, such as these behind a Relu, lose in 8 bits,
as their channels differ. From the shell:

    qc model.onnx --data data.npz --pipeline w4a8 --target npu \\
        --set BatchNormalization=float16 --set op:last=w8
"""

import numpy as np
import onnx
from onnx import numpy_helper

import qc

NETWORK = """<ir_version: 10, opset_import: ["": 21]>
network (float[1, 8, 24, 24] x) => (float[1, 10] y) {
    c1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
    r1 = Relu (c1)
    n1 = BatchNormalization (r1, gamma1, beta1, mean1, variance1)
    p1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (n1)
    c2 = Conv <pads = [1, 1, 1, 1]> (p1, w2)
    r2 = Relu (c2)
    n2 = BatchNormalization (r2, gamma2, beta2, mean2, variance2)
    p2 = GlobalMaxPool (n2)
    f = Flatten (p2)
    [last] y = Gemm (f, w3)
}"""


def network() -> onnx.ModelProto:
    """Two blocks of convolution, Relu and BatchNormalization, whose channels differ a hundredfold."""
    random = np.random.default_rng(0)
    arrays = {"w1": (32, 8, 3, 3), "w2": (32, 32, 3, 3), "w3": (32, 10)}
    constants = {name: random.normal(0, shape[1] ** -0.5 / 3, shape) for name, shape in arrays.items()}
    for block in "12":
        constants[f"gamma{block}"] = np.exp(random.uniform(-2.3, 2.3, 32))
        constants[f"beta{block}"] = random.normal(0, 1, 32)
        constants[f"mean{block}"] = random.uniform(0, 1, 32)
        constants[f"variance{block}"] = random.uniform(0.5, 2, 32)
    model = onnx.parser.parse_model(NETWORK)
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


random = np.random.default_rng(1)
feeds = [{"x": random.normal(size=(1, 8, 24, 24)).astype(np.float32)} for _ in range(32)]
onnx.save(network(), "model.onnx")
rules = {
    "w4a8": [],
    "BatchNormalization in float16": ["BatchNormalization=float16"],
    "and 8 bits for the weights of the last layer": ["BatchNormalization=float16", "op:last=w8"],
}
for name, precision in rules.items():
    compiled = qc.compile("model.onnx", "w4a8", data=feeds, target="npu", precision=precision)
    found = qc.runtime.evaluate("model.onnx", {name: compiled.open_simulation()}, feeds, latency_seconds=0)
    print(f"{name}, in dB: {found.candidates[0].worst_sqnr_db:.1f}")
compiled.save("model.mixed.onnx")
