"""Random small networks in qc's compatibility layer and in AIMET: placement, grids, and what outputs lose.

    python benches/aimet_random.py --aimet-python AIMET/bin/python --networks 200

Every network follows from its number, and has one of the configurations, schemes and widths. Placement and
grids are compared as in ``aimet_parity.py``, outputs by signal over noise on the feeds of the calibration. A
network counts as worse if an output has half a decibel less than with AIMET. Ends with exit code 1 if one is
worse or differs in a way that neither a remark of qc nor docs/aimet-differences.md explains.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence

import click
import numpy as np
import onnx
from aimet_parity import TOLERANCE, Difference, differences
from onnx import ModelProto, helper, numpy_helper
from rivals.aimet_process import Aimet, Feed

from qc.compat.aimet_onnx import QuantizationSimModel
from qc.passes.encodings import dump_encodings
from qc.passes.quantize.aimet.arithmetic import BINS
from qc.runtime import open_session, run_session

CONFIGS = ("default", "htp_v66", "htp_v69", "htp_v73", "htp_v75", "htp_v81")
SCHEMES = ("min_max", "tf_enhanced", "percentile")
WIDTHS = (("int8", "int8"), ("int4", "int8"), ("int8", "int16"), ("int16", "int16"))
FEEDS = 3
LOSS = 0.5
TIED_HISTOGRAMS = "tied histograms"
# A number at the border of two bins of a histogram may fall into either, at both ends of a range.
ONE_BIN_EACH = 6 / BINS
Shape = tuple[int, ...]


class Network:
    """A random network of images ``[1, channels, size, size]``, with one or several outputs.

    Args:
        seed: its number.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._shapes: dict[str, Shape] = {"x": (1, 4, 8, 8)}
        while len(self._nodes) < self._random.integers(4, 12):
            source = str(self._random.choice(list(self._shapes)[-3:]))
            kinds = [kind for kind in _KINDS if self._random.random() < 0.9]
            getattr(self, f"_{self._random.choice(kinds)}")(source)
        read = {name for node in self._nodes for name in node.input}
        outputs = [name for name in self._shapes if name not in read and name != "x"]
        inner = [name for name in self._shapes if name in read and name != "x"]
        self.outputs = outputs + [name for name in inner if self._random.random() < 0.1]

    def model(self) -> ModelProto:
        """The float model, opset 17."""
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self._shapes["x"])
        made = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in self.outputs]
        graph = helper.make_graph(self._nodes, "random", [x], made, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        for output in model.graph.output:
            output.ClearField("type")
        return onnx.shape_inference.infer_shapes(model)

    def feeds(self) -> list[Feed]:
        """Random inputs."""
        random, size = np.random.default_rng(0), 10.0 ** self._random.choice([0, 0, 0, -3, 2])
        return [
            {"x": (size * random.normal(size=self._shapes["x"])).astype(np.float32)} for _ in range(FEEDS)
        ]

    # -- layers -------------------------------------------------------------------------------------

    def _add(self, op_type: str, inputs: Sequence[str], shape: Shape, **attributes: object) -> str:
        name = f"t{len(self._nodes)}"
        node = helper.make_node(op_type, inputs, [name], f"n{len(self._nodes)}", **attributes)
        self._nodes.append(node)
        self._shapes[name] = shape
        return name

    def _constant(self, array: np.ndarray) -> str:
        name = f"k{len(self._constants)}"
        array = array if array.dtype.kind == "i" else array.astype(np.float32)
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _weight(self, *shape: int) -> str:
        return self._constant(self._random.normal(size=shape) / np.sqrt(np.prod(shape[1:])))

    def _conv(self, source: str) -> None:
        one, channels, *size = self._shapes[source]
        made = int(self._random.choice([4, 8]))
        bias = [self._weight(made)] if self._random.random() < 0.5 else []
        inputs = [source, self._weight(made, channels, 3, 3), *bias]
        self._activated(self._add("Conv", inputs, (one, made, *size), pads=[1, 1, 1, 1]))

    def _depthwise(self, source: str) -> None:
        channels = self._shapes[source][1]
        inputs = [source, self._weight(channels, 1, 3, 3)]
        self._activated(self._add("Conv", inputs, self._shapes[source], pads=[1, 1, 1, 1], group=channels))

    def _transposed(self, source: str) -> None:
        one, channels, height, width = self._shapes[source]
        if height > 8:
            return
        inputs = [source, self._weight(channels, 4, 2, 2)]
        self._activated(self._add("ConvTranspose", inputs, (one, 4, 2 * height, 2 * width), strides=[2, 2]))

    def _activated(self, source: str) -> None:
        if self._random.random() < 0.6:
            self._activation(source)

    def _activation(self, source: str) -> None:
        kind = self._random.choice(["Relu", "Relu", "Relu", "PRelu", "LeakyRelu", "Clip", "Sigmoid", "Tanh"])
        inputs = [source]
        if kind == "PRelu":
            inputs.append(self._constant(self._random.random((self._shapes[source][1], 1, 1))))
        if kind == "Clip":
            inputs += [self._constant(np.float32(0)), self._constant(np.float32(6))]
        self._add(kind, inputs, self._shapes[source])

    def _norm(self, source: str) -> None:
        channels = self._shapes[source][1]
        random = self._random
        arrays = (random.random(channels) + 0.5, random.normal(size=channels))
        arrays += (random.normal(size=channels), random.random(channels) + 0.5)
        inputs = [source, *(self._constant(array) for array in arrays)]
        self._activated(self._add("BatchNormalization", inputs, self._shapes[source]))

    def _pool(self, source: str) -> None:
        kind = self._random.choice(["AveragePool", "MaxPool"])
        made = self._add(kind, [source], self._shapes[source], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        self._activated(made)

    def _resize(self, source: str) -> None:
        one, channels, height, width = self._shapes[source]
        if height > 8:
            return
        mode = str(self._random.choice(["nearest", "linear", "cubic"]))
        inputs = [source, "", self._constant(np.array([1, 1, 2, 2], np.float32))]
        self._activated(self._add("Resize", inputs, (one, channels, 2 * height, 2 * width), mode=mode))

    def _join(self, source: str) -> None:
        size = self._shapes[source][2:]
        others = [name for name, shape in self._shapes.items() if shape[2:] == size]
        picked = [source, *(str(self._random.choice(others)) for _ in range(self._random.integers(1, 3)))]
        channels = sum(self._shapes[name][1] for name in picked)
        if channels <= 24:
            self._activated(self._add("Concat", picked, (1, channels, *size), axis=1))

    def _sum(self, source: str) -> None:
        others = [name for name, shape in self._shapes.items() if shape == self._shapes[source]]
        kind = str(self._random.choice(["Add", "Add", "Mul", "Sub"]))
        self._activated(self._add(kind, [source, str(self._random.choice(others))], self._shapes[source]))

    def _product(self, source: str) -> None:
        width = self._shapes[source][-1]
        made = self._add("MatMul", [source, self._weight(width, width)], self._shapes[source])
        if self._random.random() < 0.5:
            made = self._add("Add", [made, self._weight(width)], self._shapes[source])
        self._activated(made)

    def _recurrent(self, source: str) -> None:
        _, channels, height, width = self._shapes[source]
        cells = channels * height * width // 8
        read = self._add("Reshape", [source, self._constant(np.array([cells, 1, 8]))], (cells, 1, 8))
        inputs = [read, self._weight(1, 32, 8), self._weight(1, 32, 8)]
        made = self._add("LSTM", inputs, (cells, 1, 1, 8), hidden_size=8)
        shape = self._constant(np.array(self._shapes[source]))
        del self._shapes[read], self._shapes[made]  # images only
        self._activated(self._add("Reshape", [made, shape], self._shapes[source]))


_KINDS = (
    *("conv", "conv", "depthwise", "transposed", "activation", "norm", "pool", "resize"),
    *("join", "sum", "product", "recurrent"),
)


def decibels(exact: Sequence[Feed], given: Sequence[Feed], name: str) -> float:
    """Signal over noise of an output, over all feeds; infinite if there is no noise."""
    signal, noisy = (np.concatenate([one[name].ravel() for one in group]) for group in (exact, given))
    noise = np.sum((signal - noisy) ** 2, dtype=float)
    return 10 * float(np.log10(max(np.sum(signal**2, dtype=float), 1e-30) / noise)) if noise else np.inf


def compare(seed: int, aimet: Aimet) -> tuple[str, list[str]]:
    """How a network does, in a word, and sentences about what differs."""
    network = Network(seed)
    model, feeds = network.model(), network.feeds()
    choice = np.random.default_rng(seed)
    config, scheme = (str(choice.choice(among)) for among in (CONFIGS, SCHEMES))
    parameters, activations = (str(width) for width in choice.choice(WIDTHS))
    about = f"{seed} {config} {scheme} {parameters} {activations}"
    session = open_session(model, optimize=False, threads=1)
    exact = [dict(zip(network.outputs, run_session(session, feed), strict=True)) for feed in feeds]
    theirs = aimet.ask(
        model, feeds, config=config, scheme=scheme, parameters=parameters, activations=activations
    )
    if theirs.error:
        return "AIMET fails", [f"{about}: {theirs.error.splitlines()[0][:150]}"]
    sim = QuantizationSimModel(
        model, config_file=config, quant_scheme=scheme, param_type=parameters, activation_type=activations
    )
    sim.compute_encodings(feeds)
    ours = [dict(zip(network.outputs, sim.session.run(None, feed), strict=True)) for feed in feeds]
    lines, kind = [], "equal"
    encodings = json.loads(dump_encodings(sim.encodings()))
    tolerance = TOLERANCE if scheme == "min_max" else ONE_BIN_EACH
    found: list[Difference] = list(differences(sim._ir, encodings, theirs, tolerance))
    tied = {name for names in theirs.ties for name in names} if scheme != "min_max" else set()
    reasons = [one.documented or (TIED_HISTOGRAMS if one.tensor in tied else "") for one in found]
    if found:
        kind = "as documented" if all(reasons) else "otherwise"
    for one, reason in zip(found, reasons, strict=True):
        lines.append(f"{about}: {one.tensor}: {one.what} ({reason or 'not documented'})")
    for name in network.outputs:
        left, expected = decibels(exact, ours, name), decibels(exact, theirs.outputs, name)
        if left < expected - LOSS:
            lines.append(f"{about}: {name} has {left:.1f} dB, with AIMET {expected:.1f}")
            kind = "worse, as documented" if all(reasons) else "worse"
    return kind, lines


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--aimet-python", metavar="PYTHON", required=True, help="A Python that has AIMET.")
@click.option("--networks", default=100, help="How many.")
@click.option("--first", default=0, help="The number of the first.")
@click.option("-v", "--verbose", is_flag=True, help="List every difference, documented or not.")
def main(aimet_python: str, networks: int, first: int, verbose: bool) -> None:
    """Prints what differs, and a table at the end."""
    count: Counter[str] = Counter()
    with Aimet(aimet_python) as aimet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(first, first + networks):
            kind, lines = compare(seed, aimet)
            count[kind] += 1
            if lines and (verbose or (kind == "otherwise" or kind.startswith("worse"))):
                click.echo("\n".join(lines))
    click.echo(", ".join(f"{number} {kind}" for kind, number in sorted(count.items())))
    sys.exit(1 if count["worse"] + count["otherwise"] else 0)


if __name__ == "__main__":
    main()
