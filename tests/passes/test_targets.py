"""Target files: what is wrong with one is said with its place, and with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from qc.ir.errors import UsageError
from qc.passes.target import load_target, target_names

GOOD = """
name = "mine"
summary = "a device"
[activation]
dtype = "uint8"
[weight]
dtype = "int4"
symmetric = true
[default]
runs = "float"
why = "the device cannot"
"""


def message(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_target(str(folder / "mine.toml"))
    assert "mine.toml" in str(caught.value)
    return str(caught.value).split("mine.toml'", 1)[1]


def test_a_target_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f"{GOOD}[ops]\nConv = {{ per_channel = false }}\n")
    target = load_target(str(tmp_path / "mine.toml"))
    assert (target.name, str(target.weight.spec())) == ("mine", "int4 symmetric")
    assert (target.rule_for("Conv").runs, target.rule_for("Conv").per_channel) == ("integer", False)
    assert target.rule_for("Gemm").why == "the device cannot"


@pytest.mark.parametrize("name", target_names())
def test_the_targets_of_qc_can_be_read(name: str) -> None:
    assert load_target(name).name == name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name =", "nmae =", ": there is no 'nmae' (did you mean 'name'?); known here: name, summary, "),
        ('dtype = "int4"', "dtpye = 4", ": there is no 'dtpye' in [weight] (did you mean 'dtype'?)"),
        ('summary = "a device"', "", ": 'summary' is missing"),
        ("uint8", "uin8", ": 'dtype' in [activation]: unknown number format 'uin8'; use int2 to int16, "),
        ('"float"', '"flaot"', ": 'runs' in [default]: input should be 'integer', 'between', 'carry' or"),
        ("name =", "name", " is not valid TOML: "),
    ],
)
def test_a_faulty_target(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert message(tmp_path, GOOD.replace(old, new)).startswith(said)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[ops]\nCovn = { runs = 'float' }", "ONNX has no op 'Covn' (did you mean 'Conv'?)"),
        ("[ops]\nConv = { run = 'float' }", "there is no 'run' in [ops.Conv] (did you mean 'runs'?)"),
        ("[ops]\nConv = 3", "'Conv' in [ops] must be a table"),
        ("[regions]\nconv_rleu = {}", "'conv_rleu' fits no supergroup (did you mean 'conv_relu'?)"),
    ],
)
def test_a_faulty_rule(tmp_path: Path, table: str, said: str) -> None:
    assert said in message(tmp_path, f"{GOOD}{table}\n")
