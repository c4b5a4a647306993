"""One op, or two that a device runs as one, between quantize and dequantize ops: models by kind of op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto

from .one_op import DATA, OneOp


def convolution(
    group: int = 1, activation: str = "", channels: bool = True, kernel: int = 3, **attributes: Any
) -> Callable:
    """A Conv with a bias, as wide as its data but for strides."""

    def build(one: OneOp) -> ModelProto:
        shape, pads = (16, 16 // group, kernel, kernel), [kernel // 2] * 4
        inputs = [one.data(), *one.weight(shape, bias_of="x0", channels=channels)]
        return one.model(one.op("Conv", inputs, group=group, pads=pads, **attributes), activation)

    return build


def along_one_axis(
    samples: int, channels: int = 16, kernel: int = 3, group: int = 1, **attributes: Any
) -> Callable:
    """A Conv along one axis and a Relu."""

    def build(one: OneOp) -> ModelProto:
        x, shape = one.data((samples, channels, 37 + kernel)), (channels, channels // group, kernel)
        inputs = [x, *one.weight(shape, bias_of="x0")]
        return one.model(one.op("Conv", inputs, group=group, **attributes), "Relu")

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


def normalized_pictures(activation: str = "") -> Callable:
    """Channels of many spreads, with a scale of int8 and a bias of int32."""

    def build(one: OneOp) -> ModelProto:
        scale, center = one.scale() / np.float32(one.finer), one.random.integers(80, 180)
        spread = one.random.uniform(3, 60, (1, 16, 1, 1))
        codes = one.codes(one.random.normal(center, spread, (1, 16, 16, 24)))
        of_weight = (np.float32(np.exp(one.random.uniform(-7, -4))), np.int8(0))
        step = np.float32(scale * of_weight[0])
        inputs = [
            one.given(codes, (scale, one.codes(center))),
            one.stored("w", one.random.integers(-127, 128, 16), of_weight),
            one.stored("b", np.rint(one.random.normal(0, 1, 16) / step), (step, np.int32(0))),
        ]
        return one.model(one.op("InstanceNormalization", inputs), activation)

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
    return _joined_wider(one, [one.data(), one.data()])


def sum_joined(one: OneOp) -> ModelProto:
    """A sum that is joined with other numbers, on a wider grid than its own."""
    total, other = one.op("Add", [one.data(), one.data()]), one.data()
    return _joined_wider(one, [one.rounded(total, one.grid_of(one.run(total))), other])


def transposed_joined(one: OneOp) -> ModelProto:
    """A sum whose axes are permuted before it is joined with other numbers, on a wider grid than its own."""
    total, other = one.op("Add", [one.data(), one.data()]), one.data()
    grid = one.grid_of(one.run(total))
    moved = one.op("Transpose", [one.rounded(total, grid)], perm=[0, 1, 3, 2])
    return _joined_wider(one, [one.rounded(moved, grid), other])


def halves_joined(one: OneOp) -> ModelProto:
    """Halves of a sum, one of them negative, on a wider grid than its own, as rotary positions have them."""
    total = one.op("Add", [one.data(), one.data()])
    grid = one.grid_of(one.run(total))
    whole, middle = one.rounded(total, grid), DATA[-1] // 2
    first, half, end, axis = (
        one.constant(f"bound{bound}", np.int64([bound])) for bound in (0, middle, DATA[-1], -1)
    )
    halves = [one.op("Slice", [whole, *bounds, axis]) for bounds in ((first, half), (half, end))]
    negative = one.op("Neg", [one.rounded(halves[1], grid)])
    inputs = [one.rounded(negative, one.grid_of(one.run(negative))), one.rounded(halves[0], grid)]
    return _joined_wider(one, inputs)


def _joined_wider(one: OneOp, inputs: list[str]) -> ModelProto:
    """A Concat on a grid that covers more than what it joins."""
    joined = one.op("Concat", inputs, axis=1)
    return one.model(joined, grid=one.grid_of(one.run(joined) / np.float32(0.9)))


KINDS: dict[str, Callable[[OneOp], ModelProto]] = {
    "Conv": convolution(),
    "Conv, one scale": convolution(channels=False),
    "Conv, strided": convolution(strides=[2, 2]),
    "Conv, groups": convolution(group=4),
    "Conv, depthwise": convolution(group=16),
    "Conv, depthwise and strided": convolution(group=16, strides=[2, 2]),
    "Conv, depthwise and strided along one axis": convolution(group=16, strides=[2, 1]),
    "Conv, depthwise and strided, 9 x 9": convolution(group=16, kernel=9, strides=[2, 2]),
    "Conv, depthwise and strided, 17 x 17": convolution(group=16, kernel=17, strides=[2, 2]),
    "Conv, a weight for each channel": convolution(group=16, kernel=1),
    "Conv, a weight for each channel, and Relu": convolution(group=16, kernel=1, activation="Relu"),
    "Conv, a weight for each channel, strided": convolution(group=16, kernel=1, strides=[2, 2]),
    "Conv, a weight for each channel, strided along one axis": convolution(
        group=16, kernel=1, strides=[2, 1]
    ),
    "Conv and Relu, one channel": along_one_axis(1, channels=1, kernel=1),
    "Conv and Relu, one channel, strided": along_one_axis(1, channels=1, kernel=3, strides=[2]),
    "Conv and Relu, depthwise along one axis, a kernel of 63": along_one_axis(1, kernel=63, group=16),
    "Conv and Relu, depthwise along one axis, a kernel of 62, strided": along_one_axis(
        1, kernel=62, group=16, strides=[2]
    ),
    "Conv and Relu": convolution(activation="Relu"),
    "Conv and Relu, one axis, four samples": along_one_axis(4, pads=[1, 1]),
    "Conv and Relu, one axis, a kernel of 64": along_one_axis(1, kernel=64),
    "Conv and Relu, one axis, a kernel of 126, strided": along_one_axis(1, kernel=126, strides=[2]),
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
    "Concat of a sum, transposed": transposed_joined,
    "Concat of halves of a sum, one negative": halves_joined,
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
    "InstanceNormalization": normalized_pictures(),
    "InstanceNormalization and Relu": normalized_pictures("Relu"),
}
