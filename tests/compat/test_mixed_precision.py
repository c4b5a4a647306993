"""AIMET's names of mixed precision: groups, candidates, scores, and as few bits as will do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qc.compat.aimet_onnx.amp.mixed_precision_algo import EvalCallbackFactory
from qc.compat.aimet_onnx.amp.quantizer_groups import QuantizerGroup, find_quantizer_group
from qc.compat.aimet_onnx.amp.utils import calculate_running_bit_ops, create_mac_dict, find_bit_ops_reduction
from qc.compat.aimet_onnx.common.amp.utils import (
    SEARCHES,
    AMPSearchAlgo,
    Candidate,
    calculate_starting_bit_ops,
)
from qc.compat.aimet_onnx.defs import CallbackFunc, QuantizationDataType, float16, int8, int16
from qc.compat.aimet_onnx.errors import ArgumentError
from qc.compat.aimet_onnx.lite_mp import flip_layers_to_higher_precision
from qc.compat.aimet_onnx.mixed_precision import (
    analyze_mixed_precision_sensitivity,
    apply_amp,
    choose_mixed_precision,
)
from qc.compat.aimet_onnx.quantsim import QuantizationSimModel

from .networks import feeds, network

INT = QuantizationDataType.int
W8A8: Candidate = ((8, INT), (8, INT))
W8A16: Candidate = ((16, INT), (8, INT))
W16A16: Candidate = ((16, INT), (16, INT))


def simulation() -> QuantizationSimModel:
    return QuantizationSimModel(network(), config_file="htp_v73")


def run(session: Any, _: Any) -> None:
    for feed in feeds():
        session.run(None, feed)


def near_float() -> Callable[[Any], float]:
    """The negative mean error beside the float model, which the session without quantizers is."""
    sim = simulation()
    for quantizer in sim.qc_quantize_op_dict.values():
        quantizer.enabled = False
    exact = [sim.session.run(None, feed)[0] for feed in feeds()]

    def score(session: Any) -> float:
        found = [session.run(None, feed)[0] for feed in feeds()]
        return -float(np.mean([np.abs(one - other).mean() for one, other in zip(exact, found, strict=True)]))

    return score


def between(score: Callable[[Any], float]) -> float:
    """A score that is worse than that of W8A16 everywhere, and better than that of W8A8."""
    found = []
    for candidate in (W8A8, W8A16):
        uniform = simulation()
        quantizers, groups = find_quantizer_group(uniform)
        for group in groups:
            group.set_quantizers_to_candidate(quantizers, candidate)
        uniform.compute_encodings(feeds())
        found.append(score(uniform.session))
    assert found[0] < found[1]
    return sum(found) / 2


def bits(sim: QuantizationSimModel) -> dict[str, int]:
    return {name: one.bitwidth for name, one in sim.qc_quantize_op_dict.items() if one.enabled}


def test_what_an_op_with_parameters_reads_is_one_group() -> None:
    quantizers, groups = find_quantizer_group(simulation())
    assert groups == [
        QuantizerGroup(("conv.weight",), ("x",)),
        QuantizerGroup(("fc.weight",), ("r",)),
        QuantizerGroup((), ("y",)),
    ]
    groups[0].set_quantizers_to_candidate(quantizers, W8A16)
    assert groups[0].get_candidate(quantizers) == W8A16
    assert groups[1].get_candidate(quantizers) == W8A8
    quantizers["x"].enabled = False
    assert groups[0].get_active_quantizers(quantizers) == [quantizers["conv.weight"]]
    assert groups[0].to_list() == [("activation", "x"), ("weight", "conv.weight")]


def test_bit_operations_are_multiplications_times_widths() -> None:
    macs = create_mac_dict(simulation())
    assert macs == {"conv": 16 * 4 * 3 * 9, "fc": 640}
    assert calculate_starting_bit_ops(macs, W8A16) == sum(macs.values()) * 128
    group, owners = QuantizerGroup(("conv.weight",), ("x",)), {"conv.weight": "conv", "fc.weight": "fc"}
    running = calculate_running_bit_ops(macs, group, owners, {}, W16A16, W8A16, 0)
    assert running == -macs["conv"] * 128
    assert find_bit_ops_reduction(QuantizerGroup(("fc.weight",)), macs, owners, W16A16, W8A8) == 640 * 128


@pytest.mark.parametrize("algo", list(AMPSearchAlgo))
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_searches_find_the_last_value_that_is_good(algo: AMPSearchAlgo, count: int) -> None:
    values = [1 - number**1.5 / 100 for number in range(count)]
    for target in (2.0, 0.0, *values, *(value - 0.001 for value in values)):
        found = SEARCHES[algo]([lambda one=one: one for one in values], target)
        assert found == max((n for n, value in enumerate(values) if value >= target), default=0)
        mirrored = SEARCHES[algo]([lambda one=one: one for one in values[::-1]], target, phase2_reverse=True)
        assert mirrored == count - 1 - found


@pytest.mark.parametrize("algo", list(AMPSearchAlgo))
def test_as_few_bits_as_the_score_allows(tmp_path: Path, algo: AMPSearchAlgo) -> None:
    score, sim = near_float(), simulation()
    callback = CallbackFunc(lambda session, _: score(session))
    forward = CallbackFunc(run)
    allowed = -between(score)
    arguments = (str(tmp_path), True, forward)
    front = choose_mixed_precision(
        sim, [W8A16, W8A8], callback, callback, allowed, *arguments, amp_search_algo=algo
    )
    assert front and -score(sim.session) <= allowed
    assert set(bits(sim).values()) == {8, 16}
    assert [cost for cost, *_ in front] == sorted((cost for cost, *_ in front), reverse=True)
    listed = json.loads((tmp_path / "pareto_list.json").read_text())
    assert [one[:2] for one in listed] == [[cost, found] for cost, found, *_ in front]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"pareto_curve.html", "quantizer_group_sensitivity.html", "amp_info_list.json"} <= names


def test_binary_search_looks_where_aimet_looks() -> None:
    seen: list[int] = []

    def values(falling: list[float]) -> list[Callable[[], float]]:
        return [lambda n=n: (seen.append(n), falling[n])[1] for n in range(len(falling))]

    def looked(falling: list[float], target: float) -> tuple[int, list[int]]:
        seen.clear()
        return SEARCHES[AMPSearchAlgo(3)](values(falling), target), list(dict.fromkeys(seen))

    assert looked([9, 8, 7, 6, 5, 4, 3, 2], 3.5) == (5, [7, 0, 4, 6, 5])
    assert looked([9, 7, 7, 7, 7, 7, 7, 2], 7) == (4, [7, 0, 4])  # it ends where the score is the limit


@pytest.mark.parametrize("search", ["binary", 4, None])
def test_a_search_that_does_not_exist(tmp_path: Path, search: object) -> None:
    callback = CallbackFunc(lambda session, _: pytest.fail("nothing is scored before"))
    given = [W8A16, W8A8], callback, callback, 1.0, str(tmp_path), True, CallbackFunc(run)
    with pytest.raises(ValueError, match="the search is one of AMPSearchAlgo"):
        choose_mixed_precision(simulation(), *given, amp_search_algo=search)  # type: ignore[arg-type]


def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    score = near_float()
    scores = CallbackFunc(lambda session, _: score(session))
    nothing = CallbackFunc(lambda session, _: np.nan)
    rest = None, str(tmp_path), True, CallbackFunc(run)
    with pytest.raises(ArgumentError, match="of int8, int8 in 'x, conv\\.weight' is NaN"):
        choose_mixed_precision(simulation(), [W8A16, W8A8], nothing, scores, *rest)
    with pytest.raises(ArgumentError, match="of the model without quantizers is NaN"):
        choose_mixed_precision(simulation(), [W8A16, W8A8], scores, nothing, *rest)
    with pytest.raises(ArgumentError, match="of int8, int8 in 'x, conv\\.weight' is NaN"):
        analyze_mixed_precision_sensitivity(simulation(), [(int8, int8)], lambda session: np.nan, feeds())
    with pytest.raises(ArgumentError, match="of 'conv' is NaN"):
        flip_layers_to_higher_precision(simulation(), {"conv": np.nan, "fc": 1.0}, 50)


def test_scores_of_groups_are_kept_in_the_folder(tmp_path: Path) -> None:
    score = near_float()
    calls: list[float] = []

    def counted(session: Any, _: Any) -> float:
        calls.append(score(session))
        return calls[-1]

    for clean, expected in ((True, 3), (False, 0), (True, 3)):
        calls.clear()
        phase1, phase2 = CallbackFunc(counted), CallbackFunc(lambda session, _: score(session))
        given = [W8A16, W8A8], phase1, phase2, None, str(tmp_path), clean, CallbackFunc(run)
        front = choose_mixed_precision(simulation(), *given)
        assert front is not None and len(front) == 3 and len(calls) == expected
    for damage in ("nonsense", '{"a": 1}', "[[[], null, null, 0]]"):
        (tmp_path / ".cache" / "accuracy_list.json").write_text(damage)
        calls.clear()
        choose_mixed_precision(simulation(), *given[:-2], False, given[-1])
        assert len(calls) == 3


def test_a_frozen_quantizer_stays_as_it_is(tmp_path: Path) -> None:
    sim, score = simulation(), near_float()
    weight = sim.qc_quantize_op_dict["conv.weight"]
    weight.set_bitwidth(4)
    sim.compute_encodings(CallbackFunc(run))
    weight.freeze_encodings()
    callback = CallbackFunc(lambda session, _: score(session))
    choose_mixed_precision(
        sim, [W8A16, W8A8], callback, callback, 1e9, str(tmp_path), True, CallbackFunc(run)
    )
    assert bits(sim) == {"conv.weight": 4, "x": 8, "fc.weight": 8, "r": 8, "y": 8}


def test_the_two_steps_do_the_same() -> None:
    sim, score = simulation(), near_float()
    found = analyze_mixed_precision_sensitivity(sim, [(int8, int16), (int8, int8)], score, feeds())
    assert list(found) == ["int8,int16", "int8,int8"] and set(bits(sim).values()) == {8}
    scores, grids = found["int8,int8"]
    assert scores["x"] == scores["conv.weight"] < found["int8,int16"][0]["x"]
    assert grids["x"]["bw"] == 8 and len(grids["conv.weight"]["scale"]) == 4
    limit = between(score)
    apply_amp(sim, found, lambda session: score(session) >= limit)
    assert score(sim.session) >= limit
    assert set(bits(sim).values()) == {8, 16}
    with pytest.raises(ArgumentError, match="refuses even"):
        apply_amp(sim, found, lambda session: False)


def test_the_worst_layers_get_more_bits() -> None:
    scores = {"conv": 3.0, "fc": 1.0}
    for precision, expected in ((float16, (16, 16)), (int16, (16, 16)), ((int8, int16), (8, 16))):
        sim = simulation()
        flip_layers_to_higher_precision(sim, scores, 50, precision)
        assert (bits(sim)["fc.weight"], bits(sim)["y"]) == expected
        assert [bits(sim)[name] for name in ("conv.weight", "x", "r")] == [8, 8, 8]  # r is what conv makes
        sim.compute_encodings(feeds())
    with pytest.raises(ArgumentError, match="int16 or float16"):
        flip_layers_to_higher_precision(simulation(), scores, 50, int8)
    with pytest.raises(ArgumentError, match="no layer 'f'"):
        flip_layers_to_higher_precision(simulation(), {"f": 1.0}, 50)


def test_the_ratio_of_signal_to_noise_is_that_beside_the_float_model() -> None:
    sim = simulation()
    sim.compute_encodings(feeds())
    evaluate = EvalCallbackFactory(feeds()).sqnr(sim, num_samples=2)
    fine = evaluate(sim.session)
    quantizers, groups = find_quantizer_group(sim)
    for group in groups:
        group.set_quantizers_to_candidate(quantizers, W8A8)
    sim.qc_quantize_op_dict["conv.weight"].set_bitwidth(3)
    sim.compute_encodings(feeds())
    assert fine > evaluate(sim.session) + 10
