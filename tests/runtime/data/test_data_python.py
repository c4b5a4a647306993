"""Data made in Python, read once or again, and careless sources that end in a sentence of advice."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import CalibrationDataReader
from support.data import DEFAULT, IMAGE, LENGTH, equal, images

from qc.ir.errors import DataError
from qc.runtime import load_data

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
    with pytest.raises(
        DataError, match=r"feed 1 failed with OSError: the disk is gone \(.*my_samples.py, line \d+\)"
    ):
        list(load_data("my_samples:broken", [IMAGE]))
    with pytest.raises(DataError, match="'my_samples:nothing': a 'NoneType' is no data"):
        list(load_data("my_samples:nothing", [IMAGE]))


def test_what_is_no_data() -> None:
    for source in (3, None, object()):
        with pytest.raises(DataError, match=rf"an? '{type(source).__name__}' is no data; give a path"):
            load_data(source, [IMAGE])
    sources: list[object] = [[], Reader([]), list]
    for empty in sources:
        with pytest.raises(DataError, match="there is no sample"):
            list(load_data(empty, [IMAGE]))
