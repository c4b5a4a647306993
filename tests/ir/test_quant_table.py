"""The table of quantizers: placing, tying, freezing, and the log of decisions."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse

from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, PerChannel, Quantizer, QuantizerState, QuantSpec
from qc.ir.quant_table import Site

SPEC = QuantSpec.of("uint8")


@pytest.fixture
def model() -> Model:
    return lift(parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Add(a, a) y = Mul(a, b) }"))


def value(model: Model, name: str) -> Value:
    found = model.graph.value_named(name)
    assert found is not None
    return found


def op(model: Model, name: str) -> Op:
    found = value(model, name).producer
    assert found is not None
    return found


def place(model: Model, name: str, spec: QuantSpec | Quantizer = SPEC) -> Quantizer:
    return model.quant.place(Site(value(model, name)), spec, "for the test")


def numbers(spec: QuantSpec) -> Encoding:
    return Encoding(spec, np.asarray(0.5), np.asarray(3))


def test_a_use_has_its_own_quantizer_or_that_of_the_value(model: Model) -> None:
    whole = place(model, "a")
    a, add, mul = value(model, "a"), op(model, "b"), op(model, "y")
    use = model.quant.place(Site(a, add, 1), SPEC, "for the test")
    assert model.quant.of_use(a, add, 1) is use
    assert model.quant.of_use(a, add, 0) is whole is model.quant.of_use(a, mul, 0)
    assert model.quant.of_value(a) is whole
    assert model.quant.sites_on(a) == [Site(a), Site(a, add, 1)]
    assert len(model.quant) == 2
    assert [str(site) for site in model.quant.sites()] == ["'a'", "'a' into Add of 'b'"]


def test_a_site_holds_one_quantizer(model: Model) -> None:
    place(model, "a")
    with pytest.raises(UsageError, match="'a' already holds q1 uint8 asymmetric open"):
        place(model, "a")


def test_tied_sites_hold_the_same_object(model: Model) -> None:
    first, second, third = (place(model, name) for name in ("x", "a", "b"))
    model.quant.tie(first, [first, second, third], "they meet")
    assert model.quant.of_value(value(model, "b")) is first
    assert model.quant.quantizers() == [first]
    assert [site.value.name for site in model.quant.sites_of(first)] == ["x", "a", "b"]
    assert model.quant.sites_of(second) == []


def test_different_grids_cannot_be_tied(model: Model) -> None:
    first = place(model, "x")
    for spec in (QuantSpec.of("int8"), SPEC.with_granularity(PerChannel(0))):
        other = place(model, "a", spec)
        with pytest.raises(UsageError, match="cannot be tied to 'uint8 asymmetric'"):
            model.quant.tie(first, [other], "they meet")
        model.quant.remove(Site(value(model, "a")), "next")


def test_states(model: Model) -> None:
    quantizer = place(model, "x")
    assert quantizer.state is QuantizerState.OPEN
    model.quant.calibrate(quantizer, numbers(SPEC), "seen")
    assert quantizer.state is QuantizerState.CALIBRATED
    model.quant.freeze(quantizer)
    assert quantizer.state is QuantizerState.FROZEN
    assert str(quantizer) == "q1 uint8 asymmetric frozen"


def test_a_frozen_quantizer_is_left_alone(model: Model) -> None:
    quantizer, other = place(model, "x"), place(model, "a")
    encoding = numbers(SPEC)
    model.quant.calibrate(quantizer, encoding, "seen")
    model.quant.freeze(quantizer)
    before = list(model.journal.remarks)
    model.quant.calibrate(quantizer, numbers(SPEC), "again")
    model.quant.respec(quantizer, QuantSpec.of("int8"), "wish")
    assert quantizer.encoding is encoding and quantizer.spec == SPEC
    assert model.journal.remarks == before
    for keep, given in ((quantizer, other), (other, quantizer)):
        with pytest.raises(UsageError, match="one of the quantizers is frozen"):
            model.quant.tie(keep, [given], "they meet")


def test_another_spec_opens_a_quantizer(model: Model) -> None:
    quantizer = place(model, "x")
    model.quant.calibrate(quantizer, numbers(SPEC), "seen")
    model.quant.respec(quantizer, SPEC, "nothing new")
    assert quantizer.state is QuantizerState.CALIBRATED
    model.quant.respec(quantizer, QuantSpec.of("uint4"), "smaller")
    assert quantizer.state is QuantizerState.OPEN and str(quantizer.spec) == "uint4 asymmetric"


def test_a_quantizer_that_is_nowhere_cannot_be_changed(model: Model) -> None:
    site, other = (Site(value) for value in model.graph.values()[:2])
    quantizer, placed = (model.quant.place(one, SPEC, "test") for one in (site, other))
    model.quant.remove(site, "test")
    encoding = Encoding(SPEC, np.float32(1), np.int32(0))
    for change in (
        lambda: model.quant.calibrate(quantizer, encoding, "test"),
        lambda: model.quant.choose_codes(quantizer, np.zeros(1, int), "test"),
        lambda: model.quant.tie(quantizer, [placed], "test"),
    ):
        with pytest.raises(UsageError, match="quantizer q1 is at no site of the model"):
            change()


def test_every_decision_is_logged_with_its_reason(model: Model) -> None:
    quantizer = place(model, "x")
    model.quant.calibrate(quantizer, numbers(SPEC), "seen")
    model.quant.respec(quantizer, QuantSpec.of("uint4"), "smaller")
    model.quant.remove(Site(value(model, "x")), "not wanted")
    model.quant.skip(value(model, "a"), "a float op")
    model.quant.skip(value(model, "a"), "a float op")
    assert [str(remark) for remark in model.journal.remarks] == [
        "1 place q1 'x': for the test",
        "2 calibrate q1 'x': seen",
        "3 respec q1 'x': uint4 asymmetric: smaller",
        "4 remove q1 'x': not wanted",
        "skip 'a': a float op",
    ]
    assert model.quant.why_not(value(model, "a")) == "a float op"
    place(model, "a")
    assert model.quant.why_not(value(model, "a")) is None


def test_a_trial_takes_back_what_it_did_to_quantizers(model: Model) -> None:
    first, second = place(model, "x"), place(model, "a")
    model.quant.calibrate(first, numbers(SPEC), "seen")
    before, encoding = [str(site) for site in model.quant.sites()], first.encoding
    with model.transaction.trial():
        model.quant.remove(Site(value(model, "x")), "in the trial")
        model.quant.reopen(second, "in the trial")
        model.quant.respec(second, QuantSpec.of("int4"), "in the trial")
        model.quant.freeze(second)
        model.quant.drop_open()
        model.quant.scheme = "tried"
        assert len(model.quant) == 0
    assert [str(site) for site in model.quant.sites()] == before
    assert first.encoding is encoding and second.spec == SPEC and not second.frozen
    assert model.quant.scheme == "" and model.quant.why_not(value(model, "a")) is None
    assert place(model, "b").id == 3


def test_a_removed_site_comes_back_at_its_place(model: Model) -> None:
    for name in ("x", "a", "b"):
        place(model, name)
    with model.transaction.trial():
        model.quant.remove(Site(value(model, "x")), "in the trial")
    assert [site.value.name for site in model.quant.sites()] == ["x", "a", "b"]


def test_what_an_action_did_to_quantizers_is_taken_back_with_it(model: Model) -> None:
    with pytest.raises(ZeroDivisionError), model.transaction.atomic():
        place(model, "x")
        raise ZeroDivisionError
    assert len(model.quant) == 0
