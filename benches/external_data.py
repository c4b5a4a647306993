"""Peak memory of qc on a model with gigabytes of weights in a file beside it; it must not hold them.

    python benches/external_data.py --gigabytes 3

The model is an embedding and a chain of matrix products, quantized for ort-cpu without calibration. Its file
of weights is sparse: it has the length of real weights and takes no room on the disk. The measurement is a
process of its own, whose peak the operating system reports after every step; what Python and its libraries
take before the first step is part of it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

WIDTH = 4096
LIMIT = 500.0
_FLOAT_BYTES = 4


def weight(name: str, file: str, offset: int, shape: tuple[int, ...]) -> TensorProto:
    """A float32 constant in a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": file, "offset": offset}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write_model(folder: Path, gigabytes: float) -> Path:
    """Writes a model whose constants take that much: an embedding, products, a large constant that is added.

    Input: ``tokens``, int64 (1, 8). Output: ``y``, float32 (1, 8, 4096). Opset 17.
    """
    size = WIDTH * WIDTH * _FLOAT_BYTES
    count = max(3, round(gigabytes * 1e9 / size))
    weights = [weight(f"w{i}", "weights.bin", i * size, (WIDTH, WIDTH)) for i in range(count)]
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(count * size)
    nodes: list[NodeProto] = [helper.make_node("Gather", ["w0", "tokens"], ["x1"])]
    nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(1, count - 1)]
    nodes += [
        helper.make_node("Add", [f"w{count - 1}", "bias"], ["table"]),
        helper.make_node("MatMul", [f"x{count - 1}", "table"], ["y"]),
    ]
    bias = helper.make_tensor("bias", TensorProto.FLOAT, [WIDTH], [0.0] * WIDTH)
    given: ValueInfoProto = helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, WIDTH])
    graph = helper.make_graph(nodes, "large", [given], [result], [*weights, bias])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def peak() -> float:
    """The most memory that this process ever held, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(path: Path) -> list[tuple[str, float]]:
    """Takes a model through everything but calibration in this very process; the peak after each step."""
    from qc.ir import lift
    from qc.ir.onnx.lower import lower
    from qc.ir.verifier import verify
    from qc.passes import PassContext, parse_pipeline
    from qc.passes.framework.target import load_target

    peaks = [("imports", peak())]
    model = lift(path)
    peaks.append(("lift", peak()))
    context = PassContext(target=load_target("ort-cpu"))
    text = "eliminate-identity,fold-batch-norms,match-supergroups,insert-quantizers,annotate-per-channel"
    for step in parse_pipeline(text).passes():
        step.run(model, context)
        peaks.append((step.name, peak()))
    work: dict[str, Callable[[], object]] = {"verify": lambda: verify(model), "lower": lambda: lower(model)}
    for name, function in work.items():
        function()
        peaks.append((name, peak()))
    assert len(model.quant) > 0, "nothing was quantized"
    return peaks


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--gigabytes", default=3.0, show_default=True, help="Size of the weights.")
@click.option("--measure", "path", type=Path, help="Measure one model in this process and print the peaks.")
def main(gigabytes: float, path: Path | None) -> None:
    """Prints the peak after every step; exit code 1 if the last is above the limit."""
    if path is not None:
        for name, megabytes in measure(path):
            click.echo(f"{name:22} {megabytes:7.1f} MB")
        return
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), gigabytes)
        command = [sys.executable, __file__, "--measure", str(model)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    click.echo(f"{output}limit                  {LIMIT:7.1f} MB, weights of {gigabytes:g} GB")
    sys.exit(1 if float(output.split()[-2]) > LIMIT else 0)


if __name__ == "__main__":
    main()
