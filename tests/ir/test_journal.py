"""The journal: numbers, limits, and what is taken back."""

from __future__ import annotations

import pytest
from support.models import parse

from qc.ir import lift
from qc.ir.graph import Op
from qc.ir.journal import LimitReached
from qc.ir.model import Model
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.rendering.remarks import count_by_rule

MODEL = "g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Relu(b) }"


@pytest.fixture
def model() -> Model:
    return lift(parse(MODEL))


def op(model: Model, op_type: str) -> Op:
    return next(op for op in model.graph.ops() if op.op_type == op_type)


def bypass(model: Model, op_type: str) -> None:
    """Removes an op in an action of its own."""
    rewriter, victim = Rewriter(model), op(model, op_type)
    with rewriter.action("bypass", victim):
        source, result = victim.inputs[0], victim.outputs[0]
        assert source is not None and result is not None
        rewriter.replace_uses(result, source)
        rewriter.erase_op(victim)


def place(model: Model, name: str) -> None:
    value = model.graph.value_named(name)
    assert value is not None
    model.quant.place(Site(value), QuantSpec.of("uint8"), "for the test", asked_by="test.toml, line 3")


def test_rewrites_and_decisions_share_one_numbering(model: Model) -> None:
    model.journal.pass_name = "some-pass"
    place(model, "x")
    bypass(model, "Neg")
    value = model.graph.value_named("b")
    assert value is not None
    model.quant.skip(value, "a float op", suggestion="ask for integers")
    place(model, "y")
    assert [str(remark) for remark in model.journal.remarks] == [
        "1 place q1 'x': for the test [test.toml, line 3]",
        "2 rewrite Neg of 'a': bypass",
        "skip 'b': a float op; ask for integers",
        "3 place q2 'y': for the test [test.toml, line 3]",
    ]
    assert [action.title for action in model.journal.actions()] == [
        "action 1 (some-pass: place 'x')",
        "action 2 (some-pass: bypass on Neg of 'a')",
        "action 3 (some-pass: place 'y')",
    ]
    assert model.journal.removed["a"].number == 2


def test_nothing_happens_beyond_the_limit(model: Model) -> None:
    model.journal.limit = 1
    bypass(model, "Neg")
    for act in (lambda: bypass(model, "Abs"), lambda: place(model, "x")):
        with pytest.raises(LimitReached):
            act()
    assert [o.op_type for o in model.graph.ops()] == ["Abs", "Relu"]
    assert len(model.quant) == 0 and model.journal.action_count == 1 and model.journal.stopped


def test_what_stops_inside_an_action_stops_all_that_follow(model: Model) -> None:
    model.journal.limit = 1
    op = next(iter(model.graph.ops()))
    with pytest.raises(LimitReached), Rewriter(model).action("two in one", op):
        place(model, "x")
    assert model.journal.action_count == 0 and model.journal.stopped
    with pytest.raises(LimitReached):
        place(model, "y")
    assert len(model.quant) == 0 and model.journal.remarks == []


def test_a_trial_is_not_limited_and_leaves_no_remark(model: Model) -> None:
    model.journal.limit = 0
    with Rewriter(model).trial():
        place(model, "x")
    assert model.journal.remarks == [] and len(model.quant) == 0 and not model.journal.stopped


def test_a_failed_action_takes_back_the_decisions_within(model: Model) -> None:
    with pytest.raises(ZeroDivisionError), Rewriter(model).action("rule", op(model, "Neg")):
        place(model, "x")
        raise ZeroDivisionError
    assert model.journal.remarks == [] and model.journal.action_count == 0


def test_a_rewrite_has_a_rule_and_perhaps_a_detail() -> None:
    model = lift(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
    rewriter = Rewriter(model)
    for detail in ("", "9 dB: less than 8 dB"):
        with rewriter.action("halve", op(model, "Neg"), detail):
            pass
    first, second = model.journal.actions()
    assert (first.reason, second.reason) == ("halve", "halve: 9 dB: less than 8 dB")
    assert first.rule == second.rule == "halve"
    assert second.title.endswith("halve on Neg of 'y')")
    assert [*count_by_rule(model.journal.remarks).values()] == [2]
