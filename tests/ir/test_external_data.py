"""Constants in files beside the model: mapped when read, copied when saved, refused when they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from support.models import floats, model_of
from support.pipelines import run_model

from qc.ir import lift
from qc.ir.errors import ModelError, QcError, UsageError
from qc.ir.onnx.lower import lower, serialize
from qc.ir.onnx.save import save_model
from qc.ir.tensor_ref import TensorRef

DATA = np.arange(2048, dtype=np.float32).reshape(2, 1024)


def external(path: str = "weights.bin", dims: tuple[int, ...] = (2, 1024), **fields: object) -> ModelProto:
    """``y = x + w`` with ``w`` in a file; keyword arguments are fields such as offset and length."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": path, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])], [floats("x", *dims)], [floats("y", *dims)], [tensor]
    )


def stored(folder: Path, model: ModelProto, offset: int = 0) -> Path:
    """Writes the model, and its numbers at an offset into a file."""
    (folder / "weights.bin").write_bytes(b"\0" * offset + DATA.tobytes())
    path = folder / "model.onnx"
    path.write_bytes(serialize(model))
    return path


def constant(source: Path | ModelProto, base_dir: Path | None = None) -> TensorRef:
    value = lift(source, base_dir).graph.value_named("w")
    assert value is not None and value.const is not None
    return value.const


def test_the_round_trip_does_not_read_it(tmp_path: Path) -> None:
    model = external(offset=0, length=8192)
    path = tmp_path / "model.onnx"
    path.write_bytes(serialize(model))
    assert serialize(lower(lift(path))) == serialize(model)


def test_short_vectors_are_brought_in(tmp_path: Path) -> None:
    """Shapes follow from them: ONNX Runtime does not open the model as it is."""
    axes = onnx.numpy_helper.from_array(np.array([-1]), "axes")
    node = helper.make_node("ReduceL2", ["x", "axes"], ["y"])
    path = tmp_path / "model.onnx"
    onnx.save_model(
        model_of([node], [floats("x", 2, 3)], [floats("y", None, None)], [axes]),
        path,
        save_as_external_data=True,
        location="axes.bin",
        size_threshold=0,
    )
    lifted = lift(path)
    value = lifted.graph.value_named("y")
    assert value is not None and value.type.shape == (2, 1)
    (tmp_path / "axes.bin").unlink()
    found = run_model(lower(lifted), {"x": np.array([[3.0, 4, 0], [0, 0, 2]], np.float32)})
    np.testing.assert_allclose(found["y"], [[5.0], [2.0]])


@pytest.mark.parametrize("offset", [0, 4096, 4100, 3])
def test_it_is_mapped(tmp_path: Path, offset: int) -> None:
    const = constant(stored(tmp_path, external(offset=offset, length=8192), offset))
    array = const.numpy()
    np.testing.assert_array_equal(array, DATA)
    assert not array.flags.writeable
    assert isinstance(array.base, np.memmap) or isinstance(array, np.memmap)


def test_a_proto_finds_it_with_a_folder(tmp_path: Path) -> None:
    stored(tmp_path, external())
    np.testing.assert_array_equal(constant(external(), tmp_path).numpy(), DATA)
    with pytest.raises(ModelError, match="'w' has external data; load the model from its file"):
        constant(external()).numpy()


@pytest.mark.parametrize(
    "kind", [TensorProto.INT4, TensorProto.UINT2, TensorProto.BFLOAT16, TensorProto.BOOL]
)
def test_other_types(tmp_path: Path, kind: int) -> None:
    inline = onnx.numpy_helper.from_array(
        np.asarray([1, 0, 1, 1, 0]).astype(helper.tensor_dtype_to_np_dtype(kind)), "w"
    )
    (tmp_path / "w.bin").write_bytes(inline.raw_data)
    tensor = TensorProto(name="w", data_type=kind, dims=[5], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    read = TensorRef(tensor, tmp_path).numpy()
    expected = onnx.numpy_helper.to_array(inline)
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read.astype(np.float32), expected.astype(np.float32))


def test_an_empty_constant_needs_no_bytes(tmp_path: Path) -> None:
    assert constant(stored(tmp_path, external(dims=(0, 4)))).numpy().shape == (0, 4)


