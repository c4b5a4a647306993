"""AdaRound and sequential MSE beside AIMET's: what they leave of the outputs, and how long they take.

    python benches/aimet_weights.py --aimet-python AIMET/bin/python

Three small networks with random weights, of 4 bits, and activations of 8. One line for each network and
method: the share of the outputs' energy that is error, with the nearest codes, with AIMET and with qc, and
AIMET's time over qc's. ``tests/compat/test_weights_beside.py`` compares the errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import click
import numpy as np
import onnx
from onnx import ModelProto, numpy_helper
from rivals.aimet_process import Aimet

from qc.compat.aimet_onnx import QuantizationSimModel, apply_adaround, apply_seq_mse
from qc.runtime import open_session

Feed = dict[str, np.ndarray]
METHODS = {"adaround": apply_adaround, "seq_mse": apply_seq_mse}
STEPS = {"adaround": 1000, "seq_mse": 20}  # iterations, candidates
_SHAPES = {"W": (16, 3, 3, 3), "D": (16, 1, 3, 3), "P": (24, 16, 1, 1), "V": (24, 16, 3, 3), "F": (24, 10)}
_SHAPES |= {"A": (32, 48), "B": (48, 48), "C": (48, 10), "b": (16,), "c": (48,)}
_IMAGES, _ROWS = "float[1,3,10,10] x", "float[4,32] x"
_TAIL = "g = GlobalAveragePool(s) f = Flatten(g) y = MatMul(f, F)"
NETWORKS = {
    "plain": (
        _IMAGES,
        f"""a = Conv<pads=[1,1,1,1]>(x, W, b) r = Relu(a) e = Conv<strides=[2,2]>(r, V) s = Relu(e)
        {_TAIL}""",
    ),
    "depthwise": (
        _IMAGES,
        f"""a = Conv<pads=[1,1,1,1]>(x, W, b) r = Relu(a) d = Conv<group=16, pads=[1,1,1,1]>(r, D)
        q = Relu(d) e = Conv(q, P) s = Relu(e) {_TAIL}""",
    ),
    "products": (
        _ROWS,
        """a = MatMul(x, A) h = Add(a, c) r = Relu(h) e = MatMul(r, B) s = Relu(e) y = MatMul(s, C)""",
    ),
}


def network(name: str) -> ModelProto:
    """One of the networks, with weights that are the same every time."""
    inputs, body = NETWORKS[name]
    text = f'<ir_version: 8, opset_import: ["": 17]> {name} ({inputs}) => (float[n, 10] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    read = {tensor for node in model.graph.node for tensor in node.input}
    random = np.random.default_rng(0)
    for tensor, shape in _SHAPES.items():
        array = (random.laplace(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        if tensor in read:
            model.graph.initializer.append(numpy_helper.from_array(array, tensor))
    for node in model.graph.node:
        node.name = node.output[0]
    return onnx.shape_inference.infer_shapes(model)


def feeds_of(model: ModelProto) -> list[Feed]:
    """Data whose neighbours are alike, as those of pictures are."""
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    random, made = np.random.default_rng(1), []
    for _ in range(32):
        x = random.normal(size=shape)
        for axis in range(1, x.ndim):
            x = x + np.roll(x, 1, axis)
        made.append({"x": (x + 0.3).astype(np.float32)})
    return made


def error_of(model: ModelProto, feeds: Sequence[Feed], outputs: Sequence[Mapping[str, np.ndarray]]) -> float:
    """The squared error of the output, as a share of its squares."""
    exact = open_session(model)
    pairs = [(exact.run(None, feed)[0], one["y"]) for feed, one in zip(feeds, outputs, strict=True)]
    return float(sum(np.square(b - a).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs))


def of_qc(model: ModelProto, feeds: list[Feed], method: str | None) -> tuple[float, float]:
    """The error with a method, or with the nearest codes, and the seconds that it took."""
    sim = QuantizationSimModel(model, param_type="int4")
    start = time.perf_counter()
    if method is not None:
        METHODS[method](sim, feeds, STEPS[method])
    seconds = time.perf_counter() - start
    sim.compute_encodings(feeds)
    return error_of(model, feeds, [{"y": sim.session.run(None, feed)[0]} for feed in feeds]), seconds


def of_aimet(aimet: Aimet, model: ModelProto, feeds: list[Feed], method: str) -> tuple[float, float]:
    """The same with AIMET."""
    answer = aimet.ask(
        model, feeds, config="default", parameters="int4", method=method, steps=str(STEPS[method])
    )
    return error_of(model, feeds, answer.outputs), answer.seconds


def lines(aimet: Aimet) -> Iterator[str]:
    """The table."""
    yield f"{'':10}{'':10}{'nearest':>10}{'AIMET':>10}{'qc':>10}{'time':>8}"
    for name in NETWORKS:
        model = network(name)
        feeds = feeds_of(model)
        nearest, _ = of_qc(model, feeds, None)
        for method in METHODS:
            (theirs, slow), (ours, quick) = of_aimet(aimet, model, feeds, method), of_qc(model, feeds, method)
            yield f"{name:10}{method:10}{nearest:10.5f}{theirs:10.5f}{ours:10.5f}{slow / quick:8.1f}"


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--aimet-python", metavar="PYTHON", required=True, help="A Python that has AIMET.")
def main(aimet_python: str) -> None:
    """Prints one line for each network and method."""
    with Aimet(aimet_python) as aimet:
        for line in lines(aimet):
            click.echo(line)


if __name__ == "__main__":
    main()
