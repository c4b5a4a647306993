"""What is given to a compilation in Python, and the one sentence if it is something else."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import pytest
from support.models import parse, random_feeds

import qc
from qc.ir.base.fix_shape import named_length
from qc.ir.errors import UsageError
from qc.passes import PrintModel
from qc.passes.quantize.precision.rules import parse_rule, rules_of
from qc.runtime import OrtExecutor, evaluate

FREE = "g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w> { y = MatMul(x, w) }"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"executor": 5}, "executor= takes what runs models, such as qc.runtime.OrtExecutor(), not an 'int'"),
        ({"executor": OrtExecutor}, "not a 'type'"),
        ({"progress": 5}, "progress= takes what shows progress"),
        ({"instruments": 5}, "instruments= takes a list of qc.passes.Instrument, not an 'int'"),
        ({"instruments": [PrintModel]}, "not a 'type'"),
        ({"fix_shapes": 5}, "fix_shapes= takes text such as 'NAME=1', or a list of it, not 5"),
        ({"fix_inputs": [3]}, "fix_inputs= takes text such as 'NAME=1', or a list of it, not 3"),
        ({"fix_shapes": b"N=1"}, "fix_shapes= takes text such as 'NAME=1', or a list of it, not b'N=1'"),
        ({"fix_shapes": {1: "N"}}, "fix_shapes= takes text such as 'NAME=1', or a list of it, not 1"),
        ({"fix_shapes": ""}, "fix_shapes= takes text such as 'NAME=1', which '' is not: leave it out"),
        ({"fix_inputs": ["n=1", ""]}, "fix_inputs= takes text such as 'NAME=1', which '' is not"),
        ({"data": ""}, "data='' is empty"),
        ({"model": ""}, "model='' is empty"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(given: dict[str, object], sentence: str) -> None:
    source = parse(FREE)
    with pytest.raises(UsageError) as caught:
        qc.compile(**{"model": source, "data": random_feeds(source, 2), **given})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", ["fix_shapes", "fix_inputs"])
def test_a_lone_text_is_a_list_of_one(name: str) -> None:
    alone, listed = (qc.Compilation(parse(FREE), **{name: given}) for given in ("N=2", ["N=2"]))
    assert getattr(alone, name) == getattr(listed, name) == ("N=2",)


@pytest.mark.parametrize("name", ["fix_shapes", "fix_inputs"])
def test_a_mapping_is_names_with_values(name: str) -> None:
    given = qc.Compilation(parse(FREE), **{name: {"N": 2, "M": np.int64(3)}})
    assert getattr(given, name) == ("N=2", "M=3")


@pytest.mark.parametrize("name", ["instruments", "precision", "fix_shapes", "fix_inputs"])
def test_none_is_nothing(name: str) -> None:
    assert getattr(qc.Compilation(parse(FREE), **{name: None}), name) == ()


def test_a_mapping_is_rules_of_precision() -> None:
    rules = {"MatMul": "w4", "y": "off"}
    assert qc.Compilation(parse(FREE), precision=rules).precision == ("MatMul=w4", "y=off")
    made = qc.compile(parse(FREE), data=random_feeds(parse(FREE), 2), precision=rules, threads=1)
    assert made.weights["w"].format == "int4"
    qc.set_precision(made.ir, {"MatMul": "w2"})
    assert made.ir.quant.quantizers()[-1].spec.format.bits == 2


def test_a_key_of_precision_that_is_no_text_is_refused() -> None:
    for key in (parse_rule("Conv=w4"), 5):
        with pytest.raises(UsageError, match="a key of precision is text such as 'Conv', not "):
            rules_of({key: "a8"})  # type: ignore[dict-item]


@pytest.mark.parametrize("text", [" " * 200_000 + "=w4", "\\ " * 50_000 + "x=w4"])
def test_a_rule_of_many_blanks_is_read_at_once(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(UsageError):
        parse_rule(text)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("number", ["3", "003", "0" * 5000 + "3"])
def test_a_length_may_have_zeros_in_front(number: str) -> None:
    assert named_length(f"b={number}") == ("b", 3)


@pytest.mark.parametrize("number", ["\u0663", "3\u0663", "\u00b2", "", "0", "-1", str(2**63), "9" * 5000])
def test_what_is_no_length(number: str) -> None:
    with pytest.raises(ValueError, match="NAME=N with N from 1"):
        named_length(f"b={number}")


def test_a_mapping_gives_a_length() -> None:
    made = qc.compile(parse(FREE), "decompose-ops", fix_shapes={"N": 2}, allow_unquantized=True).model
    assert [dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim] == [2, 4]


def test_a_result_is_no_model_and_has_one() -> None:
    source = parse(FREE)
    data = random_feeds(source, 2)
    made = qc.compile(source, data=data, threads=1)
    with pytest.raises(UsageError, match=r"not a 'Compiled'; its \.model is one"):
        qc.check(made, "ort-cpu")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="candidate 'q' is a 'Compiled', and neither a model nor runs one"):
        evaluate(source, {"q": made}, data)  # type: ignore[dict-item]


def test_a_name_of_precision_may_end_in_a_blank(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[[precision]]\ntensor = "y. "\nprecision = "off"')
    for given in (tmp_path / "r.toml", {"tensor:y. ": "off"}, "tensor:y.\\ = off"):
        assert parse_rule(rules_of(given)[0].text).name == "y. "
    assert parse_rule("Conv = w4a8").name == "Conv"
    precision = qc.Compilation(parse(FREE), precision={"tensor:y. ": "off"}).precision
    assert precision == ("tensor:y.\\ =off",)
