"""Candidates: the precisions between which a group of quantizers can choose, by what a target runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import is_trained
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat, parse_format
from qc.passes.framework.target import Target
from qc.passes.framework.target_rules import FormatRule

_WIDTHS = re.compile(r"w(\d{1,9})a(\d{1,9})")
_WEIGHT_BITS, _ACTIVATION_BITS = (4, 8), (8, 16)
_FLOATS = {"float16": 16, "float": 32}


@dataclass(frozen=True)
class Candidate:
    """A precision of weights and activations.

    Attributes:
        weight_bits, activation_bits: their widths.
        is_float: whether both are floats.
    """

    weight_bits: int
    activation_bits: int
    is_float: bool = False

    @property
    def name(self) -> str:
        """How it is written: ``w4a8``, ``float16`` or ``float``."""
        if self.is_float:
            return next(name for name, bits in _FLOATS.items() if bits == self.weight_bits)
        return f"w{self.weight_bits}a{self.activation_bits}"

    @property
    def bit_operations(self) -> int:
        """What one multiplication counts."""
        return self.weight_bits * self.activation_bits

    def is_as_wide_as(self, other: Candidate) -> bool:
        """Whether it has at least as many bits."""
        return self.weight_bits >= other.weight_bits and self.activation_bits >= other.activation_bits

    def __str__(self) -> str:
        return self.name


FLOAT = Candidate(32, 32, is_float=True)
FLOAT16 = Candidate(16, 16, is_float=True)


def parse_candidate(text: str) -> Candidate:
    """Reads ``w4a8``, ``float16`` or ``float``; raises UsageError for anything else."""
    word = text.strip()
    if word in _FLOATS:
        return Candidate(_FLOATS[word], _FLOATS[word], is_float=True)
    match = _WIDTHS.fullmatch(word)
    weight, activation = map(int, match.groups()) if match is not None else (0, 0)
    if not (2 <= weight <= 16 and 2 <= activation <= 16):
        raise UsageError(
            f"a candidate is w and a with 2 to 16 bits, such as w4a8, or float16, or float, not '{word}'"
        )
    return Candidate(weight, activation)


def parse_candidates(text: str, target: Target) -> tuple[Candidate, ...]:
    """Reads ``w8a8,w8a16,float``.

    Raises:
        UsageError: one is no candidate, or the target does not run it.
    """
    found = tuple(dict.fromkeys(map(parse_candidate, str(text).split(","))))
    refused = next((one for one in found if not is_supported(one, target)), None)
    if refused is not None:
        known = ", ".join(one.name for one in supported_candidates(target))
        raise UsageError(f"target '{target.name}' does not run {refused}; it runs {known}")
    return found


def supported_candidates(target: Target) -> tuple[Candidate, ...]:
    """Those that a target runs, among the usual ones; float is the last."""
    usual = [Candidate(weight, activation) for weight in _WEIGHT_BITS for activation in _ACTIVATION_BITS]
    return tuple(one for one in (*usual, FLOAT16, FLOAT) if is_supported(one, target))


def wider_candidates(model: Model, target: Target) -> tuple[Candidate, ...]:
    """The precision that most of a model has now, and those with more bits that the target runs."""
    least = Candidate(_usual_width(model, True, 8), _usual_width(model, False, 8))
    wider = (one for one in supported_candidates(target) if one.is_as_wide_as(least))
    return tuple(dict.fromkeys((least, *wider)))


def _usual_width(model: Model, is_weight: bool, default: int) -> int:
    """The width that most quantizers of weights, or of activations, have; the default if there are none."""
    widths = []
    for quantizer in model.quant.quantizers():
        value = model.quant.sites_of(quantizer)[0].value.original
        is_asked_for = is_trained(value) if is_weight else value.const is None
        if isinstance(quantizer.spec.format, IntFormat) and not quantizer.spec.derived and is_asked_for:
            widths.append(quantizer.spec.format.bits)
    return max(sorted(set(widths)), key=widths.count, default=default)


def is_supported(candidate: Candidate, target: Target) -> bool:
    """Whether a target runs a candidate; all that mix floats with integers run, or have beside it, float."""
    if candidate == FLOAT:
        return target.models.mixes_float
    if candidate.is_float:
        return not target.models.one_kind and all(
            rule.allows(parse_format(candidate.name)) for rule in (target.weight, target.activation)
        )
    return _allows(target.weight, candidate.weight_bits) and _allows(
        target.activation, candidate.activation_bits
    )


def _allows(rule: FormatRule, bits: int) -> bool:
    own = parse_format(rule.dtype)
    return isinstance(own, IntFormat) and rule.allows(IntFormat(bits, own.signed))
