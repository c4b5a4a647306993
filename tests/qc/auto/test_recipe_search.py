"""What a search for a recipe may be asked, from Python."""

from __future__ import annotations

import math
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds

from qc import find_recipe
from qc.auto import Judge, MaxDrop, RecipeSearch, ladder
from qc.ir.errors import UsageError
from qc.runtime import load_data, model_inputs, parse_metric

MODEL, DATA = "model.onnx", "calibration.npz"


PRODUCTS = """g (float[n, 64] x) => (float[n, 64] y) <float[64, 256] v> {
    w = Constant <value = float[256, 64] {SIZE}> ()
    a = MatMul (x, v)
    y = MatMul (a, w)
}"""
CONVOLUTION = """g (float[n, 16, 4, 4] x) => (float[n, 64] y) <float[16, 16, 4, 4] v, float[16, 64] w> {
    a = Conv (x, v)
    b = Flatten (a)
    y = MatMul (b, w)
}"""


def test_fewer_bits_than_four_have_recipes_of_their_own() -> None:
    for bits, weights in ((2.5, 2), (5.5, 4)):
        recipes = [one for one in ladder(weights) if one.only_for != "products"]
        assert RecipeSearch(parse(CONVOLUTION), data=DATA, bits=bits).ladder == recipes


def test_recipes_that_are_all_for_other_models() -> None:
    recipes = [one for one in ladder(4) if one.only_for == "products"]
    with pytest.raises(UsageError, match="no recipe is for this model and target"):
        RecipeSearch(parse(CONVOLUTION), data=DATA, recipes=recipes).check()


@pytest.mark.parametrize(
    ("text", "target", "is_tried"),
    [
        (PRODUCTS, "ort-cpu", True),
        (PRODUCTS, "npu", False),  # which runs what stays float in float
        (CONVOLUTION, "ort-cpu", False),
    ],
)
def test_weights_in_blocks_are_tried_where_nearly_all_are_of_products(
    text: str, target: str, is_tried: bool
) -> None:
    zeros = "{" + ", ".join("0" for _ in range(256 * 64)) + "}"
    model = parse(text.replace("{SIZE}", zeros))
    search = RecipeSearch(model, data=random_feeds(model), weights=4, target=target)
    assert any(one.name.startswith("blocks of 16") for one in search.ladder) == is_tried


@pytest.mark.parametrize(
    ("given", "drop"),
    [
        ("1%", MaxDrop(0.01)),
        (" .5 ", MaxDrop(0.5, False)),
        (1e-5, MaxDrop(1e-5, False)),
        (2, MaxDrop(2, False)),
    ],
)
def test_a_drop_is_a_share_or_a_number(given, drop: MaxDrop) -> None:
    assert MaxDrop.parse(given) == drop


