"""``qc encodings apply`` and ``strip``: grids into a model, and out of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.folders import AIMET

import qc as package
from qc.passes.encodings import located, read_encodings
from qc.passes.encodings.comparison import compare
from qc.runtime import open_session, run_session

FILES = sorted(path.name for path in AIMET.glob("*.encodings"))


@pytest.fixture
def files(qc) -> None:
    """AIMET's files and their model as ``aimet.onnx``, whose opset has types of 4 bits and blocks."""
    for path in AIMET.glob("*.encodings"):
        shutil.copy(path, path.name)
    model = onnx.load(AIMET / "model.onnx")
    model.opset_import[0].version = 21
    model.ir_version = 10
    onnx.save(model, "aimet.onnx")


@pytest.mark.parametrize("file", FILES)
def test_in_out_and_in_again(qc, files, file: str) -> None:
    assert qc("encodings", "apply", file, "aimet.onnx", "-o", "q.onnx").made == ["q.onnx"]
    result = qc(
        "encodings", "strip", "q.onnx", "-o", "f.onnx", "--encodings", "f.encodings", "--version", "2.0.0"
    )
    assert (result.code, result.out, result.err, result.made) == (0, "", "", ["f.encodings", "f.onnx"])
    assert qc("encodings", "apply", "f.encodings", "f.onnx", "-o", "again.onnx").code == 0
    first, again = (onnx.load(name).graph for name in ("q.onnx", "again.onnx"))
    assert [*first.node] == [*again.node]
    for graph in (first, again):  # scales stand in the order of the encodings file
        graph.initializer.sort(key=lambda tensor: tensor.name)
    assert [*first.initializer] == [*again.initializer]
    qc("encodings", "strip", "again.onnx", "-o", "g.onnx", "--encodings", "g.encodings")
    assert Path("g.onnx").read_bytes() == Path("f.onnx").read_bytes()
    assert Path("g.encodings").read_bytes() == Path("f.encodings").read_bytes()
    if file.startswith("shifted"):
        return  # QDQ has no such type: int4 holds the same numbers, which the test of weights compares
    model = package.read_model("aimet.onnx")
    wanted, found = (located(read_encodings(name), model) for name in (file, "f.encodings"))
    result = compare(wanted, found, tolerance=1e-6)  # a QDQ model has scales in float32
    assert result.is_equal


def test_weights_in_codes(qc, files) -> None:
    qc("encodings", "apply", "channel_2.0.0.encodings", "aimet.onnx", "-o", "q.onnx")
    model = onnx.load("q.onnx")
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = package.read_weights("q.onnx")
    assert sorted(weights) == ["b1", "w1", "w2"]
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight.int_data, arrays[f"{name}_quantized"])


@pytest.mark.parametrize("file", FILES)
def test_runtimes_compute_the_same_weights(qc, files, file: str) -> None:
    qc("encodings", "apply", file, "aimet.onnx", "-o", "q.onnx")
    model, weights = onnx.load("q.onnx"), package.read_weights("q.onnx")
    del model.graph.output[:]
    for name, weight in weights.items():
        kind = onnx.helper.make_tensor_value_info(f"{name}_DequantizeLinear_Output", 1, weight.shape)
        model.graph.output.append(kind)
    made = run_session(open_session(model, optimize=False, threads=1), {"x": np.zeros((1, 8, 2, 2), "f")})
    for array, weight in zip(made, weights.values(), strict=True):
        np.testing.assert_array_equal(array, weight.dequantize())


def test_a_part_of_a_file(qc, files) -> None:
    arguments = ("aimet.onnx", "-o", "q.onnx")
    only = ("--only", "parameters", "--target", "npu")  # ort-cpu has other ops for weights of float data
    qc("encodings", "apply", "channel_1.0.0.encodings", *arguments, *only)
    made = {node.output[0] for node in onnx.load("q.onnx").graph.node if node.op_type == "DequantizeLinear"}
    assert made == {"w1_DequantizeLinear_Output", "w2_DequantizeLinear_Output"}
    content = json.loads(Path("channel_1.0.0.encodings").read_text())
    content["activation_encodings"].append({**content["activation_encodings"][0], "name": "more"})
    Path("more.encodings").write_text(json.dumps(content))
    refused = qc("encodings", "apply", "more.encodings", *arguments)
    assert (
        refused.code == 2 and "'more.encodings' has a grid for 'more', which the model lacks" in refused.err
    )
    taken = qc("encodings", "apply", "more.encodings", *arguments, "--partial")
    assert taken.code == 0 and "lacks: passed over (1 in all)" in taken.err


def test_what_is_wrong(qc, files) -> None:
    def said(*arguments: str) -> str:
        result = qc("encodings", *arguments)
        assert (result.code, result.made) == (2, [])
        return str(result.err)

    assert "'aimet.onnx' is no QDQ model" in said("strip", "aimet.onnx", "-o", "f.onnx")
    assert "is the model" in said("strip", "aimet.onnx", "-o", "aimet.onnx")
    both = ("-o", "f.onnx", "--encodings", "f.onnx")
    assert "cannot be two results at once" in said("strip", "aimet.onnx", *both)
    Path("empty.encodings").write_text('{"version": "2.0.0", "encodings": []}')
    nothing = said("apply", "empty.encodings", "aimet.onnx", "-o", "q.onnx")
    assert "'empty.encodings' has no grid for 'aimet.onnx'" in nothing


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
def test_biases_that_a_file_does_not_list(qc, files, version: str) -> None:
    apply = ("encodings", "apply", f"channel_{version}.encodings", "aimet.onnx", "-o", "q.onnx")
    assert qc(*apply).code == 0 and sorted(package.read_weights("q.onnx")) == ["w1", "w2"]
    result = qc(*apply, "--bias", "int32")
    assert (result.code, result.err) == (0, "")
    weights = package.read_weights("q.onnx")
    assert sorted(weights) == ["b1", "w1", "w2"]
    listed = read_encodings("channel_2.0.0.encodings").by_name()["b1"]  # what AIMET says about it
    np.testing.assert_allclose(weights["b1"].scale, listed.scale, rtol=1e-6)
    assert weights["b1"].int_data.dtype == np.int32
    feed = {"x": np.ones((1, 8, 2, 2), "f")}
    both = (open_session(onnx.load(name), optimize=False) for name in ("q.onnx", "aimet.onnx"))
    made, wanted = (run_session(session, feed) for session in both)
    np.testing.assert_allclose(made[0], wanted[0], atol=0.2)
