"""``qc explain-match``: where a supergroup is, how far the best attempt got, and what it expected there."""

from __future__ import annotations

import onnx
import pytest
from support.graph_text import build_model

CONSTANTS = {
    "two": 2.0,
    "eps": 1e-5,
    "root2": 1.41421356,
    "c1": 1.0,
    "bad": 0.25,
    "c05": 0.5,
    "w": [[[[1.0]]] * 8] * 4,
}
LAYER_NORM = (
    "m = ReduceMean<axes = [-1]>(x); d = Sub(x, m); q = Pow(d, two); v = ReduceMean<axes = [{}]>(q);"
    "e = Add(v, eps); s = Sqrt(e); y = Div(d, s)"
)
GELU = "d = Div(x, root2); e = Erf(d); g = Add(e, {}); m = Mul(x, g); y = Mul(m, c05)"


def save(body, **options):
    """Writes ``small.onnx``, its outputs with the types that follow."""
    onnx.save(
        onnx.shape_inference.infer_shapes(build_model(body, constants=CONSTANTS, **options)), "small.onnx"
    )


@pytest.fixture
def explained(qc):
    """The words that the command prints about a graph."""

    def run(body, *arguments, **options):
        save(body, **options)
        result = qc("explain-match", "small.onnx", *arguments)
        assert (result.code, result.err) == (0, "")
        return " ".join(result.out.split())

    return run


def test_a_match_is_shown_with_its_ops(explained):
    said = explained(GELU.format("c1"), "gelu")
    assert "found 1 time at Mul of 'y': Div of 'd', Erf of 'e', Add of 'g', Mul of 'm', Mul of 'y'" in said
    assert "nearest" not in said


def test_the_best_attempt_says_what_it_expected(explained):
    said = explained(GELU.format("bad"), "gelu")
    assert "found nowhere" in said
    assert "nearest at Mul of 'y': 5 ops fit" in said
    assert "input 1 of Add of 'g' should be the constant 1, but is the constant 'bad' = 0.25" in said


def test_an_axis_that_differs(explained):
    said = explained(LAYER_NORM.format(1), "layer_norm", opset=13)
    assert "ReduceMean of 'v' should have axes=[2] as elsewhere in the pattern, but has axes=[1]" in said


@pytest.mark.parametrize("node", ["e", "y", "Erf_of_mine"])
def test_an_op_is_named_by_itself_or_by_its_output(qc, node):
    save(GELU.format("bad"))
    model = onnx.load("small.onnx")
    next(each for each in model.graph.node if each.op_type == "Erf").name = "Erf_of_mine"
    onnx.save(model, "small.onnx")
    out = " ".join(qc("explain-match", "small.onnx", "gelu", node).out.split())
    assert "nearest at Mul of 'y': 5 ops fit" in out
    assert "should be the constant 1" in out


def test_an_op_that_is_no_result_is_tried_as_what_it_is_part_of(explained):
    good = explained(GELU.format("c1"), "gelu", "e")
    assert "found 1 time at Mul of 'y'" in good
    alone = explained("a = Neg(x); y = Relu(a)", "gelu", "a")
    assert "found nowhere" in alone and "no ops fit" in alone


def test_what_is_read_outside(explained):
    said = explained("a = Conv(x, w); y = Relu(a); z = Neg(a)", "conv_relu", "y",
                     inputs="float[2,8,6,6] x", outputs="y z")  # fmt: skip
    assert "'a' (made by Conv) should be used inside only, but is also read by Neg of 'z'" in said


def test_a_supergroup_of_a_target_file(qc, explained):
    (qc.folder / "device.toml").write_text(
        'name = "device"\nsummary = "a device"\n[activation]\ndtype = "uint8"\n[weight]\ndtype = "int8"\n'
        '[default]\nruns = "float"\n[[supergroups]]\nname = "abs_neg"\nop_list = ["Abs", "Neg"]\n'
    )
    said = explained("a = Abs(x); y = Neg(a)", "abs_neg", "--target", "device.toml")
    assert "found 1 time at Neg of 'y'" in said
    said = explained("a = Abs(x); y = Neg(a)", "abs_neg", "--target", "device.toml", outputs="y a")
    assert "'a' (made by Abs) should be used inside only, but is an output of the graph" in said


def test_names_that_do_not_exist(qc):
    wrong = qc("explain-match", "model.onnx", "layer_nrom")
    assert wrong.code == 2 and "did you mean 'layer_norm'?" in wrong.err
    wrong = qc("explain-match", "model.onnx", "conv_bn_relu", "relu_11")
    assert wrong.code == 2 and "no op is named 'relu_11'" in wrong.err and "did you mean" in wrong.err
