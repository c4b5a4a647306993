"""Mixed precision: groups, candidates, the knapsack, and the front of all choices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folders import FIXTURES
from support.models import parse, random_feeds

import qc as package
from qc.auto.climb import Found
from qc.auto.judging import Judge, MaxDrop
from qc.auto.mixed_precision import (
    Front,
    Group,
    cheapest,
    find_front,
    find_groups,
    parse_candidates,
    supported_candidates,
    wider_candidates,
)
from qc.auto.mixed_precision.costs import Cost
from qc.auto.mixed_precision.harm_meter import HarmMeter
from qc.auto.mixed_precision.knapsack import pareto_front
from qc.auto.mixed_precision.times import Times
from qc.auto.recipes import Recipe
from qc.ir.errors import UsageError
from qc.passes import PassContext
from qc.passes.framework.target import load_target
from qc.runtime import load_data, model_inputs, parse_metric

GROUPS = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3), max_size=5
)


@given(GROUPS)
def test_the_knapsack_is_that_of_trying_all(groups: list[list[tuple[int, int]]]) -> None:
    costs = [[cost for cost, _ in group] for group in groups]
    harms = [[float(harm) for _, harm in group] for group in groups]
    sums = [
        (sum(one[0] for one in choice), float(sum(one[1] for one in choice)))
        for choice in itertools.product(*groups)
    ]
    best = {
        one
        for one in sums
        if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in sums)
    }
    found = pareto_front(costs, harms)
    assert [(one.cost, one.harm) for one in found] == sorted(best)
    for one in found:
        assert one.cost == sum(own[number] for own, number in zip(costs, one.chosen, strict=True))


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1)), min_size=1, max_size=40))
def test_large_costs_give_a_front_that_falls_from_the_cheapest_to_the_harmless(choices) -> None:
    found = pareto_front([[0, cost] for cost, _ in choices], [[harm, 0.0] for _, harm in choices])
    assert found[0].cost <= 2 * min((cost for cost, _ in choices), default=0) * len(choices)
    assert found[-1].harm == 0
    for one, after in itertools.pairwise(found):
        assert one.cost < after.cost and one.harm > after.harm


def test_targets_have_candidates() -> None:
    def names(target: str) -> list[str]:
        return [one.name for one in supported_candidates(load_target(target))]

    assert names("ort-cpu") == ["w4a8", "w8a8", "float"]
    assert names("npu") == ["w4a8", "w4a16", "w8a8", "w8a16", "float16", "float"]
    assert names("qnn-htp") == ["w4a8", "w4a16", "w8a8", "w8a16"], "parts in float are given up"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("w8a16", "target 'ort-cpu' does not run w8a16; it runs w4a8, w8a8, float"),
        (
            "w8a8,int8",
            "a candidate is w and a with 2 to 16 bits, such as w4a8, or float16, or float, not 'int8'",
        ),
        ("w1a8", "2 to 16 bits"),
        ("", "not ''"),
    ],
)
def test_what_is_no_candidate(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_candidates(text, load_target("ort-cpu"))
    assert sentence in str(error.value)


def compiled(text: str, pipeline: str = "w8a8", **more) -> package.Compiled:
    model = parse(text)
    return package.compile(model, pipeline, data=random_feeds(model, 2), threads=1, **more)


RESIDUAL = """g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
    <float[4, 4, 3, 3] v, float[4, 4, 3, 3] w, float[4, 4, 3, 3] u> {
        a = Conv <pads = [1, 1, 1, 1]> (x, v)
        b = Conv <pads = [1, 1, 1, 1]> (a, w)
        c = Add (a, b)
        y = Conv <pads = [1, 1, 1, 1]> (c, u)
    }"""


def members(groups: list[Group]) -> list[tuple[tuple[str, ...], list[str]]]:
    return [(group.ops, [one.tensor for one in group.quantizers]) for group in groups]


def test_what_reads_one_tensor_is_one_group_and_results_belong_to_readers() -> None:
    made = compiled(RESIDUAL)
    assert members(find_groups(made.ir, made.target)) == [
        (("a",), ["x", "v"]),
        (("b", "c"), ["a", "w", "b"]),
        (("y",), ["c", "u", "y"]),
    ]


def test_a_table_of_rows_is_no_activation_and_keeps_its_width() -> None:
    text = """g (int64[2, 3] i) => (float[2, 3, 64] y) <float[512, 64] table, float[64, 64] w> {
        x = Gather (table, i)
        y = MatMul (x, w)
    }"""
    made = package.compile(parse(text), "w4-block32", threads=1)
    assert members(find_groups(made.ir, made.target)) == [(("y",), ["w"])]
    assert [one.name for one in wider_candidates(made.ir, made.target)] == ["w4a8", "w8a8", "float"]


def test_a_group_knows_its_weights_and_multiplications() -> None:
    made = compiled(RESIDUAL)
    first, second, _ = find_groups(made.ir, made.target)
    assert (first.weights, first.operations) == (144, 144 * 64)
    assert (second.weights, second.operations) == (144, 144 * 64 + 4 * 64)


@pytest.mark.parametrize("candidate", ["w4a16", "float16", "float"])
def test_rules_change_a_group_and_nothing_else_even_without_names(candidate: str) -> None:
    made = compiled(RESIDUAL, target="npu")
    (candidate,) = parse_candidates(candidate, made.target)
    group = find_groups(made.ir, made.target)[1]
    changed = compiled(RESIDUAL, target="npu", precision=group.rules(candidate))
    specs = {
        site.value.name: str(changed.ir.quant.get(site).spec.format)
        for site in changed.ir.quant.sites()
        if site.op is None or site.value.const is not None
    }
    others = {"x": "uint8", "v": "int8", "u": "int8", "y": "uint8"}
    assert others.items() <= specs.items()
    if candidate.name == "w4a16":
        assert {name: specs[name] for name in "awb"} == {"a": "uint16", "w": "int4", "b": "uint16"}
    else:
        assert specs.get("w") == ("float16" if candidate.name == "float16" else None)


def digits(pipeline: str = "w8a8") -> tuple[package.Compilation, Judge]:
    compilation = package.Compilation(
        FIXTURES / "digits_cnn.onnx", pipeline, data=FIXTURES / "digits_calibration.npz", threads=1
    )
    with np.load(FIXTURES / "digits_test.npz") as test:
        feeds = [{"image": image[np.newaxis]} for image in test["image"][:64]]
    data = load_data(feeds, model_inputs(compilation.proto()))
    return compilation, Judge(compilation.model, data, MaxDrop.parse("1%"), parse_metric("cosine"), threads=1)


def digits_front(candidates: str, pipeline: str = "w8a8") -> tuple[package.Compilation, Judge, Front]:
    compilation, judge = digits(pipeline)
    made = compilation.compile()
    known = parse_candidates(candidates, made.target)
    given = judge.reference, judge.metric, judge.data
    return compilation, judge, find_front(made, known, *given, kind="size", threads=1)


def test_the_front_is_monotone_and_what_it_says_comes_true() -> None:
    compilation, judge, front = digits_front("w4a8,w8a8,float")
    for one, after in itertools.pairwise(front.points):
        assert one.harm > after.harm
    points = front.spread(5)
    assert points[0].counts == {"w4a8": len(front.groups)} and points[-1].counts == {
        "float": len(front.groups)
    }

    def drop(rules: tuple[str, ...]) -> float:
        return judge(replace(compilation, precision=rules, allow_unquantized=True).compile().model).drop

    drops = [drop(point.rules) for point in points]
    assert drops == sorted(drops, reverse=True)
    uniform = {next(iter(point.counts)): point for point in front.uniform}
    same_size = front.within(uniform["w8a8"].bits)
    assert same_size.harm <= uniform["w8a8"].harm
    assert drop(same_size.rules) <= 1.1 * drop(uniform["w8a8"].rules)


@pytest.mark.parametrize("kind", ["size", "operations"])
@pytest.mark.parametrize("scale", [0, 1, 10**18])
def test_a_few_points_of_a_front_are_those_of_all(kind: Cost, scale: int) -> None:
    rng = np.random.default_rng(0)
    candidates = parse_candidates("w4a8,w8a8,w8a16,float", load_target("npu"))
    groups = tuple(
        Group(f"m{number}", (f"m{number}",), (), scale * int(size), scale * int(size) ** 2)
        for number, size in enumerate(rng.integers(1, 999, 12))
    )
    harms = tuple(tuple(sorted(map(float, rng.lognormal(size=4)), reverse=True)) for _ in groups)
    front = Front(groups, candidates, harms, kind)
    assert len(front.points) > 9 or not scale
    assert set(front.spread(9)) <= set(front.points)
    middle = front.points[len(front.points) // 2].cost(kind)
    fitting = [point for point in front.points if point.cost(kind) <= middle]
    assert front.within(middle) == fitting[-1]


def test_the_same_model_and_data_give_the_same_front() -> None:
    first, second = (digits_front("w8a8,float")[2] for _ in range(2))
    assert first == second and first.points == second.points


def test_codes_that_were_chosen_count_as_much_as_they_help() -> None:
    _, judge, front = digits_front("w4a8,float", "w4a8")
    expected = judge(digits("w4a8")[0].compile().model).drop
    assert front.points[0].harm == pytest.approx(expected, rel=1)
    nearest = digits_front("w4a8,float")[2]
    assert front.points[0].harm < nearest.points[0].harm / 2


def test_where_the_metric_is_too_coarse_noise_tells_candidates_apart() -> None:
    compilation, judge = digits()
    made = compilation.compile()
    candidates = parse_candidates("w4a8,w8a8,float", made.target)
    front = find_front(made, candidates, judge.reference, parse_metric("top-1"), judge.data, threads=1)
    four, eight, exact = front.uniform
    assert four.harm > 4 * eight.harm > 0 and exact.harm == 0


def test_nothing_costs_less_than_the_cheapest() -> None:
    front = digits_front("w8a8,float")[2]
    assert front.within(8).bits == 8
    with pytest.raises(UsageError, match="the cheapest has 8"):
        front.within(7.9)


def test_without_groups_there_is_nothing_to_choose() -> None:
    made = compiled("g (float[4] x) => (float[4] y) { y = Relu(x) }", allow_unquantized=True)
    _, judge = digits()
    with pytest.raises(UsageError, match="no op reads quantized data"):
        find_front(made, wider_candidates(made.ir, made.target), judge.reference, judge.metric, judge.data)


@given(st.integers(1, 40), st.data())
def test_the_cheapest_accepted_is_found_from_any_guess(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count))
    guess = data.draw(st.integers(0, count - 1))
    tried: list[int] = []

    def is_accepted(point: int) -> bool:
        tried.append(point)
        return point >= first

    found = cheapest(range(count), guess, is_accepted)  # type: ignore[arg-type]
    assert found == (first if first < count else None)
    assert len(tried) == len(set(tried)) <= 13


def test_a_search_ends_when_there_is_no_more_time() -> None:
    verdicts = iter([True, None])
    assert cheapest(range(9), 5, lambda point: next(verdicts)) == 5  # type: ignore[arg-type]


def test_by_time_groups_stay_in_integers_where_floats_are_slow() -> None:
    compilation, judge = digits()
    made = compilation.compile()
    candidates = parse_candidates("w8a8,float", made.target)
    given = judge.reference, judge.metric, judge.data
    front = find_front(made, candidates, *given, kind="time", threads=1)
    assert front.times is not None
    eight, exact = front.uniform
    assert (eight.time, exact.time) == (front.times.of(()), 1.0)
    for one, after in itertools.pairwise(front.points):
        assert one.cost("time") < after.cost("time") and one.harm > after.harm
    for point in front.points:
        floats = [number for number, chosen in enumerate(point.chosen) if candidates[chosen].is_float]
        assert point.time == front.times.of(floats)


def test_neighbours_in_float_take_less_than_each_alone() -> None:
    text = """g (float[1, 64, 32, 32] x) => (float[1, 64, 32, 32] y)
        <float[64, 64, 1, 1] v, float[64, 64, 1, 1] w, float[64, 64, 1, 1] u> {
            a = Conv (x, v) b = Conv (a, w) y = Conv (b, u)
        }"""
    made = compiled(text)
    groups = find_groups(made.ir, made.target)
    times = Times(made.ir, groups, made.target, PassContext())
    whole = times.of(())
    assert len(groups) == 3 and 0 < whole < 1 == times.of(range(3))
    alone = [times.of((number,)) - whole for number in range(3)]
    assert times.extra == tuple(alone) and min(alone) > 0
    assert times.of((0, 1)) - whole < 0.9 * (alone[0] + alone[1])
    assert times.of((0, 2)) - whole == pytest.approx(alone[0] + alone[2])


def test_weights_alone_take_as_long_as_floats() -> None:
    made = compiled(RESIDUAL, "w8")
    groups = find_groups(made.ir, made.target)
    times = Times(made.ir, groups, made.target, PassContext())
    assert groups and times.of(()) == times.of(range(len(groups))) == 1


def test_a_target_without_costs_has_no_front_by_time() -> None:
    made = compiled(RESIDUAL, target="npu")
    _, judge = digits()
    given = parse_candidates("w8a8,float", made.target), judge.reference, judge.metric, judge.data
    with pytest.raises(UsageError, match="target 'npu' has no costs of kernels"):
        find_front(made, *given, kind="time")


def misjudged_search(monkeypatch, **demand: object) -> Found:
    """What is found if every group is taken for another one."""
    harm = HarmMeter.harm
    monkeypatch.setattr(HarmMeter, "harm", lambda *arguments: harm(*arguments)[::-1])
    compilation, judge = digits()
    recipe = Recipe("plain", compilation.chosen_pipeline())
    more = {"metric": "cosine", "candidates": "w4a8,w8a8,float", "recipes": [recipe], "threads": 1}
    return package.find_recipe(
        compilation.model, data=compilation.data, eval_data=list(judge.data), **more, **demand
    )


def test_a_choice_that_loses_more_than_expected_is_repaired(monkeypatch) -> None:
    found = misjudged_search(monkeypatch, bits=5.0, max_drop=0.004)
    _, refused, *repaired = found.trials
    assert found.is_accepted and not refused.verdict.is_accepted and repaired
    assert found.best.verdict.drop < refused.verdict.drop / 1.5 and found.best.weight_bits <= 5


def test_a_choice_with_slack_is_made_cheaper(monkeypatch) -> None:
    found = misjudged_search(monkeypatch, objective="size", max_drop=0.0003)
    assert found.is_accepted and found.best.weight_bits < 10
