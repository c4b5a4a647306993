"""Size, time and accuracy of single recurrent ops, in the forms in which qc writes them for ONNX Runtime.

    python benches/recurrent.py

Times are processor time of one thread as part of that of the float op, in turns, each the lower quartile of
the rounds. The last column writes plain DequantizeLinear ops instead. Weights and data are random.
"""

from __future__ import annotations

import time

import click
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import qc
from qc.runtime import open_session

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OPS = (  # inputs, units, directions
    ("LSTM", 128, 128, 1),
    ("LSTM", 400, 400, 1),
    ("LSTM", 266, 25, 1),
    ("LSTM", 50, 25, 2),
    ("GRU", 400, 400, 1),
    ("GRU", 384, 384, 2),
    ("GRU", 128, 128, 1),
    ("RNN", 400, 400, 1),
)
STEPS = (1, 10, 100, 1000)
ROUND = 4e-3  # seconds, at least
PLAIN = "match-supergroups,insert-quantizers,annotate-per-channel,calibrate,insert-qdq{fit_recurrent=false}"


def network(op_type: str, inputs: int, units: int, directions: int) -> ModelProto:
    """A model of one op with uniform weights, as PyTorch begins with."""
    rng, reach, gates = np.random.default_rng(0), 1 / np.sqrt(units), GATES[op_type] * units
    shapes = {"w": (gates, inputs), "r": (gates, units), "b": (2 * gates,)}
    weights = [
        numpy_helper.from_array(rng.uniform(-reach, reach, (directions, *shape)).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    direction = "bidirectional" if directions == 2 else "forward"
    own = {"linear_before_reset": 1} if op_type == "GRU" else {}
    node = helper.make_node(op_type, ["x", *shapes], ["y"], hidden_size=units, direction=direction, **own)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["steps", 1, inputs]), ("y", ["steps", directions, 1, units]))
    )
    graph = helper.make_graph([node], "recurrent", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feed(inputs: int, steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(steps, 1, inputs)).astype(np.float32)}


def times(models: list[ModelProto], given: dict[str, np.ndarray], seconds: float) -> list[float]:
    """The processor seconds of a run of each model."""
    sessions = [open_session(model, threads=1) for model in models]
    start = time.perf_counter()
    sessions[0].run(None, given)
    runs = max(1, int(ROUND / (time.perf_counter() - start)))
    found: list[list[float]] = [[] for _ in models]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < 5:
        for session, taken in zip(sessions, found, strict=True):
            start = time.process_time()
            for _ in range(runs):
                session.run(None, given)
            taken.append((time.process_time() - start) / runs)
    return [float(np.quantile(taken, 0.25)) for taken in found]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--seconds", default=1.0, show_default=True, help="For each length.")
def main(seconds: float) -> None:
    """Prints one row for each op."""
    table = Table("op", "size", "dB", *(f"{steps:,}" for steps in STEPS), "dequantized: 1, 10")
    for op_type, inputs, units, directions in OPS:
        model = network(op_type, inputs, units, directions)
        feeds = [feed(inputs, 20, seed) for seed in range(2)]
        made, plain = (qc.compile(model, passes, data=feeds, threads=1).model for passes in ("w8a8", PLAIN))
        wanted, found = (open_session(one, threads=1).run(None, feeds[0])[0] for one in (model, made))
        noise = 10 * np.log10(np.square(wanted).sum() / np.square(wanted - found).sum())
        measured = [times([model, made, plain], feed(inputs, steps), seconds) for steps in STEPS]
        table.add_row(
            f"{op_type} {inputs}, {units}{', two directions' if directions == 2 else ''}",
            f"{made.ByteSize() / model.ByteSize():.2f}",
            f"{noise:.0f}",
            *(f"{of_made / of_float:.2f}" for of_float, of_made, _ in measured),
            ", ".join(f"{of_plain / of_float:.1f}" for of_float, _, of_plain in measured[:2]),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
