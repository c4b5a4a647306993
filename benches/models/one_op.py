"""Models of one op between quantize and dequantize ops, with random grids and codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

DATA = (1, 16, 8, 8)
Grid = tuple[np.ndarray, np.ndarray]


@dataclass
class OneOp:
    """A model of one op, or of an op and an activation, between quantized tensors.

    Attributes:
        random: where scales, zero points and codes come from.
        bits: of the codes of data, 8 or 16.
        fits: whether the factor that rescales a sum of products has few bits.
        feed: the input by name, float32 numbers on their grids.
    """

    random: np.random.Generator
    bits: int = 8
    fits: bool = False
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    feed: dict[str, np.ndarray] = field(default_factory=dict)
    _sums: float = 0.0  # what one is worth in sums of products, if the result's grid fits to it

    @property
    def finer(self) -> int:
        """How many steps of data are one of 8 bits."""
        return 1 if self.bits == 8 else 257

    def codes(self, of_bytes: Any) -> np.ndarray:
        """Codes of data, from those that it would have in 8 bits."""
        return np.asarray(np.clip(of_bytes, 0, 255) * self.finer).astype(f"uint{self.bits}")

    def constant(self, name: str, array: Any) -> str:
        """An initializer; its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def op(self, op_type: str, inputs: list[str], **attributes: Any) -> str:
        """A node; the name of its result."""
        result = f"{op_type}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [result], **attributes))
        return result

    def rounded(self, value: str, grid: Grid) -> str:
        """A tensor behind a quantize and a dequantize op."""
        numbers = [self.constant(f"{value}/{len(self.constants)}", number) for number in grid]
        return self.op("DequantizeLinear", [self.op("QuantizeLinear", [value, *numbers]), *numbers])

    def data(self, shape: tuple[int, ...] = DATA, grid: Grid | None = None) -> str:
        """An input of all codes, again and again in random order."""
        size = int(np.prod(shape))
        some = np.resize(np.arange(0, 2**self.bits, max(1, 2**self.bits // size)), size)
        return self.given(self.random.permutation(some).reshape(shape), grid or self.grid())

    def grid(self) -> Grid:
        """A random one for data."""
        return self.scale() / np.float32(self.finer), self.codes(self.random.integers(256))

    def given(self, codes: np.ndarray, grid: Grid) -> str:
        """An input of some codes."""
        name, (scale, zero_point) = f"x{len(self.feed)}", grid
        self.feed[name] = (codes - np.float32(zero_point)).astype(np.float32) * scale
        return self.rounded(name, grid)

    def weight(self, shape: tuple[int, ...], bias_of: str = "", channels: bool = True) -> list[str]:
        """A weight of int8 and, for the input ``bias_of``, a bias of int32, as what dequantizes them."""
        ratios, base = np.exp(self.random.uniform(-2, 0, shape[0] if channels else ())), self.scale()
        if self.fits:
            ratios = np.rint(ratios * 256) / 256
            of_input = next(numpy_helper.to_array(c) for c in self.constants if c.name.startswith("x0"))
            self._sums = (base * of_input * (1 if channels else ratios)).item()
        scale = base * ratios.astype(np.float32)
        made = [
            self.stored("w", self.random.integers(-127, 128, shape), (scale, np.zeros_like(scale, np.int8)))
        ]
        if bias_of:
            of_input = next(numpy_helper.to_array(c) for c in self.constants if c.name.startswith(bias_of))
            numbers, step = self.random.integers(-9999, 9999, shape[0]), (scale * of_input).astype(np.float32)
            made.append(self.stored("b", numbers, (step, np.zeros_like(step, np.int32))))
        return made

    def model(self, result: str, activation: str = "", grid: Grid | None = None) -> ModelProto:
        """The model; the grid of the result is that of its range, cut a little, if none is given."""
        numbers = self.run(result)
        if activation:
            result = self.op(activation, [self.rounded(result, self.grid_of(numbers))])
            numbers = np.maximum(numbers, 0)
        return self._model(self.rounded(result, grid or self.grid_of(numbers)), numbers.shape)

    def stored(self, name: str, codes: np.ndarray, grid: Grid) -> str:
        """A constant, as what dequantizes it."""
        scale, zero_point = grid
        parts = {name: codes.astype(zero_point.dtype), f"{name}/scale": scale, f"{name}/zero": zero_point}
        attributes = {"axis": 0} if scale.ndim else {}
        return self.op("DequantizeLinear", [self.constant(*part) for part in parts.items()], **attributes)

    def grid_of(self, numbers: np.ndarray) -> Grid:
        """A grid that covers numbers but for a tenth of their range."""
        low, high = min(numbers.min() * 0.9, 0), max(numbers.max() * 0.9, 1e-6)
        scale = np.float32((high - low) / (2**self.bits - 1))
        if self._sums:
            scale = np.float32(self._sums * 2.0 ** np.ceil(np.log2(scale / self._sums)))
        return scale, np.rint(-low / scale).astype(f"uint{self.bits}")

    def scale(self) -> np.ndarray:
        """A random one."""
        return np.float32(np.exp(self.random.uniform(-5, -1)))

    def run(self, result: str) -> np.ndarray:
        """What ONNX Runtime gives."""
        model = self._model(result, None).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, self.feed)[0])

    def _model(self, result: str, shape: tuple[int, ...] | None) -> ModelProto:
        shapes = {name: x.shape for name, x in self.feed.items()} | {result: shape}
        *given, made = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in shapes
        )
        graph = helper.make_graph(self.nodes, "one", given, [made], self.constants)
        opsets = [helper.make_opsetid("", 23)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
