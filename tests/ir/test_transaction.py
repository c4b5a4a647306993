"""One transaction for graph and quantizers: what follows an edit, what tells of it, what is taken back."""

from __future__ import annotations

import numpy as np
import pytest
from support.edits import SPEC, aspects_of, named, producer, sample
from support.models import parse

import qc
from qc.ir import lift
from qc.ir.analysis import ASPECTS, CONSTANTS, STRUCTURE, TYPES
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.verifier import verify

# Two pairs that share scale and zero point; the second has two readers, and what it rounds is read elsewhere.
SHARED_GRID = """g (float[4] x) => (float[4] y, float[4] z, float[4] r) <float s = {0.1}, uint8 p = {0}> {
    q0 = QuantizeLinear(x, s, p)
    d0 = DequantizeLinear(q0, s, p)
    a = Relu(d0)
    r = Neg(a)
    q1 = QuantizeLinear(a, s, p)
    d1 = DequantizeLinear(q1, s, p)
    y = Abs(d1)
    z = Exp(d1)
}"""


@pytest.mark.parametrize("limit", range(12))
def test_every_limit_of_an_import_leaves_a_valid_model(limit: int) -> None:
    found = qc.compile(parse(SHARED_GRID), "import-qdq", allow_unquantized=True, action_limit=limit)
    verify(found.ir)
    assert found.ir.action_count <= limit


class Stop(Exception):
    """Ends an action."""


@pytest.fixture
def model() -> Model:
    return lift(parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Add(a, b) }"))


def use(model: Model, name: str, port: int) -> Site:
    """The reading by the op that makes the value of that name."""
    op = producer(model, name)
    value = op.inputs[port]
    assert value is not None
    return Site(value, op, port)


def test_a_use_keeps_its_quantizer_when_all_read_another_value(model: Model) -> None:
    own = model.quant.place(use(model, "y", 0), SPEC, "test")
    rewriter, a = Rewriter(model), named(model, "a")
    with rewriter.action("test", a):
        rewriter.replace_uses(a, named(model, "x"))
    verify(model)
    assert model.quant.of_use(named(model, "x"), producer(model, "y"), 0) is own
    assert model.quant.sites_on(a) == []


def test_a_use_keeps_its_quantizer_when_it_reads_another_value(model: Model) -> None:
    own = model.quant.place(use(model, "y", 0), SPEC, "test")
    rewriter, add = Rewriter(model), producer(model, "y")
    with rewriter.action("test", add):
        rewriter.set_input(add, 0, named(model, "b"))
    verify(model)
    assert model.quant.get(Site(named(model, "b"), add, 0)) is own


def test_a_use_that_is_left_out_has_no_quantizer(model: Model) -> None:
    model.quant.place(use(model, "y", 0), SPEC, "test")
    rewriter, add = Rewriter(model), producer(model, "y")
    with rewriter.action("test", add):
        rewriter.set_input(add, 0, None)
    verify(model)
    assert len(model.quant) == 0
    assert str(model.journal.remarks[-1]) == "3 remove q1 'a' into Add of 'y': the input was left out"


def test_the_journal_tells_of_quantizers_that_go_with_an_op(model: Model) -> None:
    for site in (use(model, "b", 0), Site(named(model, "b"))):
        model.quant.place(site, SPEC, "test")
    rewriter, abs_op = Rewriter(model), producer(model, "b")
    with rewriter.action("test", abs_op):
        rewriter.replace_uses(named(model, "b"), named(model, "a"), outputs=False)
        rewriter.erase_op(abs_op)
    verify(model)
    assert len(model.quant) == 0
    assert [str(remark) for remark in model.journal.remarks[3:]] == [
        "4 remove q1 'a' into Abs of 'b': the op was removed",
        "5 remove q2 'b': the tensor was removed",
    ]


def test_quantizers_inside_an_op_go_with_it() -> None:
    model = sample()
    owner = producer(model, "y")
    body = owner.subgraphs["then_branch"]
    inner = body.value_named("k")
    assert inner is not None
    model.quant.place(Site(inner), SPEC, "test")
    with Rewriter(model).action("test", owner):
        Rewriter(model).replace_uses(named(model, "y"), named(model, "e"))
        Rewriter(model).erase_op(owner)
    verify(model)
    assert model.quant.sites_on(inner) == []


