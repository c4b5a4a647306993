"""The layers of random networks, as exporters write them.

Each adds its ops behind a tensor of a drawing and returns the name of what they make, or None where it does
not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from onnx import numpy_helper

from .drawing import Drawing, Shape

_LONGEST = 256  # the last axis in front of a product
_FUNCTIONS = (
    *("Abs", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Relu", "Relu", "Relu"),
    *("Sigmoid", "Softplus", "Tanh"),
)
_NORMS = (
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization"),
    *("LpNormalization", "Softmax", "Softmax"),
)
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")


def _matmul(net: Drawing, source: str) -> str | None:
    *rows, length = net.shapes[source]
    if length > _LONGEST:
        return None
    made = net.one_of([4, 8, 16, 24, length])
    product = net.op("MatMul", [source, net.weight(length, made, axis=1)], (*rows, made))
    return net.op("Add", [product, net.weight(made, axis=0)], (*rows, made)) if net.happens(0.5) else product


def _gemm(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    if len(shape) != 2 or shape[1] > _LONGEST:
        return None
    made, turned = net.one_of([4, 8, 16]), net.happens(0.5)
    weight = net.weight(made, shape[1], axis=0) if turned else net.weight(shape[1], made, axis=1)
    bias = [net.weight(made, axis=0)] if net.happens(0.7) else []
    return net.op("Gemm", [source, weight, *bias], (shape[0], made), transB=int(turned))


def _product_of_data(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    if len(shape) < 3 or prod(shape) > 2000:
        return None
    turned = (*shape[:-2], shape[-1], shape[-2])
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    other = net.op("Transpose", [source], turned, perm=order)
    return net.op("MatMul", [source, other], (*shape[:-1], shape[-2]))


def _is_spatial(shape: Shape) -> bool:
    return len(shape) in (3, 4) and shape[1] <= 64


def _conv(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    if not _is_spatial(shape):
        return None
    batch, channels, *lengths = shape
    kernel, stride = net.one_of([1, 3]), net.one_of([1, 1, 2])
    groups = net.one_of([2, 4, channels]) if channels % 4 == 0 and net.happens(0.3) else 1
    made = channels if groups == channels else net.one_of([4, 8, 16])
    apart = net.one_of([1, 1, 2])
    axes, reach = len(lengths), apart * (kernel - 1)
    weight = net.weight(made, channels // groups, *[kernel] * axes, axis=0)
    bias = [net.weight(made, axis=0)] if net.happens(0.7) else []
    long = [(length - 1) // stride + 1 for length in lengths]
    settings = {"strides": [stride] * axes, "pads": [reach // 2] * 2 * axes, "group": groups}
    settings |= {"dilations": [apart] * axes}
    return net.op("Conv", [source, weight, *bias], (batch, made, *long), **settings)


def _transposed_conv(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    if not _is_spatial(shape) or prod(shape) > 4000:
        return None
    batch, channels, *lengths = shape
    made, axes = net.one_of([4, 8]), len(lengths)
    weight = net.weight(channels, made, *[2] * axes, axis=1)
    long = [2 * length for length in lengths]
    return net.op("ConvTranspose", [source, weight], (batch, made, *long), strides=[2] * axes)


def _pool(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    if not _is_spatial(shape) or min(shape[2:]) < 2:
        return None
    kinds = ["AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "same"]
    axes, kind = len(shape) - 2, net.one_of(kinds)
    if kind.startswith("Global"):
        return net.op(kind, [source], (*shape[:2], *[1] * axes))
    if kind == "same":
        kind, window = (
            net.one_of(["AveragePool", "MaxPool"]),
            {"kernel_shape": [3] * axes, "pads": [1] * 2 * axes},
        )
        counts = {"count_include_pad": net.one_of([0, 1])} if kind == "AveragePool" else {}
        return net.op(kind, [source], shape, **window, **counts)
    halves = [length // 2 for length in shape[2:]]
    return net.op(kind, [source], (*shape[:2], *halves), kernel_shape=[2] * axes, strides=[2] * axes)


def _resize(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    if not _is_spatial(shape) or prod(shape) > 4000:
        return None
    scales = net.constant(np.array([1, 1, *[2] * (len(shape) - 2)], np.float32))
    settings = {
        "mode": net.one_of(["linear", "nearest"]) if len(shape) == 4 else "nearest",
        "coordinate_transformation_mode": net.one_of(["asymmetric", "half_pixel"]),
        "nearest_mode": "floor",
    }
    return net.op("Resize", [source, "", scales], (*shape[:2], *(2 * n for n in shape[2:])), **settings)


def _norm(net: Drawing, source: str) -> str | None:
    shape, kind = net.shapes[source], net.one_of(_NORMS)
    if kind in ("LpNormalization", "Softmax"):
        return net.op(kind, [source], shape, axis=-1)
    of_layer = kind == "LayerNormalization"
    if (not of_layer and not _is_spatial(shape)) or prod(shape[-1:] if of_layer else shape[2:]) < 4:
        return None
    count = shape[-1] if of_layer else shape[1]
    given = [net.factors(count), net.weight(count, axis=0)]
    if kind == "BatchNormalization":
        given += [net.weight(count, axis=0), net.positives(count)]
    return net.op(kind, [source, *given], shape)


def _function(net: Drawing, source: str) -> str:
    return net.op(net.one_of(_FUNCTIONS), [source], net.shapes[source])


def _function_of_constants(net: Drawing, source: str) -> str:
    shape, kind = net.shapes[source], net.one_of(["Clip", "PRelu", "Pow"])
    if kind == "Clip":
        return net.op(kind, [source, *(net.constant(np.float32(end)) for end in (-0.5, 1.5))], shape)
    if kind == "Pow":
        return net.op(kind, [source, net.constant(np.float32(2))], shape)
    return net.op(kind, [source, net.factors(shape[1], *[1] * (len(shape) - 2))], shape)


def _gate(net: Drawing, source: str) -> str | None:
    """SiLU, or half of the last axis times the Sigmoid of the other half."""
    shape = net.shapes[source]
    if net.happens(0.7) or shape[-1] % 2 or shape[-1] < 4:
        return net.op("Mul", [source, net.op("Sigmoid", [source], shape)], shape)
    half = (*shape[:-1], shape[-1] // 2)
    data, gate = net.nodes_with("Split", (source,), 2, {"axis": len(shape) - 1, "num_outputs": 2})
    net.shapes |= {data: half, gate: half}
    return net.op("Mul", [data, net.op("Sigmoid", [gate], half)], half)


def _with_constant(net: Drawing, source: str) -> str:
    shape = net.shapes[source]
    along_channels = (1, shape[1], *[1] * (len(shape) - 2))
    constant = net.factors(*net.one_of([(), (shape[-1],), along_channels]))
    kind = net.one_of(["Add", "Div", "Mul", "Sub"])
    is_swapped = kind != "Div" and net.happens(0.3)
    return net.op(kind, [constant, source] if is_swapped else [source, constant], shape)


def _with_another(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    others = net.others(source, lambda known: known == shape)
    kind = net.one_of(["Add", "Add", "Max", "Mul", "Sub"])
    return net.op(kind, [source, net.one_of(others)], shape) if others else None


def _where(net: Drawing, source: str) -> str | None:
    """What is greater than a number, and else another tensor or a number."""
    shape = net.shapes[source]
    others = net.others(source, lambda known: known == shape)
    other = net.one_of([*others, net.constant(np.float32(0.1))])
    greater = net.node("Greater", source, net.constant(np.float32(0.2)))
    return net.op("Where", [greater, source, other], shape)


def _recurrent(net: Drawing, source: str) -> str | None:
    """An LSTM or GRU along the first axis of three."""
    shape = net.shapes[source]
    if len(shape) != 3 or shape[2] > 32:
        return None
    kind, size = net.one_of(["GRU", "LSTM"]), 4
    gates = size * {"GRU": 3, "LSTM": 4}[kind]
    weights = [net.weight(1, gates, length, axis=1) for length in (shape[2], size)]
    settings = {"hidden_size": size} | ({"linear_before_reset": 1} if kind == "GRU" else {})
    made = net.op(kind, [source, *weights], (shape[0], 1, shape[1], size), **settings)
    return net.op("Squeeze", [made, net.integers(1)], (shape[0], shape[1], size))


def _repeat(net: Drawing, source: str) -> str | None:
    """Twice along an axis, or channels as pixels and back."""
    shape = list(net.shapes[source])
    kind = net.one_of(["Tile", "DepthToSpace", "SpaceToDepth"])
    if kind == "Tile":
        axis = int(net.random.integers(1, len(shape)))
        shape[axis] *= 2
        return net.op(
            kind, [source, net.integers(*(1 + (place == axis) for place in range(len(shape))))], shape
        )
    if len(shape) != 4:
        return None
    batch, channels, height, width = shape
    if kind == "DepthToSpace" and channels % 4 == 0:
        return net.op(kind, [source], (batch, channels // 4, 2 * height, 2 * width), blocksize=2)
    if kind == "SpaceToDepth" and height % 2 == 0 and width % 2 == 0:
        return net.op(kind, [source], (batch, 4 * channels, height // 2, width // 2), blocksize=2)
    return None


def _concat(net: Drawing, source: str) -> str | None:
    shape = net.shapes[source]
    axis = int(net.random.integers(1, len(shape)))

    def fits(known: Shape) -> bool:
        return len(known) == len(shape) and all(
            a == b or place == axis for place, (a, b) in enumerate(zip(known, shape, strict=True))
        )

    if prod(shape) > 4000:
        return None
    other = net.one_of([source, *net.others(source, fits)])
    made = list(shape)
    made[axis] += net.shapes[other][axis]
    return net.op("Concat", [source, other], made, axis=axis)


def _transpose(net: Drawing, source: str) -> str:
    shape = net.shapes[source]
    order = [int(axis) for axis in net.random.permutation(len(shape))]
    return net.op("Transpose", [source], [shape[axis] for axis in order], perm=order)


def _reshape(net: Drawing, source: str) -> str | None:
    shape, axes = list(net.shapes[source]), len(net.shapes[source])
    place, kind = int(net.random.integers(axes)), net.one_of(["join", "split", "insert", "remove", "rows"])
    if kind == "join" and place + 1 < axes:
        shape[place : place + 2] = [shape[place] * shape[place + 1]]
    elif kind == "split" and axes < 5 and shape[place] % 2 == 0 and shape[place] > 2:
        halves = [shape[place] // 2, 2]
        shape[place : place + 1] = halves if net.happens(0.5) else halves[::-1]
    elif kind == "insert" and axes < 5:
        shape.insert(place, 1)
    elif kind == "remove" and axes > 2 and shape[place] == 1:
        del shape[place]
    elif kind == "rows":
        shape = [shape[0], prod(shape[1:])]
    if len(shape) < 2 or tuple(shape) == net.shapes[source]:
        return None
    copied = int(shape[0] == net.shapes[source][0])  # 0 stands for the length that the first axis has
    return net.op("Reshape", [source, net.integers(*[0] * copied, *shape[copied:])], shape)


def _part(net: Drawing, source: str) -> str | None:
    """A half, some elements, or all with zeros around."""
    shape = list(net.shapes[source])
    axis, kind = int(net.random.integers(len(shape))), net.one_of(["Gather", "Pad", "Slice"])
    if kind == "Pad":
        pads = [int(place == axis) for place in range(len(shape))]
        shape[axis] += 2
        return net.op(kind, [source, net.integers(*pads, *pads)], shape) if axis > 1 else None
    if kind == "Gather":
        taken = net.random.integers(shape[axis], size=min(shape[axis], 3))
        shape[axis] = len(taken)
        return net.op(kind, [source, net.integers(*taken)], shape, axis=axis)
    if shape[axis] < 4:
        return None
    half = shape[axis] // 2
    start = net.one_of([0, shape[axis] - half])
    shape[axis] = half
    return net.op(kind, [source, *map(net.integers, (start, start + half, axis))], shape)


def _reduction(net: Drawing, source: str) -> str:
    shape = list(net.shapes[source])
    axis, keeps = int(net.random.integers(1, len(shape))), len(shape) < 3 or net.happens(0.6)
    shape[axis : axis + 1] = [1] if keeps else []
    kind = net.one_of(_REDUCTIONS)
    return net.op(kind, [source, net.integers(axis)], shape, keepdims=int(keeps))


def _for_each_element(net: Drawing, source: str) -> str | None:
    """A constant for each element of the batch, as class tokens, positions and first states are."""
    shape = net.shapes[source]
    read = net.one_of([source, *net.others(source, lambda known: known[0] == shape[0])])
    if prod(shape) > 4000:
        return None
    count = net.node("Gather", net.node("Shape", read), net.integers(0), axis=0)
    row, lengths = net.weight(1, *shape[1:], axis=len(shape) - 1), net.integers(*shape[1:])
    kind = net.one_of(["ConstantOfShape", "Expand", "Tile"])
    if kind == "Tile":
        repeats = net.node("Concat", count, net.integers(*[1] * (len(shape) - 1)), axis=0)
        made = net.op(kind, [row, repeats], shape)
    elif kind == "Expand":
        made = net.op(kind, [row, net.node("Concat", count, lengths, axis=0)], shape)
    else:
        half = numpy_helper.from_array(np.array([0.5], np.float32))
        made = net.op(kind, [net.node("Concat", count, lengths, axis=0)], shape, value=half)
    return _joined(net, source, made)


def _joined(net: Drawing, source: str, other: str) -> str | None:
    """Two tensors of one shape, or the sum of their products, as recurrent cells have it."""
    shape, kind = list(net.shapes[source]), net.one_of(["Add", "Concat", "Concat", "MatMul", "Mul"])
    if kind == "MatMul":
        *rows, length = shape
        made = [*rows, net.one_of([4, 8, 16])]
        weights = [net.weight(length, made[-1], axis=1) for _ in range(2)]
        products = [net.op("MatMul", both, made) for both in zip((source, other), weights, strict=True)]
        return net.op("Add", products, made) if length <= _LONGEST else None
    if kind != "Concat":
        return net.op(kind, [source, other], shape)
    axis = int(net.random.integers(1, len(shape)))
    shape[axis] *= 2
    return net.op(kind, net.one_of([[source, other], [other, source]]), shape, axis=axis)


# Products and convolutions are as likely as they are in networks.
LAYERS: tuple[Callable[[Drawing, str], str | None], ...] = (
    *(_matmul,) * 4,
    *(_gemm,) * 2,
    *(_conv,) * 5,
    *(_product_of_data, _transposed_conv, _pool, _pool, _resize, _norm, _norm),
    *(_function,) * 6,
    *(_function_of_constants, _gate, _with_constant, _with_constant, _with_another, _with_another),
    *(_where, _recurrent, _repeat, _for_each_element, _for_each_element),
    *(_concat, _transpose, _transpose, _reshape, _reshape, _reshape, _part, _part, _reduction, _reduction),
)
