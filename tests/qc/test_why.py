"""``qc why``: the story of one tensor."""

from __future__ import annotations

from pathlib import Path

import onnx
from support.placement import placed

from qc.why import story_of

MODEL, DATA = "model.onnx", "calibration.npz"


def facts(out: str) -> dict[str, str]:
    """What was told, by the word at the margin."""
    found: dict[str, str] = {}
    key = ""
    for line in out.splitlines():
        if not line.startswith(" "):
            key, _, line = line.partition(" ")
        found[key] = f"{found.get(key, '')} {line.strip()}".strip()
    return found


def test_a_quantized_tensor(qc) -> None:
    result = qc("why", MODEL, "relu_1", "--data", DATA)
    story = facts(result.out)
    assert result.code == 0 and result.made == []
    assert story["tensor"].endswith("made by Relu 'relu_1', read by Conv 'conv_2'")
    assert story["region"].startswith("the result of conv_relu")
    assert story["quantizer"].startswith("q4 for all readers: uint8 asymmetric, scale 0.01")
    assert "insert-quantizers: place 'relu_1': made by conv_relu" in story["history"]
    assert "calibrate 'relu_1': mse gave" in story["history"]


def test_without_data_there_are_no_numbers(qc) -> None:
    story = facts(qc("why", MODEL, "relu_1", "--target", "npu").out)
    assert story["quantizer"] == "q4 for all readers: uint8 asymmetric, not calibrated"


def test_tied_tensors(qc) -> None:
    story = facts(qc("why", MODEL, "flatten_1").out)
    assert story["tied"].split() == ["to", "'globalaveragepool_1'"]


def test_a_float_tensor(qc) -> None:
    story = facts(qc("why", MODEL, "conv_1").out)
    assert story["float"] == "inside conv_relu at Relu 'relu_1', which runs as one operator"
    assert "quantizer" not in story


def test_a_weight_has_many_scales(qc) -> None:
    story = facts(qc("why", MODEL, "conv_1.weight", "--data", DATA).out)
    assert "16 scales from" in story["quantizer"] and "into Conv 'conv_1'" in story["quantizer"]


def test_a_tensor_that_a_pass_removed(qc) -> None:
    story = facts(qc("why", MODEL, "batchnormalization_1").out)
    assert story["removed"] == "by action 1 (fold-batch-norms: fold into weight on Conv 'conv_1')"
    assert story["replaced"] == "by 'conv_1'"


def test_a_tensor_that_does_not_exist(qc) -> None:
    result = qc("why", MODEL, "relu__1")
    assert (result.code, result.out) == (2, "")
    hint = "(did you mean 'relu_1'?); 'qc print' lists all"
    assert result.err == f"qc: error: the model has no tensor or op 'relu__1' {hint}\n"


def test_tensors_in_bodies() -> None:
    model = placed("""g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
        y = If(c) <
            then_branch = t () => (float[2, 4] r) { k = Abs(x)  r = MatMul(k, w) },
            else_branch = e () => (float[2, 4] r) { k = Exp(x)  r = MatMul(k, w) }
        >
    }""")
    weight = story_of(model, "w")
    assert [site.op.graph.name for site, _ in weight.sites if site.op is not None] == ["t", "e"]
    assert len({quantizer for _, quantizer in weight.sites}) == 1 and not weight.tied
    assert len([remark for remark in weight.remarks if remark.kind == "place"]) == 2
    both, one = story_of(model, "k"), story_of(model, "y/else_branch/k")
    assert len(both.values) == 2 and len(both.sites) == 2
    assert one.values == both.values[1:] and one.sites == both.sites[1:]


def test_an_op_stands_for_its_first_result(qc) -> None:
    model = onnx.load("model.onnx")
    for index, node in enumerate(model.graph.node):
        node.name = f"op_{index}"
    onnx.save(model, "named.onnx")
    kept, folded = model.graph.node[0], model.graph.node[1]
    assert folded.op_type == "BatchNormalization"
    for node in (kept, folded):
        by_op, by_tensor = (qc("why", "named.onnx", name) for name in (node.name, node.output[0]))
        assert by_op.code == 0 and by_op.out == by_tensor.out
    around = ("view", "named.onnx", "--radius", "1", "-o")
    assert qc(*around, "a.dot", "--around", "op_0").code == 0
    assert qc(*around, "b.dot", "--around", kept.output[0]).code == 0
    assert Path("a.dot").read_bytes() == Path("b.dot").read_bytes()
    assert "no tensor or op 'op_999'" in qc("why", "named.onnx", "op_999").err
