"""``choose_mixed_precision``, and the same in two steps: formats of groups, as few bits as will do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .amp.callbacks import only, score_of
from .amp.mixed_precision_algo import GreedyMixedPrecisionAlgo, Grids, Visited, grids_of
from .amp.quantizer_groups import QuantizerGroup, find_quantizer_group
from .common.amp.utils import SEARCHES, AMPSearchAlgo, Candidate, candidate_cost, candidate_of
from .defs import QuantizationDataType, int8, int16, qtype
from .errors import ArgumentError
from .qc_quantize_op import QcQuantizeOp
from .simulation.exception_rules import apply_exception_rules

if TYPE_CHECKING:
    from .quantsim import QuantizationSimModel

__all__ = [
    "AMPSearchAlgo",
    "GreedyMixedPrecisionAlgo",
    "QuantizerGroup",
    "analyze_mixed_precision_sensitivity",
    "apply_amp",
    "choose_mixed_precision",
    "find_quantizer_group",
]

# Formats of parameters and of activations.
w8a8, w8a16, w16a16 = (int8, int8), (int8, int16), (int16, int16)

# By the formats of parameters and activations: what each quantizer scores, and its grid.
Sensitivities = dict[str, tuple[dict[str, float], dict[str, dict[str, Any]]]]


def choose_mixed_precision(
    sim: QuantizationSimModel,
    candidates: Sequence[Candidate],
    eval_callback_for_phase1: Callable[[Any], float],
    eval_callback_for_phase2: Callable[[Any], float],
    allowed_accuracy_drop: float | None,
    results_dir: str,
    clean_start: bool,
    forward_pass_callback: Callable[[Any], Any],
    use_all_amp_candidates: bool = False,
    phase1_optimize: bool = True,
    amp_search_algo: AMPSearchAlgo = AMPSearchAlgo.Binary,
) -> list[Visited] | None:
    """Gives groups of quantizers as few bits as the score allows; the simulation has them then.

    Args:
        sim: the simulation.
        candidates: width and kind of activations, then of parameters: ``((16, int), (8, int))``.
        eval_callback_for_phase1: the score of a session that tells candidates apart in single groups.
        eval_callback_for_phase2: the score that counts.
        allowed_accuracy_drop: how much less it may be than without quantizers; None to visit all points.
        results_dir: the folder for ``pareto_list.json``, ``amp_info_list.json`` and charts.
        clean_start: measure single groups anew, even if the folder has them.
        forward_pass_callback: runs a session, to calibrate.
        use_all_amp_candidates: candidates that the device has no kernels for, too.
        phase1_optimize: not needed; each candidate is calibrated once.
        amp_search_algo: how the last good point is found.

    Returns:
        The visited points: the share of the cost, the score, and what group got which candidate there.

    Raises:
        UsageError: there are no candidates, there is no such search, or a score is NaN.
    """
    algo = GreedyMixedPrecisionAlgo(
        sim,
        candidates,
        eval_callback_for_phase1,
        eval_callback_for_phase2,
        str(results_dir),
        clean_start,
        forward_pass_callback,
        use_all_amp_candidates,
        phase1_optimize,
    )
    return algo.run(allowed_accuracy_drop, amp_search_algo)


def analyze_mixed_precision_sensitivity(
    sim: QuantizationSimModel,
    precisions: Sequence[tuple[qtype | str, qtype | str]],
    eval_fn: Callable[[Any], float],
    calibration_input: Callable[[Any], Any] | Iterable[Mapping[str, np.ndarray]],
) -> Sensitivities:
    """The score of each group alone in each pair of formats, for :func:`apply_amp`; ``sim`` stays as it is.

    Args:
        sim: the simulation.
        precisions: formats of parameters and of activations.
        eval_fn: the score of a session.
        calibration_input: what to calibrate on, as for ``compute_encodings``.

    Returns:
        By the names of both formats, such as ``"int8,int16"``: the score of the group of each quantizer, and
        the grids.

    Raises:
        UsageError: a score is NaN.
    """
    quantizers, groups = find_quantizer_group(sim)
    feeds = calibration_input if callable(calibration_input) else list(calibration_input)
    before = {name: one.precision() for name, one in quantizers.items() if one.enabled}
    found: Sensitivities = {}
    for param, activation in precisions:
        candidate = candidate_of(param, activation)
        for group in groups:
            group.set_quantizers_to_candidate(quantizers, candidate)
        apply_exception_rules(sim)
        sim.compute_encodings(feeds)
        scores: dict[str, float] = {}
        for group in groups:
            names = [name for _, name in group.to_list()]
            with only(sim, names):
                score = score_of(sim.session, eval_fn, f"{param}, {activation} in '{', '.join(names)}'")
                scores |= dict.fromkeys(names, score)
        grids = {name: _described(quantizers[name]) for name in before}
        found[f"{qtype.as_qtype(param)},{qtype.as_qtype(activation)}"] = scores, grids
    for name, precision in before.items():
        if not quantizers[name].is_encoding_frozen() and quantizers[name].precision() != precision:
            quantizers[name].set_precision(precision)
    sim.compute_encodings(feeds)
    return found


def apply_amp(
    sim: QuantizationSimModel, sensitivity_dict: Sensitivities, acceptance_fn: Callable[[Any], bool]
) -> None:
    """Gives groups of quantizers as few bits as are accepted.

    Args:
        sim: the simulation.
        sensitivity_dict: what :func:`analyze_mixed_precision_sensitivity` found.
        acceptance_fn: whether a session is good enough.

    Raises:
        UsageError: there are no candidates, or none is accepted for all groups.
    """
    if not sensitivity_dict:
        raise ArgumentError("there are no formats to choose from")
    names = [name for name, one in sim.qc_quantize_op_dict.items() if one.enabled]
    candidates = {candidate_of(*key.split(",")): found for key, found in sensitivity_dict.items()}
    grids: Grids = {}
    for _, encodings in candidates.values():
        grids |= grids_of(encodings, names)
    algo = GreedyMixedPrecisionAlgo(
        sim,
        list(candidates),
        lambda session: 0.0,
        lambda session: float(bool(acceptance_fn(session))),
        None,
        True,
        None,
        use_all_amp_candidates=True,
        grids=grids,
    )
    best = max(candidates, key=lambda one: candidate_cost(*one))
    algo.set_baseline(1.0, best)
    if not acceptance_fn(sim.session):
        raise ArgumentError("acceptance_fn refuses even the candidate with the most bits in all groups")
    scored = [
        (group, candidate, scores[group.to_list()[0][1]], algo._saved(group, best, candidate))
        for group in algo.quantizer_groups
        for candidate, (scores, _) in candidates.items()
        if candidate != best
    ]
    scored.sort(key=lambda one: (-one[2], -one[3]))
    search = SEARCHES[AMPSearchAlgo.Binary]
    algo._create_pareto_front_list(0.5, scored, 1.0, best, algo.min_candidate, search)


def _described(quantizer: QcQuantizeOp) -> dict[str, Any]:
    """The grid of a quantizer, as plain values."""
    if quantizer.data_type is QuantizationDataType.float:
        return {"dtype": "FLOAT", "bw": quantizer.bitwidth, "enc_type": "PER_TENSOR"}
    held = quantizer.get_encodings() or []
    return {
        "dtype": "INT",
        "bw": quantizer.bitwidth,
        "is_sym": quantizer.use_symmetric_encodings,
        "scale": [one.delta for one in held],
        "offset": [one.offset for one in held],
        "enc_type": "PER_TENSOR" if len(held) == 1 else "PER_CHANNEL",
    }
