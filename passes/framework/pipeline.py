"""Pipelines: trees of passes and combinators, and their text form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple, TypeAlias, Union

from annotated_types import Ge

from qc.ir.errors import UsageError

from .base import Pass
from .notation import format_options
from .options import option, validate_options

Step: TypeAlias = Union[Pass, "Combinator"]


@dataclass(frozen=True)
class Combinator(ABC):
    """A step that runs the steps inside it, perhaps more than once."""

    kind: ClassVar[str] = "combinator"
    name: ClassVar[str]

    steps: Sequence[Step] = field(metadata={"option": False})

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", checked_steps(self.steps, f"{self.name}(...)"))
        validate_options(self)

    @abstractmethod
    def drive(self, run_round: Callable[[], Sequence[str]]) -> None:
        """Calls ``run_round``, which runs the steps once and names the passes that changed the model."""

    def head(self) -> str:
        """The text form without the steps: ``fixpoint<max=4>``."""
        options = format_options(self)
        return f"{self.name}<{options}>" if options else self.name

    def __str__(self) -> str:
        return Layout.of([self]).text


@dataclass(frozen=True)
class Fixpoint(Combinator):
    """Runs its steps again and again until a whole round leaves the model as it is."""

    name = "fixpoint"

    max: Annotated[int, Ge(1)] = option(8, "rounds after which a model that still changes is an error")

    def drive(self, run_round: Callable[[], Sequence[str]]) -> None:
        """Raises UsageError that names the restless passes if ``max`` rounds were not enough."""
        changed: Sequence[str] = ()
        for _ in range(self.max):
            changed = run_round()
            if not changed:
                return
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(changed))
        raise UsageError(
            f"{self} did not settle: {names} still changed the model in round {self.max}; raise max, "
            "or take the passes that undo each other apart"
        )


@dataclass(frozen=True)
class Repeat(Combinator):
    """Runs its steps a fixed number of times."""

    name = "repeat"

    n: Annotated[int, Ge(1)] = option(2, "number of rounds")

    def drive(self, run_round: Callable[[], Sequence[str]]) -> None:
        """Runs ``n`` rounds, whether they change anything or not."""
        for _ in range(self.n):
            run_round()


COMBINATORS: dict[str, type[Combinator]] = {cls.name: cls for cls in (Fixpoint, Repeat)}


@dataclass(frozen=True)
class Pipeline:
    """A sequence of steps. ``str`` gives the text form, which parses to an equal pipeline."""

    steps: Sequence[Step] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", checked_steps(self.steps, "a pipeline"))

    def passes(self) -> list[Pass]:
        """The passes in the order of the text, each once however often it runs."""
        return [placed.step for placed in Layout.of(self.steps).passes]

    def __str__(self) -> str:
        return Layout.of(self.steps).text


class Placed(NamedTuple):
    """A pass and the span ``[start, end)`` of its text within a pipeline."""

    step: Pass
    start: int
    end: int


@dataclass
class Layout:
    """The text of a pipeline, and where in it each pass stands."""

    text: str = ""
    passes: list[Placed] = field(default_factory=list)

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Layout:
        """Writes the steps."""
        layout = cls()
        layout._add(steps)
        return layout

    def _add(self, steps: Sequence[Step]) -> None:
        for index, step in enumerate(steps):
            self.text += "," if index else ""
            start = len(self.text)
            if isinstance(step, Combinator):
                self.text += f"{step.head()}("
                self._add(step.steps)
                self.text += ")"
            else:
                self.text += str(step)
                self.passes.append(Placed(step, start, len(self.text)))


def checked_steps(steps: Sequence[Step], owner: str) -> tuple[Step, ...]:
    """The steps as a tuple; raises UsageError if one of them is no pass or combinator instance."""
    for step in steps:
        if not isinstance(step, (Pass, Combinator)):
            hint = "; write its name followed by ()" if isinstance(step, type) else ""
            raise UsageError(f"{owner} is made of Pass and combinator objects, not {step!r}{hint}")
    return tuple(steps)
