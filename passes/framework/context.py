"""What a pass gets besides the model: data, an executor, the target, and a place for what it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from qc.ir.errors import DataError, UsageError
from qc.ir.quant.ranges import GridsById

if TYPE_CHECKING:
    from qc.ir.executor import Executor, Feed
    from qc.ir.model import Model

    from .target import Target

T = TypeVar("T")

# What a pass can need, in words, and how a user gives it.
NEEDS = {
    "data": (
        "calibration data",
        "--data, or --random-data to try out (data= in Python); 'qc list-pipelines' tells which need none",
    ),
    "executor": ("an executor", "PassContext(executor=...) in Python"),
    "target": ("a target", "--target on the command line, or target= in Python"),
}

# What a pass adds to a note that it did nothing, as there are recorded statistics and no data.
GIVE_DATA = "; give --data (data= in Python), beside statistics too"


class Task(Protocol):
    """One running piece of work that shows how far it is."""

    def advance(self, steps: int = 1) -> None:
        """Tells that ``steps`` more are done."""

    def finish(self) -> None:
        """Tells that the work ended, whether it was completed or not."""


class Progress(Protocol):
    """Shows progress to a user."""

    def start(self, description: str, total: int | None) -> Task:
        """Begins a task of ``total`` steps, None if the number is not known."""


class NullTask:
    """A task that nobody watches."""

    def advance(self, steps: int = 1) -> None:
        """Does nothing."""

    def finish(self) -> None:
        """Does nothing."""


class NullProgress:
    """Progress that nobody watches."""

    def start(self, description: str, total: int | None) -> Task:
        """A task that shows nothing."""
        return NullTask()


@dataclass(frozen=True)
class Artifact:
    """What a lowering pass made.

    Attributes:
        kind: what it is, for a program: ``onnx``, ``encodings``.
        payload: the thing itself, such as a ``ModelProto`` or the text of a file.
        suffix: what to append to the stem of the output path, such as ``.onnx`` or ``.encodings``.
    """

    kind: str
    payload: object
    suffix: str


@dataclass
class PassContext:
    """Services and results of one run of a pipeline.

    Attributes:
        data: feeds that can be iterated more than once.
        executor: runs models; passes never create one.
        target: what the device wants.
        seed: seed of every random choice a pass makes.
        verify: called with the model after every pass; raises when an invariant is broken. None: no check.
        check_analyses: compute every analysis again after every pass, and compare it with what was kept.
        progress: where long work shows how far it is.
        artifacts: what the lowering passes made, by name, in order.
        notes: sentences for the user that are no errors.
        warnings: such sentences of what makes a result worthless, which are told however little is wanted.
        little_data: why the last calibration had too few samples, in words; empty if it had enough.
        grids: how the last calibration finds the grid of each quantizer that it knows, by the id of it.
        dynamic: the labels of products that a lowering pass wrote so that data is quantized in every run.
    """

    data: Iterable[Feed] | None = None
    executor: Executor | None = None
    target: Target | None = None
    seed: int = 0
    verify: Callable[[Model], None] | None = None
    check_analyses: bool = False
    progress: Progress = field(default_factory=NullProgress)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    little_data: str = ""
    grids: GridsById = field(default_factory=GridsById)
    dynamic: set[str] = field(default_factory=set)

    @property
    def samples_given(self) -> int | None:
        """How many samples the data has; None if there is no data, or if it does not tell."""
        return getattr(self.data, "length", None)

    def required_data(self, who: str = "this pass") -> Iterable[Feed]:
        """The data; raises UsageError, which says that ``who`` needs it, if there is none."""
        return _required("data", self.data, who)

    def samples(self, most: int, who: str) -> list[Feed]:
        """Samples from all over the data, ``most`` at most, as folders hold one class after the other.

        Raises:
            UsageError: there is no data, which ``who`` needs.
            DataError: there is no sample in it.
        """
        data = self.required_data(who)
        if self.samples_given == 0:  # with statistics that were recorded there may be none
            raise DataError(f"{who} needs calibration data, and there is none{GIVE_DATA}")
        found = list(_spread(data, self.samples_given, most))
        if not found:
            raise DataError(f"{who} needs calibration data, and there is none{GIVE_DATA}")
        return found

    def required_executor(self) -> Executor:
        """The executor; raises UsageError if there is none."""
        return _required("executor", self.executor)

    def required_target(self) -> Target:
        """The target; raises UsageError if there is none."""
        return _required("target", self.target)

    @property
    def has_floats(self) -> bool:
        """Whether the target, if there is one, computes in floats as well as in integers."""
        return self.target is None or self.target.default.runs == "float"

    @property
    def can_read_again(self) -> bool:
        """Whether data that one pass reads is there for the next one, too."""
        return not getattr(self.data, "is_read_once", False)

    def add_artifact(self, name: str, artifact: Artifact) -> None:
        """Keeps what a lowering pass made; raises UsageError if the name is taken."""
        if name in self.artifacts:
            raise UsageError(
                f"two passes of the pipeline make an artifact '{name}'; rename or drop one of them"
            )
        self.artifacts[name] = artifact

    def check_left(self) -> None:
        """Raises TypeError for what a pass left here that is no text, or no artifact."""
        said, made = [*self.notes, *self.warnings], self.artifacts.values()
        for kind, what, left in ((str, "a note or a warning", said), (Artifact, "an artifact", made)):
            for one in left:
                if not isinstance(one, kind):
                    raise TypeError(f"{what} in the context is {one!r}, and no {kind.__name__}")

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Task]:
        """A block of work that shows progress as it tells the task."""
        task = self.progress.start(description, total)
        try:
            yield task
        finally:
            task.finish()

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yields the items and shows progress: one step for every item that was worked on."""
        with self.task(description, total) as task:
            for item in items:
                yield item
                task.advance()


def _spread(data: Iterable[Feed], length: int | None, most: int) -> Iterator[Feed]:
    """``most`` of the feeds at equal distances, without reading many more; the first ones of unknown many."""
    shard = getattr(data, "shard", None)
    if length is None or shard is None or length <= most:
        yield from islice(data, most)
        return
    part = shard(0, length // most)
    for number, feed in enumerate(part):
        if number * most // part.length > (number - 1) * most // part.length:
            yield feed


def _required(need: str, given: T | None, who: str = "this pass") -> T:
    if given is None:
        what, how = NEEDS[need]
        raise UsageError(f"{who} needs {what}; give it with {how}")
    return given
