"""What kernels of ONNX Runtime take in float and in integers, as [costs.kernels] of ort-cpu.toml has it.

    python benches/costs.py                    prints the table
    python benches/costs.py --kind Conv        the part of one kind
    python benches/costs.py --rounds 200       where other work is done beside it

Each case is a chain of one or two ops, once short and once long: the difference is the time of the ops, and
what starts a run is not in it. Times are of the processor, of one thread; a fifth of the rounds was quicker.
What cases take in all is told by least squares of relative errors, with costs that are not negative.
Needs scipy.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import click
import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper
from scipy.optimize import nnls

from qc.ir.graph import Value
from qc.passes.quantize.placement.work import work_of
from qc.reading import read_model

LONG = 4  # how many times longer the long chain is than the short one, less one
LANES = 16
_SEED = 7
_OPSET = 17

# The quantities that the time of a kind grows with, in float and in integers.
QUANTITIES = {
    "Conv": ("op padded made", "op padded patch made row"),
    "NarrowConv": ("op padded read group", "op padded patch made group window row"),
    "DepthwiseConv": ("op padded made", "op product ragged tail made window"),
    "GroupedConv": ("op padded made", "op product patch group row"),
    "NarrowGroupedConv": ("op product patch group", "op product patch group row"),
    "FlatConv": ("op product patch", "op padded patch made row"),
    "VolumeConv": ("op product patch", "op padded patch made window"),
    "FlatDepthwiseConv": ("op product channel", "op product made"),
    "MatMul": ("op product weight read made", "op product weight read made"),
    "Gemm": ("op product weight read made", "op product weight read made"),
    "AveragePool": ("op product", "op product"),
    "MaxPool": ("op product", "op product"),
    "LoneMaxPool": ("op product", "op product"),
    "GlobalAveragePool": ("op read", "op read"),
    "Add": ("op made", "op made"),
    "Mul": ("op made", "op made"),
    "Swish": ("op made", "op made"),
    "HardSwish": ("op made", "op made"),
    "Sigmoid": ("op made", "op made"),
    "LeakyRelu": ("op made", "op made"),
    "Concat": ("op made single", "op made single"),
}


class Builder:
    """Nodes and constants of a chain, in float or with quantize ops between."""

    def __init__(self, in_integers: bool) -> None:
        self.in_integers = in_integers
        self.nodes: list = []
        self.constants: list = []
        self._random = np.random.default_rng(_SEED)

    def constant(self, array: np.ndarray) -> str:
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """The result of a new op."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def rounded(self, value: str, zero_point: int = 0) -> str:
        """A value behind quantize ops, if the chain is one of integers."""
        if not self.in_integers:
            return value
        grid = [self.constant(np.float32(0.02)), self.constant(np.uint8(zero_point))]
        return self.op("DequantizeLinear", self.op("QuantizeLinear", value, *grid), *grid)

    def weight(self, shape: tuple[int, ...], axis: int) -> str:
        """A weight with a scale for each index of an axis."""
        if not self.in_integers:
            return self.constant((0.03 * self._random.standard_normal(shape)).astype(np.float32))
        codes, channels = self._random.integers(-127, 128, shape).astype(np.int8), shape[axis]
        grid = [np.full(channels, 0.001, np.float32), np.zeros(channels, np.int8)]
        return self.op("DequantizeLinear", *map(self.constant, (codes, *grid)), axis=axis)


Body = Callable[[Builder, str], str]


@dataclass(frozen=True)
class Case:
    """What is repeated in a chain, and what it is fed with.

    Attributes:
        beside: what the repeated part has beside the ops of the kind, if anything; its time is taken off.
        between: float ops as they run between integer ones, where they are no part of what is before them.
    """

    kind: str
    shape: tuple[int, ...]
    body: Body
    beside: Body | None = None
    between: Body | None = None


