"""What is asked of mixed precision."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError

from .candidates import Candidate, wider_candidates


@dataclass(frozen=True)
class Mixing:
    """How precisions are mixed.

    Attributes:
        candidates: what groups of quantizers can choose; None for what a recipe gives them and all that the
            target runs with more bits.
        bits: of a weight, on average: the choice of least harm that has no more is the result, if no recipe
            with so few is good enough; None for the cheapest that is.
        points: of the front that are measured, at most; 0 for none.

    Raises:
        UsageError: nothing has so many bits, or there is one candidate only.
    """

    candidates: tuple[Candidate, ...] | None = None
    bits: float | None = None
    points: int = 0

    def __post_init__(self) -> None:
        if self.bits is not None and not (isinstance(self.bits, Real) and 2 <= self.bits <= 32):
            raise UsageError(f"a weight has 2 to 32 bits on average, not {self.bits!r}")
        if self.candidates is None:
            return
        if len(self.candidates) < 2:
            raise UsageError(f"{self.candidates[0]} alone leaves nothing to mix; give two candidates or more")
        least = min(self.candidates, key=lambda one: one.weight_bits)
        if self.bits is not None and self.bits < least.weight_bits:
            raise UsageError(
                f"no mixture has {self.bits:g} bits of a weight: of the candidates {least} has fewest"
            )

    @property
    def is_asked(self) -> bool:
        """Whether the few bits of weights are what counts."""
        return self.bits is not None or self.points > 0

    def candidates_for(self, compiled: Compiled) -> tuple[Candidate, ...]:
        """The candidates for a compiled model."""
        return self.candidates or wider_candidates(compiled.ir, compiled.target)