REFUSED = {
    "a path that leaves the folder": (external("../weights.bin"), "points outside the model's folder"),
    "an absolute path": (external("/etc/hostname"), "folder: '.*'; only files beside the model are read"),
    "a missing file": (external("nowhere.bin"), "does not exist"),
    "no location": (external(""), "does not exist"),
    "a file that is too short": (
        external(offset=8),
        "8192 bytes at offset 8 of 'weights.bin', which has 8192",
    ),
    "a length that is too small": (external(length=100), "needs 8192 bytes"),
    "a length that is too large": (external(length=8196), "needs 8192 bytes"),
    "a negative offset": (external(offset=-4), "needs 8192 bytes"),
    "an offset that is no number": (external(offset="far"), "unreadable offset or length"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    model, message = REFUSED[name]
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(DATA.tobytes())
    const = constant(stored(folder, model))
    with pytest.raises(ModelError, match=message) as caught:
        const.numpy()
    assert "'w'" in str(caught.value)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(DATA.tobytes())
    path = stored(folder, external("link.bin"))
    (folder / "link.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="outside the model's folder"):
        constant(path).numpy()


INLINE = {
    "bytes that are too few": TensorProto(name="w", data_type=1, dims=[3], raw_data=b"1234"),
    "bytes that are too many": TensorProto(name="w", data_type=1, dims=[1], raw_data=b"12345678"),
    "no data": TensorProto(name="w", data_type=1, dims=[3]),
    "numbers that are too few": TensorProto(name="w", data_type=1, dims=[3], float_data=[1.0]),
    "a negative dimension": TensorProto(name="w", data_type=1, dims=[-3], float_data=[1.0]),
}


@pytest.mark.parametrize("name", INLINE)
def test_damaged_constants_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="constant 'w'"):
        TensorRef(INLINE[name]).numpy()


def test_saving_copies_the_bytes_beside_the_new_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    model = external(offset=64, length=8192)
    small = onnx.numpy_helper.from_array(np.ones(3, np.float32), "small")
    large = onnx.numpy_helper.from_array(np.ones(999, np.float32), "large")
    model.graph.initializer.extend([small, large])
    lifted = lift(stored(source, model, offset=64))
    written = save_model(lower(lifted), target / "new.onnx", lifted.base_dir)
    assert [path.name for path in written] == ["new.onnx", "new.onnx.data"]
    assert written[1].stat().st_size == 8192 + 999 * 4
    saved = onnx.load(str(written[0]), load_external_data=False)
    assert [tensor.data_location for tensor in saved.graph.initializer] == [1, 0, 1]
    np.testing.assert_array_equal(constant(written[0]).numpy(), DATA)
    onnx.checker.check_model(str(written[0]))
    assert model.graph.initializer[0].external_data[0].value == "weights.bin"


def test_saving_over_the_source_is_safe(tmp_path: Path) -> None:
    path = stored(tmp_path, external())
    for _ in range(2):
        lifted = lift(path)
        save_model(lower(lifted), path, lifted.base_dir)
    np.testing.assert_array_equal(constant(path).numpy(), DATA)


def test_a_saved_model_runs(tmp_path: Path) -> None:
    path = stored(tmp_path, external())
    lifted = lift(path)
    saved = save_model(lower(lifted), tmp_path / "again.onnx", lifted.base_dir)[0]
    loaded = onnx.load(str(saved))
    np.testing.assert_array_equal(run_model(loaded, {"x": DATA})["y"], 2 * DATA)


def test_constants_in_nested_graphs_are_copied_too(tmp_path: Path) -> None:
    inner = external().graph.initializer[0]
    inner.name = "v"
    branch = helper.make_graph([], "t", [], [floats("v", 2, 1024)], [inner])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    model = model_of([node], [condition], [floats("y", 2, 1024)])
    lifted = lift(stored(tmp_path, model))
    written = save_model(lower(lifted), tmp_path / "new.onnx", lifted.base_dir)
    assert len(written) == 2
    assert written[1].stat().st_size == 2 * 8192


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    model = external("nowhere.bin")
    with pytest.raises(ModelError, match="does not exist"):
        save_model(model, tmp_path / "new.onnx", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", [external(), model_of([], [floats("x", 1)], [floats("x", 1)])])
def test_a_folder_that_is_not_there(tmp_path: Path, model: ModelProto) -> None:
    (tmp_path / "weights.bin").write_bytes(DATA.tobytes())
    with pytest.raises(UsageError, match="cannot write"):
        save_model(model, tmp_path / "no" / "new.onnx", tmp_path)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    for name, content in {"empty": b"", "text": b"hello", "cut": serialize(external())[:-20]}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ModelError, match=f"model '{path}'"):
            lift(path)
    with pytest.raises(ModelError, match="does not exist"):
        lift(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        lift(tmp_path)
    assert ModelError.exit_code == 3 and issubclass(ModelError, QcError)


def test_a_negative_length_is_told_of(tmp_path: Path) -> None:
    tensor = TensorProto(name="axes", data_type=TensorProto.INT64, dims=[-1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="axes.bin")
    (tmp_path / "axes.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match=r"constant 'axes' has a negative length, \(-1,\)"):
        TensorRef(tensor, tmp_path).numpy()
