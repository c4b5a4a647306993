"""Text, audio and tables become the arrays that models take, and careless ones end in a sentence."""

from __future__ import annotations

import json
import wave
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import soundfile
from onnx import TensorProto
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from qc.ir.errors import DataError, UsageError
from qc.runtime import Data, DataFiles, InputInfo, load_data

IDS = InputInfo("input_ids", TensorProto.INT64, ("batch", "tokens"))
MASK = InputInfo("attention_mask", TensorProto.INT64, ("batch", "tokens"))
FIXED = InputInfo("tokens", TensorProto.INT32, (1, 4))
WAVE = InputInfo("audio", TensorProto.FLOAT, (1, 4))
FREE = InputInfo("audio", TensorProto.FLOAT, ("n", 1, "samples"))
BYTE = InputInfo("b", TensorProto.UINT8, ("n",))
FEATURES = InputInfo("x", TensorProto.FLOAT, ("n", 2))


def load(path: Path, *inputs: InputInfo, **options: object) -> Data:
    return load_data(DataFiles(path, **options), inputs)  # type: ignore[arg-type]


def lists(data: Data) -> list[dict[str, list]]:
    return [{name: array.tolist() for name, array in feed.items()} for feed in data]


# Text


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    made = Tokenizer(models.WordLevel({"pad": 0, "a": 1, "b": 2, "c": 3}, unk_token="pad"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_each_line_is_a_sample(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b c\n\n b\n")
    data = load(tmp_path / "a.txt", IDS, MASK, tokenizer=tokenizer)
    assert lists(data) == [
        {"input_ids": [[1, 2, 3]], "attention_mask": [[1, 1, 1]]},
        {"input_ids": [[2]], "attention_mask": [[1]]},
    ]
    assert len(lists(data)) == 2


def test_text_is_cut_or_filled_up_to_what_the_model_takes(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/2.txt").write_text("a b c a b\nc")
    (tmp_path / "texts/10.txt").write_text("c")
    data = load(tmp_path / "texts", FIXED, tokenizer=tokenizer)
    assert lists(data) == [{"tokens": [[1, 2, 3, 1]]}, {"tokens": [[3, 0, 0, 0]]}] and data.length == 2
    masked = lists(load(tmp_path / "texts", IDS, MASK, tokenizer=tokenizer, length=2))
    assert masked[1] == {"input_ids": [[3, 0]], "attention_mask": [[1, 0]]}


def test_careless_text(tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a b c")
    other = InputInfo("other", TensorProto.FLOAT, (1,))
    for inputs, options, message in (
        ([IDS], {}, "holds text, which needs --tokenizer"),
        ([IDS], {"tokenizer": "absent.json"}, "the tokenizer 'absent.json' does not exist"),
        (
            [IDS],
            {"tokenizer": path},
            "the tokenizer '.*a.txt' cannot be read: it is no tokenizer.json of .*; give that of",
        ),
        ([FIXED, other], {"tokenizer": tokenizer}, "no input 'input_ids' among 'tokens', 'other'"),
        ([FIXED], {"tokenizer": tokenizer, "length": 3}, "has size 3 on axis 1"),
    ):
        with pytest.raises(DataError, match=message):
            list(load(path, *inputs, **options))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"cannot be read as text"):
        list(load(path, IDS, tokenizer=tokenizer))


# Audio


def write_wave(path: Path, frames: np.ndarray, width: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(frames.shape[1])
        file.setsampwidth(width)
        file.setframerate(8000)
        codes = frames.astype("<i4") if width != 1 else (frames + 128).astype(np.uint8)
        file.writeframes(codes.reshape(-1, 1).view(np.uint8).reshape(-1, codes.itemsize)[:, :width].tobytes())


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_audio_of_every_width_in_pieces(width: int, tmp_path: Path) -> None:
    full = 1 << (8 * width - 1)
    frames = np.array([[0, 0], [full // 2, full // 2], [-full, -full], [full // 4, full // 2], [-full, 0]])
    write_wave(tmp_path / "a.wav", frames, width)
    data = load(tmp_path, WAVE, rate=8000)
    assert lists(data) == [{"audio": [[0, 0.5, -1, 0.375]]}, {"audio": [[-0.5, 0, 0, 0]]}]
    (whole,) = load(tmp_path / "a.wav", FREE, rate=8000)
    assert whole["audio"].shape == (1, 1, 5)


def test_other_formats_of_audio(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", np.array([0, 0.5, -1, 0.25]), 8000)
    assert lists(load(tmp_path, WAVE, rate=8000)) == [{"audio": [[0, 0.5, -1, 0.25]]}]


def test_careless_audio(tmp_path: Path) -> None:
    write_wave(tmp_path / "a.wav", np.zeros((4, 1)), 2)
    with pytest.raises(DataError, match=r"give the rate that the model was trained on, --rate 16000"):
        load(tmp_path, WAVE)
    with pytest.raises(DataError, match=r"^'[^']*a.wav' has 8,000 samples in a second, not 16,000"):
        list(load(tmp_path, WAVE, rate=16000))
    with pytest.raises(DataError, match=r"holds audio, and the input 'input_ids' takes int64"):
        load(tmp_path, IDS, rate=8000)
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"a.wav' cannot be read as audio: it ends too early"):
        list(load(tmp_path, WAVE, rate=8000))
    (tmp_path / "a.wav").write_bytes(b"RIFF and nothing")
    with pytest.raises(DataError, match=r"a.wav' cannot be read as audio"):
        list(load(tmp_path, WAVE, rate=8000))


# Tables


def write_table(folder: Path, kind: str, columns: dict[str, list]) -> Path:
    table = pa.table(columns)
    if kind == "csv":
        rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        (folder / "t.csv").write_text("\n".join(rows) + "\n")
        return folder / "t.csv"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, folder / "t.parquet")
        return folder / "t.parquet"
    name = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet", "a data set on disk"])
def test_columns_of_a_table(kind: str, tmp_path: Path) -> None:
    path = write_table(tmp_path, kind, {"a": [1, 2], "b": [0.5, 0.25], "label": [7, 8]})
    data = load(path, FEATURES)
    assert lists(data) == [{"x": [[1, 0.5]]}, {"x": [[2, 0.25]]}]
    assert data.labels is not None and data.labels.tolist() == [7, 8] and not data.unused
    assert lists(load(path, FEATURES, columns=["b", "label"]))[0] == {"x": [[0.5, 7]]}
    one_each = InputInfo("a", TensorProto.INT64, ("n", 1)), InputInfo("b", TensorProto.DOUBLE, ("n",))
    assert lists(load(path, *one_each))[1] == {"a": [[2]], "b": [0.25]}
    named = load(path, one_each[0])
    assert lists(named)[0] == {"a": [[1]]} and list(named.unused) == ["b"]


def test_lists_and_text_in_a_table(tokenizer: Path, tmp_path: Path) -> None:
    columns = {"input_ids": [[1, 2], [3, 1]], "text": ["a b", "c"]}
    path = write_table(tmp_path, "parquet", columns)
    assert lists(load(path, IDS)) == [{"input_ids": [[1, 2]]}, {"input_ids": [[3, 1]]}]
    assert lists(load(path, IDS, tokenizer=tokenizer))[1] == {"input_ids": [[3]]}


def test_pictures_in_a_data_set(tmp_path: Path) -> None:
    file = BytesIO()
    Image.fromarray(np.full((2, 2, 3), 51, np.uint8)).save(file, "PNG")
    columns = {"image": [{"bytes": file.getvalue(), "path": "../../a.png"}], "label": [3]}
    path = write_table(tmp_path, "a data set on disk", columns)
    picture = InputInfo("x", TensorProto.FLOAT, ("n", 3, 2, 2))
    (feed,) = data = load(path, picture, scale=1)
    assert (feed["x"] == 51).all() and data.labels is not None and data.labels.tolist() == [3]


def test_careless_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    wide = "\n".join(",".join(f"{prefix}{at}" for at in range(64)) for prefix in ("c", "")) + "\n"
    for content, inputs, options, message in (
        (
            "a,b,c\n1,2,3\n",
            [FEATURES],
            {},
            "has 3 columns besides labels, the input 'x' takes 2; .*--columns",
        ),
        (wide, [InputInfo("x", 1, (1, 8, 8))], {}, "takes several; save its samples as arrays, in an .npz"),
        (wide, [FEATURES], {}, "of c0, c1, c2, c3, c4, c5, c6, c7 and 56 more"),
        (wide, [FEATURES], {"columns": ["c1"]}, "--columns names 1 of the columns of "),
        (wide, [FEATURES], {"columns": ["c1", "c_2"]}, r"has no column 'c_2' \(did you mean 'c2'\?\)"),
        ("a,b\n1,2\n", [FEATURES], {"columns": ["a", "d"]}, "has no column 'd'; its columns are a, b"),
        ("a,b\n1,red\n", [FEATURES], {}, "row 1, column 'b': 'red' does not fit the input 'x'"),
        ("a,b\n1\n", [FEATURES], {}, "line 2 has not as many fields as the first"),
        ("1,2\n3,4\n", [FEATURES], {}, "its first line holds numbers; put the names"),
        ("", [FEATURES], {}, "there is no sample"),
        ("a,a,b\n1,2,3\n", [FEATURES], {}, "its first line names the column 'a' twice"),
        (
            "input_ids\n1.5\n",
            [IDS],
            {},
            "row 1, column 'input_ids': '1.5' does not fit the input 'input_ids'",
        ),
        ("b\n256\n", [BYTE], {}, "row 1, column 'b': '256' does not fit the input 'b'"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            list(load(path, *inputs, **options))
    with pytest.raises(UsageError, match=r"'rate' is an option for audio, and '.*t.csv' holds tables"):
        load(path, FEATURES, rate=8000)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"t.parquet' cannot be read as a table"):
        load(tmp_path / "t.parquet", FEATURES)


def test_numbers_in_tables_are_never_cut(tmp_path: Path) -> None:
    path = write_table(tmp_path, "parquet", {"b": [2.0, 1.5]})
    feeds = iter(load(path, BYTE))
    assert next(feeds)["b"].tolist() == [2]
    with pytest.raises(DataError, match=r"row 2, column 'b': 1.5 does not fit the input 'b' \(uint8"):
        next(feeds)


def test_a_missing_text_is_no_text(tokenizer: Path, tmp_path: Path) -> None:
    path = write_table(tmp_path, "parquet", {"text": ["a", None]})
    with pytest.raises(DataError, match="row 2: None is no text"):
        list(load(path, IDS, tokenizer=tokenizer))


def test_a_data_set_names_no_file_elsewhere(tmp_path: Path) -> None:
    write_table(tmp_path, "a data set on disk", {"a": [1], "b": [2]})
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../secret.arrow"}]}))
    with pytest.raises(DataError, match=r"names files in other folders"):
        load(tmp_path, FEATURES)
    for text in ("[", "[" * 100_000):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(DataError, match=r"state.json' cannot be read"):
            load(tmp_path, FEATURES)


def test_a_folder_with_a_tokenizer_is_one(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b\n")
    assert lists(load(tmp_path / "a.txt", IDS, tokenizer=tokenizer.parent)) == [{"input_ids": [[1, 2]]}]


def test_splits_of_a_data_set_are_named(tmp_path: Path) -> None:
    for split in ("test", "train"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "state.json").write_text("{}")
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(DataError, match=r"the splits of a data set; give one of them: '.*/test', '.*/train'"):
        load(tmp_path, WAVE)


def test_columns_between_semicolons_and_the_cell_that_does_not_fit(tmp_path: Path) -> None:
    two = InputInfo("x", TensorProto.FLOAT, ("n", 2))
    (tmp_path / "t.csv").write_text("a;b\n1;2.5\n")
    assert lists(load(tmp_path / "t.csv", two)) == [{"x": [[1, 2.5]]}]
    (tmp_path / "t.csv").write_text("a;b\n1;2,5\n")
    with pytest.raises(
        DataError, match=r"row 1, column 'b': '2,5' does not fit .*; write numbers with a point"
    ):
        list(load(tmp_path / "t.csv", two))
    (tmp_path / "t.csv").write_text("a\tb\n1\tred\n")
    with pytest.raises(DataError, match=r"row 1, column 'b': 'red' does not fit the input 'x' \(float32"):
        list(load(tmp_path / "t.csv", two))
