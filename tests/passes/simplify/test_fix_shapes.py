"""Lengths for free dimensions: in the model, in the data, and in what shapes decide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.placement import value

import qc
from qc.ir import lift
from qc.ir.errors import DataError, ModelError, UsageError
from qc.passes import PassContext
from qc.passes.simplify.fix_shapes import FixShapes

TEXT = """g (float[N, 4] x) => (float[N, 2, 2] y) <float[4, 4] w> {
    shape = Shape(x)
    zero = Constant<value = int64[1] {0}>()
    batch = Gather(shape, zero)
    rest = Constant<value_ints = [2, 2]>()
    wanted = Concat<axis = 0>(batch, rest)
    a = MatMul(x, w)
    y = Reshape(a, wanted)
}"""


def fixed(*lengths: str) -> onnx.ModelProto:
    model = parse(TEXT)
    return qc.compile(model, data=random_feeds(model, 2, size=3), target="qnn-htp", fix_shapes=lengths).model


def test_shapes_that_held_for_an_export_alone_are_forgotten() -> None:
    model = parse("""g (float[1, N] x) => (float[1, N] a, float[1, N] y) {
        a = Softmax(x)  b = Relu(a)  y = Mul(b, x)
    }""")
    for info in (model.graph.output[0], model.graph.value_info.add(name="b")):
        info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, onnx.TensorProto.FLOAT, [1, 11]))
    data = random_feeds(model, 2, size=12)
    made = qc.compile(model, data=data, target="qnn-htp", fix_shapes=("N=12",), allow_unquantized=True).model
    onnx.checker.check_model(made, full_check=True)
    shapes = [[dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in made.graph.output]
    assert shapes == [[1, 12], [1, 12]]
    assert "b" not in {info.name for info in made.graph.value_info}


@needs_exact_sums
def test_what_comes_out_has_the_lengths_and_no_arithmetic_of_shapes() -> None:
    model = fixed("N=3")
    onnx.checker.check_model(model, full_check=True)
    shapes = [
        [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in (*model.graph.input, *model.graph.output)
    ]
    assert shapes == [[3, 4], [3, 2, 2]]
    assert not {"Shape", "Gather", "Concat"} & {node.op_type for node in model.graph.node}
    (feed,) = random_feeds(parse(TEXT), 1, size=3)
    (found,) = qc.runtime.OpenModel(model).run(feed).values()
    (expected,) = qc.runtime.OpenModel(parse(TEXT)).run(feed).values()
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_data_must_have_the_lengths() -> None:
    with pytest.raises(DataError, match=r"'x'.*\(3, 4\).*\(2, 4\)|'x'.*\(2, 4\).*\(3, 4\)"):
        fixed("N=2")


@pytest.mark.parametrize("lengths", ["M=2", "N=0", "N", "N=9223372036854775808", "N=" + "9" * 5000])
def test_what_is_no_free_dimension_or_no_length_is_refused(lengths: str) -> None:
    with pytest.raises(UsageError, match=r"names 'M', which no input has|is not of the form NAME=N"):
        fixed(lengths)


def test_lengths_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="'N' cannot be both 1 and 2"):
        FixShapes(lengths=("N=1", "N=2"))


def test_shapes_follow_from_what_was_folded() -> None:
    """The length of a table that is only known when it is folded decides what a Reshape makes."""
    body = """g (float[N, 4, 8] x) => (float[M, K] y)
    <float[6, 4, 8] table, int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {32}> {
        s = Shape(x)
        first = Slice(s, zero, one)
        row = Expand(zero, first)
        part = Gather(table, row)
        a = Add(x, part)
        t = Shape(a)
        n = Slice(t, zero, one)
        to = Concat<axis = 0>(n, rest)
        y = Reshape(a, to)
    }"""
    model = parse(body)
    passes = "fix-shapes{lengths=['N=1']},fold-constants,eliminate-dead-code,eliminate-identity"
    graph = qc.compile(model, passes, allow_unquantized=True).ir.graph
    assert [op.op_type for op in graph.ops()] == ["Add", "Reshape"]
    assert graph.outputs[0].type.shape == (1, 32)


def test_what_was_declared_of_a_constant_does_not_hide_its_shape() -> None:
    """PyTorch's exporter names lengths that it does not know, of constants as well (Funnel's attention)."""
    model = parse("""g (float[1, 4] x) => (float[1, 4] y)
    <bool[1, 1] one = {1}, int64[2] to = {1, 4}> {
        t = Abs(to)  c = Expand(one, t)  a = Where(c, x, x)  y = Relu(a)
    }""")
    for name, kind in (("c", onnx.TensorProto.BOOL), ("a", onnx.TensorProto.FLOAT)):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, ["unk__0", 4]))
    made = qc.compile(model, "fold-constants", allow_unquantized=True).ir
    assert value(made, "a").type.shape == (1, 4)


def test_shapes_of_a_model_without_inputs() -> None:
    model = parse("""g () => (int64[2] y) <float[2] c = {0, 1}> {
        d = Add(c, c)
        n = NonZero(d)
        r = RandomUniform<shape = [2, 3]>()
        k = NonZero(r)
        s = Shape(k)
        t = Shape(n)
        y = Add(s, t)
    }""")
    graph = qc.compile(model, "fold-constants,eliminate-dead-code", allow_unquantized=True).ir.graph
    assert [op.op_type for op in graph.ops()] == ["RandomUniform", "NonZero", "Shape", "Add"]


@pytest.mark.parametrize("op", ["Scaler<offset : floats = [1], scale : floats = [2]>", "Normalizer"])
def test_what_no_runtime_infers_a_shape_of_is_declared(op: str) -> None:
    """Devices take no op behind it otherwise."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
    g (float[N, 3] x) => (float[N, 3] y) {{ h = ai.onnx.ml.{op}(x)  y = Relu(h) }}""")
    assert value(lift(model), "h").type.shape == ("N", 3)
    assert not qc.compile(model, "eliminate-identity").model.graph.value_info
    made = qc.compile(model, "eliminate-identity", fix_shapes=("N=2",)).model
    assert [info.name for info in made.graph.value_info] == ["h"]
    assert [dim.dim_value for dim in made.graph.value_info[0].type.tensor_type.shape.dim] == [2, 3]


def test_the_length_of_a_sum_follows() -> None:
    """Exporters of caches name the length of a mask so."""
    model = parse("""g (float[B, N, 4] x, float[B, past, 4] k, float[B, M, 1] m) => (float[B, L, 4] y) {
        j = Concat<axis = 1>(k, x)  s = Mul(j, m)  y = Relu(s)
    }""")
    model.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "past + N"
    ir = lift(model)
    FixShapes(lengths=("B=1", "N=2", "past=5")).run(ir, PassContext())
    shapes = {value.name: value.type.shape for value in ir.graph.inputs}
    assert shapes == {"x": (1, 2, 4), "k": (1, 5, 4), "m": (1, 7, 1)}


@pytest.mark.parametrize(
    ("body", "blamed"),
    [
        ("y = Conv<kernel_shape = [5]>(x, w)", "t=3 does not fit Conv 'y': its result would have a length"),
        ("p = Add(x, b)  y = MatMul(p, m)", "t=3 does not fit Add 'p': Incompatible dimensions"),
        ("p = Reshape(x, s)  y = MatMul(p, m)", "n=1 and t=3 does not fit Reshape 'p'"),
    ],
)
def test_a_length_that_an_op_cannot_take_is_named_with_the_op(body: str, blamed: str) -> None:
    text = f"""g (float[n, 4, t] x) => (float[a, b, c] y)
    <float[4, 4, 5] w, float[8] b, float[8, 8] m, int64[3] s = {{1, -1, 8}}> {{ {body} }}"""
    with pytest.raises(UsageError) as refused:
        qc.compile(parse(text), "w8", fix_shapes=("n=1", "t=3"), threads=1)
    assert f"--fix-shape {blamed}" in str(refused.value) and "give another length" in str(refused.value)
    qc.compile(parse(text), "w8", fix_shapes=("n=2", "t=8"), threads=1, allow_unquantized=True)


def test_a_branch_that_is_never_taken_may_want_another_length() -> None:
    text = """g (float[n, t] x, bool c) => (float[n, u] y) <float[3, 8] w, float[5, 8] v> {
        y = If(c) <then_branch = a () => (float[n, 8] p) { p = MatMul(x, w) },
                   else_branch = b () => (float[n, 8] q) { q = MatMul(x, v) }>
    }"""
    given = {"fix_shapes": ("t=3",), "fix_inputs": ("c=true",)}
    made = qc.compile(parse(text), "w8", threads=1, **given, allow_unquantized=True)
    assert "If" not in {node.op_type for node in made.model.graph.node}


def test_what_only_a_runtime_finds_is_told_with_the_length() -> None:
    text = """g (float[n, t, 8] x) => (float[n, 8] y) <float[8, 8] w, int64 i = {5}> {
        r = Gather<axis = 1>(x, i)  y = MatMul(r, w)
    }"""
    data = [{"x": np.zeros((1, 3, 8), np.float32)}]
    with pytest.raises(
        ModelError, match=r"with --fix-shape t=3 ONNX Runtime failed in Gather .* another length"
    ):
        qc.compile(parse(text), data=data, fix_shapes=("t=3",), threads=1)
