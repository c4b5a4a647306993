"""ONNX Runtime's attention with a cache computes the same in the ops that it consists of."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.decomposed import types
from support.models import parse
from support.pipelines import run_model

import qc

GROUPED = "com.microsoft.GroupQueryAttention"
HEADS, SHARED, WIDTH, LONGEST = 4, 2, 16, 16


def grouped(
    queries: int, past: int, total: int, attributes: str = "", more: str = "", given: str = ""
) -> ModelProto:
    """A model of the op alone; ``packed`` among ``given`` says that all three are one tensor."""
    packed = "packed" in given
    wide = (HEADS + 2 * SHARED if packed else HEADS) * WIDTH
    new = f"float[1, {queries}, {SHARED * WIDTH}]"
    read = "q, , " if packed else "q, k, v"
    cache = f"float[1, {SHARED}, {past}, {WIDTH}]"
    bias = f", float[1, {HEADS}, {queries}, {total}] bias" if "bias" in more else ""
    model = parse(f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[1, {queries}, {wide}] q{"" if packed else f", {new} k, {new} v"}, {cache} pk, {cache} pv,
       int32[1] last{bias})
       => (float[1, {queries}, {HEADS * WIDTH}] y, float[1, A, B, C] nk, float[1, A, B, C] nv)
    <int32 total = {{{total}}}, float[{LONGEST}, {WIDTH // 2}] cos, float[{LONGEST}, {WIDTH // 2}] sin> {{
        y, nk, nv = {GROUPED}<num_heads = {HEADS}, kv_num_heads = {SHARED}{attributes}>
            ({read}, pk, pv, last, total{more})
    }}""")
    angles = np.arange(LONGEST)[:, np.newaxis] / 3.0 ** np.arange(WIDTH // 2)
    for name, array in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        tensor = next(one for one in model.graph.initializer if one.name == name)
        tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def feed_of(model: ModelProto, last: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input
    }
    feed = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return feed | {"last": np.array([last], np.int32)}


@pytest.mark.parametrize(
    ("queries", "past", "total", "attributes", "more", "given"),
    [
        (1, 5, 6, "", "", ""),
        (1, 5, 6, ", scale = 0.3, softcap = 2.0", "", "packed"),
        (3, 5, 8, ", do_rotary = 1", ", cos, sin", ""),
        (3, 5, 8, ", do_rotary = 1, local_window_size = 4", ", cos, sin", "packed"),
        (4, 0, 4, ", do_rotary = 1", ", cos, sin", ""),
        (2, 4, 6, "", ", , , , bias", ""),
        (1, 9, 6, ", do_rotary = 1", ", cos, sin", ""),
        (2, 9, 6, ", do_rotary = 1, local_window_size = 3", ", cos, sin", "packed"),
    ],
    ids=["one", "capped", "three", "window", "first", "biased", "room", "room-for-two"],
)
def test_it_is_two_products_where_no_kernel_runs_it_whole(
    queries: int, past: int, total: int, attributes: str, more: str, given: str
) -> None:
    model = grouped(queries, past, total, attributes, more, given)
    made = qc.compile(model, "decompose-ops", target="npu").model
    assert GROUPED.rpartition(".")[2] not in types(made) and types(made).count("MatMul") == 2
    feed = feed_of(model, total - 1)
    found, wanted = run_model(made, feed), run_model(model, feed)
    np.testing.assert_allclose(found["y"], wanted["y"], atol=1e-5)
    for name in ("nk", "nv"):  # what lies behind the last place is of no meaning
        assert found[name].shape == wanted[name].shape
        np.testing.assert_allclose(found[name][:, :, :total], wanted[name][:, :, :total], atol=1e-5)


@pytest.mark.parametrize("target", ["ort-cpu", "openvino"])
def test_it_stays_where_a_kernel_runs_it(target: str) -> None:
    model = grouped(1, 5, 6)
    assert types(qc.compile(model, "decompose-ops", target=target).model) == ["GroupQueryAttention"]


@pytest.mark.parametrize("what", ["smooth_softmax = 1", "rotary_interleaved = 1"])
def test_one_of_another_kind_stays(what: str) -> None:
    model = grouped(1, 5, 6, f", {what}")
    assert types(qc.compile(model, "decompose-ops", target="npu").model) == ["GroupQueryAttention"]


def test_one_of_a_length_that_is_data_stays() -> None:
    model = grouped(1, 5, 6)
    total = next(one for one in model.graph.initializer if one.name == "total")
    model.graph.initializer.remove(total)
    model.graph.input.extend(parse("g (int32 total) => (int32 y) { y = Identity(total) }").graph.input)
    assert types(qc.compile(model, "decompose-ops", target="npu").model) == ["GroupQueryAttention"]


def test_steps_of_a_cache_on_the_htp() -> None:
    """Every tensor has a grid, and the cache of one step is that of the next."""
    model = grouped(1, 5, 6, ", do_rotary = 1", ", cos, sin")
    feeds = [feed_of(model, 5) | {"q": feed_of(model, 5)["q"] * factor} for factor in (1.0, 0.5, 0.8)]
    made = qc.compile(model, "w8a8", data=feeds, target="qnn-htp")
    assert made.coverage.multiplied.quantized == made.coverage.multiplied.total
    found, wanted = run_model(made.model, feeds[1]), run_model(model, feeds[1])
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=0.05 * np.abs(array).max())
