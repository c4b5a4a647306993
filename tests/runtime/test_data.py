"""Every source of data gives the feeds it should, and careless input ends in a sentence of advice."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader

from qc.ir.errors import DataError
from qc.ir.executor import Feed
from qc.runtime import Data, InputInfo, load_data, model_inputs, random_data

IMAGE = InputInfo("image", TensorProto.FLOAT, ("batch", 3, 2))
LENGTH = InputInfo("length", TensorProto.INT64, ())
MASK = InputInfo("mask", TensorProto.BOOL, (2, 2))
ANYTHING = InputInfo("anything", TensorProto.FLOAT, None)
DEFAULT = InputInfo("gain", TensorProto.FLOAT, (1,), optional=True)
STATE = InputInfo("state", TensorProto.UNDEFINED, None)


def images(count: int) -> np.ndarray:
    return np.arange(count * 6, dtype=np.float32).reshape(count, 3, 2)


def shapes(data: Data) -> list[dict[str, tuple[int, ...]]]:
    return [{name: array.shape for name, array in feed.items()} for feed in data]


def equal(data: Data, feeds: list[dict[str, np.ndarray]]) -> bool:
    read = list(data)
    return len(read) == len(feeds) and all(
        got.keys() == feed.keys()
        and all(
            np.array_equal(got[name], feed[name]) and got[name].dtype == feed[name].dtype for name in feed
        )
        for got, feed in zip(read, feeds, strict=True)
    )


def test_inputs_of_a_model() -> None:
    value = helper.make_tensor_value_info
    inputs = [
        value("a", TensorProto.FLOAT16, ["n", 4, None, -1]),
        value("b", TensorProto.STRING, None),
        value("w", TensorProto.FLOAT, [2]),
        helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None),
    ]
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    node = helper.make_node("Identity", ["a"], ["y"])
    graph = helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT16, None)], [weight])
    assert model_inputs(helper.make_model(graph)) == (
        InputInfo("a", TensorProto.FLOAT16, ("n", 4, None, None)),
        InputInfo("b", TensorProto.STRING, None),
        InputInfo("w", TensorProto.FLOAT, (2,), optional=True),
        InputInfo("s", TensorProto.UNDEFINED, None),
    )
    assert [str(info) for info in model_inputs(helper.make_model(graph))] == [
        "float16 (n, 4, ?, ?)",
        "string of any shape",
        "float32 (2)",
        "not a tensor",
    ]


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
    (tmp_path / "table.csv").write_text("1,2")
    for name, message in {
        "objects.npz": "objects.npz': 'image.npy' holds Python objects, which are not loaded for safety",
        "short.npz": "cannot read data from '",
        "text.npz": "text.npz': it is not an .npz file",
        "text.npy": "cannot read data from '",
        "objects.npy": "cannot read data from '",
        "table.csv": "table.csv' is neither a folder nor an .npz or .npy file",
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
    with pytest.raises(DataError, match=r"cannot read data from .*Bad CRC-32"):
        list(load_data(tmp_path / "a.npz", [IMAGE]))


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


# Python


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """As people write them for ONNX Runtime: made once, used up once."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


class RewindingReader(Reader):
    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        super().__init__(feeds)
        self.all = feeds

    def rewind(self) -> None:
        self.feeds = iter(self.all)


FEEDS = [{"image": images(1)}, {"image": images(1) + 1}]


@pytest.mark.parametrize(
    ("source", "length"),
    [
        (FEEDS, 2),
        (tuple(FEEDS), 2),
        (RewindingReader(FEEDS), None),
        (lambda: FEEDS, None),
        (lambda: iter(FEEDS), None),
        (lambda: Reader(FEEDS), None),
    ],
)
def test_python_sources_can_be_read_again(source: object, length: int | None) -> None:
    data = load_data(source, [IMAGE])
    assert equal(data, FEEDS) and equal(data, FEEDS) and data.length == length


