"""Blocks: what they are to the catalogue, and what is none though it looks like one."""

from __future__ import annotations

import numpy as np
import pytest
from support.spellings import SPELLINGS
from support.spellings.networks import CONSTANTS, IMAGE

from qc.ir import lift
from qc.patterns import blocks, find_all, is_block, supergroup_names, supergroups

HEADS = "float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v"
ATTENTION = "kt = Transpose<perm = [0, 1, 3, 2]>(k); s = MatMul(q, kt); w = Softmax(s); y = MatMul(w, v)"


def names(graph, groups=None):
    return [match.name for match in find_all(graph, blocks() if groups is None else groups)]


def test_blocks_are_named_beside_the_groups_but_are_not_among_them():
    of_blocks = [block.name for block in blocks()]
    assert set(of_blocks) <= set(supergroup_names())
    assert {name for name in supergroup_names() if is_block(name)} == set(of_blocks)
    assert not {group.name for group in supergroups()} & set(of_blocks)
    assert [group.name for group in supergroups(["lstm_cell", "gelu"])] == ["gelu", "lstm_cell"]


def test_a_block_overlaps_with_the_groups_inside_it():
    (spelling,) = (s for s in SPELLINGS if "1 x 1 convolutions" in s.source)
    graph = lift(spelling.model()).graph
    assert names(graph) == ["squeeze_and_excite"]
    assert names(graph, supergroups()) == ["conv_relu", "conv_sigmoid"]


def test_the_state_of_an_lstm_is_a_result():
    (spelling,) = (s for s in SPELLINGS if s.source == "TorchScript, dynamo, LSTMCell")
    graph = lift(spelling.model()).graph
    (match,) = find_all(graph, supergroups(["lstm_cell"]))
    assert [value.name for value in match.results] == ["y", "cell"]
    assert graph.value_named("cell") not in match.inner


def test_attention_whose_weights_are_shown_is_only_its_parts(graph_of):
    assert names(graph_of(ATTENTION, inputs=HEADS)) == ["scaled_dot_product_attention"]
    assert names(graph_of(ATTENTION, inputs=HEADS, outputs="y w")) == []


def test_a_classifier_is_no_attention_and_its_bias_no_mask(graph_of):
    body = "p = MatMul(x, w); a = Add(p, b5); y = Softmax(a)"
    assert names(graph_of(body, constants=CONSTANTS)) == ["fully_connected"]
    body = "p = MatMul(x, w); q = MatMul(x, w); a = Add(p, q); y = Softmax(a)"
    assert names(graph_of(body, constants=CONSTANTS)) == ["fully_connected"] * 2


def test_a_gate_that_is_not_made_from_the_same_image_excites_nothing(graph_of):
    body = "p = GlobalAveragePool(z); d = Conv(p, down); r = Relu(d); u = Conv(r, up);"
    "g = Sigmoid(u); y = Mul(x, g)"
    graph = graph_of(body, inputs=f"{IMAGE}, float[2,8,6,6] z", constants=CONSTANTS)
    assert names(graph) == []


@pytest.mark.parametrize(("shape", "group"), [((8, 2, 3, 3), 4), ((8, 8, 3, 3), 1), ((8, 1, 1, 1), 8)])
def test_other_convolutions_are_not_depthwise(graph_of, shape, group):
    body = f"d = Conv<group = {group}>(x, other); r = Relu(d); y = Conv(r, point)"
    graph = graph_of(body, inputs=IMAGE, constants={**CONSTANTS, "other": np.ones(shape)})
    assert names(graph) == []


def test_heads_that_are_repeated_for_grouped_queries_are_not_resized(graph_of):
    body = "u = Unsqueeze(x, third); e = Expand(u, wide); y = Reshape(e, heads)"
    constants = {"third": np.array([2]), "wide": np.array([1, 2, 4, 5, 8]), "heads": np.array([1, 8, 5, 8])}
    assert names(graph_of(body, inputs="float[1,2,5,8] x", opset=13, constants=constants)) == []


def test_a_mean_of_two_states_is_no_gru(graph_of):
    body = "z = Sigmoid(x); k = Sub(one, z); a = Mul(z, h); b = Mul(k, c); y = Add(a, b)"
    graph = graph_of(body, inputs="float[2,8] x, float[2,8] h, float[2,8] c", constants=CONSTANTS)
    assert names(graph) == [], "the new state of a GRU is a hyperbolic tangent"


def test_a_matrix_product_of_two_inputs_is_not_fully_connected(graph_of):
    assert names(graph_of("y = MatMul(x, z)", inputs="float[4,8] x, float[8,4] z")) == []