@pytest.mark.parametrize("given", ["-1%", "nan", -1.0, math.nan, math.inf, "", "one"])
def test_what_is_no_drop(given) -> None:
    with pytest.raises(UsageError, match=r"a drop is a share such as 1% or a number such as 0\.5"):
        MaxDrop.parse(given)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"minutes": math.nan}, "minutes=nan is not a number above 0"),
        ({"minutes": "1"}, "minutes='1' is not a number above 0"),
        ({"jobs": 1.5}, "jobs=1.5 is not a whole number of at least 1"),
        ({"points": -1}, "points=-1 is not a whole number of at least 0"),
        ({"weights": 4.5}, "weights=4.5 is not a whole number of at least 2"),
        ({"weights": 9}, "weights=9 is more than 8"),
        ({"bits": "x"}, "a weight has 2 to 32 bits on average, not 'x'"),
        ({"metric": len}, "the metric is a text, such as 'file.py:function', or a Metric, not <built-in"),
        ({"candidates": ["w8a8"]}, "candidates are a text such as 'w4a8,w8a8,float', not ['w8a8']"),
        ({"candidates": "w8"}, "a candidate is w and a with 2 to 16 bits"),
        ({"labels": 3}, "labels are a sequence with one for each sample, or an .npy file of them, not 3"),
        ({"recipes": 3}, "recipes are a list of qc.auto.Recipe, or a .toml file of them, not 3"),
        ({"recipes": ["w8a8"]}, "recipes are a list of qc.auto.Recipe, and 'w8a8' is none"),
        ({"cache": ""}, "cache='' is empty; it is the path of a folder"),
        ({"on": 3}, "on is the name of a device, such as 'openvino', not 3"),
        ({"on": "openvino", "device_options": ["a"]}, "device options are a dictionary, not ['a']"),
        ({"pool": 3}, "pool= takes what runs functions elsewhere, as a concurrent.futures.Executor does"),
        ({"on_trial": 3}, "on_trial= takes what can be called with a trial, not an 'int'"),
        ({"progress": 3}, "progress= takes what shows progress, see qc.passes.Progress, not an 'int'"),
    ],
)
def test_what_is_no_search(settings: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        search = RecipeSearch(MODEL, data=DATA, **settings)
        assert search.mixing and search.ladder


def test_tables_and_weights_of_products_have_4_bits_in_blocks_of_16() -> None:
    model = parse("""g (int64[2, 3] i) => (float[2, 3, 64] y) <float[512, 64] table, float[64, 64] w> {
        x = Gather (table, i)
        y = MatMul (x, w)
    }""")
    data = random_feeds(model)
    recipes = [one for one in RecipeSearch(model, data=data, weights=4).ladder if one.only_for == "products"]
    found = find_recipe(model, data=data, recipes=recipes, max_drop=0.99)
    stored = {
        node.op_type: [onnx.helper.get_node_attr_value(node, name) for name in ("bits", "block_size")]
        for node in found.compiled.model.graph.node
    }
    assert stored == {"GatherBlockQuantized": [4, 16], "MatMulNBits": [4, 16]}


def test_activations_of_16_bits_come_before_8_bits_with_rounded_weights_where_a_target_has_them() -> None:
    for target, place in (("qnn-htp", [2, 3]), ("ort-cpu", [])):
        recipes = RecipeSearch(parse(CONVOLUTION), data=DATA, target=target).ladder
        assert [index for index, one in enumerate(recipes) if one.only_for == "wide-data"] == place


def test_shifted_means_are_taken_back_by_default() -> None:
    """Saturated data, as recurrent layers give it, whose products cancel out: rounded weights shift them."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], 64)
    weight = rng.standard_normal((64, 8))
    weight -= np.outer(signs, signs @ weight) / 64
    text = "<float[64, 8] w, float[8] b> { m = MatMul(x, w) y = Add(m, b) }"
    model = parse(f"g (float[16, 64] x) => (float[16, 8] y) {text}")
    for tensor, array in zip(model.graph.initializer, (weight, rng.standard_normal(8) / 100), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    feeds = [{"x": (signs + rng.normal(0, 0.02, (16, 64))).astype(np.float32)} for _ in range(8)]
    found = find_recipe(model, data=feeds, target="npu", threads=1)
    assert found.is_accepted and found.best.recipe.name == "default"
    once = find_recipe(model, data=feeds[:1], target="npu", threads=1)  # a single sample corrects no bias
    assert once.best.recipe.name != "default"


def test_recipes_for_products_come_behind_the_quicker_one() -> None:
    assert [one.only_for == "products" for one in ladder(4)][:2] == [False, True]


def test_for_a_device_that_is_not_at_hand_the_simulation_of_its_codes_is_judged() -> None:
    model = parse("g (float[2, 64] x) => (float[2, 9] y) <float[64, 9] w> { p = MatMul(x, w)  y = Relu(p) }")
    feeds = random_feeds(model, 8)
    limit = MaxDrop(100.0, is_share=False)
    settings: dict = {"metric": "max-error", "max_drop": limit, "threads": 1}
    found = RecipeSearch(model, data=feeds, target="qnn-htp", **settings).run()
    judge = Judge(model, load_data(feeds, model_inputs(model)), limit, parse_metric("max-error"))
    device, plain = judge(found.compiled.device_simulation), judge(found.compiled.model)
    assert found.best.verdict.score == device.score != plain.score
