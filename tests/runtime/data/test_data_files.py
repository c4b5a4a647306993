"""Arrays, archives and folders give the feeds they should, and careless ones end in a sentence of advice."""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support.data import ANYTHING, DEFAULT, IMAGE, LENGTH, MASK, STATE, equal, images, shapes

from qc.ir.errors import DataError
from qc.runtime import InputInfo, load_data

# Arrays that hold many samples


@pytest.mark.parametrize("form", ["npz", "compressed", "memory"])
def test_stacked_arrays_are_cut_into_feeds(form: str, tmp_path: Path) -> None:
    mask = np.tile(np.array([[True, False], [False, True]]), (3, 1))
    arrays = {"image": images(3), "length": np.array([7, 8, 9]), "mask": mask}
    source: object = arrays
    if form != "memory":
        source = tmp_path / "samples.npz"
        save: Callable[..., None] = np.savez if form == "npz" else np.savez_compressed
        save(source, **arrays)
    data = load_data(source, [IMAGE, LENGTH, MASK])
    expected = [
        {"image": images(3)[i : i + 1], "length": np.array(7 + i), "mask": mask[:2]} for i in range(3)
    ]
    assert data.length == 3
    assert equal(data, expected) and equal(data, expected)


@pytest.mark.parametrize(
    ("shape", "info", "expected"),
    [
        ((5, 3, 2), IMAGE, [(1, 3, 2)] * 5),
        ((5, 4, 3, 2), IMAGE, [(4, 3, 2)] * 5),
        ((3, 2), IMAGE, [(1, 3, 2)]),
        ((6, 3), InputInfo("x", TensorProto.FLOAT, (2, 3)), [(2, 3)] * 3),
        ((6, 2, 3), InputInfo("x", TensorProto.FLOAT, (2, 3)), [(2, 3)] * 6),
        ((2, 3), InputInfo("x", TensorProto.FLOAT, (None, 3)), [(1, 3)] * 2),
        ((3,), InputInfo("x", TensorProto.FLOAT, (1, 3)), [(1, 3)]),
        ((4, 5), ANYTHING, [(5,)] * 4),
        ((4,), InputInfo("x", TensorProto.FLOAT, ()), [()] * 4),
        ((), InputInfo("x", TensorProto.FLOAT, ()), [()]),
    ],
)
def test_how_an_array_is_cut(
    shape: tuple[int, ...], info: InputInfo, expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", **{info.name: array})  # type: ignore[arg-type]
    for source in (array, {info.name: array}, tmp_path / "x.npy", str(tmp_path / "x.npz")):
        data = load_data(source, [info])
        assert [shape[info.name] for shape in shapes(data)] == expected
        joined = np.concatenate([feed[info.name].ravel() for feed in data])
        assert np.array_equal(joined, array.ravel())


def test_a_number_goes_into_every_feed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(2), length=np.int64(16000))
    assert [feed["length"].item() for feed in load_data(tmp_path / "a.npz", [IMAGE, LENGTH])] == [
        16000,
        16000,
    ]


