"""What a check finds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qc.ir.base.shown import Shown

Runs = Literal["integer", "float", "refused", "breaks", "wrong", "removed", "unknown"]


@dataclass(frozen=True)
class CheckedOp:
    """One op of the model that computes on float data, quantized or not, as a coverage counts them.

    Attributes:
        name: how messages name it: its type and name, or its first result.
        op_type: its op type.
        runs: ``integer``; ``float``; ``refused`` by the device, so that it falls to the CPU; ``wrong`` for
            integers with wrong numbers; ``removed`` for an op that only moves data and that the runtime does
            without; ``unknown`` if no node was found that runs it.
            On a target that is not on this machine, ``integer`` for an op that meets all rules for integers,
            ``breaks`` for one that does not.
        kernel: the op type that runs it, such as ``QLinearConv``; empty on targets that are not here.
        runs_as: the node of the optimized graph that does; several ops may be merged into one.
        rule, why: the rule behind anything but ``integer``, in a word or two, and the reason in a sentence.
        multiplications: those with accumulation of an op that sums products, in bodies for every iteration;
            of others 0. Where shapes are not known even with a feed, as in bodies, each number of its weights
            counts once; without a feed it is None.
        seconds: the measured time of its kernel in one run; 0 if it was not measured.
    """

    name: str
    op_type: str
    runs: Runs
    kernel: str = ""
    runs_as: str = ""
    rule: str = ""
    why: str = ""
    multiplications: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Check(Shown):
    """The result of :func:`check`.

    Attributes:
        target: the name of the target.
        executed: whether the model was opened by the runtime of the target, here; else its rules were read.
        where: the same in words, with the version of the runtime.
        ops: the ops that read float data, quantized or not, in the order of the model.
        broken: rules of the target that the model breaks and that no op of ``ops`` has for its reason: of the
            model as a whole, or of ops that run in integers here all the same. As ``(op, rule, sentence)``.
        seconds: the time of all nodes in one run; 0 if it was not measured.
        rest: of ``seconds``, that of nodes that run none of ``ops``, by their op type, the longest first.
        made_for: the target that qc made the model for, as its metadata says; empty if it does not.
    """

    target: str
    executed: bool
    where: str
    ops: tuple[CheckedOp, ...]
    broken: tuple[tuple[str, str, str], ...] = ()
    seconds: float = 0.0
    rest: tuple[tuple[str, float], ...] = ()
    made_for: str = ""

    @property
    def counted(self) -> tuple[CheckedOp, ...]:
        """The ops that compute: all but those that were removed."""
        return tuple(op for op in self.ops if op.runs != "removed")

    @property
    def is_weighted(self) -> bool:
        """Whether :attr:`share` counts multiplications; if they are not known it counts ops that multiply."""
        numbers = [op.multiplications for op in self.counted]
        return None not in numbers and any(numbers)

    @property
    def share_of(self) -> str:
        """What :attr:`share` is a share of, in words."""
        return "multiplications" if self.is_weighted else "ops that multiply"

    @property
    def share(self) -> float:
        """The share of the multiplications of ``counted`` that run in integers, 0 to 1."""
        multiplying = [op for op in self.counted if op.multiplications != 0] or self.counted
        weights = [op.multiplications or 0 if self.is_weighted else 1 for op in multiplying]
        integer = sum(w for w, op in zip(weights, multiplying, strict=True) if op.runs == "integer")
        return integer / sum(weights) if weights else 0.0

    @property
    def time_share(self) -> float | None:
        """The share of the time of all nodes that those take which run in integers; None if not measured."""
        nodes = {op.runs_as: op.seconds for op in self.counted if op.runs == "integer"}
        return sum(nodes.values()) / self.seconds if self.seconds else None
