"""Edits through the rewriter: what each does, and that all of them can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edits import MODEL, SPEC, aspects_of, named, producer, random_edits, sample
from support.models import parse
from support.pipelines import check, run_model

from qc.ir import lift
from qc.ir.analysis import ASPECTS
from qc.ir.model import Model
from qc.ir.onnx.lower import lower, serialize
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.text import print_model
from qc.ir.value_type import ValueType
from qc.ir.verifier import verify


def snapshot(model: Model) -> tuple[object, ...]:
    """All that can be seen of a model."""
    journal = model.journal
    return (
        print_model(model),
        serialize(lower(model)),
        [[str(use) for use in value.uses] for graph in model.graphs() for value in graph.values()],
        sorted(model.names),
        aspects_of(model),
        [str(remark) for remark in journal.remarks],
        (journal.action_count, dict(journal.removed), dict(journal.successors)),
    )


class Stop(Exception):
    """Ends an action."""


@given(data=st.data(), count=st.integers(1, 12))
def test_an_exception_takes_all_edits_back(data: st.DataObject, count: int) -> None:
    model = sample()
    rewriter = Rewriter(model)
    before = snapshot(model)
    with pytest.raises(Stop), rewriter.action("try", producer(model, "b")):
        random_edits(model, rewriter, data.draw, count)
        raise Stop
    assert snapshot(model) == before
    verify(model)


@given(data=st.data(), count=st.integers(1, 12))
def test_a_trial_leaves_nothing_behind(data: st.DataObject, count: int) -> None:
    model = sample()
    rewriter = Rewriter(model)
    before = snapshot(model)
    with rewriter.trial():
        random_edits(model, rewriter, data.draw, count)
        with rewriter.trial():
            random_edits(model, rewriter, data.draw, count)
    assert snapshot(model) == before
    verify(model)


@given(data=st.data(), count=st.integers(1, 6))
def test_every_prefix_of_valid_edits_is_valid(data: st.DataObject, count: int) -> None:
    model = sample()
    rewriter = Rewriter(model)
    for _ in range(count):
        before = snapshot(model)
        ends_well = data.draw(st.booleans())
        with suppress(Stop), rewriter.action("try", model.graph.inputs[0]):
            random_edits(model, rewriter, data.draw, 2, valid=True)
            verify(model)
            if not ends_well:
                raise Stop
        verify(model)
        assert ends_well or snapshot(model) == before


@given(data=st.data(), count=st.integers(1, 8))
def test_epochs_tell_of_every_change_and_of_taking_it_back(data: st.DataObject, count: int) -> None:
    model = sample()
    rewriter = Rewriter(model)
    kept, known = epochs(model), aspects_of(model)

    def tell() -> None:
        nonlocal kept, known
        now, found = epochs(model), aspects_of(model)
        for aspect in ASPECTS:
            assert found[aspect] == known[aspect] or now[aspect] > kept[aspect], aspect
        kept, known = now, found

    with suppress(Stop), rewriter.action("try", producer(model, "b")):
        for _ in range(count):
            random_edits(model, rewriter, data.draw, 1, valid=True)
            tell()
        if data.draw(st.booleans()):
            raise Stop
    tell()


def epochs(model: Model) -> dict[str, int]:
    return {aspect: getattr(model.epochs, aspect) for aspect in ASPECTS}


def test_a_trial_ends_well_after_an_exception() -> None:
    model = sample()
    rewriter = Rewriter(model)
    before = snapshot(model)
    with pytest.raises(Stop), rewriter.trial():
        rewriter.set_opset("qc", 1)
        raise Stop
    assert snapshot(model) == before


def test_actions_are_numbered_and_name_their_subject() -> None:
    model = lift(parse(MODEL))
    rewriter, model.journal.pass_name = Rewriter(model), "some-pass"
    with rewriter.action("rule", producer(model, "a")) as first:
        rewriter.set_attribute(producer(model, "a"), "k", 1)
    with rewriter.action("other", named(model, "w")) as second:
        pass
    assert [action.title for action in model.journal.actions()] == [
        "action 1 (some-pass: rule on Add of 'a')",
        "action 2 (some-pass: other on 'w')",
    ]
    assert (first.number, second.number) == (1, 2)


def test_a_failed_action_is_not_counted() -> None:
    model = lift(parse(MODEL))
    with pytest.raises(Stop), Rewriter(model).action("rule", producer(model, "a")):
        raise Stop
    assert model.action_count == 0


def test_edits_need_an_action_and_do_nothing_without() -> None:
    model = sample()
    rewriter, before = Rewriter(model), snapshot(model)
    a, add = named(model, "a"), producer(model, "a")
    edits: list[Callable[[], object]] = [
        lambda: rewriter.add_value(model.graph, "n"),
        lambda: rewriter.add_constant(model.graph, np.ones(2), "n"),
        lambda: rewriter.add_defaults(model.graph, [a]),
        lambda: rewriter.add_op(model.graph, "Neg", [a], ["n"]),
        lambda: rewriter.set_input(add, 0, None),
        lambda: rewriter.set_input(add, 5, None),
        lambda: rewriter.replace_uses(a, named(model, "x")),
        lambda: rewriter.set_attribute(add, "k", 1),
        lambda: rewriter.set_type(a, ValueType()),
        lambda: rewriter.swap_names(a, named(model, "x")),
        lambda: rewriter.set_opset("qc", 1),
    ]
    for edit in edits:
        with pytest.raises(RuntimeError, match="edits belong into"):
            edit()
    assert snapshot(model) == before


def test_actions_do_not_nest() -> None:
    model = lift(parse(MODEL))
    rewriter = Rewriter(model)
    with (
        rewriter.action("outer", producer(model, "a")),
        pytest.raises(RuntimeError, match="do not nest"),
        rewriter.action("inner", producer(model, "a")),
    ):
        pass


def test_a_replaced_output_keeps_its_name_and_its_quantizer() -> None:
    model = sample()
    rewriter = Rewriter(model)
    a, quantizer = named(model, "a"), model.quant.of_value(named(model, "b"))
    model.quant.place(Site(a), quantizer or SPEC, "for the test")
    with rewriter.action("negate", a):
        op = rewriter.add_op(model.graph, "Neg", [a], ["a_negated"])
        result = op.outputs[0]
        assert result is not None
        rewriter.replace_uses(a, result, where=lambda use: use.op is not op)
    assert [value.name for value in model.graph.outputs if value] == ["y", "a", "z"]
    assert result.name == "a" and a.name == "a_negated"
    assert model.quant.of_value(result) is quantizer and model.quant.of_value(a) is None
    verify(model)
    lowered = lower(model)
    check(lowered)
    feed = {"x": np.ones(2, np.float32), "c": np.asarray(True)}
    np.testing.assert_array_equal(run_model(lowered, feed)["a"], [-2, -3])


def test_a_value_that_a_subgraph_captures_can_be_replaced() -> None:
    model = lift(parse(MODEL))
    rewriter = Rewriter(model)
    with rewriter.action("bypass", producer(model, "e")):
        rewriter.replace_uses(named(model, "e"), named(model, "b"))
        rewriter.erase_op(producer(model, "e"))
    verify(model)
    check(lower(model))
    branch = producer(model, "y").subgraphs["then_branch"]
    assert [value.name for value in branch.ops()[0].inputs if value] == ["b"]


def test_a_captured_value_that_gets_a_name_from_the_subgraph() -> None:
    text = """g (float[2] x, bool c) => (float[2] r, float[2] y) {
        a = Abs(x)
        y = If(c) <
            then_branch = t () => (float[2] r) { r = Neg(a) },
            else_branch = e () => (float[2] u) { r = Exp(x) u = Add(r, a) }
        >
        r = Identity(a)
    }"""
    model = lift(parse(text))
    rewriter = Rewriter(model)
    with rewriter.action("bypass", producer(model, "r")):
        identity = producer(model, "r")
        rewriter.replace_uses(named(model, "r"), named(model, "a"))
        rewriter.erase_op(identity)
    verify(model)
    lowered = lower(model)
    check(lowered)
    x = np.asarray([-2, 3], np.float32)  # ONNX Runtime refuses the original because of the repeated name
    for condition, y in ((True, -np.abs(x)), (False, np.exp(x) + np.abs(x))):
        results = run_model(lowered, {"x": x, "c": np.asarray(condition)})
        np.testing.assert_array_equal(results["r"], np.abs(x))
        np.testing.assert_allclose(results["y"], y, rtol=1e-6)


def test_names_of_captured_values_are_given_outside() -> None:
    model = lift(parse(MODEL))
    branch = producer(model, "y").subgraphs["then_branch"]
    captured = branch.value_named("e")
    other = branch.value_named("k")
    assert captured is not None and other is not None
    with (
        pytest.raises(ValueError, match="has its name from an enclosing graph"),
        Rewriter(model).action("swap", other),
    ):
        Rewriter(model).swap_names(captured, other)


def test_an_op_that_is_still_read_is_not_erased() -> None:
    model = lift(parse(MODEL))
    rewriter = Rewriter(model)
    with pytest.raises(ValueError, match="'e' is still read"), rewriter.action("erase", producer(model, "e")):
        rewriter.erase_op(producer(model, "e"))
    with pytest.raises(ValueError, match="'y' is still read"), rewriter.action("erase", producer(model, "y")):
        rewriter.erase_op(producer(model, "y"))


def test_erasing_takes_along_the_constants_that_nothing_else_reads() -> None:
    model = lift(parse(MODEL))
    rewriter = Rewriter(model)
    with rewriter.action("erase", producer(model, "b")):
        rewriter.replace_uses(named(model, "b"), named(model, "x"))
        rewriter.erase_op(producer(model, "b"))
    assert model.graph.value_named("v") is None
    assert model.graph.value_named("w") is not None


def test_a_default_input_can_be_fed() -> None:
    model = lift(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
    rewriter = Rewriter(model)
    with rewriter.action("add", producer(model, "y")):
        given = rewriter.add_constant(model.graph, np.asarray([3, 4], np.float32), "extra")
        rewriter.add_defaults(model.graph, [given])
        op = rewriter.add_op(model.graph, "Add", [named(model, "y"), given], ["sum"])
        total = op.outputs[0]
        assert total is not None
        rewriter.replace_uses(named(model, "y"), total, where=lambda use: use.op is not op)
    lowered, x = lower(model), np.asarray([1, 2], np.float32)
    np.testing.assert_array_equal(run_model(lowered, {"x": x})["y"], [2, 2])
    np.testing.assert_array_equal(run_model(lowered, {"x": x, "extra": x})["y"], [0, 0])


def test_new_names_are_unique_in_all_scopes() -> None:
    model = lift(parse(MODEL))
    rewriter = Rewriter(model)
    with rewriter.action("add", producer(model, "b")):
        names = [rewriter.add_value(model.graph, hint).name for hint in ("k", "k", "w", "new", "new")]
    assert names == ["k_1", "k_2", "w_1", "new", "new_1"]


def test_new_ops_stand_beside_what_they_came_from() -> None:
    text = "g (float[2] x) => (float[2] a, float[2] b, float[2] c) { a = Neg(x) b = Abs(x) c = Exp(x) }"
    model = lift(parse(text))
    rewriter = Rewriter(model)
    with rewriter.action("double", producer(model, "a")):
        new = rewriter.add_op(model.graph, "Log", [named(model, "x")], ["n"])
    assert [op.op_type for op in model.graph.ops()] == ["Neg", "Log", "Abs", "Exp"]
    assert new.provenance == ("double", "Neg of 'a'")