def convolution(
    inputs: int,
    outputs: int,
    kernel: tuple[int, ...],
    group: int = 1,
    dilation: int = 1,
    activation: str = "Relu",
) -> Body:
    """A convolution, and one back to as many channels as it begins with if these are others."""
    dilations = [dilation] * len(kernel)

    def one(builder: Builder, value: str, width: int, made: int) -> str:
        weight = builder.weight((made, width // group, *kernel), 0)
        pads = [length // 2 * dilation for length in kernel] * 2
        value = builder.op("Conv", value, weight, group=group, pads=pads, dilations=dilations)
        return builder.rounded(builder.op(activation, value) if activation else value)

    def body(builder: Builder, value: str) -> str:
        value = one(builder, value, inputs, outputs)
        return value if inputs == outputs else one(builder, value, outputs, inputs)

    return body


def product(op_type: str, rows: int, columns: int) -> Body:
    """A matrix product and one back."""

    def one(builder: Builder, value: str, width: int, made: int) -> str:
        weight = builder.weight((width, made), 1)
        bias = []
        if op_type == "Gemm" and builder.in_integers:
            grid = [np.zeros(made, np.int32), np.full(made, 0.00002, np.float32)]
            bias = [builder.op("DequantizeLinear", *map(builder.constant, grid), axis=0)]
        elif op_type == "Gemm":
            bias = [builder.weight((made,), 0)]
        return builder.rounded(builder.op(op_type, value, weight, *bias), 128)

    def body(builder: Builder, value: str) -> str:
        return one(builder, one(builder, value, rows, columns), columns, rows)

    return body


def simple(op_type: str, twice: bool = False, **attributes: object) -> Body:
    """One op, with its value as both inputs if it reads two."""

    def body(builder: Builder, value: str) -> str:
        return builder.rounded(builder.op(op_type, *[value] * (1 + twice), **attributes))

    return body


def joined(shape: tuple[int, ...]) -> Body:
    """A tensor behind itself along the second axis, and of that as many rows as there were."""

    def body(builder: Builder, value: str) -> str:
        value = builder.rounded(builder.op("Concat", value, value, axis=1))
        return rows(shape)(builder, value)

    return body


def rows(shape: tuple[int, ...]) -> Body:
    """The first numbers, in one piece, as many as make a shape."""

    def body(builder: Builder, value: str) -> str:
        whole = builder.constant(np.array([-1]))
        value = builder.rounded(builder.op("Reshape", value, whole))
        ends = (builder.constant(np.array([place])) for place in (0, prod(shape), 0))
        value = builder.rounded(builder.op("Slice", value, *ends))
        return builder.rounded(builder.op("Reshape", value, builder.constant(np.array(shape))))

    return body


def behind(first: Body, second: Body) -> Body:
    """One body behind another."""
    return lambda builder, value: second(builder, first(builder, value))


def cases() -> Iterator[Case]:
    """What is measured: shapes that networks have."""
    yield from _convolutions_of_pictures()
    yield from _other_convolutions()
    for op_type in ("MatMul", "Gemm"):
        for count in (1, 4, 16, 64, 197):
            for rows, columns in ((32, 32), (64, 64), (128, 128), (256, 256), (128, 512), (256, 1024)):
                yield Case(op_type, (count, rows), product(op_type, rows, columns))
    yield from _simple_cases()


def _convolutions_of_pictures() -> Iterator[Case]:
    for size in (7, 14, 28, 56, 112):
        for inputs, outputs, kernel in (
            *((16, 16, 1), (24, 24, 1), (64, 64, 1), (16, 96, 1), (24, 144, 1), (256, 64, 1), (96, 384, 1)),
            *((16, 16, 3), (24, 24, 3), (32, 32, 3), (64, 64, 3), (20, 20, 3), (16, 16, 5), (32, 32, 5)),
            *((channels, channels, kernel) for channels in (4, 8, 12) for kernel in (1, 3, 5, 7)),
        ):
            if size**2 * inputs * outputs * kernel**2 < 4e7:
                kind = "Conv" if inputs >= LANES else "NarrowConv"
                yield Case(kind, (1, inputs, size, size), convolution(inputs, outputs, (kernel, kernel)))
        for channels in (4, 8, 12, 16, 24):
            for kernel in ((7, 1), (1, 7), (5, 3)):
                kind = "Conv" if channels >= LANES else "NarrowConv"
                yield Case(kind, (1, channels, size, size), convolution(channels, channels, kernel))
            body = convolution(channels, channels, (3, 3), dilation=2)
            yield Case(kind, (1, channels, size, size), body)
        for channels in (8, 16, 20, 32, 72, 192):
            for kernel in (3, 5, 7, 11):
                if size**2 * channels * kernel**2 > 2e7:
                    continue
                body = convolution(channels, channels, (kernel, kernel), channels)
                yield Case("DepthwiseConv", (1, channels, size, size), body)
        for channels, group in ((64, 4), (128, 4), (96, 3), (128, 8), (64, 8), (32, 8), (104, 13), (192, 8)):
            kind = "NarrowGroupedConv" if channels // group % LANES else "GroupedConv"
            shape = (1, channels, size, size)
            yield Case(kind, shape, convolution(channels, channels, (3, 3), group))


def _other_convolutions() -> Iterator[Case]:
    """Along one axis, and along three."""
    for length in (100, 1000):
        for channels in (16, 32, 64, 128):
            for kernel in (1, 3, 9):
                shape = (1, channels, length)
                for dilation in (1, 4) if kernel > 1 else (1,):
                    body = convolution(channels, channels, (kernel,), dilation=dilation)
                    yield Case("FlatConv", shape, body)
        for channels in (32, 128):
            for kernel in (3, 5, 31):
                body = convolution(channels, channels, (kernel,), channels)
                yield Case("FlatDepthwiseConv", (1, channels, length), body)
    for size in (8, 16, 24):
        for inputs, outputs in ((1, 8), (1, 16), (4, 8), (8, 8), (16, 16), (32, 32), (64, 64)):
            for kernel in ((3, 3, 3), (1, 3, 3), (1, 1, 1)):
                if size**3 * inputs * outputs * prod(kernel) < 2e8:
                    shape = (1, inputs, size, size, size)
                    yield Case("VolumeConv", shape, convolution(inputs, outputs, kernel))


def _simple_cases() -> Iterator[Case]:
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    for size in (7, 28, 56):
        shape = (1, 16, size, size)
        for op_type in ("Add", "Mul"):
            yield Case(op_type, shape, simple(op_type, twice=True))
        for pieces in (shape, (size**2 * 8, 1)):
            yield Case("Concat", pieces, joined(pieces), rows(pieces))
        yield Case("Sigmoid", shape, simple("Sigmoid"))
        yield Case("LeakyRelu", shape, simple("LeakyRelu", alpha=0.1))
        yield Case("LoneMaxPool", shape, simple("MaxPool", **window))
        first, bare = (convolution(16, 16, (1, 1), activation=activation) for activation in ("Relu", ""))
        for op_type in ("MaxPool", "AveragePool"):
            yield Case(op_type, shape, behind(first, simple(op_type, **window)), first)
        yield Case("Swish", shape, behind(first, swish), behind(first, simple("Sigmoid")))
        yield Case("HardSwish", shape, behind(bare, hard_swish), bare, hard_swish)
    for size in (7, 14, 28):
        for channels in (32, 64, 160):
            first = convolution(channels, channels, (1, 1))
            beside = behind(first, simple("Mul", twice=True))
            yield Case("GlobalAveragePool", (1, channels, size, size), behind(first, gate), beside)


def swish(builder: Builder, value: str) -> str:
    """A tensor times its Sigmoid."""
    return builder.rounded(builder.op("Mul", value, builder.rounded(builder.op("Sigmoid", value))))


def hard_swish(builder: Builder, value: str) -> str:
    """A tensor times its HardSigmoid, which has no integer kernel."""
    return builder.op("Mul", value, builder.op("HardSigmoid", value, alpha=1 / 6, beta=0.5))


def gate(builder: Builder, value: str) -> str:
    """A tensor times its averages."""
    average = builder.rounded(builder.op("GlobalAveragePool", value))
    return builder.rounded(builder.op("Mul", value, average))


def chain(shape: tuple[int, ...], body: Body, count: int, in_integers: bool) -> ModelProto:
    """A model of a part that is repeated."""
    builder = Builder(in_integers)
    value = builder.rounded("x", 128)
    for _ in range(count):
        value = body(builder, value)
    builder.nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        builder.nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        builder.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def amounts_of(case: Case) -> Counter[str]:
    """What the ops of the kind do in one repetition, by quantity."""
    amounts: Counter[str] = Counter()
    graph = read_model(chain(case.shape, case.body, 1, False)).graph
    for op in graph.ops():
        work = work_of(op, shape_of, LANES)
        if work is not None and work.kind == case.kind:
            amounts.update(work.amounts)
    return amounts


def shape_of(value: Value | None) -> tuple[int, ...] | None:
    """The shape of a tensor of a chain, none of which is free."""
    return value.type.shape if value is not None else None  # type: ignore[return-value]


def nanoseconds_of(case: Case, rounds: int) -> tuple[float, float]:
    """What the ops of the kind take in one repetition, in float and in integers."""
    feed = {"x": np.random.default_rng(_SEED).standard_normal(case.shape).astype(np.float32)}
    bodies = [case.body, *([case.beside] if case.beside is not None else [])]
    forms = [(body, in_integers) for in_integers in (False, True) for body in bodies]
    if case.between is not None:
        forms.append((case.between, False))
    sessions = [
        opened(chain(case.shape, body, count, in_integers))
        for body, in_integers in forms
        for count in (1, 1 + LONG)
    ]
    taken = [[processor_time(session, feed) for session in sessions] for _ in range(rounds)]
    short_and_long = np.percentile(taken[2:], 20, axis=0).reshape(len(forms), 2)
    each = (short_and_long[:, 1] - short_and_long[:, 0]) / LONG
    own, *beside = each[: 2 * len(bodies)].reshape(2, len(bodies)).T
    floats, integers = own - sum(beside)
    return floats, integers if case.between is None else each[-1]


def opened(model: ModelProto) -> ort.InferenceSession:
    """A session with one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def processor_time(session: ort.InferenceSession, feed: dict[str, np.ndarray]) -> float:
    """Nanoseconds of this thread for one run."""
    begin = time.thread_time_ns()
    session.run(None, feed)
    return time.thread_time_ns() - begin


def costs_of(quantities: Sequence[str], amounts: Sequence[Counter[str]], taken: Sequence[float]) -> str:
    """The nanoseconds for each quantity, as a line of a target file."""
    matrix = np.array([[one[quantity] for quantity in quantities] for one in amounts])
    times = np.maximum(taken, 1.0)
    found, _ = nnls(matrix / times[:, None], np.ones(len(times)))
    costs = zip(quantities, found, strict=True)
    return ", ".join(f"{quantity} = {float(f'{cost:.3g}'):g}" for quantity, cost in costs if cost > 1e-6)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--kind", type=click.Choice(list(QUANTITIES)), multiple=True, help="Only this kind.")
@click.option("--rounds", default=60, show_default=True, help="How often each chain is run.")
def main(kind: tuple[str, ...], rounds: int) -> None:
    """Prints the table."""
    measured: defaultdict[str, list[tuple[Counter[str], float, float]]] = defaultdict(list)
    for case in cases():
        if case.kind in (kind or QUANTITIES):
            floats, integers = nanoseconds_of(case, rounds)
            # What is as short as its error says nothing, but where floats may take no time of their own.
            if integers > 0 and (floats > 0 or case.beside is not None):
                measured[case.kind].append((amounts_of(case), floats, integers))
    for name, rows in measured.items():
        amounts, *taken = zip(*rows, strict=True)
        print(f"[costs.kernels.{name}]")
        for column, quantities, times in zip(("floats", "integers"), QUANTITIES[name], taken, strict=True):
            print(f"{column} = {{ {costs_of(quantities.split(), amounts, times)} }}")
        print(flush=True)


if __name__ == "__main__":
    main()
