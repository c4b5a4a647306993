"""Random small float graphs, for properties that must hold on every model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from .models import floats, model_of

Shape = tuple[int, ...]
IMAGE, ROWS = (2, 3, 4, 4), (2, 6)


@st.composite
def float_models(draw: st.DrawFn, max_steps: int = 10) -> ModelProto:
    """Checked models of two inputs: convolutions, matrix products, norms, joins and what exporters leave."""
    builder = _Builder(draw)
    for _ in range(draw(st.integers(2, max_steps))):
        builder.step()
    return builder.model()


class _Builder:
    """Grows a graph from inputs ``image`` (2, 3, 4, 4) and ``rows`` (2, 6)."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.shapes: dict[str, Shape] = {"image": IMAGE, "rows": ROWS}

    def model(self) -> ModelProto:
        made = [name for name in self.shapes if name not in ("image", "rows")]
        shown = self.draw(st.lists(st.sampled_from(made), max_size=2, unique=True)) if made else []
        outputs = dict.fromkeys([*shown, made[-1]])
        model = model_of(
            self.nodes,
            [floats("image", *IMAGE), floats("rows", *ROWS)],
            [floats(name, *self.shapes[name]) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def step(self) -> None:
        """Adds one op, or a few that belong together, behind a value."""
        names = list(self.shapes)
        x = names[-1] if self.draw(st.booleans()) else self.draw(st.sampled_from(names))
        own = self.of_image if len(self.shapes[x]) == 4 else self.of_rows
        steps: list[Callable[[str], str]] = [*own(), *self.of_any()]
        self.draw(st.sampled_from(steps))(x)

    def of_image(self) -> list[Callable[[str], str]]:
        return [
            self.conv,
            lambda x: self.batch_norm(self.conv(x)),
            lambda x: self.channels(self.conv(x)),
            lambda x: self.batch_norm(self.conv_transpose(x)),
            self.batch_norm,
            self.pool,
            self.flatten,
        ]

    def of_rows(self) -> list[Callable[[str], str]]:
        normalized = [lambda x: self.batch_norm(self.gemm(x)), lambda x: self.batch_norm(self.matmul(x))]
        return [self.gemm, *normalized, self.matmul, self.matmul_add, self.layer_norm]

    def of_any(self) -> list[Callable[[str], str]]:
        bare = [self.relu, self.relu, self.clip, self.sigmoid, self.identity, self.cast, self.dropout]
        return [*bare, self.add, self.mul, self.concat, self.reshape, self.constants]

    # -- pieces -------------------------------------------------------------------------------------

    def node(self, op_type: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        self.shapes[name] = shape
        return name

    def weight(self, shape: Shape, positive: bool = False) -> str:
        """A new constant, or one of that shape that another op reads already."""
        floats = {name: array for name, array in self.weights.items() if array.dtype == np.float32}
        known = [name for name, array in floats.items() if array.shape == shape and not positive]
        if known and bool(self.draw(st.booleans())):
            return self.draw(st.sampled_from(known))
        name = f"w{len(self.weights)}"
        array = self.rng.normal(size=shape)
        self.weights[name] = (np.abs(array) + 0.5 if positive else array).astype(np.float32)
        return name

    def integers(self, numbers: list[int]) -> str:
        """Integers as an initializer or as the result of a Constant op."""
        name = f"k{len(self.weights)}_{len(self.nodes)}"
        array = np.asarray(numbers, np.int64)
        if self.draw(st.booleans()):
            self.weights[name] = array
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def conv(self, x: str) -> str:
        batch, channels, *size = self.shapes[x]
        made, depthwise = self.draw(st.sampled_from([2, 3])), self.draw(st.booleans())
        made, group, read = (channels, channels, 1) if depthwise else (made, 1, channels)
        kernel = self.draw(st.sampled_from([1, 3]))
        inputs = [x, self.weight((made, read, kernel, kernel))]
        if self.draw(st.booleans()):
            inputs.append(self.weight((made,)))
        pads = [kernel // 2] * 4
        return self.node("Conv", inputs, (batch, made, *size), group=group, pads=pads)

    def conv_transpose(self, x: str) -> str:
        batch, channels, *size = self.shapes[x]
        group = self.draw(st.sampled_from([1, channels]))
        weight = self.weight((channels, 2, 1, 1))
        return self.node("ConvTranspose", [x, weight], (batch, 2 * group, *size), group=group)

    def batch_norm(self, x: str) -> str:
        channels = (self.shapes[x][1],)
        parameters = [self.weight(channels) for _ in range(3)] + [self.weight(channels, positive=True)]
        return self.node("BatchNormalization", [x, *parameters], self.shapes[x])

    def channels(self, x: str) -> str:
        """A product or a sum with a constant per channel."""
        constant = self.weight((self.shapes[x][1], 1, 1))
        inputs = [x, constant] if self.draw(st.booleans()) else [constant, x]
        return self.node(self.draw(st.sampled_from(["Add", "Mul"])), inputs, self.shapes[x])

    def pool(self, x: str) -> str:
        return self.node("MaxPool", [x], self.shapes[x], kernel_shape=[3, 3], pads=[1] * 4)

    def flatten(self, x: str) -> str:
        batch, channels, *_ = self.shapes[x]
        mean = self.node("GlobalAveragePool", [x], (batch, channels, 1, 1))
        return self.node("Flatten", [mean], (batch, channels))

    def gemm(self, x: str) -> str:
        rows, length = self.shapes[x]
        transposed = self.draw(st.booleans())
        inputs = [x, self.weight((3, length) if transposed else (length, 3))]
        if self.draw(st.booleans()):
            inputs.append(self.weight(self.draw(st.sampled_from([(3,), (1, 3), (1,)]))))
        attributes = {"alpha": 0.5, "beta": 2.0} if self.draw(st.booleans()) else {}
        return self.node("Gemm", inputs, (rows, 3), transB=int(transposed), **attributes)

    def matmul(self, x: str) -> str:
        rows, length = self.shapes[x]
        return self.node("MatMul", [x, self.weight((length, 4))], (rows, 4))

    def matmul_add(self, x: str) -> str:
        product = self.matmul(x)
        return self.node("Add", [product, self.weight((4,))], self.shapes[product])

    def layer_norm(self, x: str) -> str:
        length = (self.shapes[x][-1],)
        return self.node("LayerNormalization", [x, self.weight(length), self.weight(length)], self.shapes[x])

    def relu(self, x: str) -> str:
        return self.node("Relu", [x], self.shapes[x])

    def clip(self, x: str) -> str:
        for name, number in (("low", -1.0), ("high", 2.0)):
            self.weights.setdefault(name, np.asarray(number, np.float32))
        return self.node("Clip", [x, "low", "high"], self.shapes[x])

    def sigmoid(self, x: str) -> str:
        return self.node("Sigmoid", [x], self.shapes[x])

    def identity(self, x: str) -> str:
        return self.node("Identity", [x], self.shapes[x])

    def cast(self, x: str) -> str:
        return self.node("Cast", [x], self.shapes[x], to=TensorProto.FLOAT)

    def dropout(self, x: str) -> str:
        return self.node("Dropout", [x], self.shapes[x])

    def add(self, x: str) -> str:
        return self.node("Add", [x, self.like(x)], self.shapes[x])

    def mul(self, x: str) -> str:
        return self.node("Mul", [self.like(x), x], self.shapes[x])

    def like(self, x: str) -> str:
        return self.draw(st.sampled_from([name for name, s in self.shapes.items() if s == self.shapes[x]]))

    def concat(self, x: str) -> str:
        other, (first, second, *rest) = self.like(x), self.shapes[x]
        if second > 6:
            return self.relu(x)
        return self.node("Concat", [x, other], (first, 2 * second, *rest), axis=1)

    def reshape(self, x: str) -> str:
        shape = self.shapes[x]
        folded = (shape[0], int(np.prod(shape[1:])))
        if len(shape) == 2:
            return self.node("Reshape", [x, self.integers([0, -1])], shape)
        return self.node("Reshape", [x, self.integers(list(folded))], folded)

    def constants(self, x: str) -> str:
        """A sum with something that depends on constants alone."""
        shape = (self.shapes[x][-1],)
        product = self.node("Mul", [self.weight(shape), self.weight(shape)], shape)
        del self.shapes[product]
        total = self.node("Neg", [product], shape)
        del self.shapes[total]
        return self.node("Add", [x, total], self.shapes[x])
