"""The search behind ``choose_mixed_precision``: what candidates do in each group, then how many will do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...missing import PartlyProvided
from ..charts import write_line
from ..common.amp.utils import (
    SEARCHES,
    AMPSearchAlgo,
    Candidate,
    calculate_starting_bit_ops,
    candidate_cost,
    export_list,
    sort_accuracy_list,
)
from ..defs import TfEncoding, qtype
from ..errors import ArgumentError
from ..simulation.exception_rules import apply_exception_rules
from .callbacks import EvalCallbackFactory, _compute_sqnr, only, score_of
from .quantizer_groups import QuantizerGroup, find_quantizer_group, find_supported_candidates
from .utils import (
    calculate_running_bit_ops,
    create_mac_dict,
    find_bit_ops_reduction,
    find_param_name_to_parent_name_dict,
    get_quantizer_to_op_type_dict,
)

if TYPE_CHECKING:
    from ..quantsim import QuantizationSimModel

# What ``aimet_onnx.amp.mixed_precision_algo`` has in one module.
__all__ = ["EvalCallbackFactory", "GreedyMixedPrecisionAlgo", "_compute_sqnr"]

Scored = tuple[QuantizerGroup, Candidate, float, float]  # what it scores alone, and what it saves
Visited = tuple[float, float, QuantizerGroup, Candidate]  # the share of the cost, and the score
Grids = dict[tuple[str, qtype], list[TfEncoding] | None]  # by tensor and format


class GreedyMixedPrecisionAlgo(PartlyProvided):
    """Finds out what candidates do in each group, and gives groups cheaper ones as far as that will do.

    Args:
        sim: the simulation.
        candidates: width and kind of activations, then of parameters.
        eval_callback_for_phase1: the score of a session that tells candidates apart.
        eval_callback_for_phase2: the score that counts.
        results_dir: the folder for lists and charts.
        clean_start: measure candidates anew, even if the folder has them from before.
        forward_pass_callback: runs a session, to calibrate.
        use_all_amp_candidates: whatever the device has.
        phase1_optimize: not needed; candidates are calibrated once for all groups.
        grids: of quantizers, if they are known; then ``forward_pass_callback`` may be None.

    Attributes:
        quantizer_groups: see :func:`find_quantizer_group`.
        baseline_candidate: what groups have at first.
        fp32_accuracy: the score without quantizers.
    """

    def __init__(
        self,
        sim: QuantizationSimModel,
        candidates: Sequence[Candidate],
        eval_callback_for_phase1: Callable[[Any], float],
        eval_callback_for_phase2: Callable[[Any], float],
        results_dir: str | None,
        clean_start: bool,
        forward_pass_callback: Callable[[Any], Any] | None,
        use_all_amp_candidates: bool = False,
        phase1_optimize: bool = False,
        grids: Grids | None = None,
    ) -> None:
        if not candidates:
            raise ArgumentError("there are no candidates to choose from")
        self._sim, self._candidates = sim, list(dict.fromkeys(candidates))
        self._first, self._second = eval_callback_for_phase1, eval_callback_for_phase2
        self._forward = forward_pass_callback
        self._folder = Path(results_dir) if results_dir is not None else None
        self._clean_start = clean_start
        self._module_name_dict, self.quantizer_groups = find_quantizer_group(sim)
        self._supported_candidates_per_quantizer_group, self.baseline_candidate_options = (
            find_supported_candidates(
                self.quantizer_groups,
                self._candidates,
                sim.get_supported_kernels(),
                get_quantizer_to_op_type_dict(sim),
                use_all_amp_candidates,
            )
        )
        self._mac_dict = create_mac_dict(sim)
        self._parents = find_param_name_to_parent_name_dict(sim.connected_graph)
        self._grids: Grids = dict(grids or {})
        self.fp32_accuracy: float | None = None
        self.baseline_candidate: Candidate | None = None
        self.min_candidate = min(self._candidates, key=lambda one: candidate_cost(*one))
        self._final_eval_score: float | None = None
        self._pareto_front_list: list[Visited] = []

    def set_baseline(
        self, fp32_accuracy: float | None = None, baseline_candidate: Candidate | None = None
    ) -> tuple[float, Candidate]:
        """Gives all groups the candidate with the best score, unless one is given.

        Returns:
            The score without quantizers, and the candidate.
        """
        if fp32_accuracy is None:
            with only(self._sim, []):
                fp32_accuracy = self._score(self._second, "the model without quantizers")
        self.fp32_accuracy = fp32_accuracy
        if baseline_candidate is None:
            options = self.baseline_candidate_options
            scores = {one: self._score_of_all(one) for one in options} if len(options) > 1 else {}
            baseline_candidate = max(options, key=lambda one: (scores.get(one, 0.0), candidate_cost(*one)))
        self.baseline_candidate = baseline_candidate
        self._set_all(baseline_candidate)
        return fp32_accuracy, baseline_candidate

    def run(
        self, allowed_accuracy_drop: float | None, search_algo: AMPSearchAlgo = AMPSearchAlgo.Binary
    ) -> list[Visited]:
        """Searches; the simulation is left with the result.

        Args:
            allowed_accuracy_drop: how much less than without quantizers the score may be; None to visit all.
            search_algo: how the last good point is found.

        Returns:
            The visited points: the share of the baseline's cost, the score, and the group and the candidate
            that it has more than the point before. Empty if the baseline is not good enough, or the candidate
            with the fewest bits is good enough for all groups.

        Raises:
            UsageError: there is no such search, or a score is NaN.
        """
        if search_algo not in SEARCHES:
            known = ", ".join(f"AMPSearchAlgo.{one.name}" for one in AMPSearchAlgo)
            raise ArgumentError(f"the search is one of {known}, not {search_algo!r}")
        start = time.monotonic()
        fp32_accuracy, baseline = self.set_baseline()
        drop = allowed_accuracy_drop
        if drop is not None:
            least = fp32_accuracy - drop
            if self._score_of_all(baseline) < least or self._score_of_all(self.min_candidate) > least:
                self._settle()
                return []
            self._set_all(baseline)
        scored = self._create_and_save_accuracy_list(baseline)
        between = time.monotonic()
        found = self._create_pareto_front_list(
            drop, scored, fp32_accuracy, baseline, self.min_candidate, SEARCHES[search_algo]
        )
        if self._folder is not None:
            minutes = [(between - start) / 60, (time.monotonic() - between) / 60]
            info = [
                ("fp32 accuracy", fp32_accuracy),
                ("final score", self._final_eval_score),
                *zip(("Phase1 Time", "Phase2 Time"), minutes, strict=True),
                ("phase2 eval count", len(found)),
                ("total_quantizers", sum(len(group.to_list()) for group in self.quantizer_groups)),
            ]
            export_list(info, self._folder)
        return found

    # -- the two phases -----------------------------------------------------------------------------

    def _create_and_save_accuracy_list(self, baseline_candidate: Candidate) -> list[Scored]:
        """The score of every candidate but one in every group, all other groups off; the best first."""
        kept = self._read_scores()
        scored: list[Scored] = []
        for group in self.quantizer_groups:
            for candidate in self._supported_candidates_per_quantizer_group[group]:
                if candidate == baseline_candidate:
                    continue
                key = json.dumps([group.to_list(), str(candidate)])
                if key not in kept:
                    self._set(group, candidate)
                    with only(self._sim, self._free(group)):
                        names = ", ".join(name for _, name in group.to_list())
                        kept[key] = self._score(self._first, f"{_text(candidate)} in '{names}'")
                saved = self._saved(group, baseline_candidate, candidate)
                scored.append((group, candidate, kept[key], saved))
            self._set(group, baseline_candidate)
        order = {group: number for number, group in enumerate(self.quantizer_groups)}
        found = sort_accuracy_list(scored, order)
        if self._folder is not None:
            listed = [(group.to_list(), str(candidate), *numbers) for group, candidate, *numbers in found]
            export_list(listed, self._folder / ".cache", "accuracy_list")
            named = {f"{', '.join(n for _, n in g.to_list())}: {_text(c)}": s for g, c, s, _ in found}
            path = self._folder / "quantizer_group_sensitivity.html"
            write_line(path, "What candidates do in each group", named, "score")
        return found

    def _create_pareto_front_list(
        self,
        allowed_accuracy_drop: float | None,
        accuracy_list: Sequence[Scored],
        fp32_accuracy: float,
        baseline_candidate: Candidate,
        lowest_candidate: Candidate,
        search_algo: Callable[..., int],
        phase2_reverse: bool = False,
    ) -> list[Visited]:
        """Takes over the entries of a list one after the other, and leaves the last state that is good."""
        visited: dict[int, Visited] = {}
        whole = calculate_starting_bit_ops(self._mac_dict, baseline_candidate)

        def visit(number: int) -> float:
            if number not in visited:
                cost = self._take(accuracy_list[: number + 1], baseline_candidate, whole)
                group, candidate = accuracy_list[number][:2]
                share = cost / whole if whole else 1.0
                score = self._score(self._second, f"{share:.0%} of the bit operations")
                visited[number] = share, score, group, candidate
            return visited[number][1]

        values = [lambda number=number: visit(number) for number in range(len(accuracy_list))]
        count = 0
        if values and allowed_accuracy_drop is None:
            for value in values:
                value()
            count = len(values)
        elif values and allowed_accuracy_drop is not None:
            target = fp32_accuracy - allowed_accuracy_drop
            last = search_algo(values, target)
            count = last + 1 if visit(last) >= target else 0
        self._take(accuracy_list[:count], baseline_candidate, whole)
        self._settle()
        self._pareto_front_list = [visited[number] for number in sorted(visited)]
        if self._folder is not None:
            self._export(self._pareto_front_list)
        return self._pareto_front_list

    # -- internals ----------------------------------------------------------------------------------

    def _take(self, entries: Sequence[Scored], baseline: Candidate, whole: float) -> float:
        """Gives groups the candidates of entries, the later ones last; what all multiplications cost then."""
        chosen = {group: candidate for group, candidate, *_ in entries}
        known: dict[str, Candidate] = {}
        cost = whole
        for group in self.quantizer_groups:
            self._set(group, chosen.get(group, baseline))
            if group in chosen:
                arguments = self._mac_dict, group, self._parents, known, baseline, chosen[group]
                cost = calculate_running_bit_ops(*arguments, cost)
        self._fit_rules()
        return cost

    def _settle(self) -> None:
        """Calibrates the simulation as it is, and takes down its score."""
        self._fit_rules()
        if self._forward is not None:
            self._sim.compute_encodings(self._forward)
        self._final_eval_score = self._score(self._second, "the result")

    def _score(self, callback: Callable[[Any], float], of: str) -> float:
        return score_of(self._sim.session, callback, of)

    def _score_of_all(self, candidate: Candidate) -> float:
        self._set_all(candidate)
        return self._score(self._second, f"{_text(candidate)} in all groups")

    def _set_all(self, candidate: Candidate) -> None:
        for group in self.quantizer_groups:
            self._set(group, candidate)
        self._fit_rules()

    def _set(self, group: QuantizerGroup, candidate: Candidate) -> None:
        """Gives a group a candidate, and the grids that were found for it."""
        self._calibrate(candidate)
        group.set_quantizers_to_candidate(self._module_name_dict, candidate)
        for _, name in group.to_list():
            self._load(name)

    def _free(self, group: QuantizerGroup) -> list[str]:
        """The tensors of a group whose quantizers are not frozen."""
        names = [name for _, name in group.to_list()]
        return [name for name in names if not self._module_name_dict[name].is_encoding_frozen()]

    def _load(self, name: str) -> None:
        quantizer = self._module_name_dict[name]
        grid = self._grids.get((name, quantizer.precision()))
        if grid is not None and quantizer.enabled and not quantizer.is_encoding_frozen():
            quantizer.load_encodings(grid)

    def _calibrate(self, candidate: Candidate) -> None:
        """Finds the grids of all quantizers in a candidate, once; formats are as before then."""
        names = [name for group in self.quantizer_groups for name in self._free(group)]
        activations = {name for group in self.quantizer_groups for name in group.activation_quantizers}
        precisions = [qtype.from_legacy_repr(kind, bits) for bits, kind in candidate]
        keys = [(name, precisions[0 if name in activations else 1]) for name in names]
        if self._forward is None or all(key in self._grids for key in keys):
            return
        before = {name: self._module_name_dict[name].precision() for name in names}
        for group in self.quantizer_groups:
            group.set_quantizers_to_candidate(self._module_name_dict, candidate)
        self._sim.compute_encodings(self._forward)
        for name, precision in keys:
            self._grids[name, precision] = self._module_name_dict[name].get_encodings()
        for name, precision in before.items():
            if self._module_name_dict[name].precision() != precision:
                self._module_name_dict[name].set_precision(precision)
                self._load(name)

    def _fit_rules(self) -> None:
        """Gives norms and products of activations what the device wants, with grids found for it."""
        if not apply_exception_rules(self._sim):
            return
        for name, quantizer in self._module_name_dict.items():
            if quantizer.enabled and not quantizer.is_initialized():
                self._load(name)
        if self._forward is not None:
            self._sim.compute_encodings(self._forward)

    def _saved(self, group: QuantizerGroup, before: Candidate, after: Candidate) -> float:
        return find_bit_ops_reduction(group, self._mac_dict, self._parents, before, after)

    def _read_scores(self) -> dict[str, float]:
        """The scores of the folder; none if they are to be measured anew."""
        path = self._folder / ".cache" / "accuracy_list.json" if self._folder is not None else None
        if path is None or self._clean_start or not path.is_file():
            return {}
        try:
            listed = json.loads(path.read_text(encoding="utf-8"))
            return {json.dumps([names, candidate]): float(score) for names, candidate, score, *_ in listed}
        except (ValueError, TypeError):  # it is damaged, and written anew
            return {}

    def _export(self, front: Sequence[Visited]) -> None:
        assert self._folder is not None
        listed = [(*numbers, group.to_list(), str(candidate)) for *numbers, group, candidate in front]
        export_list(listed, self._folder, "pareto_list")
        points = {
            f"{cost:.4f} of the bit operations": score
            for cost, score, *_ in sorted(front, key=lambda one: -one[0])
        }
        write_line(self._folder / "pareto_curve.html", "Score by cost", points, "score")


def grids_of(encodings: Mapping[str, Mapping[str, Any]], quantizer_names: Iterable[str]) -> Grids:
    """The grids in what :func:`analyze_mixed_precision_sensitivity` found."""
    found: Grids = {}
    for name in quantizer_names:
        held = encodings.get(name)
        if held is not None and held["dtype"] == "INT":
            pairs = zip(held["scale"], held["offset"], strict=True)
            found[name, qtype.int(held["bw"])] = [
                TfEncoding(delta=scale, offset=offset, bw=held["bw"]) for scale, offset in pairs
            ]
    return found


def _text(candidate: Candidate) -> str:
    return ", ".join(f"{kind.name}{bits}" for bits, kind in candidate)
