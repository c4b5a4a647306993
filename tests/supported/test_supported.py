"""The tables of what runtimes run: the rules of targets follow them, and the installed runtimes agree."""

from __future__ import annotations

import tomllib

import pytest
from support.models import parse, random_feeds

import qc
from qc.passes.framework.target import load_target
from qc.runtime.devices.known import DEVICES, open_device, version_of

from .catalogue import SAMPLES
from .offers import Offer, accepted, offers
from .tables import FOLDER, RUNTIMES, runtime_of, says, table, text


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_table_holds_all_that_is_offered(name: str) -> None:
    support = load_target(name).support
    assert support is not None
    assert list(support.ops) == sorted(SAMPLES)
    assert support.runtime.startswith(DEVICES[name].package)


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_table_is_what_it_was_made_of(name: str) -> None:
    target = load_target(name)
    assert target.support is not None
    found = {offer: says(target.support, offer) for offer in offers(target)}
    assert text(table(target, target.support.runtime, found)) == (FOLDER / f"{name}.toml").read_text()


@pytest.mark.parametrize("name", RUNTIMES)
def test_what_a_file_says_to_run_in_integers_is_run(name: str) -> None:
    """A rule that the table overrules would tell the reader of the file what is not so."""
    target = load_target(name)
    document = tomllib.loads((FOLDER.parent / f"{name}.toml").read_text())
    written = {op for op, rule in document["ops"].items() if rule.get("runs", "integer") == "integer"}
    assert not [op for op in written if target.rule_for(op).runs == "float"]


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_installed_runtime_agrees_with_its_table(name: str) -> None:
    device, target = DEVICES[name], load_target(name)
    if version_of(device) is None:
        pytest.skip(f"{device.package} is not installed")
    assert target.support is not None
    chosen = [
        Offer("Conv", "uint8", "int8 channel", 4),
        Offer("Conv", "uint8", "int16 tensor", 4),
        Offer("Erf", "uint8", "", 4),
        Offer("Gemm", "uint8", "int8 channel", 2),
        Offer("MatMul", "uint8", "int8 channel", 4),
        Offer("MaxPool", "uint8", "", 4),
        Offer("Transpose", "uint8", "", 4),
    ]
    found = accepted(chosen, open_device(name), target)
    wrong = [offer for offer in chosen if found[offer] is not says(target.support, offer)]
    seen_on = f"the table is of {target.support.runtime}, installed is {runtime_of(device)}"
    assert not wrong, f"{seen_on}; `make targets` writes it anew"


def test_what_the_runtime_refuses_stays_float() -> None:
    rule = load_target("qnn-htp").rule_for("Erf")
    assert rule.runs == "float" and rule.why is not None
    assert rule.why.startswith("onnxruntime-qnn") and rule.why.endswith("does not run it in uint8")


def test_a_weight_that_the_runtime_refuses_breaks_a_rule() -> None:
    text = "g (float[4, 64] x) => (float[4, 32] y) <float[64, 32] w> { y = MatMul(x, w) }"
    model = parse(text)
    made = qc.compile(
        model,
        "insert-quantizers,annotate-per-channel{block_size=32},calibrate,insert-qdq",
        data=random_feeds(model),
    ).model
    elsewhere = load_target("qnn-htp").model_copy(update={"provider": ""})  # as if the runtime were not here
    (op,) = qc.check(made, elsewhere).ops
    assert op.runs == "breaks" and op.rule == "support"
    assert "takes no weight of 'int8 block' beside uint8 data, as 'w' is" in op.why
