"""What the target of Rockchip's NPUs makes of a model, as their compiler wants it."""

from __future__ import annotations

import onnx
import pytest
from support.models import parse, random_feeds

import qc

NETWORK = """net (float[1, 4, 8, 8] x) => (float[1, 8, 8, 8] y)
<float[8, 4, 3, 3] w, float[8] b, float[8, 8, 1, 1] v, float[8] c> {{
    a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    {activation}
    y = Conv(r, v, c)
}}"""


def rounded(model: onnx.ModelProto) -> set[str]:
    """The tensors that are quantized."""
    return {node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}


@pytest.mark.parametrize(
    ("activation", "within"),
    [
        ("r = Relu(a)", False),
        ("r = HardSwish(a)", True),
        ("r = LeakyRelu(a)", True),
        ("s = Sigmoid(a)  r = Mul(a, s)", True),
    ],
)
def test_a_conv_has_a_grid_unless_its_activation_limits_alone(activation: str, within: bool) -> None:
    model = parse(NETWORK.format(activation=activation))
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 2), target="rknn")
    assert rounded(compiled.model) & {"x", "a", "r"} == {"x", "r"} | ({"a"} if within else set())
    biases = {node.input[2] for node in compiled.model.graph.node if node.op_type == "Conv"}
    assert biases == {"b", "c"}  # as floats


def test_a_newer_model_is_converted_to_the_latest_opset() -> None:
    model = parse(NETWORK.format(activation="r = Relu(a)"))
    assert model.opset_import[0].version > 19
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 2), target="rknn")
    assert compiled.model.opset_import[0].version == 19
    assert any(
        "converted from opset" in note and "the latest that rknn reads" in note for note in compiled.notes
    )


@pytest.mark.parametrize("length", ["5", "n"])
def test_an_op_that_the_latest_opset_lacks_is_written_in_others_before(length: str) -> None:
    given = ", ".join(f"float[1, 2, {length}, 4] {name}" for name in "qkv")
    model = parse(f"""<ir_version: 10, opset_import: ["" : 23]>
    net ({given}) => (float[1, 2, {length}, 4] y) {{ y = Attention <is_causal = 1> (q, k, v) }}""")
    feeds = random_feeds(model, 2, size=5)
    fixed = {"fix_shapes": ("n=5",)} if length == "n" else {}
    compiled = qc.compile(model, "w8a8", data=feeds, target="rknn", **fixed)
    assert compiled.model.opset_import[0].version == 19
    assert not any("reads models up to opset" in note for note in compiled.notes)
    types = [node.op_type for node in compiled.model.graph.node]
    assert types.count("MatMul") == 2 and "Attention" not in types


def test_what_cannot_be_converted_is_told() -> None:
    model = parse(NETWORK.format(activation="r = Gelu(a)"))
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 2), target="rknn")
    assert any(
        "reads models up to opset 19: export the float model with that" in note for note in compiled.notes
    )
