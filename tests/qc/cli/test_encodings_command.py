"""``qc encodings``: converting, comparing and checking files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import AIMET


@pytest.fixture
def files(qc) -> None:
    """AIMET's files and their model as ``aimet.onnx``."""
    for path in AIMET.glob("*.encodings"):
        shutil.copy(path, path.name)
    shutil.copy(AIMET / "model.onnx", "aimet.onnx")


def test_converting(qc, files) -> None:
    model = ("--model", "aimet.onnx")
    result = qc(
        "encodings", "convert", "lpbq_2.0.0.encodings", "--version", "1.0.0", "-o", "new.encodings", *model
    )
    assert (result.code, result.made, result.err) == (0, ["new.encodings"], "")
    made, wanted = (json.loads(Path(name).read_text()) for name in ("new.encodings", "lpbq_1.0.0.encodings"))
    entries = {entry["name"]: entry for entry in made["param_encodings"]}
    assert [entries[entry["name"]] for entry in wanted["param_encodings"]] == wanted["param_encodings"]


def test_what_cannot_be_converted(qc, files) -> None:
    to_2 = ("--version", "2.0.0", "-o", "new.encodings")
    result = qc("encodings", "convert", "channel_1.0.0.encodings", *to_2)
    assert (result.code, result.made) == (2, []) and "'w1': version 2.0.0 needs the axis" in result.err
    result = qc("encodings", "convert", "channel_1.0.0.encodings", "--version", "3", "-o", "new.encodings")
    assert result.code == 2 and "there is no version '3'" in result.err
    result = qc("encodings", "convert", "block_0.6.1.encodings", *to_2[:2], "-o", "block_0.6.1.encodings")
    assert result.code == 2 and "is an input" in result.err


def test_without_a_model_several_scales_are_channels(qc, files) -> None:
    result = qc("encodings", "convert", "block_0.6.1.encodings", "--version", "1.0.0", "-o", "new.encodings")
    assert result.code == 0 and "several scales of a tensor count as those of its channels" in result.err


def test_layers(qc, files) -> None:
    model = ("--model", "aimet.onnx")
    to_layers = ("--version", "0.6.1", "--layout", "layers", "-o", "f_torch.encodings")
    result = qc("encodings", "convert", "block_2.0.0.encodings", *to_layers, *model)
    assert (result.code, result.made) == (0, ["f_torch.encodings"])
    assert list(json.loads(Path("f_torch.encodings").read_text())["param_encodings"]) == [
        "conv.bias",
        "conv.weight",
        "mm.weight",
    ]
    pair = ("f_torch.encodings", "block_2.0.0.encodings")
    same = qc("encodings", "diff", *pair, *model)
    assert (same.code, same.out) == (0, "7 equal, 0 different, 0 in one file only\n")
    alone = qc("encodings", "diff", *pair)
    assert alone.code == 2 and "is by layers and 'block_2.0.0.encodings' by tensors; add --model" in alone.err
    good = qc("encodings", "check", "f_torch.encodings", "aimet.onnx")
    assert good.out == "7 encodings, all of them fit the model\n"
    back = ("--version", "2.0.0", "-o", "back.encodings")
    assert qc("encodings", "convert", "f_torch.encodings", *back, *model).code == 0
    assert qc("encodings", "diff", "back.encodings", pair[1]).code == 0
    refused = qc("encodings", "convert", "block_2.0.0.encodings", *to_layers)
    assert refused.code == 2 and "only a model tells which tensor belongs to which layer" in refused.err
    refused = qc("encodings", "convert", "f_torch.encodings", *back)
    assert refused.code == 2 and "'f_torch.encodings' lists layers, version 2.0.0 has tensors" in refused.err


def test_comparing(qc, files) -> None:
    pair = ("channel_1.0.0.encodings", "channel_0.6.1.encodings")
    same = qc("encodings", "diff", *pair)
    assert (same.code, same.out) == (0, "5 equal, 0 different, 0 in one file only\n")
    other = qc("encodings", "diff", "channel_1.0.0.encodings", "block_2.0.0.encodings")
    assert other.code == 1 and "only in block_2.0.0.encodings\nb1\nf\n" in other.out
    assert other.out.endswith("1 equal, 4 different, 2 in one file only\n")
    document = json.loads(qc("encodings", "diff", *pair, "--json").out)
    assert document["equal"] == ["x", "r", "y", "w1", "w2"]


def test_checking_scales_of_blocks_that_overflow(qc, files) -> None:
    made = json.loads(Path("lpbq_1.0.0.encodings").read_text())
    entry = next(entry for entry in made["param_encodings"] if entry["name"] == "w2")
    entry["scale"] = [3e38] * len(entry["scale"])  # which a block multiplies by up to 16
    Path("large.encodings").write_text(json.dumps(made))
    result = qc("encodings", "check", "large.encodings", "aimet.onnx")
    assert result.code != 0 and result.code != 6
    assert "large.encodings': 'w2': every scale must be finite" in result.out


def test_checking_against_a_model(qc, files) -> None:
    good = qc("encodings", "check", "lpbq_2.0.0.encodings", "aimet.onnx")
    assert (good.code, good.out) == (0, "7 encodings, all of them fit the model\n")
    bad = qc("encodings", "check", "lpbq_2.0.0.encodings", "model.onnx")
    assert bad.code == 5 and "'w1': the model has no such tensor\n" in bad.out
    assert (
        bad.err == "qc: error: 'lpbq_2.0.0.encodings' does not belong to 'model.onnx': 7 tensors at fault\n"
    )


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
def test_axes_that_older_versions_cannot_say(qc, files, version: str) -> None:
    """A square weight with scales along its inputs would be read back with those of its outputs."""
    weight = np.eye(2, dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 2])],
        [onnx.helper.make_tensor_value_info("y", 1, [1, 2])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "square.onnx")
    for axis, code in ((1, 0), (0, 2)):
        entry = {"name": "w", "output_dtype": "int8", "y_scale": [0.5, 0.25], "axis": axis}
        Path("square.encodings").write_text(json.dumps({"version": "2.0.0", "encodings": [entry]}))
        convert = (
            "convert",
            "square.encodings",
            "--version",
            version,
            "--model",
            "square.onnx",
            "-o",
            "o.encodings",
        )
        result = qc("encodings", *convert)
        assert result.code == code
    assert "'w' has scales along axis 0, which versions before 2.0.0 cannot say" in result.err
    shown = qc(
        "square.onnx",
        "--passes",
        f"load-encodings{{file=square.encodings}},to-encodings{{version={version}}}",
        "-o",
        "o.onnx",
    )
    assert shown.code == 2 and "'w' has scales along axis 0" in shown.err
