"""A text that is not right is one clear error with line and column, whatever is wrong with it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply
from support.text import MODEL, trip

from qc.ir.errors import ModelError, QcError
from qc.ir.model import Model
from qc.ir.onnx.lift import MAX_NESTING, lift
from qc.ir.text import data_path, load_text, parse_model, print_parts, save_text
from qc.ir.verifier import verify_input

HEAD = 'model ir 10 opset "" 21'
GRAPH = f"""{HEAD}
graph g(%x: float[2], %c: bool[]) {{
  const %w: float[2] = [1.0, 2.0]
  %a: float[2] = Add(%x, %w) @add {{axis=1}}
  %y: float[2] = Neg(%a)
  return %y
}}
"""

# What to replace by what, and the error. Positions are those of the text.
WRONG = [
    ("model", "madel", "line 1, column 1: expected 'model', found 'madel ir 10 opset \"\" 21'"),
    ('"" 21', '"" x', "line 1, column 22: expected a version, found 'x'"),
    ("float[2], %c", "flaot[2], %c", "line 2, column 13: expected a type, such as float[N,3], found"),
    ("%c: bool[]", "%x: bool[]", "line 2, column 23: %x is defined a second time"),
    ("[1.0, 2.0]", "[1.0]", "line 3, column 24: there are 1 numbers where the shape needs 2"),
    ("[1.0, 2.0]", "[1.0, 2.0", "line 4, column 3: expected ',', found '%a: float[2] = Add(%x, %'"),
    (" = [1.0, 2.0]", "", "the data of '%w' are not in the text; give the model"),
    ("[1.0, 2.0]", "@64", "line 3, column 24: the file of data is missing"),
    ("float[2] = [1.0", "float[N] = [1.0", "column 24: a constant has a type with a known shape"),
    ("Add(%x, %w)", "Add(%x, %v)", "line 4, column 26: nothing is named %v here"),
    ("Add(%x, %w)", "Add(%x %w)", "line 4, column 25: expected ',', found '%w) @add {axis=1}'"),
    ("Add(", "Add[", "line 4, column 21: expected '(', found '[%x, %w) @add {axis=1}'"),
    ("{axis=1}", "{axis=}", "line 4, column 41: expected the value of an attribute, found '}'"),
    ("{axis=1}", "{axis=1, axis=2}", "line 4, column 36: an attribute is given twice"),
    ("{axis=1}", "{axis=9999999999999999999}", "line 4, column 41: expected an integer from -9223"),
    ("{axis=1}", '{axis="a}', "line 4, column 44: expected the closing quote and valid escapes"),
    ("{axis=1}", '{axis="\\ud800"}', "column 41: expected valid Unicode"),
    ("{axis=1}", '{axis=raw "AAAA"}', "column 45: expected a JSON object, found"),
    ("{axis=1}", '{axis=raw {"i": 1]}', "column 52: expected valid JSON, found ']}'"),
    ("{axis=1}", '{axis=raw {"i": "a"}}', "column 45: expected the fields of AttributeProto as JSON"),
    ("{axis=1}", '{axis=raw {"": "AAAA"}}', "column 45: expected the fields of AttributeProto as JSON"),
    ("{axis=1}", '{axis=raw {"type": "GRAPH"}}', "column 41: the attribute 'axis' is a graph in disguise"),
    ("{axis=1}", '{axis=raw {"name": "b"} 1}', "column 45: 'name' is no further field of AttributeProto"),
    ("{axis=1}", '{axis=1} raw {"attribute": null}', "column 48: 'attribute' is no further field"),
    ("{axis=1}", '{axis=raw {"g": ' + '{"g": ' * 20_000, "column 45: expected"),
    ("%y: float[2] =", "%a: float[2] =", "line 5, column 3: %a is defined a second time"),
    ("%y: float[2] =", "%y =", "line 5, column 6: expected ':', found '= Neg(%a)'"),
    ("  return %y\n", "", "line 7, column 1: the graph 'g' ends without 'return'"),
    ("return %y", "return %y\n  return %y", "line 7, column 10: the graph 'g' has a second 'return'"),
    ("return %y", 'return %y raw {"n": 1}', "column 17: expected the fields of ValueInfoProto as JSON"),
    ("bool[]) {", 'bool[]) {\n  raw {"node": []}', "line 3, column 7: 'node' is no further field"),
    ("return %y", "return %y\n  value_info %y .. %x", "line 7, column 14: this is no run of values"),
    ("return %y", "return %y, %z", "column 14: nothing is named %z here"),
]  # fmt: skip

# What comes behind the graph, and the error.
WRONG_AFTER = [
    ("region r: %x", "line 8, column 11: there is no op %x in this graph"),
    ("region r in b of %y: %y", "line 8, column 10: there is no such graph"),
    ("quantizer q1 on %x: int99 open", "column 21: integer formats have 2 to 16 bits"),
    ("quantizer q1 on %x: int8 open", "line 8, column 26: expected 'asymmetric', found 'open'"),
    ("quantizer q1 on %x: int8 symmetric done", "column 36: expected a property of a quantizer"),
    ("quantizer q1 on %w into %y[0]: int8 symmetric open", "%w is not input 0 of this op"),
    ("quantizer q1 on %x, %x: int8 symmetric open", "'x' has two quantizers"),
    ("quantizer q1 on %x: int8 symmetric calibrated scale=-1.0 zero_point=0", "above zero"),
    ("quantizer q1 on %x: int8 symmetric open\nplaced q1, q1", "q1 has not so many sites"),
    ('float %z: "why"', "line 8, column 7: nothing is named %z in this graph"),
    ("something", "line 8, column 1: expected function, region, quantizer"),
]  # fmt: skip
WRONG += [("\n}\n", f"\n}}\n{line}\n", message) for line, message in WRONG_AFTER]


def test_the_text_that_is_spoilt_is_right() -> None:
    trip(parse_model(GRAPH))


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=lambda text: text[:40].replace("\n", " "))
def test_what_is_wrong_is_told_with_its_place(old: str, new: str, message: str) -> None:
    assert old in GRAPH
    with pytest.raises(ModelError) as caught:
        parse_model(GRAPH.replace(old, new, 1), source="m.qcir")
    assert str(caught.value).startswith("m.qcir, line ")
    assert message in str(caught.value)


def test_an_empty_text() -> None:
    with pytest.raises(ModelError, match="line 1, column 1: expected 'model', found the end"):
        parse_model("")


def test_comments_and_blanks_do_not_count() -> None:
    spread = re.sub(r"(?<=[,({]) ?(?=[%\w])", " // here\n\t", f"// first\n\n{GRAPH}// last")
    assert print_parts(parse_model(spread)).text == print_parts(parse_model(GRAPH)).text


def test_a_graph_cannot_read_what_comes_of_it() -> None:
    text = GRAPH.replace("Neg(%a)", "If(%c) {then_branch=graph t() { return %y }}")
    with pytest.raises(ModelError, match="nothing is named %y here"):
        parse_model(text)


def test_graphs_are_not_nested_without_end() -> None:
    def nested(depth: int) -> str:
        inside = "%r: float = Neg(%x) return %r"
        for _ in range(depth):
            inside = f"%r: float = If(%x) {{body=graph t() {{ {inside} }}}} return %r"
        return f"{HEAD}\ngraph g(%x: float) {{ {inside} }}"

    trip(parse_model(nested(MAX_NESTING)))
    with pytest.raises(ModelError, match=f"graphs are nested at most {MAX_NESTING} deep"):
        parse_model(nested(MAX_NESTING + 1))


def test_a_short_text_does_not_become_a_long_list() -> None:
    ops = "\n".join(f"%v{number}: float[2] = Neg(%x)" for number in range(500))
    runs = ", ".join(["%v0 .. %v499"] * 999)
    for lists in (f"value_info {runs}", f"later {runs}", "value_info %y " + "value_info %v0 .. %v499" * 999):
        with pytest.raises(ModelError, match=r"a value is named twice|has a second 'value_info'"):
            parse_model(GRAPH.replace("return %y", f"{ops}\n return %y\n {lists}"))


def test_absurd_shapes_and_numbers_take_no_memory() -> None:
    shape = ",".join(["9223372036854775807"] * 9)
    with pytest.raises(ModelError, match=r"there are 2 numbers where the shape needs \d+"):
        parse_model(GRAPH.replace("%w: float[2]", f"%w: float[{shape}]"))
    with pytest.raises(ModelError, match="expected the value of an attribute"):
        parse_model(GRAPH.replace("{axis=1}", "{axis=" + "9" * 100_000 + "}"))


# -- data -----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A text with a file of data."""
    model = parse("g (float[N, 8] x) => (float[N, 4] y) <float[8, 4] w> { y = MatMul(x, w) }")
    save_text(lift(model), tmp_path / "m.qcir")
    return tmp_path / "m.qcir"


