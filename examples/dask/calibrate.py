"""Calibration on a cluster of Dask, here of two processes of this machine.

`python calibrate.py` needs `pip install 'qc-onnx[dask]'`. On a cluster of your own,
`Client("scheduler:8786")` takes the place of the local one; its workers need qc, and a path to data that
they can read. Whatever the number of workers, the model is the same, byte for byte.
"""

import numpy as np
import onnx
from distributed import Client
from onnx import numpy_helper

import qc
from qc.runtime import OrtExecutor, ShardedExecutor

NETWORK = """<ir_version: 10, opset_import: ["": 21]>
network (float[1, 64] x) => (float[1, 16] y) {
    hidden = MatMul (x, w1)
    active = Relu (hidden)
    y = MatMul (active, w2)
}"""

if __name__ == "__main__":  # processes of the cluster import this file
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(NETWORK)
    for name, shape in (("w1", (64, 128)), ("w2", (128, 16))):
        array = random.normal(0, 0.1, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, "model.onnx")
    np.savez("data.npz", x=random.normal(size=(64, 64)).astype(np.float32))

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        pool = client.get_executor(pure=False)
        executor = ShardedExecutor(OrtExecutor(), pool, shards=4)
        print(f"workers {len(client.nthreads())}")
        qc.compile("model.onnx", data="data.npz", executor=executor).save("cluster.onnx")
    qc.compile("model.onnx", data="data.npz").save("alone.onnx")
