"""Models that others wrote, and models of everything that is seldom used, with data to run them on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .folders import FIXTURES
from .models import floats, model_of, parse, random_feeds
from .operator_cases import operator_cases

BACKEND = Path(onnx.__file__).parent / "backend" / "test" / "data"
_LARGEST = 200_000  # bytes of a file
# Models that make their weights, hundreds of megabytes, when they run.
_HEAVY = frozenset(
    f"light_{name}" for name in ("bvlc_alexnet", "inception_v2", "resnet50", "vgg19", "zfnet512")
)

_NUMBERS = ", ".join(str(number % 7 - 3) for number in range(64))
_OUTLYING = ", ".join(["90", *["1"] * 127])

ODD_TEXTS = (
    f"""shared (float[2, 8] x, bool c) => (float[2, 8] y) <
        float[8, 8] a = {{{_NUMBERS}}}, float[8, 8] b = {{{_NUMBERS}}}
    > {{
        h = MatMul(x, a)
        m = MatMul(h, b)
        y = If(c) <
            then_branch = t () => (float[2, 8] r) <float[8, 8] v = {{{_NUMBERS}}}> {{ r = MatMul(m, v) }},
            else_branch = e () => (float[2, 8] u) {{ u = Neg(m) }}
        >
    }}""",
    """convolutions (float[N, 3, 8, 8] x) => (float[N, 4] y) <
        float[4, 3, 3, 3] w, float[4] b, float[4] scale, float[4] shift, float[4] mean, float[4] var,
        float[4, 1, 3, 3] depthwise, float[4, 4] dense
    > {
        a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
        n = BatchNormalization(a, scale, shift, mean, var)
        r = Relu(n)
        d = Conv<group = 4, pads = [1, 1, 1, 1]>(r, depthwise)
        s = Sigmoid(d)
        m = Mul(d, s)
        j = Add(m, r)
        p = GlobalAveragePool(j)
        f = Flatten(p)
        g = Gemm<transB = 1>(f, dense)
        y = Softmax<axis = -1>(g)
    }""",
    """windows (float[2, 4, 6, 5] x) => (float[12, 4, 5] y) <
        int64[6] six = {2, 2, 2, 3, 2, 5}, int64[3] three = {12, 4, 5}
    > {
        a = Reshape(x, six)
        b = Transpose<perm = [0, 1, 3, 2, 4, 5]>(a)
        y = Reshape(b, three)
    }""",
    """masked (float[2, 4, 8] x, bool[2, 1, 4] m) => (float[2, 4, 8] y) <float far = {-1000000000}> {
        t = Transpose<perm = [0, 2, 1]>(x)
        s = MatMul(x, t)
        w = Where(m, s, far)
        a = Softmax(w)
        y = MatMul(a, x)
    }""",
    """preactivation (float[N, 3, 6, 6] x) => (float[N, 2, 6, 6] y) <
        float[4, 3, 1, 1] w, float[4] scale, float[4] shift, float[4] mean, float[4] var, float[2, 4, 3, 3] v
    > {
        a = Conv(x, w)
        r = Relu(a)
        n = BatchNormalization(r, scale, shift, mean, var)
        y = Conv<pads = [1, 1, 1, 1]>(n, v)
    }""",
    """padded (float[1, 2, 6, 6] x) => (float[1, 3, 3, 3] y) <
        float[3, 2, 3, 3] w, float[3] b, int64[8] below = {0, 0, 0, 0, 0, 0, 1, 1}
    > {
        r = Relu(x)
        p = Pad(r, below)
        y = Conv<strides = [2, 2]>(p, w, b)
    }""",
    """outlier (float[N, 1] x) => (float[N, 2] y) <
        float[1, 12] w = {1, 2, 1, 2, 1, 2, 1, 90, 1, 2, 1, 2}, float[12, 2] v
    > {
        a = MatMul(x, w)
        r = Relu(a)
        y = MatMul(r, v)
    }""",
    f"""outlying (float[N, 128] x) => (float[N, 2] y) <
        float[128] scale = {{{_OUTLYING}}}, float[128, 2] w, float[2] b
    > {{
        s = Mul(x, scale)
        m = MatMul(s, w)
        a = Add(m, b)
        y = Relu(a)
    }}""",
    """high (float[N, 2] x) => (float[N, 2] y) <
        float[2, 3] w, float[3] b = {90, 0, 1}, float[3, 2] v, float[2] c
    > {
        a = Gemm(x, w, b)
        r = Relu(a)
        y = Gemm(r, v, c)
    }""",
    """norms (float[2, 6] x) => (float[2, 4] y, float[2, 6] l) <
        float[6] scale, float[6] shift, float[6, 4] w
    > {
        two = Constant<value_float = 2.0>()
        eps = Constant<value = float {0.00001}>()
        axes = Constant<value_ints = [-1]>()
        mean = ReduceMean(x, axes)
        c = Sub(x, mean)
        q = Pow(c, two)
        v = ReduceMean(q, axes)
        e = Add(v, eps)
        d = Sqrt(e)
        o = Div(c, d)
        t = Mul(o, scale)
        l = Add(t, shift)
        k = Identity(l)
        h = Cast<to = 1>(k)
        y = MatMul(h, w)
    }""",
    """branches (float[2, 3] x, bool c) => (float[2, 3] y) <float[3, 3] w> {
        a = MatMul(x, w)
        y = If(c) <
            then_branch = t () => (float[2, 3] r) { n = Neg(a) r = Relu(n) },
            else_branch = e () => (float[2, 3] u) {
                u = If(c) <
                    then_branch = i () => (float[2, 3] s) { s = Add(a, x) },
                    else_branch = j () => (float[2, 3] z) { z = Identity(a) }
                >
            }
        >
    }""",
    """loops (float[2] x) => (float[2] y, float[K, 2] all) <int64 n = {3}, bool go = {1}, float[2, 2] w> {
        y, all = Loop(n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) {
            d = Identity(c)
            t = MatMul(s, w)
            u = Relu(t)
        }>
    }""",
    """carried (float[2] x) => (float[2] y) <int64 n = {3}, bool go = {1}, float[2, 2] w> {
        y, same = Loop(n, go, x, w) <
            body = b (int64 i, bool c, float[2] s, float[2, 2] v) => (bool d, float[2] t, float[2, 2] u) {
                d = Identity(c)
                m = MatMul(s, v)
                t = Tanh(m)
                u = Identity(v)
            }
        >
    }""",
    """scans (float[2] x, float[3, 2] xs) => (float[2] y, float[3, 2] ys) {
        y, ys = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) {
            t = Add(s, e)
            u = Identity(t)
        }>(x, xs)
    }""",
    """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
    functions (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w> {
        a = MatMul(x, w)
        b = my.outer<slope = 0.25>(a)
        y = my.inner(b)
    }
    <domain: "my", opset_import: ["" : 21, "my" : 1]>
    outer <slope> (v) => (s) { u = LeakyRelu<alpha: float = @slope>(v) s = my.inner(u) }
    <domain: "my", opset_import: ["" : 21]>
    inner (v) => (s) { c = Constant<value = float {2}>() s = Mul(v, c) }""",
    """shapes (float[N, 6] x) => (float[M, O, K] y) <int64[2] s = {-1, 3}, int64[2] t = {1, 2},
        int64[1] one = {1}, float[6] w> {
        r = Reshape(x, s)
        k = Shape(x)
        f = ConstantOfShape<value = int64[1] {3}>(one)
        e = Expand(r, f)
        r2 = Tile(e, t)
        p = Transpose<perm = [1, 0]>(r2)
        y = Unsqueeze(p, one)
    }""",
    """constants (float[4] x) => (float[4] y) <int64[1] n = {4}, float[4] w> {
        r = ConstantOfShape(n)
        s = Add(r, w)
        i = Constant<value_int = 4>()
        z = Constant<value_int = 0>()
        o = Constant<value_int = 1>()
        q = Range(z, i, o)
        f = Cast<to = 1>(q)
        a = Mul(f, s)
        y = Add(x, a)
    }""",
    """outliers (float[16, 4] x) => (float[16, 3] y) <float[4] g = {100, 1, 1, 1}, float[4, 3] w> {
        n = LayerNormalization(x, g)
        y = MatMul(n, w)
    }""",
    """words (string[2] x, float[2] v) => (string[2] y, float[2] z) {
        c = Constant<value_strings = ["a", "b"]>()
        y = StringConcat(x, c)
        z = Neg(v)
    }""",
    """sequences (float[2] x, float[2] v) => (float[4] y) {
        s = SequenceConstruct(x, v)
        y = ConcatFromSequence<axis = 0>(s)
    }""",
    """defaults (float[2, 3] x, float[3, 2] w) => (float[2, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
        y = MatMul(x, w)
    }""",
    """quantized (float[2, 3] x) => (float[2, 2] y) <
        float s = {0.5}, uint8 z = {3}, float[2] sw = {0.5, 0.25}, int8[2] zw = {0, 0},
        int8[3, 2] w = {1, 2, 3, 4, 5, 6}
    > {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear<axis = 1>(w, sw, zw)
        y = MatMul(d, v)
    }""",
    """<ir_version: 7, opset_import: ["" : 11]>
    old (float[2, 3] x) => (float[2, 3] y) {
        a = Clip(x)
        b = Unsqueeze<axes = [0]>(a)
        c = Squeeze<axes = [0]>(b)
        y = Dropout(c)
    }""",
    """packed (float[2, 3, 4] x) => (float[2, 2, 3, 2] y) <
        float[4, 12] w, float[12] b, int64[5] heads = {-1, 3, 3, 2, 2},
        int64 q0 = {0}, int64 k0 = {1}, int64 v0 = {2}
    > {
        m = MatMul(x, w)
        a = Add(m, b)
        r = Reshape(a, heads)
        t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
        q = Gather(t, q0)
        k = Gather(t, k0)
        v = Gather(t, v0)
        kt = Transpose<perm = [0, 1, 3, 2]>(k)
        s = MatMul(q, kt)
        p = Softmax(s)
        y = MatMul(p, v)
    }""",
)


@dataclass(frozen=True)
class Sample:
    """A sound model; ``feed`` is data for it, None if it takes something else than tensors."""

    name: str
    model: ModelProto
    feed: dict[str, np.ndarray] | None = None


@cache
def operator_samples() -> tuple[Sample, ...]:
    """ONNX's test cases for its operators: nearly two thousand models of a node, or of what it stands for."""
    return tuple(Sample(name, model, _feed(model, inputs)) for name, model, inputs in operator_cases())


@cache
def exported_samples() -> tuple[Sample, ...]:
    """The models that come with ONNX as files, most of them exported from PyTorch, but for the large ones."""
    return tuple(_file_samples(BACKEND))


@cache
def heavy_samples() -> tuple[Sample, ...]:
    """The models that come with ONNX as files and are too large to run."""
    return tuple(_file_samples(BACKEND, are_heavy=True))


@cache
def own_samples() -> tuple[Sample, ...]:
    """The fixtures, and small models of control flow, functions, sequences, strings and the like."""
    odd = [Sample(model.graph.name, model, _random_feed(model)) for model in map(parse, ODD_TEXTS)]
    return (*_file_samples(FIXTURES), *odd, Sample("sparse", sparse_model()))


def all_samples() -> tuple[Sample, ...]:
    """All of the above."""
    return own_samples() + exported_samples() + operator_samples()


def _file_samples(folder: Path, are_heavy: bool = False) -> Iterator[Sample]:
    for path in sorted(folder.rglob("*.onnx")):
        if path.stat().st_size > _LARGEST or (path.stem in _HEAVY) != are_heavy:
            continue
        model = onnx.load(str(path), load_external_data=False)
        files = sorted((path.parent / "test_data_set_0").glob("input_*.pb"))
        if files:
            arrays = [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]
            feed = _feed(model, arrays)
        else:
            feed = _random_feed(model)
        yield Sample(path.parent.name if path.stem == "model" else path.stem, model, feed)


def _feed(model: ModelProto, arrays: list[object]) -> dict[str, np.ndarray] | None:
    """The arrays as a feed for the inputs that have no default, in the order of the graph."""
    read = [numpy_helper.to_array(item) if isinstance(item, TensorProto) else item for item in arrays]
    if not all(isinstance(array, (np.ndarray, np.generic)) for array in read):
        return None
    names = [info.name for info in model.graph.input]
    return {name: np.asarray(array) for name, array in zip(names, read, strict=False)}


def _random_feed(model: ModelProto) -> dict[str, np.ndarray] | None:
    kinds = {info.type.tensor_type.elem_type for info in model.graph.input}
    return None if TensorProto.STRING in kinds else random_feeds(model, 1)[0]


def external_model() -> tuple[ModelProto, dict[str, bytes]]:
    """``y = (x @ w) + b`` with both constants in a file, and the contents of that file by its name."""
    data = np.arange(2048, dtype=np.float32).tobytes()
    tensors = []
    for name, dims, offset in (("w", [16, 64], 0), ("b", [64], 4096)):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        length = 4 * int(np.prod(dims))
        for key, value in (("location", "weights.bin"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    model = model_of(nodes, [floats("x", 2, 16)], [floats("y", 2, 64)], tensors)
    return model, {"weights.bin": data}


def sparse_model() -> ModelProto:
    """``y = x + w`` with ``w`` sparse, and a sparse Constant."""
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("w_indices", TensorProto.INT64, [2], [0, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    model = model_of(nodes, [floats("x", 2, 3)], [floats("y", 2, 3)])
    model.graph.sparse_initializer.append(sparse)
    return model
