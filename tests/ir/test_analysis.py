"""Analyses: a result is kept as long as nothing that it was computed from changes, and not longer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edits import SPEC, named, producer, random_edits, sample
from support.models import parse

from qc.ir import lift
from qc.ir.analysis import CONSTANTS, QUANT, STRUCTURE, TYPES, Analysis, Lookups, analysis
from qc.ir.errors import VerificationError
from qc.ir.facts.dataflow import data_values, huge_values, infinite_values, masked_scores
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.graph import Graph, Region, topological_order
from qc.ir.model import Model
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

OF_ALL: list[Analysis] = [
    topological_order,
    data_values,
    huge_values,
    infinite_values,
    masked_scores,
]


@analysis(STRUCTURE)
def op_types(graph: Graph) -> list[str]:
    """The types of all ops."""
    return [op.op_type for op in graph.ops()]


@analysis(STRUCTURE, TYPES)
def ranks(graph: Graph) -> dict[str, int | None]:
    """The ranks of all values."""
    return {v.name: None if v.type.shape is None else len(v.type.shape) for v in graph.values()}


@analysis(STRUCTURE, CONSTANTS)
def sums(graph: Graph) -> dict[str, float]:
    """The sums of all constants."""
    return {v.name: float(v.const.numpy().sum()) for v in graph.values() if v.const is not None}


@analysis(QUANT)
def grids(graph: Graph) -> list[tuple[int, int | None, str]]:
    """Everything in the table of quantizers."""
    table = graph.model.quant
    return [(site.value.id, site.port, str(table.get(site))) for site in table.sites()]


OF_ONE = {STRUCTURE: op_types, TYPES: ranks, CONSTANTS: sums, QUANT: grids}


def computed(model: Model) -> dict[str, int]:
    return {name: count.computed for name, count in model.analyses.counts.items()}


def ask(model: Model) -> None:
    for each in OF_ONE.values():
        each(model.graph)


def place(model: Model, rewriter: Rewriter) -> None:
    model.quant.place(Site(named(model, "a")), SPEC, "test")


def skip(model: Model, rewriter: Rewriter) -> None:
    model.quant.skip(named(model, "z"), "test")


def freeze(model: Model, rewriter: Rewriter) -> None:
    model.quant.freeze(model.quant.quantizers()[0])


def set_type(model: Model, rewriter: Rewriter) -> None:
    with rewriter.action("test", named(model, "a")):
        rewriter.set_type(named(model, "a"), ValueType(1, (2, 3)))


def set_attribute(model: Model, rewriter: Rewriter) -> None:
    with rewriter.action("test", named(model, "a")):
        rewriter.set_attribute(producer(model, "a"), "k", 1)


def set_input(model: Model, rewriter: Rewriter) -> None:
    with rewriter.action("test", named(model, "a")):
        rewriter.set_input(producer(model, "z"), 0, named(model, "a"))


def add_region(model: Model, rewriter: Rewriter) -> None:
    model.add_region(Region("pair", model.graph, (producer(model, "a"), producer(model, "b"))), "test")


def add_constant(model: Model, rewriter: Rewriter) -> None:
    with rewriter.action("test", named(model, "a")):
        rewriter.add_constant(model.graph, np.ones(2, np.float32), "ones")


def nothing(model: Model, rewriter: Rewriter) -> None:
    model.graph.ops(), model.quant.sites()


CHANGES = {
    place: {QUANT},
    skip: {QUANT},
    freeze: {QUANT},
    set_type: {TYPES},
    set_attribute: {STRUCTURE},
    set_input: {STRUCTURE},
    add_region: {STRUCTURE},
    add_constant: {STRUCTURE, TYPES, CONSTANTS},
    nothing: set(),
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_only_what_reads_a_changed_aspect_is_computed_again(
    change: Callable[[Model, Rewriter], None],
) -> None:
    model = sample()
    ask(model)
    before = model.analyses.counts
    change(model, Rewriter(model))
    ask(model)
    again = {name for name, count in model.analyses.counts_since(before).items() if count.computed}
    expected = {each.name for each in OF_ONE.values() if CHANGES[change] & set(each.reads)}
    assert again - {"topological_order"} == expected
    model.analyses.check()


def test_a_local_analysis_outlives_changes_of_other_graphs_and_of_names() -> None:
    model = sample()
    branch = producer(model, "y").subgraphs["then_branch"]
    first = topological_order(model.graph), topological_order(branch)
    rewriter = Rewriter(model)
    with rewriter.action("test", named(model, "a")):
        rewriter.swap_names(named(model, "a"), named(model, "b"))
        rewriter.set_attribute(producer(model, "a"), "k", 1)
        inner = branch.ops()[0]
        rewriter.set_input(inner, 0, branch.ops()[-1].inputs[1])
    assert topological_order(model.graph) is first[0]
    assert topological_order(branch) is not first[1]


@given(st.data())
def test_no_edit_leaves_an_analysis_out_of_date(data: st.DataObject) -> None:
    model = sample()
    rewriter = Rewriter(model)
    tensors_by_name(model)
    for graph in model.graphs():
        for each in (*OF_ALL, *OF_ONE.values()):
            each(graph)
    if data.draw(st.booleans()):
        with rewriter.action("test", named(model, "a")):
            random_edits(model, rewriter, data.draw, 4)
    else:
        with rewriter.trial():
            random_edits(model, rewriter, data.draw, 4)
            grids(model.graph)
    model.analyses.check()


def test_the_check_finds_what_was_changed_behind_its_back() -> None:
    model = sample()
    ask(model)
    named(model, "a").type = ValueType(1, (1, 2, 3))
    with pytest.raises(VerificationError) as caught:
        model.analyses.check()
    assert str(caught.value).startswith("the analysis 'ranks' of graph 'g' is out of date")
    assert "(structure, types)" in str(caught.value)


def test_an_undone_action_leaves_no_result_of_its_middle() -> None:
    model = sample()
    before = op_types(model.graph)

    class Stop(Exception):
        pass

    rewriter = Rewriter(model)
    with pytest.raises(Stop), rewriter.action("test", named(model, "a")):
        rewriter.add_op(model.graph, "Neg", [named(model, "a")], ["more"])
        assert len(op_types(model.graph)) == len(before) + 1
        raise Stop
    assert op_types(model.graph) == before


def test_counts() -> None:
    model = sample()
    before = model.analyses.counts
    for _ in range(3):
        op_types(model.graph)
    counts = model.analyses.counts_since(before)
    assert (counts["op_types"].computed, counts["op_types"].reused) == (1, 2)
    assert counts["op_types"].seconds >= 0
    assert model.analyses.counts_since(model.analyses.counts) == {}
    assert Lookups(1, 2, 0.5).plus(Lookups(1, 1, 0.5)).minus(Lookups(1, 0, 1.0)) == Lookups(1, 3, 0.0)


def test_declarations_are_checked() -> None:
    with pytest.raises(ValueError, match="local"):
        analysis(TYPES, local=True)
    with pytest.raises(ValueError, match="'colours'"):
        analysis(STRUCTURE, "colours")


def test_names_of_all_scopes() -> None:
    model = lift(
        parse("""g (float[2] x, bool c) => (float[2] y) {
            y = If(c) <
                then_branch = t () => (float[2] r) { k = Neg(x) r = Abs(k) },
                else_branch = e () => (float[2] u) { u = Abs(x) }
            >
        }""")
    )
    found = tensors_by_name(model)
    assert list(found) == ["x", "c", "y", "k", "r", "u"]
    assert found["x"].graph is model.graph
