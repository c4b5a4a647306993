"""What an oracle's text means, and what commands say."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from support.models import floats, model_of

from qc.ir.errors import UsageError
from qc.runtime import parse_metric
from qc.search import parse_oracle
from qc.search.commands import Command
from qc.search.oracle import CommandOracle, Fails, MetricOracle, OracleVerdict, Outcome


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("sqnr < 30", ("sqnr", "<", 30)),
        ("sqnr<30dB", ("sqnr", "<", 30)),
        (" sqnr (logits)<= 30.5 dB ", ("sqnr(logits)", "<=", 30.5)),
        ("cosine(a/b:0) < .99", ("cosine(a/b:0)", "<", 0.99)),
        ("sqnr(f(x)) < 1e1", ("sqnr(f(x))", "<", 10)),
        ("max_error >= -0.1", ("max_error", ">=", -0.1)),
        ("max-error > 0.1", ("max-error", ">", 0.1)),
        ("max-error(logits)>.1", ("max-error(logits)", ">", 0.1)),
        ("top-1 < 0.9", ("top-1", "<", 0.9)),
        ("top_5(logits) < 0.9", ("top_5(logits)", "<", 0.9)),
        ("sqnr < inf", ("sqnr", "<", math.inf)),
    ],
)
def test_conditions(text: str, meaning: tuple) -> None:
    oracle = parse_oracle(text)
    assert isinstance(oracle, MetricOracle)
    assert (oracle.name, oracle.sign, oracle.threshold) == meaning
    assert parse_oracle(str(oracle)) == oracle


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the oracle is empty"),
        ("sqrn < 30", "unknown metric 'sqrn' (did you mean 'sqnr'?)"),
        ("psnr(logits) > 3", "unknown metric 'psnr(logits)' (did you mean 'sqnr'?)"),
        (
            "a > 3",
            "unknown metric 'a'; known: cosine, ctc-K, equal, expected-accuracy, expected-iou, ",
        ),
        ("a > 3", "(a command is given with its path, such as ./a)"),
        ("my-metric > 3", "unknown metric 'my-metric'"),
        ("max error > 0.1", "unknown metric 'max error' (did you mean 'max-error'?)"),
        ("30 > sqnr", "no whole condition; write it as in 'sqnr < 30'"),
        ("top-0 < 0.9", "'top-0' needs a number of at least 1"),
        ("absent.py:accuracy < 0.9", "the Python file 'absent.py' for the metric does not exist"),
        ("absent.py:accuracy < high", "'high' is not a number"),
        ("sqnr = 30", "compare with one of <, <=, >, >=, not ="),
        ("sqnr != 30", "compare with one of"),
        ("sqnr < thirty", "'thirty' is not a number"),
        ("sqnr < nan", "'nan' is not a number"),
        ("max-error > 0.1 dBm", "'0.1 dBm' is not a number"),
        ("sqnr() < 30", "name an output in the parentheses"),
        ("sqnr", "no whole condition; write it as in 'sqnr < 30'"),
        ("cosine(logits)", "no whole condition"),
        ("max-error", "no whole condition"),
        ("sqnr 30", "no whole condition"),
        ("fail", "neither a condition nor a command (did you mean 'fails'?)"),
        ("cosinus", "neither a condition nor a command (did you mean 'cosine'?)"),
    ],
)
def test_what_is_meant_as_a_condition_is_no_command(text: str, fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_oracle(text)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    "text", ["./sqnr < 30", "python check.py {} > 3", "true", "check < list.txt", "! test -s"]
)
def test_all_else_is_a_command(text: str) -> None:
    assert parse_oracle(text) == CommandOracle(Command(text))
    assert parse_oracle("fails") == Fails()


def test_an_output_that_does_not_exist_or_fit() -> None:
    whole = helper.make_tensor_value_info("tokens", TensorProto.INT64, [2])
    model = model_of([], [floats("x", 2)], [floats("logits", 2), whole])
    parse_oracle("sqnr(logits) < 1").check(model)
    with pytest.raises(
        UsageError, match=r"'logit', which the model does not have \(did you mean 'logits'\?\)"
    ):
        parse_oracle("sqnr(logit) < 1").check(model)
    with pytest.raises(UsageError, match="the output 'tokens' has none; outputs with floats: 'logits'"):
        parse_oracle("sqnr(tokens) < 1").check(model)
    with pytest.raises(UsageError, match="the outputs have none; outputs with floats: none"):
        parse_oracle("sqnr < 1").check(model_of([], [floats("x", 2)], [whole]))


def test_gains_go_in_the_direction_of_the_metric(tmp_path: Path) -> None:
    sqnr, largest, cosine = map(parse_metric, ("sqnr", "max-error", "cosine"))
    assert sqnr.gain(10, 12) == 2 and largest.gain(3, 1) == 2
    assert sqnr.gain(math.inf, math.inf) == 0
    assert cosine.gain(math.nan, 0.5) == math.inf
    assert cosine.gain(0.5, math.nan) == -math.inf
    assert cosine.gain(math.nan, math.nan) == 0
    (tmp_path / "user.py").write_text("def loss(outputs):\n    return 1\n")
    oracle = parse_oracle(f"{tmp_path}/user.py:loss > 0.5")
    assert isinstance(oracle, MetricOracle)
    assert oracle.metric.gain(3, 1) == 2, "what is bad when it is high is better when it is low"


# -- commands -------------------------------------------------------------------------------------------


def test_the_path_is_put_in_or_appended(tmp_path: Path) -> None:
    path = tmp_path / "a model's name.onnx"
    path.write_text("weights")
    assert Command("test -s").run(path) == 0
    assert Command("test -d").run(path) == 1
    assert Command("test -s {} && test -f {} && exit 7").run(path) == 7
    assert Command("kill -9 $$; true").run(path) == 128 + 9


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'no-such-tool --x' cannot be run: .*not found"):
        Command("no-such-tool --x").run(tmp_path)


def test_a_command_out_of_time_ends_with_all_it_started(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    assert Command(f"(sleep 1; touch {sign}) & sleep 60; true", timeout=0.2).run(tmp_path) is None
    assert Command(f"(sleep 1; touch {sign}) & true").run(tmp_path) == 0
    time.sleep(1.2)
    assert not sign.exists()


@pytest.mark.parametrize(
    ("value", "above", "found"),
    [
        (34.96, True, 36),
        (41.2, True, 42),
        (0.99987, True, 0.99988),
        (0.5, True, 0.51),
        (-3.25, True, -3.1),
        (0.0799, False, 0.079),
        (1.0, False, 0.9),
        (0.0, False, None),
        (math.inf, True, None),
    ],
)
def test_a_threshold_beyond_what_was_measured(value: float, above: bool, found: float | None) -> None:
    oracle = parse_oracle("sqnr < 1" if above else "max-error > 1")
    said = oracle.suggestion(OracleVerdict(Outcome.GOOD, "", value))
    assert said == ("" if found is None else f"{oracle}".replace(" 1", f" {found:g}"))
