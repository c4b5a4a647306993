"""What a pass is: a frozen dataclass of options with a name, a stage and ``run``."""

from __future__ import annotations

import enum
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from qc.ir.errors import UsageError

from .notation import format_options
from .options import changed_options, option, validate_options

if TYPE_CHECKING:
    from qc.ir.model import Model

    from .context import PassContext

__all__ = ["Pass", "Stage", "option"]


class Stage(enum.IntEnum):
    """What a pass does to a model; the stages of a pipeline never go back."""

    FLOAT = 1
    ANNOTATE = 2
    LOWER = 3

    @property
    def deed(self) -> str:
        """What a pass of this stage does, for use in a sentence."""
        deeds = {
            Stage.FLOAT: "rewrites the float graph",
            Stage.ANNOTATE: "places or changes quantizers",
            Stage.LOWER: "lowers the quantized model",
        }
        return deeds[self]


@dataclass(frozen=True)
class Pass(ABC):
    """Base of all passes. A subclass is a frozen dataclass whose fields are its options.

    ::

        @dataclass(frozen=True)
        class EliminateIdentity(Pass):
            '''Removes Identity ops.'''

            name = "eliminate-identity"
            stage = Stage.FLOAT

            keep: tuple[str, ...] = option((), "names of ops to keep")

            def run(self, model: Model, context: PassContext) -> None: ...

    Passes of stage LOWER leave the model as it is and put what they make into ``context.artifacts``, so
    that one calibrated model is lowered to many targets. One that declares what it ``makes`` is refused a
    second time before anything runs.

    Two claims hold on every model, and the tests try them on every registered pass:

    * ``idempotent``: a second run right after the first makes no action.
    * ``tolerance`` of a pass that rewrites the float graph: how far it may move an output of the model, as a
      share of the largest magnitude in that output; 0 for a pass that leaves all arithmetic as it is.

    A subclass that relates options to each other overrides ``__post_init__``, calls ``super()``'s first
    and raises :class:`~qc.ir.errors.UsageError`.
    """

    kind: ClassVar[str] = "pass"
    name: ClassVar[str]
    stage: ClassVar[Stage]
    needs: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset()  # what makes a difference where it is given
    makes: ClassVar[str] = ""  # the name of the artifact of a lowering pass
    idempotent: ClassVar[bool] = True
    tolerance: ClassVar[float] = 0.0
    former_options: ClassVar[Mapping[str, str]] = {}  # what took the place of an option, for messages

    def __post_init__(self) -> None:
        validate_options(self)

    @abstractmethod
    def run(self, model: Model, context: PassContext) -> None:
        """Does the work of the pass on ``model``, in place."""

    def refuse_idle(self, names: Iterable[str], beside: str, instead: str) -> None:
        """Raises UsageError if one of some options is given, which changes nothing beside the others.

        To be called by ``run``: options may be given one after the other until then.

        Args:
            names: the options.
            beside: what makes them idle, such as ``method=mse``.
            instead: what would make them count, such as ``give method=percentile as well``.
        """
        changed = changed_options(self)
        for name in names:
            if name in changed:
                idle = f"option '{name}' of pass '{self.name}' changes nothing with {beside}"
                raise UsageError(f"{idle}: {instead}, or leave it out")

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    def __str__(self) -> str:
        """The text form: the name, and in braces the options that are not at their default."""
        options = format_options(self)
        return f"{self.name}{{{options}}}" if options else self.name
