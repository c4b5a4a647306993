"""Candidates of mixed precision, what they cost, and searches in a list of scores that fall."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from qc.ir.base.files import atomic_write

from ...defs import QuantizationDataType, qtype
from ...qc_quantize_op import QcQuantizeOp

# Width and kind of activations, then of parameters.
Candidate: TypeAlias = tuple[tuple[int, QuantizationDataType], tuple[int, QuantizationDataType]]

FLOATING_POINT_MULTIPLIER = 1.5  # what an operation on floats costs, beside one on integers of the same width


class AMPSearchAlgo(enum.IntEnum):
    """How the point is found at which the score falls below the limit."""

    BruteForce = 1
    Interpolation = 2
    Binary = 3


def brute_force_search(
    values: Sequence[Callable[[], float]], target: float, phase2_reverse: bool = False
) -> int:
    """The number of the last value that is no less than the target, of values that fall.

    Args:
        values: functions, which are called only where they must be, the first one first.
        phase2_reverse: the values rise instead.

    Returns:
        The number; the first one if all are less.
    """
    if phase2_reverse:
        return _mirrored(brute_force_search, values, target)
    found = 0
    for number, value in enumerate(values):
        if value() < target:
            break
        found = number
    return found


def binary_search(values: Sequence[Callable[[], float]], target: float, phase2_reverse: bool = False) -> int:
    """As :func:`brute_force_search`, but the last value first, then the first, then halves; as AIMET does."""
    return _search(values, target, phase2_reverse, binary_search, lambda left, right: (left + right + 1) // 2)


def interpolation_search(
    values: Sequence[Callable[[], float]], target: float, phase2_reverse: bool = False
) -> int:
    """As :func:`binary_search`, but where the target should be between the values at both ends."""

    def between(left: int, right: int) -> int:
        high, low = values[left](), values[right]()
        share = (target - low) / (high - low)
        return min(max(right - int((right - left) * share), left + 1), right - 1)

    return _search(values, target, phase2_reverse, interpolation_search, between)


def _search(
    values: Sequence[Callable[[], float]],
    target: float,
    reverse: bool,
    search: Callable[..., int],
    between: Callable[[int, int], int],
) -> int:
    if reverse:
        return _mirrored(search, values, target)
    left, right = 0, len(values) - 1
    if values[right]() >= target:
        return right
    if values[left]() <= target:
        return left
    while right - left > 1:
        middle = between(left, right)
        value = values[middle]()
        if value == target:
            return middle
        left, right = (middle, right) if value > target else (left, middle)
    return left


def _mirrored(search: Callable[..., int], values: Sequence[Callable[[], float]], target: float) -> int:
    return len(values) - 1 - search(values[::-1], target)


SEARCHES = {
    AMPSearchAlgo.BruteForce: brute_force_search,
    AMPSearchAlgo.Interpolation: interpolation_search,
    AMPSearchAlgo.Binary: binary_search,
}


def get_effective_bitwidth(data_type: QuantizationDataType, bitwidth: int) -> float:
    """The width of integers that cost as much."""
    is_float = data_type is QuantizationDataType.float
    return bitwidth * math.sqrt(FLOATING_POINT_MULTIPLIER) if is_float else bitwidth


def candidate_cost(
    activation_candidate: tuple[int, QuantizationDataType], param_candidate: tuple[int, QuantizationDataType]
) -> float:
    """What a multiplication costs: the product of the widths."""
    (activation_bits, activation_kind), (bits, kind) = activation_candidate, param_candidate
    return get_effective_bitwidth(activation_kind, activation_bits) * get_effective_bitwidth(kind, bits)


def calculate_starting_bit_ops(mac_dict: Mapping[str, int], default_candidate: Candidate) -> float:
    """What all multiplications cost in one candidate.

    Args:
        mac_dict: how many there are, by op.
    """
    return sum(mac_dict.values()) * candidate_cost(*default_candidate)


def sort_accuracy_list(
    accuracy_list: Iterable[tuple[Any, ...]], index_of_quantizer_group: Mapping[Any, int]
) -> list[tuple[Any, ...]]:
    """Entries (group, candidate, score, saved) with the best score first, then with what saves most."""
    return sorted(accuracy_list, key=lambda one: (-one[2], -one[3], index_of_quantizer_group[one[0]]))


def enable_quantizers(quantizers: Iterable[QcQuantizeOp]) -> None:
    """Turns quantizers on."""
    for quantizer in quantizers:
        quantizer.enabled = True


def disable_quantizers(quantizers: Iterable[QcQuantizeOp]) -> None:
    """Turns quantizers off."""
    for quantizer in quantizers:
        quantizer.enabled = False


def export_list(lst: Sequence[Any], results_dir: str | Path, file_name: str = "amp_info_list") -> None:
    """Writes a list as JSON into a folder, which is made if it is not there."""
    folder = Path(results_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{file_name}.json") as file:
        file.write(f"{json.dumps(lst, indent=1)}\n".encode())


def candidate_of(param: qtype | str, activation: qtype | str) -> Candidate:
    """The candidate of two number formats."""
    (kind, bits), (other_kind, other_bits) = (
        qtype.as_qtype(one).to_legacy_repr() for one in (activation, param)
    )
    return (bits, kind), (other_bits, other_kind)