@pytest.mark.parametrize(
    ("source", "kind", "way_out"),
    [
        (iter(FEEDS), "list_iterator", "give a list, or a function that makes a new one"),
        ((feed for feed in FEEDS), "generator", "give a list, or a function that makes a new one"),
        (Reader(FEEDS), "Reader", r"give it a rewind\(\) method, or pass a function that makes a new one"),
    ],
)
def test_sources_that_are_used_up_say_so(source: object, kind: str, way_out: str) -> None:
    data = load_data(source, [IMAGE])
    assert equal(data, FEEDS)
    with pytest.raises(DataError, match=f"a '{kind}' can be read only once and is needed again; {way_out}"):
        list(data)


def test_data_is_data_and_is_checked_against_the_model_at_hand() -> None:
    data = load_data(FEEDS, [IMAGE])
    assert load_data(data, [IMAGE]) is data
    assert equal(load_data(data, [IMAGE, DEFAULT]), FEEDS)
    with pytest.raises(DataError, match="no array for the input 'length'"):
        list(load_data(data, [IMAGE, LENGTH]))
    assert repr(data) == "Data(the given data, 2 feeds)"


def test_named_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_samples.py").write_text(
        "import numpy as np\n"
        "def feeds():\n"
        "    for number in range(3):\n"
        "        yield {'image': np.full((1, 3, 2), number, np.float32)}\n"
        "def broken():\n"
        "    yield {'image': np.zeros((1, 3, 2), np.float32)}\n"
        "    raise OSError('the disk is gone')\n"
        "def nothing():\n"
        "    pass\n"
        "number = 3\n"
    )
    (tmp_path / "my_broken.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for source in ("my_samples:feeds", "my_samples.py:feeds", f"{tmp_path}/my_samples.py:feeds"):
        data = load_data(source, [IMAGE])
        assert [feed["image"].max() for feed in data] == [0, 1, 2] and len(list(data)) == 3
    for source, message in {
        "my_samples:feed": "'my_samples' has no function 'feed' (did you mean 'feeds'?)",
        "my_samples:number": "'my_samples' has no function 'number'",
        "no_such_module:feeds": "cannot import 'no_such_module' for data: ModuleNotFoundError",
        "missing.py:feeds": "the Python file 'missing.py' for data does not exist",
        "my_broken:feeds": "cannot import 'my_broken' for data: ModuleNotFoundError: No module",
        ":feeds": "cannot import '' for data",
    }.items():
        with pytest.raises(DataError) as caught:
            load_data(source, [IMAGE])
        assert message in str(caught.value)
    with pytest.raises(DataError, match="'my_samples:broken' failed with OSError: the disk is gone"):
        list(load_data("my_samples:broken", [IMAGE]))
    with pytest.raises(DataError, match="'my_samples:nothing': a 'NoneType' is no data"):
        list(load_data("my_samples:nothing", [IMAGE]))


def test_what_is_no_data() -> None:
    for source in (3, None, object()):
        with pytest.raises(DataError, match=f"a '{type(source).__name__}' is no data; give a path"):
            load_data(source, [IMAGE])
    sources: list[object] = [[], Reader([]), list]
    for empty in sources:
        with pytest.raises(DataError, match="there is no sample"):
            list(load_data(empty, [IMAGE]))


# Single feeds


def good() -> dict[str, object]:
    return {"image": images(2), "length": np.array(3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"imagé": images(1)}, "the model has no input 'imagé' (did you mean 'image'?)"),
        ({"length": None}, "input 'length' must be a numpy array, got a 'NoneType'"),
        ({"length": 3}, "input 'length' must be a numpy array, got a 'int'"),
        (
            {"length": np.array(3, np.int32)},
            "input 'length' has dtype int32, the model takes int64; qc never",
        ),
        ({"image": images(1).astype(np.float64)}, "input 'image' has dtype float64, the model takes float32"),
        ({"image": images(1).astype(">f4")}, "input 'image' has dtype >f4, the model takes float32"),
        (
            {"image": images(1)[0]},
            "input 'image' has rank 2, shape (3, 2); the model takes float32 (batch, 3, 2)",
        ),
        (
            {"image": images(1)[:, :, :1]},
            "input 'image' has size 1 on axis 2, shape (1, 3, 1); the model takes",
        ),
        ({"image": images(1) * np.float32(np.nan)}, "input 'image' holds NaN or infinity"),
        ({"image": np.full((1, 3, 2), np.inf, np.float32)}, "input 'image' holds NaN or infinity"),
    ],
)
def test_careless_feeds(change: dict[str, object], message: str) -> None:
    data = load_data([good(), good() | change], [IMAGE, LENGTH])
    with pytest.raises(DataError) as caught:
        list(data)
    assert str(caught.value).startswith(f"the given data, feed 1: {message}")


