"""What a caller sees of a model: inputs with defaults, and files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.models import floats, model_of, parse

import qc
from qc.ir.errors import DataError, ModelError, UsageError
from qc.runtime import load_data, model_inputs, open_session, run_session


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def with_defaults() -> ModelProto:
    """``y = (x @ w) * (k * k2)``, where w and k are inputs with a default."""
    model = parse("""g (float[3, 4] x) => (float[3, 5] y) <float[4, 5] w, float k = {2}, float k2 = {3}> {
        kk = Mul(k, k2)
        h = MatMul(x, w)
        y = Mul(h, kk)
    }""")
    model.graph.input.extend([floats("w", 4, 5), floats("k")])
    return model


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@pytest.mark.parametrize("pipeline", ["w8a8", "fp16", "fold-constants"])
def test_inputs_with_defaults_become_constants_with_a_note(pipeline: str, target: str) -> None:
    """Some of them vanished without a word, others stayed, and feeding the rest changed nothing."""
    model = with_defaults()
    compiled = qc.compile(model, pipeline, data=[{"x": normal(3, 4)}], target=target, threads=1)
    assert [given.name for given in compiled.model.graph.input] == ["x"]
    assert any("inputs with a default" in note for note in compiled.notes)
    feed = {"x": normal(3, 4), "k": np.asarray(5, np.float32)}
    fed = qc.compile(model, "w8a8", data=[feed], target=target, threads=1)
    assert any("no input for 'k' of the data" in note for note in fed.notes)


def saved(folder: Path, name: str, data: str) -> Path:
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("Mul", ["r", "k"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(normal(16, 3, 3, 3), "w"),
        numpy_helper.from_array(normal(16, 4, 4), "k"),
    ]
    model = model_of(nodes, [floats("x", 1, 3, 6, 6)], [floats("y", 1, 16, 4, 4)], weights)
    folder.mkdir()
    onnx.save_model(model, folder / name, save_as_external_data=True, location=data, size_threshold=0)
    return folder / name


def test_the_data_of_the_source_is_never_overwritten(tmp_path: Path) -> None:
    """A renamed float model kept its weights in the file that the quantized model wrote its own to."""
    source = saved(tmp_path / "a", "model_fp32.onnx", "model.onnx.data")
    compiled = qc.compile(source, data=[{"x": normal(1, 3, 6, 6)}], threads=1)
    before = {file.name: file.read_bytes() for file in source.parent.iterdir()}
    with pytest.raises(UsageError, match="holds data of the input model"):
        compiled.save(source.with_name("model.onnx"))
    assert {file.name: file.read_bytes() for file in source.parent.iterdir()} == before
    assert compiled.save(source.with_name("other.onnx"))


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
def test_convolutions_with_external_weights(tmp_path: Path, target: str) -> None:
    """The graph that ONNX Runtime had optimized was read back without the folder of its weights."""
    source = saved(tmp_path / "a", "model.onnx", "weights.bin")
    feed = {"x": normal(1, 3, 6, 6)}
    compiled = qc.compile(source, data=[feed], target=target, threads=1)
    plain, optimized = (
        run_session(
            open_session(compiled.simulation, base_dir=source.parent, optimize=optimize, threads=1), feed
        )[0]
        for optimize in (False, True)
    )
    np.testing.assert_allclose(plain, optimized, atol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_an_array_that_claims_to_be_huge(tmp_path: Path, packed: bool) -> None:
    """Its header asked for terabytes, which ended in a traceback."""
    file = tmp_path / "x.npy"
    with file.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 38, 64)}
        np.lib.format.write_array_header_1_0(stream, header)
    folder = tmp_path / "data"
    folder.mkdir()
    if packed:
        with zipfile.ZipFile(folder / "x.npz", "w") as archive:
            archive.write(file, "x.npy")
    else:
        file.rename(folder / "x.npy")
    inputs = model_inputs(parse("g (float[3, 4] x) => (float[3, 4] y) { y = Relu(x) }"))
    with pytest.raises(DataError, match="cannot read data"):
        list(load_data(folder, inputs))


def test_a_sparse_constant_that_claims_to_be_huge() -> None:
    """One number was enough to ask for terabytes."""
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    indices = numpy_helper.from_array(np.zeros(1, np.int64))
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.sparse_initializer.add(values=values, indices=indices, dims=[1 << 20, 1 << 20])
    with pytest.raises(ModelError, match="'s' is too large"):
        qc.compile(model, "fp16")
