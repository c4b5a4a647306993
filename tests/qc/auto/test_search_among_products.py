"""The search for a recipe, among products that precisions harm differently."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from support.models import parse, random_feeds

import qc as package
from qc.auto import Judge, MaxDrop, Recipe, RecipeSearch, Trial, ladder
from qc.auto.trials import Bench
from qc.runtime import load_data, model_inputs, parse_metric

PLAIN_W4 = next(one for one in ladder(4) if one.only_for != "products")


def chain_of_products(*names: str):
    """Three products, one after the other, whose ops have the names."""
    model = parse(
        """g (float[8, 16] x) => (float[8, 16] y) <float[16, 16] a, float[16, 16] b, float[16, 16] c> {
            p = MatMul(x, a)
            q = MatMul(p, b)
            y = MatMul(q, c)
        }"""
    )
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    return model


def products_search(*names: str, **more) -> RecipeSearch:
    """A search among recipes of which none is good enough."""
    model = chain_of_products(*(names or ("op0", "op1", "op2")))
    feeds = random_feeds(model, 8)
    plain = Recipe("nearest", package.resolve_pipeline("w8a8"), ("MatMul=w3",))
    worst = Judge(model, load_data(feeds, model_inputs(model)), MaxDrop.parse("1"), parse_metric("max-error"))
    drop = worst(package.compile(model, data=feeds, precision=("MatMul=w3",), threads=1).model).drop
    settings = {"max_drop": MaxDrop(0.8 * drop, is_share=False), "metric": "max-error", "threads": 1}
    return RecipeSearch(model, data=feeds, recipes=[plain], **settings, **more)


@pytest.mark.parametrize("names", [("op0", "op1", "op2"), ("", "", "")])
def test_groups_that_harm_most_get_more_bits_and_no_more_than_needed(names: tuple[str, ...]) -> None:
    tried: list[Trial] = []
    found = products_search(*names, on_trial=tried.append).run()
    assert found.is_accepted and len(tried) > 1 and tuple(tried) == found.trials
    assert found.best.recipe.rules[1:] and found.best.quantized_share == 1  # more bits were enough
    accepted = [trial for trial in tried if trial.verdict.is_accepted]
    assert found.best is accepted[-1]


def test_fewer_bits_than_the_accuracy_needs_are_refused() -> None:
    model = chain_of_products("op0", "op1", "op2")
    feeds = random_feeds(model, 8)
    judge = Judge(model, load_data(feeds, model_inputs(model)), MaxDrop.parse("1"), parse_metric("max-error"))
    enough = 2 * judge(package.compile(model, data=feeds, threads=1).model).drop
    settings = {"metric": "max-error", "max_drop": MaxDrop(enough, is_share=False), "threads": 1}
    found = RecipeSearch(model, data=feeds, weights=2, **settings).run()
    assert not found.is_accepted and found.best.weight_bits <= 2.3
    assert all(trial.weight_bits <= 2.3 for trial in found.trials)
    assert found.ended == "no mixture of precisions with 2.3 bits of a weight or fewer does"


def test_codes_that_were_chosen_on_the_samples_must_hold_on_others() -> None:
    model = parse("g (float[1, 64] x) => (float[1, 32] y) <float[64, 32] w> { y = MatMul(x, w) }")
    feeds = random_feeds(model, 16)
    recipe = Recipe("fitted", package.resolve_pipeline("w4a8"), ("MatMul=w2",))

    def drop(fitted: list, judged: list) -> float:
        made = package.compile(model, "w4a8", data=fitted, precision=recipe.rules, threads=1).model
        data = load_data(judged, model_inputs(model))
        return Judge(model, data, MaxDrop.parse("1"), parse_metric("max-error"))(made).drop

    seen, unseen = drop(feeds, feeds), drop(feeds[0::2], feeds[1::2])
    assert unseen > 1.5 * seen
    limit = MaxDrop((seen + unseen) / 2, is_share=False)
    settings = {"recipes": [recipe], "max_drop": limit, "metric": "max-error", "threads": 1}
    first, *_ = RecipeSearch(model, data=lambda: iter(feeds), **settings).run().trials
    assert first.verdict.drop == pytest.approx(unseen) and not first.verdict.is_accepted
    first, *_ = RecipeSearch(model, data=feeds, eval_data=list(feeds), **settings).run().trials
    assert first.verdict.drop == pytest.approx(seen) and first.verdict.is_accepted


def test_weights_that_stay_float_in_every_recipe_do_not_count_as_bits() -> None:
    model = chain_of_products("op0", "op1", "op2")
    off = Recipe("one in float", PLAIN_W4.pipeline, ("op:op1=off",))
    settings = {"metric": "max-error", "max_drop": 100.0, "threads": 1}
    found = RecipeSearch(model, data=random_feeds(model, 8), recipes=[off], bits=4, **settings).run()
    assert found.is_accepted and found.best.float_weights == pytest.approx(1 / 3)
    assert found.best.weight_bits == pytest.approx((2 * 4 + 32) / 3)


def test_results_do_not_depend_on_the_number_of_jobs(tmp_path: Path) -> None:
    alone, beside = products_search(), products_search(jobs=2, cache=tmp_path)
    one, two = alone.run(), beside.run()
    assert one.compiled.model.SerializeToString() == two.compiled.model.SerializeToString()
    assert [trial.recipe for trial in one.trials] == [trial.recipe for trial in two.trials]
    assert [trial.verdict for trial in one.trials] == [trial.verdict for trial in two.trials]


def test_what_was_tried_before_a_kill_is_not_tried_again(tmp_path: Path, monkeypatch) -> None:
    first = products_search(cache=tmp_path).run()
    monkeypatch.setattr(Bench, "trial", lambda *given: pytest.fail("it is tried again"))
    again = products_search(cache=tmp_path).run()
    assert again.trials == first.trials
    assert again.compiled.model.SerializeToString() == first.compiled.model.SerializeToString()


def test_trials_run_in_any_executor(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        found = products_search(pool=pool, jobs=2, cache=tmp_path).run()
    assert found.trials == products_search(cache=tmp_path).run().trials


def test_a_mixed_recipe_gives_the_same_bytes_again(tmp_path: Path) -> None:
    search = products_search()
    found = search.run()
    assert len(found.best.recipe.rules) > 1
    file = tmp_path / "model.recipe.toml"
    file.write_text(package.auto.recipe_text(found, search.judge, found.compiled.target.name))
    again = package.compile(search.model, file, data=search.data, threads=1)
    assert again.model.SerializeToString() == found.compiled.model.SerializeToString()
    record = tomllib.loads(file.read_text())["record"]
    assert (record["score"], record["float"]) == (found.best.verdict.score, found.best.verdict.reference)
    assert {"qc", "onnx", "onnxruntime", "numpy", "seconds", "metric", "max_drop"} <= set(record)