def test_epochs_of_constants_and_types() -> None:
    model = sample()
    rewriter, w = Rewriter(model), named(model, "w")

    def advanced() -> set[str]:
        nonlocal before
        now = {aspect: getattr(model.epochs, aspect) for aspect in ASPECTS}
        found = {aspect for aspect in ASPECTS if now[aspect] > before[aspect]}
        before = now
        return found

    before = dict.fromkeys(ASPECTS, 0)
    advanced()
    with pytest.raises(Stop), rewriter.action("test", w):
        rewriter.set_constant(w, np.zeros(2, np.float32))
        assert advanced() == {CONSTANTS}
        raise Stop
    assert advanced() == {CONSTANTS}
    stray = None
    with rewriter.action("test", w):
        stray = rewriter.add_constant(model.graph, np.ones(2, np.float32), "stray")
        assert advanced() == {STRUCTURE, TYPES, CONSTANTS}
        rewriter.drop_unread(stray)
        assert advanced() == {STRUCTURE, TYPES, CONSTANTS}


def test_a_rollback_keeps_every_capture() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        n = Neg(x)
        k = Abs(x)
        y = If(c) <
            then_branch = t () => (float[2] r) { r = Exp(n) },
            else_branch = e () => (float[2] u) { u = Add(n, k) }
        >
    }"""
    model = lift(parse(text))
    n, k, owner = named(model, "n"), named(model, "k"), producer(model, "y")
    rewriter, before = Rewriter(model), aspects_of(model)
    with pytest.raises(Stop), rewriter.action("test", owner):
        rewriter.swap_names(n, k)
        rewriter.capture(owner.subgraphs["then_branch"], k)
        rewriter.replace_uses(n, k)
        raise Stop
    verify(model)
    assert aspects_of(model) == before
    assert users(model, n) == [owner] and users(model, k) == [owner]


def users(model: Model, value: Value) -> list[Op]:
    return value.capturing


def test_one_tensor_may_be_captured_twice_in_one_body() -> None:
    model = sample()
    owner, e = producer(model, "y"), named(model, "e")
    body = owner.subgraphs["then_branch"]
    rewriter = Rewriter(model)
    with rewriter.action("test", owner):
        inner = rewriter.capture(body, e)
        rewriter.set_input(body.ops()[-1], 1, inner)
    verify(model)
    assert [value.name for value in owner.captures].count("e") == 2


def test_decisions_within_an_action_belong_to_it(model: Model) -> None:
    before = aspects_of(model)
    with pytest.raises(Stop), Rewriter(model).action("test", producer(model, "a")):
        quantizer = model.quant.place(Site(named(model, "a")), SPEC, "test")
        model.quant.freeze(quantizer)
        model.quant.skip(named(model, "b"), "test")
        model.quant.scheme = "test"
        raise Stop
    assert aspects_of(model) == before
    assert model.journal.remarks == [] and model.action_count == 0


def test_a_trial_within_an_action_is_no_part_of_it(model: Model) -> None:
    rewriter, a = Rewriter(model), named(model, "a")
    with rewriter.action("test", a):
        before = aspects_of(model)
        with rewriter.trial():
            tried = rewriter.add_op(model.graph, "Relu", [a], ["tried"])
            assert tried.provenance == ()
        assert aspects_of(model) == before
        kept = rewriter.add_op(model.graph, "Relu", [a], ["kept"])
        assert kept.provenance == ("test", "'a'")
    verify(model)
    assert [str(remark) for remark in model.journal.remarks] == ["1 rewrite 'a': test"]


def test_an_action_within_a_trial_leaves_nothing_in_the_journal(model: Model) -> None:
    rewriter, b = Rewriter(model), producer(model, "b")
    with rewriter.trial(), rewriter.action("test", b):
        rewriter.replace_uses(named(model, "b"), named(model, "a"), outputs=False)
        rewriter.erase_op(b)
    verify(model)
    assert model.journal.removed == {} and model.journal.successors == {} and model.journal.remarks == []
