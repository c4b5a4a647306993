"""What is to be kept while a model is reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol

from qc.compiler import Compilation
from qc.ir.errors import QcError
from qc.ir.executor import Feed
from qc.runtime import load_data
from qc.runtime.evaluation.judge import Labels

from .commands import Command
from .oracle import CommandOracle, Fails, Oracle, OracleVerdict, Outcome, parse_oracle
from .watch import PassWatch


class Interest(Protocol):
    """Tells whether a model still shows what is looked for; a verdict of BAD says that it does.

    Attributes:
        reads_data: whether it needs feeds for the model.
    """

    @property
    def reads_data(self) -> bool:
        """Whether it needs feeds for the model."""

    def examine(self, path: Path, feeds: Sequence[Feed]) -> OracleVerdict:
        """Looks at a model in a file."""

    def mend(self, verdict: OracleVerdict) -> str:
        """What would make a model interesting by whose verdict it is not."""


@dataclass(frozen=True)
class CommandInterest:
    """A command, which ends with exit code 0 if the model is interesting."""

    command: Command
    reads_data: ClassVar[bool] = False

    def examine(self, path: Path, feeds: Sequence[Feed]) -> OracleVerdict:
        """Runs the command; one that runs out of time finds nothing."""
        code = self.command.run(path)
        words = "the command ran out of time" if code is None else f"the command ended with exit code {code}"
        return OracleVerdict(Outcome.BAD if code == 0 else Outcome.GOOD, words)

    def mend(self, verdict: OracleVerdict) -> str:
        """What the command has to do."""
        return "it has to end with exit code 0 for what is looked for"


class OracleInterest:
    """A compilation whose result is bad by an oracle; if it fails, always in the same way.

    Args:
        oracle: what is bad.
        compilation: how to compile; the model and the data are those of each test.
    """

    def __init__(self, oracle: Oracle, compilation: Compilation) -> None:
        self._oracle = oracle
        self._compilation = replace(compilation, allow_unquantized=True)
        self._failure: tuple[str, ...] | None = None

    @property
    def reads_data(self) -> bool:
        """Whether the oracle or a pass needs data."""
        return self._oracle.needs_data or self._compilation.reads_data

    def examine(self, path: Path, feeds: Sequence[Feed]) -> OracleVerdict:
        """Compiles the model and asks the oracle."""
        watch = PassWatch()
        compilation = replace(self._compilation, model=path, data=list(feeds) or None, instruments=[watch])
        try:
            compiled = compilation.compile()
        except Exception as error:
            return self._examine_failure(error, watch)
        try:
            data = load_data(feeds, compilation.fed_inputs()) if feeds else None
            return self._oracle.judge(compiled, compilation, data)
        except QcError as error:
            return OracleVerdict(Outcome.SKIP, str(error))

    def mend(self, verdict: OracleVerdict) -> str:
        """Another condition."""
        other = self._oracle.suggestion(verdict)
        return f"let --interesting say what is looked for{f', such as {other!r}' if other else ''}"

    def _examine_failure(self, error: Exception, watch: PassWatch) -> OracleVerdict:
        """Interesting is a failure of the same kind, in the same pass, as the first one that was seen."""
        try:
            verdict = self._oracle.judge_failure(error)
        except QcError:
            return OracleVerdict(Outcome.GOOD, str(error))
        if not isinstance(self._oracle, Fails):
            return OracleVerdict(Outcome.GOOD, verdict.words)
        failed = watch.failed_pass.name if watch.failed_pass is not None else ""
        seen = (type(error).__name__, type(error.__cause__).__name__, failed)
        self._failure = self._failure or seen
        return verdict if seen == self._failure else OracleVerdict(Outcome.GOOD, verdict.words)


def parse_interest(
    text: str, compilation: Compilation, timeout: float | None, labels: Labels | None = None
) -> Interest:
    """Makes an interest from its text: a command that ends with exit code 0, or an oracle that says bad.

    Args:
        labels: one for each feed that it is examined on, for metrics of the user's.

    Raises:
        UsageError: the text is empty, or is meant as a condition and is none.
    """
    oracle = parse_oracle(text, timeout, labels)
    if isinstance(oracle, CommandOracle):
        return CommandInterest(oracle.command)
    oracle.check(compilation.proto())
    return OracleInterest(oracle, compilation)
