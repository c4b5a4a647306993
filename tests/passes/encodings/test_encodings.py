"""Encodings files, against those that AIMET-ONNX 2.42 wrote for one model (``tests/fixtures/aimet``)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folders import AIMET

from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.passes.encodings import (
    VERSIONS,
    Document,
    converted,
    dump_encodings,
    located,
    parse_encodings,
    read_encodings,
)
from qc.passes.encodings.comparison import compare

FILES = sorted(AIMET.glob("*.encodings"), key=lambda path: path.name)
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def model() -> Model:
    return lift(AIMET / "model.onnx")


def content(text: str) -> dict[str, Any]:
    """What a file says, without who says it."""
    found: dict[str, Any] = json.loads(text)
    del found["producer"]
    return found


def test_there_are_files_of_every_kind() -> None:
    assert len(FILES) == 11


@each_file
def test_a_file_is_written_as_aimet_wrote_it(path: Path, model: Model) -> None:
    for document in (read_encodings(path), located(read_encodings(path), model)):
        assert content(dump_encodings(document)) == content(path.read_text())


@each_file
@pytest.mark.parametrize("version", VERSIONS)
def test_there_and_back(path: Path, version: str, model: Model) -> None:
    document = located(read_encodings(path), model)
    if path.stem.startswith("lpbq") and version == "0.6.1":
        with pytest.raises(UsageError, match=r"'w1': version 0\.6\.1 has no two-level blocks"):
            dump_encodings(converted(document, version))
        return
    there = located(parse_encodings(dump_encodings(converted(document, version))), model)
    assert compare(document, there).is_equal
    back = located(parse_encodings(dump_encodings(converted(there, document.version))), model)
    first, second = document.by_name(), back.by_name()
    assert list(first) == list(second) or version == "0.6.1" or sorted(first) == sorted(second)
    for name, record in first.items():
        again = second[name]
        assert (record.format, record.granularity, record.axis, record.block_size) == (
            again.format,
            again.granularity,
            again.axis,
            again.block_size,
        )
        assert np.array_equal(record.scale, again.scale)
        assert np.array_equal(record.zero_point, again.zero_point)


@pytest.mark.parametrize("kind", ["channel", "block"])
def test_an_older_version_is_what_aimet_writes(kind: str, model: Model) -> None:
    newer = located(read_encodings(AIMET / f"{kind}_1.0.0.encodings"), model)
    older = (AIMET / f"{kind}_0.6.1.encodings").read_text()
    assert content(dump_encodings(converted(newer, "0.6.1"))) == content(older)


@pytest.mark.parametrize("kind", ["channel", "block", "lpbq"])
def test_versions_of_one_model_agree(kind: str, model: Model) -> None:
    first, second = (
        located(read_encodings(AIMET / f"{kind}_{v}.encodings"), model) for v in ("1.0.0", "2.0.0")
    )
    result = compare(first, second)
    assert (sorted(result.equal), result.different, result.only_first) == (
        ["r", "w1", "w2", "x", "y"],
        (),
        (),
    )
    assert result.only_second == ("b1", "f")  # biases and moved data, which only the newer version lists


@pytest.mark.parametrize(
    ("version", "key"), [("0.6.1", "param_encodings"), ("1.0.0", "param_encodings"), ("2.0.0", "encodings")]
)
def test_bare_parameters(version: str, key: str) -> None:
    content = json.loads((AIMET / f"channel_{version}.encodings").read_text())
    document = parse_encodings(json.dumps(content[key]), "f")
    whole = parse_encodings(json.dumps({"version": version, key: content[key]}))
    assert document.version == version and compare(document, whole).is_equal and document.records
    with pytest.raises(UsageError, match=r"'(y_)?scale' is missing \(did you mean '(y_)?scall'"):
        parse_encodings(json.dumps(content[key]).replace("scale", "scall"), "f")


def test_another_grid_is_told() -> None:
    first, second = (read_encodings(AIMET / f"{kind}_1.0.0.encodings") for kind in ("channel", "block"))
    found = {difference.name: difference for difference in compare(first, second).different}
    assert list(found) == ["r", "y", "w1", "w2"]
    assert found["w1"].detail == "8-bit integer against 4-bit integer"
    assert found["r"].what == "scale" and found["r"].relative == pytest.approx(0.0731, abs=1e-4)
    assert "r" not in {d.name for d in compare(first, second, tolerance=0.1).different}


def test_what_a_version_cannot_say() -> None:
    half = parse_encodings(
        '{"version": "1.0.0", "activation_encodings": '
        '[{"name": "x", "enc_type": "PER_TENSOR", "dtype": "FLOAT", "bw": 16}], "param_encodings": []}'
    )
    with pytest.raises(UsageError, match=r"'x': version 2\.0\.0 has no 16-bit floats"):
        dump_encodings(converted(half, "2.0.0"))
    small = parse_encodings(
        '{"version": "2.0.0", "encodings": [{"name": "x", "output_dtype": "float8e5m2", "y_scale": 0.5}]}'
    )
    for version in ("0.6.1", "1.0.0"):
        with pytest.raises(UsageError, match=f"'x': version {version} has no 8-bit floats; use .*2.0.0"):
            dump_encodings(converted(small, version))
    assert compare(small, parse_encodings(dump_encodings(converted(small, "2.1.0")))).is_equal
    two_level = read_encodings(AIMET / "lpbq_2.0.0.encodings")
    wide = replace(two_level, records=[replace(record, scale_bits=3) for record in two_level.records])
    with pytest.raises(
        UsageError, match=r"'w1': version 2\.0\.0 has two-level blocks of 4 bits only with as"
    ):
        dump_encodings(wide)
    with pytest.raises(UsageError, match=r"'w1': version 2\.0\.0 needs the axis .* give the model"):
        dump_encodings(converted(read_encodings(AIMET / "channel_1.0.0.encodings"), "2.0.0"))
    with pytest.raises(UsageError, match="there is no version '3'"):
        converted(half, "3")


def test_scales_that_do_not_fit_the_model(model: Model) -> None:
    text = (AIMET / "channel_1.0.0.encodings").read_text()
    swapped = text.replace('"w1"', '"-"').replace('"w2"', '"w1"').replace('"-"', '"w2"')
    with pytest.raises(
        UsageError, match=r"f: 'w2' has 4 scales, which do not fit a tensor of shape \[16, 6\]"
    ):
        located(parse_encodings(swapped, "f"), model)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"y_scale": [0.5] * 3, "axis": 0},
            r"f: 'w2' has 3 scales, which do not fit a tensor of shape \[16, 6\]",
        ),
        ({"y_scale": [0.5] * 6, "axis": 2}, r"f: 'w2' has axis 2, but is a tensor of shape \[16, 6\]"),
        ({"y_scale": [[0.5] * 6] * 3, "axis": 0, "block_size": 4}, "f: 'w2' has 18 scales, which do not fit"),
    ],
)
def test_axes_that_do_not_fit_the_model(changes: dict[str, Any], said: str, model: Model) -> None:
    entry = {"name": "w2", "output_dtype": "int8", **changes}
    document = parse_encodings(json.dumps({"version": "2.0.0", "encodings": [entry]}), "f")
    with pytest.raises(UsageError, match=said):
        located(document, model)


def test_axes_may_be_counted_from_the_last(model: Model) -> None:
    blocks = {"y_scale": [[0.5] * 6] * 4, "axis": -2, "block_size": 4}
    for entry in ({"y_scale": [0.5] * 6, "axis": -1}, blocks):
        text = json.dumps(
            {"version": "2.0.0", "encodings": [{"name": "w2", "output_dtype": "int8", **entry}]}
        )
        assert located(parse_encodings(text), model).records[0].axis == entry["axis"] + 2


@pytest.mark.parametrize("kind", ["block", "lpbq"])
def test_blocks_are_compared_without_a_model(kind: str) -> None:
    first, second = (read_encodings(AIMET / f"{kind}_{version}.encodings") for version in ("1.0.0", "2.0.0"))
    assert compare(first, second).different == ()


def test_other_axes_are_told() -> None:
    def document(**fields: Any) -> Document:
        entry = {"name": "w", "output_dtype": "int8", "y_scale": [[0.5] * 4] * 4, **fields}
        return parse_encodings(json.dumps({"version": "2.0.0", "encodings": [entry]}))

    first = document(axis=0, block_size=2)
    (axis,) = compare(first, document(axis=1, block_size=2)).different
    (size,) = compare(first, document(axis=0, block_size=4)).different
    assert axis.detail == "scales along axis 0 against 1" and size.detail == "blocks of 2 against 4"


def test_scales_of_a_tensor_that_is_computed(model: Model) -> None:
    text = (AIMET / "channel_1.0.0.encodings").read_text()
    made = next(value.name for value in model.graph.values() if value.const is None)
    swapped = text.replace(f'"{made}"', '"-"').replace('"w1"', f'"{made}"').replace('"-"', '"w1"')
    with pytest.raises(UsageError, match=f"'{made}' has 4 scales, which only constants can have"):
        located(parse_encodings(swapped, "f"), model)


ENTRY = {
    "name": "x",
    "enc_type": "PER_TENSOR",
    "dtype": "INT",
    "bw": 8,
    "is_sym": False,
    "scale": [0.5],
    "offset": [-3.0],
}


def wrong(**changes: Any) -> str:
    """A file with one entry in which something is wrong."""
    entry = {key: value for key, value in {**ENTRY, **changes}.items() if value is not ...}
    return json.dumps({"version": "1.0.0", "activation_encodings": [entry], "param_encodings": []})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "f is not valid JSON"),
        ("[]", "f must be an object, not a list"),
        ("{}", "f: 'version' is missing"),
        ('{"version": "1.0.1"}', "f: 'version' is '1.0.1' (did you mean '1.0.0'?); use 0.6.1, 1.0.0"),
        ('{"version": "1.0.0", "version": "1.0.0"}', "f: the key 'version' stands twice in one object"),
        ('{"version": "1.0.0", "quantizer_args": [8]}', "f: 'quantizer_args' must be an object"),
        ('{"version": "1.0.0", "params": []}', "f: there is no field 'params'"),
        (wrong(scale=[0.0]), "f, activation_encodings, 'x': 'scale' holds 0; every scale must be above zero"),
        (wrong(scale=[-1.0]), "'scale' holds -1; every scale must be above zero"),
        (
            wrong().replace("0.5", "NaN"),
            "f, activation_encodings, 'x': 'scale' holds nan, which is not finite",
        ),
        (wrong().replace("0.5", "1e999"), "'scale' holds inf, which is not finite"),
        (wrong(scale=[10**400]), "'scale' holds 10000000... (401 digits), which is not finite in float64"),
        (wrong(bw=10**400), "'bw' is 10000000... (401 digits); it must be 2 to 32"),
        (wrong().replace("0.5", "1" * 5000), "f is not valid JSON"),
        (wrong(scale=[1e-320]), "'x': 'scale' holds 9.99989e-321, which is 0 in float32"),
        (wrong(scale=[1e39]), "'x': 'scale' holds 1e+39, which is infinite in float32"),
        (wrong(offset=[-300]), "'x': 'offset' gives zero the code 300, but those of uint8 are 0 to 255"),
        (wrong(offset=[5]), "'offset' gives zero the code -5, but those of uint8 are 0 to 255"),
        (wrong(offset=[-1e30]), "'offset' gives zero the code 1e+30, but"),
        (wrong(offset=[5], is_sym=True), "gives zero the code -133, but those of int8 are -128 to 127"),
        (wrong(scale=["1"]), "'scale' must hold numbers, not the text '1'"),
        (wrong(scale=[]), "'scale' is an empty list"),
        (wrong(scale=[1.0, 2.0]), "'offset' has 1 numbers for 2 scales"),
        (wrong(scale=[1.0, 2.0], offset=[0, 0]), "'scale' has 2 numbers, but enc_type is PER_TENSOR"),
        (wrong(offset=...), "'offset' is missing"),
        (wrong(bw=1), "'bw' is 1; it must be 2 to 32"),
        (wrong(bw=float("nan")), "'bw' must be an integer, not the number nan"),
        (wrong(bw=float("inf")), "'bw' must be an integer, not the number inf"),
        (wrong(bw="8"), "'bw' must be an integer, not the text '8'"),
        (wrong(is_sym="yes"), "'is_sym' must be true or false, not the text 'yes'"),
        (wrong(dtype="INTT"), "'dtype' is 'INTT' (did you mean 'INT'?); use INT, FLOAT"),
        (wrong(enc_type="PER_CHANEL"), "(did you mean 'PER_CHANNEL'?)"),
        (wrong(scal=1), "there is no field 'scal' (did you mean 'scale'?)"),
        (wrong(name=3), "'name' must be a text, not the number 3"),
        (wrong().replace("[{", "[3, {"), "f, activation_encodings[0] must be an object, not the number 3"),
        (
            wrong().replace('"param_encodings": []', '"param_encodings": [' + json.dumps(ENTRY) + "]"),
            "two entries",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_encodings(text, "f")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output_dtype": "int9x"}, "'output_dtype' is not known"),
        ({"y_zero_point": 300}, "'y_zero_point' gives zero the code 300, but those of uint8 are 0 to 255"),
        ({"y_zero_point": 1.5}, "'y_zero_point' holds a number that uint8 does not have"),
        ({"axis": 10**400}, "'axis' is 10000000... (401 digits); it must be -64 to 63"),
        ({"y_zero_point": [1, 2]}, "'y_zero_point' has the shape (2,), the scale ()"),
        ({"y_scale": [1.0, 2.0]}, "'axis' is missing, but there are several scales"),
        ({"y_scale": [[1.0], [2.0]], "axis": 0}, "'block_size' is missing, but the scales are nested"),
        ({"y_scale": [[1.0], [2.0, 3.0]], "axis": 0}, "'y_scale' holds lists of different length"),
        ({"bw": 8}, "there is no field 'bw'"),
    ],
)
def test_what_is_wrong_in_version_2(changes: dict[str, Any], said: str) -> None:
    entry = {"name": "x", "output_dtype": "uint8", "y_scale": 0.5, **changes}
    with pytest.raises(UsageError) as caught:
        parse_encodings(json.dumps({"version": "2.0.0", "encodings": [entry]}), "f")
    assert said in str(caught.value)


def test_32_bits_without_a_sign_are_read_as_the_same_grid_with_one() -> None:
    entry = {"name": "x", "output_dtype": "uint32", "y_scale": 0.5, "y_zero_point": 2**31 + 3}
    (record,) = parse_encodings(json.dumps({"version": "2.0.0", "encodings": [entry]}), "f").records
    assert (str(record.format), float(record.zero_point)) == ("int32", 3)


@pytest.mark.parametrize(("symmetric", "offset"), [(False, -(2**30)), (True, -(2**31))])
@pytest.mark.parametrize("version", VERSIONS[2:])
def test_activations_of_32_bits_there_and_back(symmetric: bool, offset: int, version: str) -> None:
    entry = {"name": "x", "enc_type": "PER_TENSOR", "dtype": "INT", "bw": 32, "is_sym": symmetric}
    entry |= {"scale": [0.5], "offset": [offset]}
    text = json.dumps({"version": "1.0.0", "activation_encodings": [entry], "param_encodings": []})
    (before,) = parse_encodings(text).records
    there = parse_encodings(dump_encodings(converted(parse_encodings(text), version)))
    (record,) = there.records
    assert (str(record.format), record.zero_point) == ("int32", -(2**31) - offset)
    activation = replace(record, is_parameter=False)
    (back,) = converted(replace(there, records=[activation]), "1.0.0").records
    again = content(dump_encodings(Document("1.0.0", [back])))
    assert (
        again["activation_encodings"]
        == content(dump_encodings(Document("1.0.0", [before])))["activation_encodings"]
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offset": -300.0}, "'w': 'offset' gives zero the code 300, but those of uint8 are 0 to 255"),
        ({"scale": [0.5, 0.25]}, "'w': 'scale' must be one number, not a list"),
        ({"min": [0.0]}, "'w': 'min' must be one number, not a list"),
    ],
)
def test_what_is_wrong_in_version_0_6(changes: dict[str, Any], said: str) -> None:
    entry = {"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "scale": 1.0, "offset": 0.0, **changes}
    with pytest.raises(UsageError) as caught:
        parse_encodings(json.dumps({"version": "0.6.1", "param_encodings": {"w": [entry]}}), "f")
    assert said in str(caught.value)


def test_ends_that_contradict_the_scale() -> None:
    entry = {"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "scale": 1.0, "offset": 0.0}
    text = json.dumps({"version": "0.6.1", "param_encodings": {"w": [{**entry, "min": -9.0, "max": 255.0}]}})
    with pytest.raises(UsageError, match=r"'w': 'min' is -9, but scale and offset make it 0"):
        parse_encodings(text)


def test_a_mark_in_front_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f.encodings"
    path.write_text(wrong(), encoding="utf-8-sig")
    assert [record.name for record in read_encodings(path).records] == ["x"]


NUMBERS = st.one_of(st.integers(-3, 300), st.floats(-2, 2), st.booleans(), st.text(max_size=3), st.none())
JSON = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@given(
    version=st.sampled_from(VERSIONS),
    key=st.sampled_from([*ENTRY, "y_scale", "axis", "block_size", "output_dtype", "y_zero_point"]),
    value=JSON,
)
def test_anything_else_is_refused_cleanly(version: str, key: str, value: object) -> None:
    entry = {"name": "x", "output_dtype": "uint8", "y_scale": 0.5} if version >= "2" else dict(ENTRY)
    entry[key] = value
    sections = {"encodings": [entry]} if version >= "2" else {"activation_encodings": [entry]}
    try:
        document = parse_encodings(json.dumps({"version": version, **sections}))
    except UsageError:
        return
    assert isinstance(document, Document)
    assert compare(document, parse_encodings(dump_encodings(document))).is_equal
