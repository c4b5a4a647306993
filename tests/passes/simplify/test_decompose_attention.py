"""Attention of opset 23 as the products that it consists of computes what it did."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from support.decomposed import agree, types
from support.models import parse
from support.pipelines import run_model

import qc

ATTENTIONS = {
    "plain": ("B, 4, L, 6", "B, 4, T, 6", "", ""),
    "booleans": ("2, 4, 3, 6", "2, 4, 5, 6", ", bool[2, 1, 3, 5] m", ""),
    "numbers": ("B, 4, L, 6", "B, 4, T, 6", ", float[B, 1, L, T] m", "scale = 0.5"),
    "causal": ("B, 4, 5, 6", "B, 4, 5, 6", "", "is_causal = 1, softcap = 2.0"),
    "grouped": ("B, 4, L, 6", "B, 2, T, 6", ", float[L, T] m", ""),
    "behind each other": ("B, L, 24", "B, T, 12", "", "q_num_heads = 4, kv_num_heads = 2"),
}


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_is_its_products_where_the_device_has_no_integers_for_it(kind: str) -> None:
    queries, keys, mask, attributes = ATTENTIONS[kind]
    given = attributes and f"<{attributes}>"
    model = parse(f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[{queries}] q, float[{keys}] k, float[{keys}] v{mask}) => (float[{queries}] y) {{
        y = Attention {given} (q, k, v{", m" if mask else ""})
    }}""")
    made = qc.compile(model, "decompose-ops", target="openvino").model
    assert types(made).count("MatMul") == 2 and "Attention" not in types(made)
    sizes, random = {"B": 2, "L": 3, "T": 5}, np.random.default_rng(0)
    shapes = [[sizes.get(n, n) for n in text.split(", ")] for text in (queries, keys, keys)]
    feed = dict(
        zip("qkv", (random.normal(size=[*map(int, s)]).astype(np.float32) for s in shapes), strict=True)
    )
    if mask:
        shown = random.random((3, 5)) < 0.7
        is_boolean = "bool" in mask
        lengths = (3, 5) if "[L" in mask else (2, 1, 3, 5)
        feed["m"] = np.broadcast_to(shown if is_boolean else shown.astype(np.float32), lengths).copy()
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-5)
    result = qc.compile(model, "w8a8", data=[feed], target="openvino", threads=1)
    assert result.coverage.multiplied.quantized == result.coverage.multiplied.total


@pytest.mark.parametrize("attributes", ["", "<is_causal = 1>"])
@pytest.mark.parametrize("is_constant", [False, True])
def test_a_row_that_a_mask_hides_as_a_whole_stays_zero(attributes: str, is_constant: bool) -> None:
    model = parse(f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v, bool[3, 3] m)
        => (float[1, 2, 3, 4] y) {{
        y = Attention {attributes} (q, k, v, m)
    }}""")
    random = np.random.default_rng(0)
    feed = {name: random.normal(size=(1, 2, 3, 4)).astype(np.float32) for name in "qkv"}
    mask = np.array([[False, True, True], [False, False, False], [True, True, False]])
    if is_constant:
        del model.graph.input[3:]
        model.graph.initializer.append(numpy_helper.from_array(mask, "m"))
    else:
        feed["m"] = mask
    made = qc.compile(model, "decompose-ops", target="openvino").model
    assert "Attention" not in types(made)
    found, wanted = (run_model(one, feed)["y"] for one in (made, model))
    assert not wanted[:, :, 1].any() and wanted[:, :, 2].all()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "call"),
    [
        (("B, 4, L, 6", "B, 2, L, 6", "B, 2, P, 6"), "(q, k, v, , p, r)"),
        (("2, 4, 3, 6", "2, 4, 3, 6", "2, 4, 5, 6"), "<is_causal = 1>(q, k, v, , p, r)"),
        (("2, 3, 24", "2, 3, 12", "2, 2, 5, 6"), "<q_num_heads = 4, kv_num_heads = 2>(q, k, v, m, p, r)"),
    ],
    ids=["free", "causal", "behind-each-other"],
)
def test_a_cache_stands_in_front_of_keys_and_values(shapes: tuple[str, str, str], call: str) -> None:
    queries, keys, past = shapes
    model = parse(f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[{queries}] q, float[{keys}] k, float[{keys}] v, float[{past}] p, float[{past}] r, bool[3, 8] m)
        => (float[{queries}] y, float[A, C, D, E] present, float[A, C, D, E] values) {{
        y, present, values = Attention {call}
    }}""")
    made = qc.compile(model, "decompose-ops", target="openvino").model
    assert "Attention" not in types(made) and types(made).count("Concat") == 2
    sizes, random = {"B": 2, "L": 3, "P": 5}, np.random.default_rng(0)
    lengths = dict(zip("qkvpr", (queries, keys, keys, past, past), strict=True))
    feed: dict[str, np.ndarray] = {
        name: random.normal(size=[sizes.get(n) or int(n) for n in text.split(", ")]).astype(np.float32)
        for name, text in lengths.items()
    }
    feed["m"] = np.tri(3, 8, 5, dtype=bool)
    found, wanted = run_model(made, feed), run_model(model, feed)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5)


def test_attention_that_counts_places_stays() -> None:
    model = parse("""<ir_version: 11, opset_import: ["" : 24]>
    g (float[1, 2, 1, 4] q, float[1, 2, 9, 4] k, int64[1] n) => (float[1, 2, 1, 4] y) {
        y = Attention (q, k, k, , , , n)
    }""")
    assert types(qc.compile(model, "decompose-ops", target="openvino").model) == ["Attention"]


@pytest.mark.parametrize(
    "attributes",
    [
        "left_window_size = 1",
        "left_window_size = 1, right_window_size = 2",
        "is_causal = 1, left_window_size = 2",
    ],
)
@pytest.mark.parametrize("places", [4, 2])
def test_a_window_goes_along_with_the_queries_behind_what_is_past(attributes: str, places: int) -> None:
    """The first query stands behind the cache, however many keys come with it."""
    new, both = f"2, 3, {places}, 8", f"2, 3, {places + 5}, 8"
    model = parse(f"""<ir_version: 10, opset_import: ["" : 25]>
    g (float[2, 3, 4, 8] q, float[{new}] k, float[{new}] v, float[2, 3, 5, 8] p, float[2, 3, 5, 8] r)
        => (float[2, 3, 4, 8] y, float[{both}] keys, float[{both}] values) {{
        y, keys, values = Attention <{attributes}> (q, k, v, , p, r)
    }}""")
    made = qc.compile(model, "decompose-ops", target="openvino").model
    assert "Attention" not in types(made)
    agree(made, model)


@pytest.mark.parametrize("attributes", ["is_causal = 1", "left_window_size = 1, right_window_size = 0"])
def test_a_row_that_a_mask_of_numbers_and_the_window_hide_is_zero(attributes: str) -> None:
    """As the first one behind a prompt that is filled up on the left."""
    model = parse(f"""<ir_version: 10, opset_import: ["" : 25]>
    g (float[1, 2, 3, 4] q, float[1, 2, 5, 4] k, float[1, 2, 5, 4] v) => (float[1, 2, 3, 4] y)
    <float[3, 5] m> {{ y = Attention<{attributes}>(q, k, v, m) }}""")
    mask = np.zeros((3, 5), np.float32)
    mask[:, 0] = -np.inf
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(mask, "m"))
    made = qc.compile(model, "decompose-ops", target="openvino").model
    assert "Attention" not in types(made)
    agree(made, model)