def load_error(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_text(path)
    return str(caught.value)


def test_a_missing_file_of_data(saved: Path) -> None:
    data_path(saved).unlink()
    missing = f"the text needs the file '{data_path(saved)}', which does not exist or is no regular file"
    assert load_error(saved) == missing


def test_a_file_of_data_of_another_text(saved: Path) -> None:
    data_path(saved).write_bytes(bytes(100))
    column = saved.read_text().index(" data ") + 2
    assert f"line 1, column {column}: the text belongs to a file of 128 bytes" in load_error(saved)


def test_data_are_only_read_from_the_file_beside_the_text(saved: Path) -> None:
    other = saved.parent / "elsewhere"
    other.mkdir()
    data_path(saved).rename(other / "data")
    data_path(saved).symlink_to(other / "data")
    assert load_error(saved) == f"the file '{data_path(saved)}' is a link to another folder"
    text = saved.read_text().replace("data 128", "data 0").replace("@0", 'external "/etc/passwd" @0')
    saved.write_text(text)
    assert "the file of data is missing" in load_error(saved)


def test_numbers_beyond_the_file_of_data(saved: Path) -> None:
    saved.write_text(saved.read_text().replace("@0", "@1"))
    assert "line 3, column 26: the file of data has 128 bytes and ends before these" in load_error(saved)


def test_a_text_that_cannot_be_read(tmp_path: Path) -> None:
    assert "does not exist or is not a regular file" in load_error(tmp_path / "absent")
    assert "does not exist or is not a regular file" in load_error(tmp_path)
    (tmp_path / "binary").write_bytes(b"model \xff\xfe")
    assert load_error(tmp_path / "binary").endswith("is not UTF-8 text")


def test_given_data_must_fit() -> None:
    text = GRAPH.replace(" = [1.0, 2.0]", "")
    fitting = numpy_helper.from_array(np.asarray([3, 4], np.float32), "w")
    ir = parse_model(text, {"%w": fitting})
    value = ir.graph.value_named("w")
    assert value is not None and value.const is not None
    assert value.const.numpy().tolist() == [3, 4]
    for other in (numpy_helper.from_array(np.zeros(2), "w"), TensorProto(data_type=1, dims=[3])):
        with pytest.raises(ModelError, match="the data given for '%w' are of type"):
            parse_model(text, {"%w": other})


# -- anything at all ------------------------------------------------------------------------------------


def quantized() -> Model:
    model = parse("g (float[N, 4] x) => (float[N, 2] y) <float[4, 4] v, float[4, 2] w, float[2] b>"
                  "{ a = MatMul(x, v) r = Relu(a) y = Gemm(r, w, b) }")  # fmt: skip
    return apply(QUANTIZE, model, feeds=random_feeds(model))[0]


NUMBERS = ["0", "-1", "1e999", "9" * 19, "7"]


def mutated(chance: random.Random, text: str, pieces: list[str]) -> str:
    """The text with one to three changes: something gone, put in, moved, repeated or made another number."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice([0, 1, 1, 2, 5, 40]))
        piece = chance.choice(pieces)
        lines = text.split("\n")
        number = chance.choice(list(re.finditer(r"\d+", text)) or [re.search("", text)])
        assert number is not None
        text = chance.choice(
            [
                text[:start] + text[end:],
                text[:start] + piece + text[end:],
                "\n".join(chance.sample(lines, len(lines))),
                "\n".join([*lines[: start % len(lines)], chance.choice(lines), *lines[start % len(lines) :]]),
                text[: number.start()] + chance.choice(NUMBERS) + text[number.end() :],
            ]
        )
    return text


@pytest.mark.parametrize("seed", range(20))
def test_a_spoilt_text_is_an_error_or_a_model(seed: int) -> None:
    chance = random.Random(seed)
    printed = [print_parts(lift(parse(MODEL))), print_parts(quantized())]
    pieces = [piece for text, _ in printed for piece in re.findall(r"%[\w.]+|\w+|\W", text)]
    for _ in range(50):
        text, left_out = chance.choice(printed)
        try:
            model = parse_model(mutated(chance, text, pieces), left_out)
            verify_input(model)
        except QcError:
            continue
        trip(model)
