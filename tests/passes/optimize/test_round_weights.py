"""The pass round-weights: codes for which the results of layers change least on data."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from support.layers import DEEP, INT4, LAYERS, compiled, dependent_feeds, error_of, problem
from support.models import parse, random_feeds
from support.pipelines import apply, artifact

import qc
from qc.ir.model import Model
from qc.ir.quant.arithmetic import rounded
from qc.passes.optimize.weights.adaround import Annealing, adaround
from qc.passes.optimize.weights.beam import beam
from qc.passes.optimize.weights.coordinate import coordinate, coordinate_descent
from qc.passes.optimize.weights.gptq import gptq, in_order_with_error, lower_factor
from qc.passes.optimize.weights.methods import Method, method_of
from qc.passes.optimize.weights.problem import Problem
from qc.passes.optimize.weights.qronos import qronos
from qc.passes.optimize.weights.scales import choose_scales, refit_scales


def least_error(given: Problem, group: int) -> float:
    """The error of the best codes of a group with one output, by looking at all."""
    errors = given.wanted[group] - every_code(given.highest, given.wanted.shape[-1]) * given.scale[group]
    return float(((errors @ given.gram[group]) * errors).sum(1).min())


@cache
def every_code(highest: int, features: int) -> np.ndarray:
    """All that a signed weight with some features may have for codes."""
    return np.array(list(itertools.product(range(-highest - 1, highest + 1), repeat=features)), np.float64)


@cache
def small_problems() -> list[tuple[Problem, np.ndarray]]:
    """A thousand problems of up to 8 features, those of one size together, with their least errors."""
    rng = np.random.default_rng(1)
    found = []
    for bits, features in SIZES:
        groups = 1 + 1000 // len(SIZES)
        given = problem(rng, 1, features, bits, groups)
        found.append((given, np.array([[least_error(given, group)] for group in range(groups)])))
    return found


def gptq_by_inverse(
    weight: np.ndarray, gram: np.ndarray, scale: np.ndarray, low: int, high: int
) -> np.ndarray:
    """GPTQ as its paper has it, by the inverse of the Gram matrix: one row of weights."""
    order = np.argsort(-np.diag(gram), kind="stable")
    weight, gram, scale = weight[order].copy(), gram[np.ix_(order, order)], scale[order]
    inverse = np.linalg.inv(gram)
    codes = np.empty_like(weight)
    for i in range(len(weight)):
        codes[i] = np.clip(np.rint(weight[i] / scale[i]), low, high)
        error = (weight[i] - codes[i] * scale[i]) / inverse[i, i]
        weight[i:] -= error * inverse[i, i:]
        inverse -= np.outer(inverse[:, i], inverse[i]) / inverse[i, i]
    return codes[np.argsort(order)]


def test_gptq_is_that_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    for features in (1, 2, 7, 30, 150):
        given = problem(rng, 5, features, groups=2)
        found = gptq(given)
        for group, output in np.ndindex(2, 5):
            expected = gptq_by_inverse(
                given.wanted[group, output], given.gram[group], given.scale[group, output], -8, 7
            )
            np.testing.assert_array_equal(found[group, output], expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 3), st.sampled_from([2, 3, 4, 8]))
def test_descent_ends_where_no_single_code_can_be_better(
    seed: int, size: int, groups: int, bits: int
) -> None:
    given = problem(np.random.default_rng(seed), 3, size, bits, groups)
    start = given.nearest(given.wanted)
    found = coordinate_descent(given, start, sweeps=1000)
    least = given.error(found)
    assert (least <= given.error(start) * (1 + 1e-9)).all()
    for feature, step in itertools.product(range(size), (-1, 1)):
        moved = found.copy()
        moved[..., feature] = np.clip(moved[..., feature] + step, given.lowest, given.highest)
        assert (given.error(moved) >= least * (1 - 1e-9)).all()


def test_descent_leaves_the_codes_that_it_begins_with() -> None:
    given = problem(np.random.default_rng(7), 1, 5, groups=6)  # of one output, whose layouts are all the same
    start = given.nearest(given.wanted + 0.4 * given.scale)
    kept = start.copy()
    assert (coordinate_descent(given, start) != start).any()
    np.testing.assert_array_equal(start, kept)


def test_steps_of_gptq_tell_the_error_of_its_codes() -> None:
    given = problem(np.random.default_rng(8), 4, 150, groups=2)  # more features than are carried on at once
    codes, error = in_order_with_error(given, lower_factor(given.gram))
    np.testing.assert_allclose(error, given.error(codes), rtol=1e-9)


def test_the_search_for_scales_factors_each_gram_matrix_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(np.random.default_rng(9), 6, 8, groups=2)
    factored, cholesky = [], np.linalg.cholesky

    def counted(gram: np.ndarray) -> np.ndarray:
        factored.append(len(gram))
        return cholesky(gram)

    monkeypatch.setattr(np.linalg, "cholesky", counted)
    monkeypatch.setattr("qc.passes.optimize.weights.scales._AT_ONCE", 1)  # as if it were a large weight
    choose_scales(given)
    assert factored == [2]


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ([[[0, 0], [1, 1]]], False),  # by channel
        ([[[0, 1], [2, 3]]], False),  # by block
        ([[[0, 1], [2, 1]]], True),
        ([[[0, 0], [0, 0]]], True),
    ],
)
def test_scales_of_several_outputs_are_known(shared: list[list[list[int]]], expected: bool) -> None:
    given = problem(np.random.default_rng(10), 2, 2)
    assert replace(given, shared=np.array(shared)).shares_outputs is expected


SIZES = [(bits, features) for bits, most in ((2, 8), (3, 5), (4, 4)) for features in range(1, most + 1)]


@pytest.mark.parametrize("method", [coordinate, beam])
def test_codes_of_small_layers_are_the_best_there_are(method: Method) -> None:
    best = []
    for case, least in small_problems():
        found, nearest = (case.error(codes) for codes in (method(case), case.nearest(case.wanted)))
        assert (least * (1 - 1e-9) <= found).all() and (found <= nearest * (1 + 1e-9)).all()
        best.extend((found <= least * (1 + 1e-9)).ravel())
    assert len(best) >= 1000
    assert np.mean(best) >= 0.95


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 3), st.sampled_from([2, 3, 4, 8]))
def test_adaround_is_never_worse_than_the_nearest_codes_and_rounds_up_or_down(
    seed: int, size: int, groups: int, bits: int
) -> None:
    given = problem(np.random.default_rng(seed), 3, size, bits, groups)
    found = adaround(given, Annealing(iterations=60))
    assert (given.error(found) <= given.error(given.nearest(given.wanted))).all()
    places = np.clip(given.wanted / given.scale, given.lowest, given.highest)
    nearest = found == given.nearest(given.wanted)
    assert (nearest | (found == np.floor(places)) | (found == np.ceil(places))).all()
    np.testing.assert_array_equal(found, adaround(given, Annealing(iterations=60)))


def test_adaround_is_undisturbed_by_a_group_whose_features_are_nearly_zero() -> None:
    given = problem(np.random.default_rng(3), 3, 8, groups=2)
    tiny = replace(given, gram=given.gram * np.array([1.0, 1e-42])[:, np.newaxis, np.newaxis])
    with np.errstate(over="raise", invalid="raise"):
        found = adaround(tiny, Annealing(iterations=20))
    np.testing.assert_array_equal(found[0], adaround(given, Annealing(iterations=20))[0])
    assert (tiny.error(found) <= tiny.error(tiny.nearest(tiny.wanted))).all()


def test_adaround_finds_better_codes() -> None:
    given = problem(np.random.default_rng(3), 8, 32)
    nearest, found = (given.error(codes).sum() for codes in (given.nearest(given.wanted), adaround(given)))
    assert found < 0.6 * nearest


def test_qronos_rounds_the_first_feature_beside_the_weights_of_the_float_model() -> None:
    given = problem(np.random.default_rng(4), 5, 6)
    order = np.argsort(-np.diag(given.gram[0]))
    first, others = order[0], order[1:]
    found = qronos(given)
    # what the first is to be if all others keep the numbers of the weight, by least squares
    missing = (given.wanted - given.weight) @ given.gram
    aim = given.weight[..., first] + missing[..., first] / given.gram[:, first, first, np.newaxis]
    np.testing.assert_array_equal(found[..., first], given.nearest(aim, first))
    fixed = given.of_features(slice(0, None))
    error = fixed.wanted[..., first] - fixed.numbers(found[..., first], first)
    rest = given.reordered(order[np.newaxis]).of_features(slice(1, None))
    carried = np.linalg.solve(rest.gram[0], given.gram[0][others, first])
    follow = gptq(replace(rest, wanted=rest.wanted + error[..., np.newaxis] * carried))
    np.testing.assert_array_equal(found[..., others], follow)


def test_best_is_as_good_as_the_best_of_all() -> None:
    given = problem(np.random.default_rng(5), 6, 10, bits=3)
    found = given.error(method_of("best", Annealing())(given))
    for method in (gptq, beam, coordinate, qronos, adaround):
        assert (found <= given.error(method(given))).all()


@pytest.mark.parametrize("shape", ["channels", "blocks", "tensor"])
def test_scales_that_fit_the_codes_lose_less(shape: str) -> None:
    given = problem(np.random.default_rng(6), 4, 12)
    blocks = np.arange(given.wanted.size).reshape(given.wanted.shape) // 4
    shared = {"channels": given.shared, "blocks": blocks, "tensor": np.zeros_like(blocks)}[shape]
    scale = np.full_like(given.scale, given.scale.max()) if shape == "tensor" else given.scale
    given = replace(given, shared=shared, scale=scale)
    chosen = choose_scales(given)
    assert chosen.error(gptq(chosen)).sum() < given.error(gptq(given)).sum()
    refitted, codes = refit_scales(given, gptq(given))
    assert refitted.error(codes).sum() < given.error(gptq(given)).sum()
    for one in (chosen, refitted):
        for scale_id in np.unique(shared):
            assert len(np.unique(one.scale[shared == scale_id])) == 1
        np.testing.assert_array_equal(one.scale, one.scale.astype(np.float32))


def test_scales_do_not_depend_on_the_size_of_features() -> None:
    given = problem(np.random.default_rng(10), 6, 12, groups=2)
    sizes = np.array([1.0, 1e-44])[:, np.newaxis, np.newaxis]  # as of a part that data hardly reaches
    tiny = replace(given, gram=given.gram * sizes)
    for one in (given, tiny):
        refitted, codes = refit_scales(one, gptq(one))
        assert (refitted.error(codes).sum(1) <= one.error(gptq(one)).sum(1)).all()
    np.testing.assert_array_equal(choose_scales(tiny).scale, choose_scales(given).scale)
    np.testing.assert_array_equal(
        refit_scales(tiny, gptq(tiny))[1][0], refit_scales(given, gptq(given))[1][0]
    )


@pytest.mark.parametrize("method", ["gptq", "qronos", "coordinate", "adaround", "best"])
def test_every_method_comes_nearer_to_float(method: str) -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 4)
    plain = error_of(source, compiled(source, feeds, INT4)[1], feeds)
    fewer = " iterations=100" if method in ("adaround", "best") else ""
    _, context = compiled(source, feeds, f"{INT4},round-weights{{method={method}{fewer}}}")
    assert error_of(source, context, feeds) < 0.8 * plain


def test_frozen_scales_stay() -> None:
    source = parse(LAYERS["gemm"])
    feeds = dependent_feeds(source, 4)
    plain = compiled(source, feeds, INT4)[0]
    fixed, free = (
        compiled(source, feeds, f"{INT4},round-weights{options}")[0] for options in ("{scales=false}", "")
    )

    def scale(model: Model) -> np.ndarray:
        (found,) = [one.encoding for one in model.quant.quantizers() if str(one.spec.format) == "int4"]
        assert found is not None
        return found.scale

    np.testing.assert_array_equal(scale(fixed), scale(plain))
    assert not np.array_equal(scale(free), scale(plain))


@pytest.mark.parametrize("name", list(LAYERS))
def test_every_kind_of_layer_comes_nearer_to_float(name: str) -> None:
    source = parse(LAYERS[name])
    feeds = dependent_feeds(source, 4)
    plain = error_of(source, compiled(source, feeds, INT4)[1], feeds)
    model, context = compiled(source, feeds)
    assert error_of(source, context, feeds) < 0.8 * plain
    (remark,) = [one for one in model.journal.remarks if one.reason.startswith("beam: ")]
    assert "with the nearest" in remark.reason


def test_later_layers_make_up_for_earlier_ones() -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 6)
    unseen = dependent_feeds(source, 12)[6:]
    plain, alone, together = (
        error_of(source, compiled(source, feeds, f"{INT4}{rounding}")[1], unseen)
        for rounding in ("", ",round-weights{mismatch=0}", ",round-weights")
    )
    assert together < alone < plain


def test_few_rows_of_data_do_not_mislead() -> None:
    """What fewer rows than features have in common is chance where features do not depend on each other."""
    source = parse("g (float[N, 128] x) => (float[N, 64] y) <float[128, 64] w> { y = MatMul(x, w) }")
    rng = np.random.default_rng(3)
    few, unseen = ([{"x": rng.normal(size=(rows, 128)).astype(np.float32)}] for rows in (96, 4096))
    passes = "insert-quantizers{activation=float weight=int4},annotate-per-channel,calibrate{weights=mse}"
    nearest, chosen = (
        error_of(source, compiled(source, few, passes + rounding)[1], unseen)
        for rounding in ("", ",round-weights{scales=false}")
    )
    assert chosen < 1.2 * nearest


def test_the_chosen_codes_are_written() -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 4)
    model, context = compiled(source, feeds)
    chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    assert len(chosen) == 4
    stored = [numpy_helper.to_array(one) for one in artifact(context, "qdq").graph.initializer]
    for quantizer in chosen:
        (site,) = model.quant.sites_of(quantizer)
        assert quantizer.codes is not None and site.value.const is not None
        assert any(
            np.array_equal(np.asarray(one, np.int32), quantizer.codes)
            for one in stored
            if one.dtype != np.float32
        )
        assert not np.array_equal(rounded(site.value.const.numpy(), quantizer), site.value.const.numpy())


def test_only_layers_that_are_named() -> None:
    source = parse(DEEP)
    names = ["first", "second", "third", "fourth"]
    layers = [node for node in source.graph.node if node.op_type in ("Conv", "MatMul")]
    for node, name in zip(layers, names, strict=True):
        node.name = name
    feeds = dependent_feeds(source, 2)
    model, _ = compiled(source, feeds, f"{INT4},round-weights{{only=[second,fourth]}}")
    chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    assert [str(model.quant.sites_of(one)[0].value.name) for one in chosen] == ["d", "f"]
    with pytest.raises(qc.UsageError, match=r"no layer 'secnd' \(did you mean 'second'\?\)"):
        compiled(source, feeds, f"{INT4},round-weights{{only=[secnd]}}")


def test_what_is_computed_from_constants_and_what_is_empty_is_left_alone() -> None:
    source = parse("""g (float[4, 8] x) => (float[4, 3] y, float[2, 8] z, float[4, 0] e)
        <float[8, 3] w, float[8, 8] v, float[2, 8] c, float[8, 0] n> {
        y = MatMul(x, w)
        z = MatMul(c, v)
        e = MatMul(x, n)
    }""")
    model, _ = compiled(source, list(random_feeds(source, 2)))
    chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    assert [str(model.quant.sites_of(one)[0].value.name) for one in chosen] == ["w"]


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_features_that_hardly_vary(share: float) -> None:
    """Without their means, they leave nothing but what sums were rounded by."""
    source = parse(
        """g (float[1, 256] x) => (float[1, 4] y) <float[256, 4] w, float[4] b> {
            p = MatMul(x, w)
            y = Add(p, b)
        }"""
    )
    rng = np.random.default_rng(0)
    usual = 1e6 * (1 + rng.random((1, 256)))
    noise = 1e-7 * rng.standard_normal((8, 1, 256)) * (rng.random((8, 1, 256)) < share)
    feeds = [{"x": (usual * (1 + one)).astype(np.float32)} for one in noise]
    chosen = "round-weights{method=gptq scales=false}"
    passes = f"insert-quantizers{{activation=float weight=int4}},calibrate,{chosen}"
    (quantizer,) = apply(passes, source, feeds=feeds)[0].quant.quantizers()
    assert quantizer.codes is not None and quantizer.encoding is not None
    weight = numpy_helper.to_array(source.graph.initializer[0])
    nearest = np.rint(weight / quantizer.encoding.scale)
    if not share:  # nothing tells how to make up for errors
        np.testing.assert_array_equal(quantizer.codes, nearest)
    assert np.abs(quantizer.codes - nearest).mean() < 1


def test_without_data_weights_keep_the_nearest_codes_and_a_note_says_so() -> None:
    source = parse(LAYERS["gemm"])
    recorded = qc.observe(source, data=list(random_feeds(source, 2)), target="npu")
    made = qc.compile(source, f"{INT4},round-weights,insert-qdq", statistics=recorded, target="npu")
    assert all(quantizer.codes is None for quantizer in made.ir.quant.quantizers())
    assert any("needs data" in note for note in made.notes)