def test_a_feed_must_be_a_dictionary_with_all_inputs() -> None:
    with pytest.raises(
        DataError, match="feed 0: expected a dictionary of arrays by input name, got a 'tuple'"
    ):
        list(load_data([(images(1), 3)], [IMAGE]))
    with pytest.raises(DataError, match=r"feed 0: no array for the input 'length' \(int64 \(\)\)"):
        list(load_data([{"image": images(1)}], [IMAGE, LENGTH]))


def test_feeds_of_all_kinds_that_fit() -> None:
    text = InputInfo("text", TensorProto.STRING, ("n",))
    brain = InputInfo("brain", TensorProto.BFLOAT16, (2,))
    feed: dict[str, object] = {
        "text": np.array(["a", "b"]),
        "brain": np.ones(2, ml_dtypes.bfloat16),
        "anything": np.zeros((0, 4), np.float32),
        "state": [np.ones(3)],
    }
    inputs = [text, brain, ANYTHING, STATE, DEFAULT]
    assert len(list(load_data([feed], inputs))) == 1
    with pytest.raises(DataError, match="'text' has dtype int64, the model takes strings"):
        list(load_data([feed | {"text": np.array([1])}], inputs))
    with pytest.raises(DataError, match="'brain' holds NaN"):
        list(load_data([feed | {"brain": np.full(2, np.nan, ml_dtypes.bfloat16)}], inputs))


# Random data


@given(st.integers(1, 4), st.integers(0, 3))
def test_random_data_fits_and_repeats(samples: int, seed: int) -> None:
    half = InputInfo("half", TensorProto.FLOAT16, (None, "time"))
    inputs = [IMAGE, LENGTH, MASK, half, DEFAULT]
    data = random_data(inputs, samples, seed, sizes={"time": 5, "half[0]": 2})
    first, second = list(data), list(data)
    assert len(first) == samples == data.length
    assert shapes(data)[0] == {"image": (1, 3, 2), "length": (), "mask": (2, 2), "half": (2, 5)}
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a)
    assert all(0 <= feed["length"].item() <= 1 for feed in first)


def test_random_data_that_cannot_be_made() -> None:
    free = InputInfo("x", TensorProto.FLOAT, ("n", "time"))
    with pytest.raises(DataError, match=r"--size time=N, in Python sizes=\{\"time\": N\}, or real data"):
        random_data([free], 1)
    with pytest.raises(DataError, match=r"--size 'x\[2\]=N'"):
        random_data([InputInfo("x", TensorProto.FLOAT, (None, 1, None))], 1)
    with pytest.raises(DataError, match=r"'tine', which no input has \(did you mean 'time'\?\)"):
        random_data([free], 1, sizes={"tine": 3})
    for info in (ANYTHING, STATE, InputInfo("text", TensorProto.STRING, (1,))):
        with pytest.raises(DataError, match=f"cannot make random data for the input '{info.name}'"):
            random_data([info], 1)
    with pytest.raises(DataError, match="at least 1 sample, not 0"):
        random_data([IMAGE], 0)


def endless() -> Iterator[Feed]:
    while True:
        yield {"image": images(1)}


def test_reading_is_lazy() -> None:
    assert next(iter(load_data(endless, [IMAGE])))["image"].shape == (1, 3, 2)
