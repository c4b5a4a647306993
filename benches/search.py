"""Time of the search for ranges of least error, as a ratio to work that cannot be spared.

    python benches/search.py
    python benches/search.py --ops 100000 --layers 24

Activations: the pass calibrate with the method mse, to the same pass with percentiles, which reads the same
histograms and searches nothing; on a transformer written out op by op (models/large_graph.py), where what is
called for each tensor counts, and on one with the shapes of a language model, where histograms are full.
Weights: the search over 31 grids for each scale, to rounding the weight once; and the whole of W4A8 on the
language model, to the same pipeline without any search. Times are processor time with one thread. Ends with
exit code 1 when a limit is missed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from models.large_graph import transformer
from models.networks import Builder
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from qc.ir import lift
from qc.ir.quant.spec import Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.passes import PassContext, parse_pipeline
from qc.passes.framework.target import load_target
from qc.passes.quantize.calibration.ranges import mse_encoding, weight_encoding
from qc.runtime import OrtExecutor
from qc.runtime.native import kernels

WIDTH, INNER, HEADS, TOKENS = 1024, 2816, 16, 32
PLACED = "match-supergroups,insert-quantizers{weight=int4},annotate-per-channel{block_size=32},tie-quantizers"
LIMITS = {"activations": 2.0, "weights": 120.0, "pipeline": 4.0}
Feed = dict[str, np.ndarray]
Row = tuple[str, float, float, float]


class LanguageModel(Builder):
    """A decoder as Llama has it, with random weights: 12.8 million of them in a layer."""

    def norm(self, x: str) -> str:
        """RMSNorm."""
        mean = self.node("ReduceMean", self.node("Mul", x, x), axes=[-1])
        root = self.node("Sqrt", self.node("Add", mean, self.constant(np.float32(1e-5))))
        return self.node("Mul", self.node("Div", x, root), self.normal((WIDTH,), 0.1, 1.0, "scale"))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """A product without a bias."""
        return self.node("MatMul", x, self.normal((inputs, outputs), inputs**-0.5))

    def head(self, x: str, *order: int) -> str:
        """A projection for each head."""
        shape = self.constant(np.array([1, TOKENS, HEADS, WIDTH // HEADS]), "shape")
        split = self.node("Reshape", self.linear(x, WIDTH, WIDTH), shape)
        return self.node("Transpose", split, perm=list(order))

    def attention(self, x: str) -> str:
        """Attention of all tokens to all."""
        query, key, value = self.head(x, 0, 2, 1, 3), self.head(x, 0, 2, 3, 1), self.head(x, 0, 2, 1, 3)
        root = self.constant(np.float32((WIDTH // HEADS) ** 0.5))
        weights = self.node("Softmax", self.node("Div", self.node("MatMul", query, key), root), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = self.node("Reshape", mixed, self.constant(np.array([1, TOKENS, WIDTH]), "shape"))
        return self.linear(joined, WIDTH, WIDTH)

    def layer(self, x: str) -> str:
        """Attention and a gated perceptron, each after a norm and with a residual."""
        x = self.node("Add", x, self.attention(self.norm(x)))
        given = self.norm(x)
        gate = self.linear(given, WIDTH, INNER)
        gated = self.node(
            "Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), self.linear(given, WIDTH, INNER)
        )
        return self.node("Add", x, self.linear(gated, INNER, WIDTH))


def language_model(layers: int) -> onnx.ModelProto:
    """A language model without its embedding. Input and output: float32 (1, 32, 1024). Opset 17."""
    builder, x = LanguageModel(0), "x"
    for _ in range(layers):
        x = builder.layer(x)
    given, made = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, TOKENS, WIDTH]) for name in ("x", x)
    )
    graph = helper.make_graph(builder.nodes, "language_model", [given], [made], builder.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def seconds_of(work: Callable[[], Any]) -> float:
    """The processor time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def run(path: Path, feed: Feed, pipeline: str) -> tuple[float, float]:
    """Seconds of the last pass of a pipeline, and of all of them."""
    model = lift(path)
    context = PassContext(data=[feed], executor=OrtExecutor(threads=1), target=load_target("ort-cpu"))
    seconds = [
        seconds_of(lambda step=step: step.run(model, context)) for step in parse_pipeline(pipeline).passes()
    ]
    return seconds[-1], sum(seconds)


def activations(name: str, path: Path, feed: Feed) -> Row:
    """The search for ranges of activations."""
    yardstick, searched = (
        run(path, feed, f"{PLACED},calibrate{{method={method}}}")[0] for method in ("percentile", "mse")
    )
    return f"activations of {name}", yardstick, searched, LIMITS["activations"]


def weights() -> Iterator[Row]:
    """The search for the scales of a matrix."""
    matrix = np.random.default_rng(0).standard_normal((2048, 2048), np.float32)
    choices: list[Granularity] = [PerTensor(), PerChannel(0), PerChannel(1), PerBlock(0, 32), PerBlock(1, 32)]
    for granularity in choices:
        spec = QuantSpec.of("int4", symmetric=True, granularity=granularity)
        full = weight_encoding(spec, matrix)
        yardstick = min(seconds_of(lambda full=full: kernels.fake_quantize(matrix, full)) for _ in range(5))
        searched = min(
            seconds_of(lambda spec=spec: mse_encoding(spec, matrix, OrtExecutor())) for _ in range(3)
        )
        yield f"weights, {granularity}", yardstick, searched, LIMITS["weights"]


def measured(ops: int, layers: int) -> Iterator[Row]:
    """All that is measured: a name, seconds of the yardstick and with the search, the limit of the ratio."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transformer.onnx"
        onnx.save(transformer(ops), path)
        feed = {
            "x": rng.standard_normal((1, 4, 8), np.float32),
            "mask": np.zeros((1, 1, 4, 4), np.float32),
        }
        yield activations(f"{ops:,} ops", path, feed)
        path = Path(folder) / "language.onnx"
        onnx.save(language_model(layers), path, save_as_external_data=True, location="language.bin")
        feed = {"x": rng.standard_normal((1, TOKENS, WIDTH), np.float32)}
        yield activations(f"a language model, {layers} layers", path, feed)
        yardstick, searched = (
            run(path, feed, f"{PLACED},calibrate{{{options}}},insert-qdq")[1]
            for options in ("", "method=mse weights=mse")
        )
        yield f"W4A8 of a language model, {layers} layers", yardstick, searched, LIMITS["pipeline"]
    yield from weights()


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--ops", default=10_000, show_default=True, help="Ops of the transformer.")
@click.option(
    "--layers", default=4, show_default=True, help="Layers of the language model; 24 for 308 million."
)
def main(ops: int, layers: int) -> None:
    """Prints one row for each search."""
    table = Table("seconds", "yardstick", "with search", "ratio", "limit")
    missed = False
    for name, yardstick, searched, limit in measured(ops, layers):
        ratio = searched / yardstick
        missed |= ratio > limit
        table.add_row(name, f"{yardstick:.3f}", f"{searched:.3f}", f"{ratio:.1f}", f"{limit:g}")
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
