"""Sound models, made from one number, whose bodies capture what integer ops make and others carry along."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

SHAPE = (1, 4, 4, 4)  # of what goes in and out, also of bodies
OPSETS = (11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22)
_AXES_ARE_INPUTS = {"Squeeze": 13, "Unsqueeze": 13, "Split": 13, "ReduceMax": 18}
_DEEPEST = 2


def capturing_model(rng: Random) -> ModelProto:
    """A model of an input ``x``, a condition ``c`` and a trip count ``n``.

    What its bodies, nested up to three deep, do not make themselves they capture from any graph around them;
    what is captured may be read in the main graph, and be an output, as well.
    """
    scope = _Scope(rng, rng.choice(OPSETS))
    for _ in range(rng.randint(1, 3)):
        scope.compute()
        scope.carry()
        scope.control(0)
    scope.step()
    made = [name for name in scope.shapes if name != "x"]
    outputs = dict.fromkeys([*rng.sample(made, min(len(made), rng.randint(0, 2))), made[-1]])
    inputs = [
        _floats("x", SHAPE),
        helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("n", TensorProto.INT64, ()),
    ]
    graph = scope.graph("capturing", inputs, [_floats(name, scope.shapes[name]) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", scope.opset)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def _floats(name: str, shape: tuple[int, ...]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


class _Scope:
    """Grows one graph; ``shapes`` are those of its float tensors."""

    def __init__(self, rng: Random, opset: int, around: _Scope | None = None, given: str = "x") -> None:
        self.rng = rng
        self.opset = opset
        self.around = around
        self.root: _Scope = around.root if around is not None else self
        self.count = 0  # of names, in the root
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {given: SHAPE} if given else {}

    # -- what there is ------------------------------------------------------------------------------

    def pick(self, *, shape: tuple[int, ...] | None = None) -> str:
        """A tensor of this graph or of one around it, most likely the newest."""
        scope = self
        while scope.around is not None and (not scope.shapes or self.rng.random() < 0.6):
            scope = scope.around
        fitting = [name for name, its in scope.shapes.items() if shape is None or its == shape]
        if not fitting:
            return self.fitted(shape or SHAPE)
        return fitting[-1] if self.rng.random() < 0.6 else self.rng.choice(fitting)

    def shape(self, name: str) -> tuple[int, ...]:
        scope: _Scope | None = self
        while scope is not None and name not in scope.shapes:
            scope = scope.around
        assert scope is not None
        return scope.shapes[name]

    def name(self, hint: str) -> str:
        self.root.count += 1
        return f"{hint.lower()}{self.root.count}"

    def constant(self, array: np.ndarray) -> str:
        """A new constant of this graph or of one around it."""
        scope = self
        while scope.around is not None and self.rng.random() < 0.5:
            scope = scope.around
        name = self.name("w" if array.dtype == np.float32 else "k")
        scope.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        numbers = np.random.default_rng(self.rng.randrange(1 << 30)).normal(size=shape)
        return self.constant((numbers / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def integers(self, *numbers: int) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def node(self, op_type: str, inputs: list[str], *shapes: tuple[int, ...], **attributes: Any) -> str:
        """The first of the results, which have the given shapes."""
        made = [self.name(op_type) for _ in shapes]
        self.nodes.append(helper.make_node(op_type, inputs, made, **attributes))
        self.shapes.update(zip(made, shapes, strict=True))
        return made[0]

    def with_axes(self, op_type: str, x: str, axes: list[int], *shapes: tuple[int, ...], **more: int) -> str:
        """An op whose axes, or the lengths of a Split, are an attribute in old opsets."""
        if self.opset >= _AXES_ARE_INPUTS[op_type]:
            return self.node(op_type, [x, self.integers(*axes)], *shapes, **more)
        keyword = "split" if op_type == "Split" else "axes"
        return self.node(op_type, [x], *shapes, **{keyword: axes}, **more)

    # -- ops ----------------------------------------------------------------------------------------

    def step(self) -> str:
        return self.rng.choice([self.compute, self.compute, self.carry, self.float_op])()

    def compute(self) -> str:
        """An op that runs in integers."""
        x = self.pick()
        shape = self.shape(x)
        if len(shape) == 4 and self.rng.random() < 0.6:
            kernel = self.rng.choice([1, 3]) if min(shape[2:]) > 0 else 1
            made = self.node(
                "Conv",
                [x, self.weight(4, shape[1], kernel, kernel)],
                (shape[0], 4, *shape[2:]),
                pads=[kernel // 2] * 4,
            )
            return self.node("Relu", [made], self.shape(made)) if self.rng.random() < 0.4 else made
        if len(shape) == 2 and self.rng.random() < 0.5:
            return self.node("Gemm", [x, self.weight(shape[1], 4), self.weight(4)], (shape[0], 4))
        if self.rng.random() < 0.2:
            return self.node("Add", [x, self.pick(shape=shape)], shape)
        if not shape:
            return self.node("Neg", [x], shape)
        return self.node("MatMul", [x, self.weight(shape[-1], 4)], (*shape[:-1], 4))

    def float_op(self) -> str:
        x = self.pick()
        return self.node(self.rng.choice(["Tanh", "Neg", "Erf", "Sigmoid"]), [x], self.shape(x))

    def carry(self) -> str:
        """One to three ops that move numbers, one behind the other."""
        made = self.pick()
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            made = self.rng.choice(_CARRIERS)(self, made)
        return made

    def transpose(self, x: str) -> str:
        shape = self.shape(x)
        if not shape:
            return self.unsqueeze(x)
        order = self.rng.sample(range(len(shape)), len(shape))
        return self.node("Transpose", [x], tuple(shape[axis] for axis in order), perm=order)

    def reshape(self, x: str) -> str:
        size = int(np.prod(self.shape(x)))
        fitting = [
            (size,),
            (1, size),
            (1, 1, 1, size),
            *([(4, size // 4), (1, 4, 2, size // 8)] if size % 8 == 0 else []),
        ]
        shape = self.rng.choice(fitting)
        given = list(shape)
        given[self.rng.randrange(len(given))] = -1
        return self.node("Reshape", [x, self.integers(*given)], shape)

    def squeeze(self, x: str) -> str:
        shape = self.shape(x)
        axes = [axis for axis, length in enumerate(shape) if length == 1][:1]
        if not axes:
            return self.unsqueeze(x)
        left = tuple(length for axis, length in enumerate(shape) if axis not in axes)
        return self.with_axes("Squeeze", x, axes, left)

    def unsqueeze(self, x: str) -> str:
        shape = self.shape(x)
        if len(shape) > 4:
            return self.reshape(x)
        axis = self.rng.randint(0, len(shape))
        return self.with_axes("Unsqueeze", x, [axis], (*shape[:axis], 1, *shape[axis:]))

    def slice(self, x: str) -> str:
        shape = self.shape(x)
        if not shape:
            return self.unsqueeze(x)
        axis = self.rng.randrange(len(shape))
        start = self.rng.randrange(shape[axis])
        end = self.rng.randint(start + 1, shape[axis])
        limits = [self.integers(number) for number in (start, end, axis)]
        return self.node("Slice", [x, *limits], (*shape[:axis], end - start, *shape[axis + 1 :]))

    def max_pool(self, x: str) -> str:
        shape = self.shape(x)
        if len(shape) != 4 or min(shape[2:]) < 2:
            return self.reshape(x)
        pooled = (*shape[:2], shape[2] - 1, shape[3] - 1)
        return self.node("MaxPool", [x], pooled, kernel_shape=[2, 2])

    def keep(self, x: str) -> str:
        """An op that ONNX Runtime removes."""
        shape = self.shape(x)
        op_type = self.rng.choice(["Identity", "Dropout", "Cast"])
        return self.node(op_type, [x], shape, **({"to": TensorProto.FLOAT} if op_type == "Cast" else {}))

    def gather(self, x: str) -> str:
        shape = self.shape(x)
        if not shape:
            return self.unsqueeze(x)
        axis = self.rng.randrange(len(shape))
        rows = [self.rng.randrange(shape[axis]) for _ in range(self.rng.randint(1, shape[axis]))]
        if self.rng.random() < 0.3:
            index = self.constant(np.asarray(rows[0], np.int64))
            return self.node("Gather", [x, index], (*shape[:axis], *shape[axis + 1 :]), axis=axis)
        taken = (*shape[:axis], len(rows), *shape[axis + 1 :])
        return self.node("Gather", [x, self.integers(*rows)], taken, axis=axis)

    def split(self, x: str) -> str:
        shape = self.shape(x)
        if not shape or shape[-1] < 2:
            return self.unsqueeze(x)
        first = self.rng.randint(1, shape[-1] - 1)
        parts = [(*shape[:-1], length) for length in (first, shape[-1] - first)]
        return self.with_axes("Split", x, [first, shape[-1] - first], *parts, axis=len(shape) - 1)

    def concat(self, x: str) -> str:
        shape = self.shape(x)
        if not shape:
            return self.unsqueeze(x)
        others = [x, self.pick(shape=shape)][: self.rng.choice([1, 2, 2])]
        return self.node("Concat", others, (len(others) * shape[0], *shape[1:]), axis=0)

    def expand(self, x: str) -> str:
        shape = self.shape(x)
        to = tuple(2 if length == 1 and self.rng.random() < 0.4 else length for length in shape)
        return self.node("Expand", [x, self.integers(*to)], to)

    def flatten(self, x: str) -> str:
        shape = self.shape(x)
        return self.node("Flatten", [x], (1, int(np.prod(shape))), axis=0)

    def clip(self, x: str) -> str:
        return self.node("Relu", [x], self.shape(x))

    def reduce(self, x: str) -> str:
        shape = self.shape(x)
        if not shape:
            return self.unsqueeze(x)
        return self.with_axes("ReduceMax", x, [len(shape) - 1], (*shape[:-1], 1), keepdims=1)

    # -- bodies -------------------------------------------------------------------------------------

    def control(self, depth: int) -> str:
        """An If, a Loop or a Scan."""
        return self.rng.choice([self.branch, self.branch, self.loop, self.scan])(depth)

    def fitted(self, shape: tuple[int, ...]) -> str:
        """Some tensor brought to a shape by ops that move numbers."""
        x, size = self.pick(), int(np.prod(shape))
        flat = self.node("Reshape", [x, self.integers(-1)], (int(np.prod(self.shape(x))),))
        (length,) = self.shape(flat)
        if length < size:
            times = -(-size // length)
            length *= times
            flat = self.node("Tile", [flat, self.integers(times)], (length,))
        if length > size:
            flat = self.node("Slice", [flat, self.integers(0), self.integers(size)], (size,))
        return self.node("Reshape", [flat, self.integers(*shape)], shape)

    def fill(self, depth: int) -> None:
        """Adds what is in a body: nothing, some ops, further bodies."""
        for _ in range(self.rng.randint(0, 2)):
            self.step()
        if depth <= _DEEPEST and self.rng.random() < 0.3:
            self.control(depth)
            if self.rng.random() < 0.5:
                self.step()

    def result(self, shape: tuple[int, ...] = SHAPE) -> str:
        """A new tensor of a shape, as what a body gives back must be its own."""
        own = [name for name, its in self.shapes.items() if its == shape]
        x = own[-1] if own and self.rng.random() < 0.5 else self.pick(shape=shape)
        return self.node("Identity", [x], shape) if self.rng.random() < 0.5 else self.node("Tanh", [x], shape)

    def condition(self) -> str:
        """The input, a constant, or a computed one."""
        kind = self.rng.random()
        if kind < 0.5:
            return "c"
        if kind < 0.7:
            return self.constant(np.asarray(self.rng.random() < 0.5))
        total = self.node("ReduceMax", [self.pick()], (), keepdims=0)
        is_more = self.name("more")
        self.nodes.append(
            helper.make_node("Greater", [total, self.constant(np.float32([0.2])[0])], [is_more])
        )
        return is_more

    def branch(self, depth: int) -> str:
        bodies = {}
        condition = self.condition()
        for key in ("then_branch", "else_branch"):
            body = _Scope(self.rng, self.opset, self, "")
            body.fill(depth + 1)
            bodies[key] = body.graph(key, [], [_floats(body.result(), SHAPE)])
        return self.node("If", [condition], SHAPE, **bodies)

    def loop(self, depth: int) -> str:
        start = self.pick(shape=SHAPE)
        names = [self.name(hint) for hint in ("i", "go", "state", "on")]
        body = _Scope(self.rng, self.opset, self, names[2])
        body.fill(depth + 1)
        last = body.result()
        body.nodes.append(helper.make_node("Identity", [names[1]], [names[3]]))
        flag = [helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in (names[1], names[3])]
        index = helper.make_tensor_value_info(names[0], TensorProto.INT64, ())
        inputs = [index, flag[0], _floats(names[2], SHAPE)]
        graph = body.graph("body", inputs, [flag[1], _floats(last, SHAPE)])
        times = "n" if self.rng.random() < 0.5 else self.constant(np.asarray(2))
        return self.node("Loop", [times, "", start], SHAPE, body=graph)

    def scan(self, depth: int) -> str:
        start, rows = self.pick(shape=SHAPE), self.pick(shape=SHAPE)
        state, row = self.name("state"), self.name("row")
        body = _Scope(self.rng, self.opset, self, state)
        body.shapes[row] = SHAPE[1:]
        body.fill(depth + 1)
        last, shown = body.result(), body.result(SHAPE[1:])
        inputs = [_floats(state, SHAPE), _floats(row, SHAPE[1:])]
        graph = body.graph("body", inputs, [_floats(last, SHAPE), _floats(shown, SHAPE[1:])])
        return self.node("Scan", [start, rows], SHAPE, SHAPE, body=graph, num_scan_inputs=1)

    def graph(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        return helper.make_graph(self.nodes, name, inputs, outputs, self.weights)


_CARRIERS: list[Callable[[_Scope, str], str]] = [
    _Scope.transpose,
    _Scope.transpose,
    _Scope.reshape,
    _Scope.squeeze,
    _Scope.unsqueeze,
    _Scope.slice,
    _Scope.max_pool,
    _Scope.keep,
    _Scope.gather,
    _Scope.split,
    _Scope.concat,
    _Scope.expand,
    _Scope.flatten,
    _Scope.clip,
    _Scope.reduce,
]