def test_column_major_arrays_are_read_right(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.asfortranarray(images(4)))
    assert equal(load_data(tmp_path / "a.npz", [IMAGE]), [{"image": row[None]} for row in images(4)])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_file_is_streamed(save: Callable[..., None], tmp_path: Path) -> None:
    info = InputInfo("x", TensorProto.FLOAT, ("n", 64, 256))
    save(tmp_path / "large.npz", x=np.ones((512, 64, 256), np.float32))
    data = load_data(tmp_path / "large.npz", [info])
    tracemalloc.start()
    count = sum(1 for _ in data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 512 and peak < 4 << 20  # the array has 32 MiB, one sample 64 KiB


def test_careless_stacked_arrays(tmp_path: Path) -> None:
    fixed = InputInfo("x", TensorProto.FLOAT, (4, 3))
    x = InputInfo("x", TensorProto.FLOAT, ("n", 3))
    cases: list[tuple[object, list[InputInfo], str]] = [
        ({"imag": images(1)}, [IMAGE], "no input 'imag' (did you mean 'image'?); its inputs are 'image'"),
        ({"image": images(1)}, [IMAGE, LENGTH], "no array for the input 'length' (int64 ())"),
        ({"image": images(1).tolist()}, [IMAGE], "input 'image' must be a numpy array, got a 'list'"),
        ({"x": np.ones((10, 3), np.float32)}, [fixed], "has 10 rows, which is no multiple of the 4"),
        ({"x": np.ones((2, 2, 2, 3), np.float32)}, [x], "has shape (2, 2, 2, 3), which is neither samples"),
        ({"x": np.ones((), np.float32)}, [x], "has shape (), which is neither samples of float32 (n, 3)"),
        (
            {"image": images(3), "length": np.array([1, 2])},
            [IMAGE, LENGTH],
            "different numbers of samples: 'image' 3, 'length' 2",
        ),
        (images(2), [IMAGE, LENGTH], "need a model with one input, this one has 'image', 'length'"),
    ]
    for source, inputs, message in cases:
        with pytest.raises(DataError) as caught:
            load_data(source, inputs)
        assert message in str(caught.value) and str(caught.value).startswith("the given arrays: ")
    np.savez(tmp_path / "a.npz", imag=images(1))
    with pytest.raises(DataError, match=r"a.npz': the model has no input 'imag' \(did you mean 'image'\?\)"):
        load_data(tmp_path / "a.npz", [IMAGE])


def test_files_that_are_not_what_they_claim(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", image=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "whole.npz", image=images(100))
    (tmp_path / "short.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-300])
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "text.npy").write_text("not an array")
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "table.xyz").write_text("1,2")
    (tmp_path / "table.csv").write_text("1,2")
    for name, message in {
        "objects.npz": "objects.npz': 'image.npy' holds Python objects, which are not loaded for safety",
        "short.npz": "cannot read data from '",
        "text.npz": "text.npz': it is not an .npz file",
        "text.npy": "cannot read data from '",
        "objects.npy": "objects.npy' holds Python objects, which are not loaded for safety",
        "table.csv": "table.csv' cannot be read as a table: its first line holds numbers",
        "table.xyz": "table.xyz' is ",
        "missing.npz": "missing.npz' does not exist; give a file, a folder or module:function",
    }.items():
        with pytest.raises(DataError) as caught:
            load_data(tmp_path / name, [IMAGE])
        assert message in str(caught.value) and name in str(caught.value)


def test_damage_inside_an_archive_is_found_while_reading(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[5000] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a.npz': it is damaged or cut short"):
        list(load_data(tmp_path / "a.npz", [IMAGE]))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    np.savez(tmp_path / "a.npz", image=images(1))
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"cannot read data from '.*a\.npz': Permission denied$"):
        load_data(tmp_path / "a.npz", [IMAGE])


# Folders


def test_folder_of_npz_files_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        np.savez(tmp_path / f"{number}.npz", image=images(1)[0] + number, length=np.array(number))
    data = load_data(str(tmp_path), [IMAGE, LENGTH])
    assert data.length == 3 and [feed["length"].item() for feed in data] == [2, 9, 10]
    assert shapes(data)[0] == {"image": (1, 3, 2), "length": ()}


def test_folder_of_npy_files(tmp_path: Path) -> None:
    for number in range(12):
        np.save(tmp_path / f"sample{number}.npy", np.full((1, 3, 2), number, np.float32))
    data = load_data(tmp_path, [IMAGE, DEFAULT])
    assert [feed["image"][0, 0, 0] for feed in data] == list(range(12))
    with pytest.raises(DataError, match="need a model with one input"):
        load_data(tmp_path, [IMAGE, LENGTH])


def test_one_folder_per_input(tmp_path: Path) -> None:
    for name in ("image", "length"):
        (tmp_path / name).mkdir()
    for number in range(11):
        np.save(tmp_path / "image" / f"{number}.npy", images(1)[0] + number)
        np.save(tmp_path / "length" / f"{number}.npy", np.array(number))
    data = load_data(tmp_path, [IMAGE, LENGTH])
    assert [(feed["image"][0, 0, 0], feed["length"].item()) for feed in data] == [(i, i) for i in range(11)]
    (tmp_path / "length" / "7.npy").unlink()
    with pytest.raises(DataError, match=r"folders 'image' and 'length' differ: only one holds '7\.npy'"):
        load_data(tmp_path, [IMAGE, LENGTH])


def write_set(folder: Path, *arrays: np.ndarray) -> None:
    folder.mkdir()
    for index, array in enumerate(arrays):
        onnx.save_tensor(numpy_helper.from_array(array), folder / f"input_{index}.pb")
        onnx.save_tensor(numpy_helper.from_array(array), folder / f"output_{index}.pb")


def test_onnx_test_data_sets(tmp_path: Path) -> None:
    for number in range(11):
        write_set(tmp_path / f"test_data_set_{number}", images(1), np.array(number))
    data = load_data(tmp_path, [IMAGE, LENGTH])
    assert [feed["length"].item() for feed in data] == list(range(11))
    single = load_data(tmp_path / "test_data_set_3", [IMAGE, LENGTH])
    assert equal(single, [{"image": images(1), "length": np.array(3)}])
    with pytest.raises(DataError, match=r"test_data_set_0.*input_1.pb': the model has only 1 inputs"):
        list(load_data(tmp_path, [IMAGE]))
    with pytest.raises(DataError, match="the input 'state' is not a tensor and cannot be read from a file"):
        list(load_data(tmp_path, [STATE, LENGTH]))
    (tmp_path / "test_data_set_0" / "input_0.pb").write_bytes(b"\xff not a tensor")
    with pytest.raises(DataError, match=r"input_0.pb': it is not an ONNX tensor"):
        list(load_data(tmp_path, [IMAGE, LENGTH]))


def test_careless_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no data: no \.npz or \.npy files"):
        load_data(tmp_path, [IMAGE])
    np.savez(tmp_path / "a.npz", image=images(1))
    np.savez(tmp_path / "b.npz", picture=images(1))
    with pytest.raises(DataError, match=r"b.npz': the model has no input 'picture'"):
        list(load_data(tmp_path, [IMAGE]))
    (tmp_path / "b.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot read data from '.*b.npz'"):
        list(load_data(tmp_path, [IMAGE]))
    np.save(tmp_path / "c.npy", images(1))
    with pytest.raises(DataError, match="data of several kinds; keep one kind to a folder"):
        load_data(tmp_path, [IMAGE])
