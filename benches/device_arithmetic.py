"""Codes of the HTP's emulator against qc's simulations, op by op.

    python benches/device_arithmetic.py                    every kind of op
    python benches/device_arithmetic.py Conv --seeds 8     one, on more random grids
    python benches/device_arithmetic.py --bits 16          data of uint16
    python benches/device_arithmetic.py --record FILE.npz  what tests compare with where there is no emulator

Every model is one op, or two that the device runs as one, between quantize and dequantize ops of uint8 with
random scales and zero points. Ops of one input see all codes, the others random ones. "simulation" rounds
what floats give, "device" is ``to-simulation{device=qnn-htp}``; both as the share of codes that are those
of the emulator and the largest difference in steps; "rms" is the root of the mean square of all. Of 16 bits
there is no other simulation than the plain one, and the factors that rescale sums have few bits, as qc makes
them, unless ``--any-factor`` is given. Needs the extra ``qnn``.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from one_op import DATA, OneOp
from onnx import ModelProto, numpy_helper
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.errors import QcError
from qc.runtime.devices.known import DEVICES, open_device, version_of

DEVICE = "qnn-htp"
SIMULATIONS = {8: ("", "{device=qnn-htp}"), 16: ("",)}  # options, by the bits of data


def convolution(group: int = 1, activation: str = "", channels: bool = True, **attributes: Any) -> Callable:
    """A Conv of 3 x 3 with a bias."""

    def build(one: OneOp) -> ModelProto:
        inputs = [one.data(), *one.weight((16, 16 // group, 3, 3), bias_of="x0", channels=channels)]
        return one.model(one.op("Conv", inputs, group=group, pads=[1] * 4, **attributes), activation)

    return build


def along_one_axis(samples: int) -> Callable:
    """A Conv along one axis and a Relu."""

    def build(one: OneOp) -> ModelProto:
        inputs = [one.data((samples, 16, 40)), *one.weight((16, 16, 3), bias_of="x0")]
        return one.model(one.op("Conv", inputs, pads=[1, 1]), "Relu")

    return build


def product(op_type: str, weight: bool = True) -> Callable:
    """A product of matrices, by a weight or by data."""

    def build(one: OneOp) -> ModelProto:
        x = one.data((16, 64))
        by = one.weight((64, 16), channels=False) if weight else [one.data((64, 16))]
        return one.model(one.op(op_type, [x, *by]))

    return build


def elementwise(op_type: str, count: int = 1, activation: str = "", **attributes: Any) -> Callable:
    """An op whose inputs are data of one shape."""

    def build(one: OneOp) -> ModelProto:
        inputs = [one.data() for _ in range(count)]
        return one.model(one.op(op_type, inputs, **attributes), activation)

    return build


def silu(one: OneOp) -> ModelProto:
    """A number times its sigmoid."""
    x = one.data()
    gate = one.rounded(one.op("Sigmoid", [x]), (np.float32(1 / 2**one.bits), one.codes(0)))
    return one.model(one.op("Mul", [x, gate]))


def linear(one: OneOp) -> ModelProto:
    """A product by a number, and a number added to it."""
    step = np.float32(1 / 64 / one.finer), one.codes(0)
    factor, added = (one.stored(name, one.codes(one.random.integers(40, 255, 1)), step) for name in "ab")
    multiplied = one.op("Mul", [one.data(), factor])
    return one.model(one.op("Add", [one.rounded(multiplied, one.grid_of(one.run(multiplied))), added]))


def with_limits(op_type: str, low: float, high: float) -> Callable:
    """An op whose results have one grid, or codes that wrap around, where they have 16 bits."""

    def build(one: OneOp) -> ModelProto:
        step = np.float32((high - low) / 2**16)
        grid = (step, np.uint16(-low / step)) if one.bits == 16 else None
        return one.model(one.op(op_type, [one.data()]), grid=grid)

    return build


def with_constant(op_type: str, shape: tuple[int, ...] = (16, 1, 1)) -> Callable:
    """An op of data and a constant like it, for each channel if no other shape is given."""

    def build(one: OneOp) -> ModelProto:
        constant = one.stored("c", *reversed((one.grid(), one.codes(one.random.integers(0, 256, shape)))))
        return one.model(one.op(op_type, [one.data(), constant]))

    return build


def reduced(op_type: str, shape: tuple[int, ...] = (1, 256, 16), axes: tuple[int, ...] = (-1,)) -> Callable:
    """A sum or a mean along axes."""

    def build(one: OneOp) -> ModelProto:
        along = one.constant("axes", np.array(axes))
        return one.model(one.op(op_type, [one.data(shape), along], keepdims=0))

    return build


def quotient(constant: bool = False) -> Callable:
    """A Div whose divisors are above 0, on a grid for what the larger half of them leaves."""

    def build(one: OneOp) -> ModelProto:
        x, grid, codes = one.data(), (one.scale(), one.codes(0)), one.codes(one.random.integers(1, 256, DATA))
        divisor = one.stored("c", codes[0, :, :1, :1], grid) if constant else one.given(codes, grid)
        numbers = one.run(one.op("Div", [x, one.stored("half", codes * 0 + one.codes(128), grid)]))
        return one.model(one.op("Div", [x, divisor]), grid=one.grid_of(numbers))

    return build


def transposed(kernel: int, **attributes: Any) -> Callable:
    """A ConvTranspose."""

    def build(one: OneOp) -> ModelProto:
        inputs = [one.data(), *one.weight((16, 8, kernel, kernel), channels=False)]
        return one.model(one.op("ConvTranspose", inputs, strides=[2, 2], **attributes))

    return build


def softmax(length: int, levels: int = 255) -> Callable:
    """Rows whose largest numbers differ, on the grid that the device takes or a wider one."""

    def build(one: OneOp) -> ModelProto:
        scale = np.float32(np.exp(one.random.uniform(-4.5, -1.5)) / one.finer)
        grid = scale, one.codes(one.random.integers(256))
        spread = np.exp(one.random.uniform(1, 5, (150, 1)))
        x = one.given(one.codes(255 - one.random.exponential(1, (150, length)) * spread), grid)
        step = np.float32(1 / levels if one.bits == 8 else 1 / 2**16)
        return one.model(one.op("Softmax", [x], axis=-1), grid=(step, one.codes(0)))

    return build


def normalization(op_type: str, length: int = 96) -> Callable:
    """Rows of many spreads, with a scale of uint8 and, of LayerNormalization, a bias of int32."""

    def build(one: OneOp) -> ModelProto:
        scale, center = one.scale() / np.float32(one.finer), one.random.integers(80, 180)
        spread = one.random.uniform(3, 60, (120, 1))
        codes = one.codes(one.random.normal(center, spread, (120, length)))
        of_weight = (np.float32(np.exp(one.random.uniform(-7, -4))), np.uint8(one.random.integers(60)))
        inputs = [
            one.given(codes, (scale, one.codes(center))),
            one.stored("w", one.random.integers(0, 256, length), of_weight),
        ]
        if op_type == "LayerNormalization":
            step = np.float32(scale * of_weight[0])
            numbers = np.rint(one.random.normal(0, 1, length) / step)
            inputs.append(one.stored("b", numbers, (step, np.int32(0))))
        return one.model(one.op(op_type, inputs, axis=-1, epsilon=1e-5))

    return build


def moving(op_type: str, count: int = 1, **attributes: Any) -> Callable:
    """An op that moves numbers, so that all its tensors have one grid."""

    def build(one: OneOp) -> ModelProto:
        grid = (np.float32(0.03), one.codes(99))
        inputs = [one.data(grid=grid) for _ in range(count)]
        return one.model(one.op(op_type, inputs, **attributes), grid=grid)

    return build


def moving_on(op_type: str, count: int = 1, *constants: Any, **attributes: Any) -> Callable:
    """An op that moves numbers from grids to another."""

    def build(one: OneOp) -> ModelProto:
        inputs = [one.data() for _ in range(count)]
        inputs += [one.constant(f"c{index}", np.array(given)) for index, given in enumerate(constants)]
        return one.model(one.op(op_type, inputs, **attributes))

    return build


def logarithm(one: OneOp) -> ModelProto:
    """A Log, whose result has no end at zero."""
    x = one.data(grid=(one.scale(), np.uint8(0)))
    return one.model(one.op("Log", [x]), grid=(np.float32(0.03), np.uint8(160)))


def sloped(one: OneOp) -> ModelProto:
    """A PRelu with a slope for each channel, of 1 at most."""
    grid = np.float32(one.random.uniform(0.1, 1) / 255 / one.finer), one.codes(one.random.integers(100))
    slope = one.stored("slope", one.codes(one.random.integers(0, 256, (16, 1, 1))), grid)
    return one.model(one.op("PRelu", [one.data(), slope]))


def power(exponent: float) -> Callable:
    """Numbers that are not negative to a power."""

    def build(one: OneOp) -> ModelProto:
        x = one.data(grid=(one.scale(), one.codes(0)))
        by = one.stored("e", one.codes(255), (np.float32(exponent / 255) / one.finer, one.codes(0)))
        return one.model(one.op("Pow", [x, by]))

    return build


def interpolated(one: OneOp) -> ModelProto:
    """A picture twice as long and wide, on its own grid."""
    grid, scales = (np.float32(0.03), one.codes(99)), one.constant("scales", np.float32([1, 1, 2, 2]))
    return one.model(one.op("Resize", [one.data(grid=grid), "", scales], mode="linear"), grid=grid)


def chosen(one: OneOp) -> ModelProto:
    """A Where of two tensors on different grids."""
    condition = one.constant("condition", one.random.random(DATA) > 0.5)
    return one.model(one.op("Where", [condition, one.data(), one.data()]))


def joined(one: OneOp) -> ModelProto:
    """A Concat of two tensors, on a grid that covers theirs."""
    inputs = [one.data(), one.data()]
    numbers = one.run(one.op("Concat", inputs, axis=1))
    return one.model(one.op("Concat", inputs, axis=1), grid=one.grid_of(numbers / np.float32(0.9)))


def sum_joined(one: OneOp) -> ModelProto:
    """A sum that is joined with other numbers, on a wider grid than its own."""
    total, other = one.op("Add", [one.data(), one.data()]), one.data()
    inputs = [one.rounded(total, one.grid_of(one.run(total))), other]
    numbers = one.run(one.op("Concat", inputs, axis=1))
    return one.model(one.op("Concat", inputs, axis=1), grid=one.grid_of(numbers / np.float32(0.9)))


KINDS: dict[str, Callable[[OneOp], ModelProto]] = {
    "Conv": convolution(),
    "Conv, one scale": convolution(channels=False),
    "Conv, strided": convolution(strides=[2, 2]),
    "Conv, groups": convolution(group=4),
    "Conv, depthwise": convolution(group=16),
    "Conv, depthwise and strided": convolution(group=16, strides=[2, 2]),
    "Conv, depthwise and strided along one axis": convolution(group=16, strides=[2, 1]),
    "Conv and Relu": convolution(activation="Relu"),
    "Conv and Relu, one axis, four samples": along_one_axis(4),
    "ConvTranspose": transposed(3, pads=[1] * 4),
    "ConvTranspose, 2 x 2": transposed(2),
    "Gemm": product("Gemm"),
    "MatMul": product("MatMul"),
    "MatMul of data": product("MatMul", weight=False),
    "Add": elementwise("Add", 2),
    "Add and Relu": elementwise("Add", 2, "Relu"),
    "Add of a constant": with_constant("Add"),
    "Add of one number": with_constant("Add", (1,)),
    "Sub": elementwise("Sub", 2),
    "Mul": elementwise("Mul", 2),
    "Mul by a constant": with_constant("Mul"),
    "Mul and Relu": elementwise("Mul", 2, "Relu"),
    "Mul by one number and Add of another": linear,
    "Mul by its Sigmoid": silu,
    "Div": quotient(),
    "Div by a constant": quotient(constant=True),
    "Div by one number": with_constant("Div", (1,)),
    "Relu": elementwise("Relu"),
    "PRelu": sloped,
    "GlobalAveragePool": elementwise("GlobalAveragePool"),
    "AveragePool": elementwise("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "AveragePool, 4 x 4": elementwise("AveragePool", kernel_shape=[4, 4], strides=[4, 4]),
    "AveragePool, 3 x 3": elementwise("AveragePool", kernel_shape=[3, 3]),
    "AveragePool, 3 x 3, strided": elementwise("AveragePool", kernel_shape=[3, 3], strides=[2, 2]),
    "AveragePool, 3 x 3, a border": elementwise("AveragePool", kernel_shape=[3, 3], pads=[1] * 4),
    "AveragePool, 5 x 5, a border that counts": elementwise(
        "AveragePool", kernel_shape=[5, 5], pads=[2] * 4, count_include_pad=1
    ),
    "MaxPool": moving("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    "Resize, linear, on one grid": interpolated,
    "Concat": moving("Concat", 2, axis=1),
    "Concat of two grids": joined,
    "Concat of a sum": sum_joined,
    "Slice to another grid": moving_on("Slice", 1, [2], [7], [-1]),
    "Transpose to another grid": moving_on("Transpose", perm=[0, 2, 3, 1]),
    "Reshape to another grid": moving_on("Reshape", 1, [16, 64]),
    "Where of two grids": chosen,
    "Max of two grids": moving_on("Max", 2),
    "Min of two grids": moving_on("Min", 2),
    "Largest along an axis": moving_on("ReduceMax", 1, [-1]),
    "Log": logarithm,
    "Sigmoid": with_limits("Sigmoid", 0, 1),
    "Tanh": with_limits("Tanh", -1, 1),
    "HardSwish": elementwise("HardSwish"),
    "Gelu": elementwise("Gelu"),
    "Gelu by tanh": elementwise("Gelu", approximate="tanh"),
    "Exp": elementwise("Exp"),
    "HardSigmoid": with_limits("HardSigmoid", 0, 1),
    "LeakyRelu": elementwise("LeakyRelu"),
    "Neg": elementwise("Neg"),
    "Softplus": elementwise("Softplus"),
    "Elu": elementwise("Elu"),
    "Mish": elementwise("Mish"),
    "Sin": elementwise("Sin"),
    "Cos": elementwise("Cos"),
    "Atan": elementwise("Atan"),
    "Sign": elementwise("Sign"),
    "Floor": elementwise("Floor"),
    "Square root": power(0.5),
    "Square": power(2),
    "Sum along an axis": reduced("ReduceSum"),
    "Mean along an axis": reduced("ReduceMean"),
    "Mean along two axes": reduced("ReduceMean", (1, 512, 6, 6), (2, 3)),
    "Mean along the middle": reduced("ReduceMean", (8, 48, 64), (1,)),
    "Mean of all rows": reduced("ReduceMean", (1, 48, 256), (1,)),
    "Softmax of 65": softmax(65),
    "Softmax of 12": softmax(12),
    "Softmax of 2": softmax(2),
    "Softmax of 2 to another grid": softmax(2, levels=200),
    "LayerNormalization": normalization("LayerNormalization"),
    "RMSNormalization": normalization("RMSNormalization"),
}


def codes(model: ModelProto, made: np.ndarray) -> np.ndarray:
    """The codes of a result, whose scale and zero point the last node reads."""
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    scale, zero_point = (constants[name] for name in model.graph.node[-1].input[1:3])
    return (np.rint(np.asarray(made, np.float64) / scale) + zero_point).astype(zero_point.dtype)


def simulated(model: ModelProto, feed: dict[str, np.ndarray], options: str) -> np.ndarray:
    """The codes of a simulation."""
    compiled = qc.compile(model, f"import-qdq, to-simulation{options}")
    return codes(model, next(iter(qc.Simulation(compiled.simulation).run(feed).values())))


def compared(found: np.ndarray, wanted: np.ndarray) -> tuple[int, int, int, float]:
    """Equal codes, codes, the largest difference, and the sum of the squares of all."""
    apart = np.abs(found.astype(int) - wanted.astype(int))
    return int((apart == 0).sum()), apart.size, int(apart.max()), float(np.square(apart).sum())


def row(name: str, bits: int, fits: bool, seeds: int, recorded: dict[str, np.ndarray]) -> list[str]:
    """One line of the table; the first model is kept in ``recorded``."""
    columns: dict[str, list[tuple]] = {option: [] for option in SIMULATIONS[bits]}
    for seed in range(seeds):
        one = OneOp(np.random.default_rng(seed), bits, fits)
        model = KINDS[name](one)
        try:
            wanted = codes(model, next(iter(open_device(DEVICE).open(model).run(one.feed).values())))
        except QcError as error:
            return [name, f"refused: {error}"[:60], "", "", "", "", ""]
        for options, counts in columns.items():
            counts.append(compared(simulated(model, one.feed, options), wanted))
        if not seed:
            recorded[f"{name}/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
            recorded[f"{name}/codes"] = wanted
            recorded |= {f"{name}/{given}": array for given, array in one.feed.items()}
    cells = [name]
    for counts in columns.values():
        equal, total, apart, squares = zip(*counts, strict=True)
        rms = (sum(squares) / sum(total)) ** 0.5
        cells += [f"{sum(equal) / sum(total):.3%}", str(max(apart)), f"{rms:.2f}"]
    return cells


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--seeds", default=2, help="How many random models of every kind.")
@click.option("--bits", default=8, type=click.IntRange(8, 16), help="Of the codes of data: 8 or 16.")
@click.option("--any-factor", is_flag=True, help="Of 16 bits: factors of any number of bits.")
@click.option(
    "--record", type=click.Path(path_type=Path), help="Keep the first of every kind, with its codes."
)
def main(names: tuple[str, ...], seeds: int, bits: int, any_factor: bool, record: Path | None) -> None:
    console, recorded, fits = Console(width=120), {}, bits == 16 and not any_factor
    console.print(f"{DEVICE}: {DEVICES[DEVICE].package} {version_of(DEVICES[DEVICE])}")
    titles = ("simulation", "steps", "rms", "device", "steps", "rms")[: 3 * len(SIMULATIONS[bits])]
    table = Table("op", *titles, box=None)
    for name in KINDS:
        if not names or name in names:
            table.add_row(*row(name, bits, fits, seeds, recorded))
    console.print(table)
    if record is not None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **recorded)
        record.write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
