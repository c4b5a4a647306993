"""``qc why``: the story of one tensor."""

from __future__ import annotations

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
    story = facts(qc("why", MODEL, "conv_1.weight_folded", "--data", DATA).out)
    assert "16 scales from" in story["quantizer"] and "into Conv 'conv_1'" in story["quantizer"]


def test_a_tensor_that_a_pass_removed(qc) -> None:
    story = facts(qc("why", MODEL, "conv_1.weight").out)
    assert story["removed"] == "by action 1 (fold-batch-norms: fold into weight on Conv 'conv_1')"


def test_a_tensor_that_does_not_exist(qc) -> None:
    result = qc("why", MODEL, "relu__1")
    assert (result.code, result.out) == (2, "")
    assert result.err == "qc: error: the model has no tensor 'relu__1' (did you mean 'relu_1'?)\n"
