"""Weighted and element-wise ops with bias, batch norm and activation, and the choice of names."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
import pytest

from qc.ir.errors import UsageError
from qc.patterns import Supergroup, choice, find_all, match_at, op, supergroup_names, supergroups, value
from qc.patterns.compiled import forms_of

GROUPS = supergroups()
CONSTANTS = {
    "w": np.ones((4, 4, 1)),
    "w2": np.ones((8, 8)),
    "cb": np.ones(4),
    "channel_bias": np.ones((1, 4, 1)),
    "row_bias": np.ones(8),
    "factor": 2.0,
    "grid": np.ones((4, 8)),
    "slope": np.ones((4, 1)),
    "low": 0.0,
    "high": 6.0,
    "g": np.ones(4),
    "r2": 1.41421356,
    "one": 1.0,
    "point5": 0.5,
}
BN = "BatchNormalization({}, g, g, g, g)"


def found(graph_of, body, **options):
    graph = graph_of(body, constants=CONSTANTS, **options)
    return [(match.name, len(match.ops)) for match in find_all(graph, GROUPS)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = Conv(x, w); y = Relu(a)", ("conv_relu", 2)),
        ("a = Conv(x, w, cb); y = Relu(a)", ("conv_relu", 2)),
        ("a = ConvTranspose(x, w, cb); y = LeakyRelu(a)", ("conv_transpose_leaky_relu", 2)),
        ("a = Conv(x, w); y = Clip(a, low, high)", ("conv_clip", 2)),
        ("a = Conv(x, w); y = PRelu(a, slope)", ("conv_prelu", 2)),
        ("a = Conv(x, w); y = HardSwish(a)", ("conv_hard_swish", 2)),
        ("a = Conv(x, w); y = Sigmoid(a)", ("conv_sigmoid", 2)),
        ("a = Conv(x, w); s = Sigmoid(a); y = Mul(a, s)", ("conv_silu", 3)),
        ("a = Conv(x, w); y = Add(a, channel_bias)", ("conv_bias", 2)),
        ("a = Conv(x, w); b = Add(channel_bias, a); y = Relu(b)", ("conv_bias_relu", 3)),
        (f"a = Conv(x, w); y = {BN.format('a')}", ("conv_bn", 2)),
        (f"a = Conv(x, w, cb); b = {BN.format('a')}; y = Relu(b)", ("conv_bn_relu", 3)),
        (
            f"a = Conv(x, w); b = Add(a, channel_bias); c = {BN.format('b')}; y = Tanh(c)",
            ("conv_bias_bn_tanh", 4),
        ),
        (f"b = {BN.format('x')}; y = Relu(b)", ("bn_relu", 2)),
        ("a = MatMul(x, w2); y = Add(a, row_bias)", ("matmul_bias", 2)),
        ("a = MatMul(x, w2); y = Add(row_bias, a)", ("matmul_bias", 2)),
        ("a = MatMul(x, w2); b = Add(a, row_bias); y = Relu(b)", ("matmul_bias_relu", 3)),
        ("a = MatMul(x, w2); y = Relu(a)", ("matmul_relu", 2)),
        (
            "a = MatMul(x, w2); b = Add(a, row_bias); d = Div(b, r2); e = Erf(d); g1 = Add(e, one);"
            "m = Mul(b, g1); y = Mul(m, point5)",
            ("matmul_bias_gelu", 7),
        ),
        ("a = Conv(x, w); b = Mul(factor, a); y = Add(b, channel_bias)", ("conv_affine", 3)),
        (
            "a = Conv(x, w); b = Mul(factor, a); c = Add(b, factor); y = HardSwish(c)",
            ("conv_affine_hard_swish", 4),
        ),
        ("a = Mul(x, factor); y = Add(channel_bias, a)", ("affine", 2)),
        ("a = Mul(x, factor); y = Sub(a, channel_bias)", ("affine", 2)),
        ("a = Conv(x, w); m = Max(a, low); y = Min(m, high)", ("conv_relu6", 3)),
        ("a = MaxPool<kernel_shape = [1]>(x); y = Relu(a)", ("max_pool_relu", 2)),
        ("a = Add(x, x); y = Relu(a)", ("add_relu", 2)),
    ],
)
def test_name_and_extent(graph_of, body, expected):
    assert found(graph_of, body) == [expected]


def test_gemm(graph_of):
    assert found(graph_of, "a = Gemm(x, w2, row_bias); y = Relu(a)", inputs="float[2,8] x") == [
        ("gemm_relu", 2)
    ]


def test_an_add_that_is_no_bias_stays_outside(graph_of):
    assert found(graph_of, "a = MatMul(x, w2); y = Add(a, grid)") == []
    assert found(graph_of, "a = MatMul(x, w2); y = Add(a, x)") == []
    assert (
        found(graph_of, "a = MatMul(x, x2); y = Add(a, row_bias)", inputs="float[2,8,8] x, float[2,8,8] x2")
        == []
    )
    assert found(graph_of, "a = Conv(x, w); y = Add(a, row_bias)") == []
    assert found(graph_of, "a = Mul(x, factor); y = Add(a, grid)") == []
    assert found(graph_of, "a = MatMul(x, w2); b = Add(a, x); y = Relu(b)") == [("add_relu", 2)]


def test_a_shared_or_exposed_result_of_the_weighted_op_stays_outside(graph_of):
    assert found(graph_of, "a = Conv(x, w); b = Relu(a); y = Add(a, b)") == []
    assert found(graph_of, "a = Conv(x, w); y = Relu(a)", outputs="y a") == []
    body = f"a = Conv(x, w); b = {BN.format('a')}; y = Relu(b)"
    assert found(graph_of, body, outputs="y b") == [("conv_bn", 2)]


@pytest.mark.parametrize(
    ("opset", "trained"),
    [
        (17, "b, m, v = BatchNormalization<training_mode = 1>(a, g, g, g, g)"),
        (13, "b, m, v, sm, sv = BatchNormalization(a, g, g, g, g)"),
    ],
)
def test_a_batch_norm_in_training_stays_outside(graph_of, opset, trained):
    """It measures its batch, so no device computes it within the convolution."""
    assert found(graph_of, f"a = Conv(x, w); {trained}; y = Relu(b)", opset=opset) == []
    assert found(graph_of, f"a = Conv(x, w); b = {BN.format('a')}; y = Relu(b)", opset=opset) != []


def test_integer_arithmetic_is_left_alone(graph_of):
    assert found(graph_of, "a = Add(x, x); y = Relu(a)", inputs="int32[4] x", opset=14) == []


def test_kinds_and_choices(graph_of):
    graph = graph_of("a = Conv(x, w); y = Relu(a)", constants=CONSTANTS)
    (match,) = find_all(graph, GROUPS)
    assert match.supergroup.kind == "weighted"
    assert match.choices == {"head": "conv", "activation": "relu"}
    assert [each.name for each in match.inner] == ["a"]
    assert match["weight"].name == "w"


def test_a_mismatch_of_a_family_has_a_name(graph_of):
    (group,) = supergroups(["conv_relu"])
    (relu,) = graph_of("y = Relu(x)").ops()
    assert str(match_at(group, relu)) == (
        "*_relu does not match at Relu of 'y': 1 op fits; input 0 of Relu of 'y' should be computed by Conv, "
        "but is 'x', an input of the graph"
    )


def test_a_target_chooses_by_name(graph_of):
    body = "a = Conv(x, w); b = Relu(a); c = Add(b, x); y = Relu(c)"
    graph = graph_of(body, constants=CONSTANTS)

    def names(wanted):
        return [match.name for match in find_all(graph, supergroups(wanted))]

    assert names(["conv_relu"]) == ["conv_relu"]
    assert names(["add_relu", "layer_norm"]) == ["add_relu"]
    assert names([]) == []
    assert names(None) == ["conv_relu", "add_relu"]


def test_every_name_can_be_asked_for():
    names = supergroup_names()
    assert len(names) == len(set(names))
    assert {"layer_norm", "conv_bn_relu", "matmul_bias", "gelu", "add_relu"} <= set(names)
    for name in names:
        groups = supergroups([name])
        assert {group.names for group in groups} == {(name,)}
        assert all(fnmatchcase(name, group.title) or name in group.options["head"] for group in groups)


def test_heads_and_activations_are_two_choices_of_a_few_supergroups():
    assert len(GROUPS) <= 21
    weighted = next(group for group in GROUPS if group.kind == "weighted")
    assert weighted.name == "{head}_{activation}"
    assert {"conv_relu", "gemm_bn_gelu", "conv_bn"} < set(weighted.names)
    assert "conv" not in weighted.names, "one op is no supergroup"
    assert set(weighted.options["activation"]) >= {"relu", "gelu", ""}


def test_the_larger_option_of_a_choice_at_the_root_wins(graph_of):
    graph = graph_of("a = Neg(x); b = Relu(a); y = Abs(b)")
    x = value("x")
    options = {"small": op.Abs(x), "large": op.Abs(op.Relu(x))}
    first = Supergroup("{form}", choice("form", options), "for the test", "activation")
    (match,) = find_all(graph, [first])
    assert (match.name, match.choices) == ("large", {"form": "large"})
    assert match_at(first, graph.ops()[-1]).name == "small", "at one op the order of the options counts"


def test_only_what_can_occur_is_compiled(graph_of):
    x = value("x")
    rare = Supergroup("{form}", choice("form", {"abs": op.Abs(x), "neg": op.Neg(x)}), "rare", "activation")
    find_all(graph_of("y = Abs(x)"), [rare])
    abs_form, neg_form = forms_of(rare.pattern)
    assert "compiled" in vars(abs_form) and "compiled" not in vars(neg_form)
    assert forms_of(rare.pattern)[0].compiled is abs_form.compiled, "compiled once"


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match=r"no supergroup 'conv_rleu'.*did you mean 'conv_relu'"):
        supergroups(["conv_rleu"])
