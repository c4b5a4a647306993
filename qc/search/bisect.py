"""Finds the action, and the quantizer, that makes a result bad.

The actions of a compilation are numbered, and any limit gives a valid model. So the first bad one is found
by halving, as in LLVM's ``-opt-bisect-limit``: after it the result is bad, one before it the result is good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.ir.errors import DemandError, ModelError
from qc.ir.journal import Remark
from qc.passes import Progress
from qc.progress import progress_here
from qc.runtime import Data, load_data

from .oracle import MetricOracle, Oracle, OracleVerdict, Outcome
from .quantizers import QuantizerFacts, Removal, Removals
from .watch import PassWatch, is_defect

MOST_REMOVALS = 50


@dataclass(frozen=True)
class Probe:
    """The verdict on what the actions up to ``limit`` make."""

    limit: int
    verdict: OracleVerdict


@dataclass(frozen=True)
class Finding:
    """What a search found.

    Attributes:
        actions: number of all actions.
        probes: what was tried, in order.
        suspects: the first bad action; several if the oracle could not tell them apart.
        quantizer: the quantizer that the first bad action is about, as it is in the whole result.
        without: the verdict on the whole result without that quantizer alone.
        best_removal: the quantizer without which the whole result gains most; only looked for if ``without``
            is not good.
        removals: how many quantizers were tried for it.
    """

    actions: int
    probes: tuple[Probe, ...]
    suspects: tuple[Remark, ...]
    quantizer: QuantizerFacts | None = None
    without: OracleVerdict | None = None
    best_removal: Removal | None = None
    removals: int = 0

    @property
    def is_gradual(self) -> bool:
        """Whether the result stays bad without any single quantizer that was turned off."""
        if self.without is None or not self.without.is_bad:
            return False
        return self.best_removal is None or self.best_removal.verdict.is_bad


def bisect(
    compilation: Compilation,
    oracle: Oracle,
    *,
    data: object = None,
    progress: Progress | None = None,
    on_probe: Callable[[Probe, int], None] = lambda probe, actions: None,
) -> Finding:
    """Finds the first action after which a result is bad.

    Args:
        compilation: what to compile.
        oracle: what is bad; see :func:`qc.search.parse_oracle`.
        data: what to compare on; default: the calibration data.
        progress: where long work shows how far it is.
        on_probe: called after every probe with the number of all actions.

    Raises:
        DemandError: the whole result is good, or the model is bad before any action.
        QcError: what the compilation or the oracle has to say about model, data and options.
    """
    oracle.check(compilation.proto())
    source = compilation.data if data is None else data
    feeds = load_data(source, compilation.fed_inputs()) if source is not None else None
    asked = replace(compilation, allow_unquantized=True, progress=progress)
    return _Search(asked, oracle, feeds, progress or progress_here(), on_probe).run()


@dataclass
class _Search:
    compilation: Compilation
    oracle: Oracle
    data: Data | None
    progress: Progress
    on_probe: Callable[[Probe, int], None]
    total: int = 0
    probes: list[Probe] = field(default_factory=list)
    actions: list[Remark] = field(default_factory=list)  # of the last compilation that was bad

    def run(self) -> Finding:
        whole = self._check_ends()
        good, bad = self._halve(0, self.total)
        suspects = tuple(self.actions[good:bad])
        finding = Finding(self.total, tuple(self.probes), suspects)
        if whole is None or len(suspects) > 1:
            return finding
        return self._blame_quantizer(finding, whole)

    def _check_ends(self) -> Compiled | None:
        """The whole result, None if there is none; raises DemandError if there is nothing to find."""
        whole, verdict = self._judge(None)
        self._report(self.total, verdict)
        if verdict.outcome is not Outcome.BAD:
            other = self.oracle.suggestion(verdict)
            example = f", such as '{other}'" if other else ""
            raise DemandError(
                f"the whole result is not bad by '{self.oracle}' ({verdict}), so there is nothing to find: "
                f"let another --oracle say what is bad{example}"
            )
        if not self.total:
            raise DemandError(f"the result is {verdict}, but there is no action that could be to blame")
        _, first = self._judge(0)
        self._report(0, first)
        if first.outcome is not Outcome.GOOD:
            raise DemandError(
                f"the result without any action is not good by '{self.oracle}' ({first}): no action is to "
                "blame; the oracle says what is bad"
            )
        return whole

    def _halve(self, good: int, bad: int) -> tuple[int, int]:
        """The closest good and bad limits; what lies between them could not be told."""
        skipped: set[int] = set()
        while True:
            left = [limit for limit in range(good + 1, bad) if limit not in skipped]
            if not left:
                return good, bad
            limit = min(left, key=lambda limit: abs(2 * limit - good - bad))
            _, verdict = self._judge(limit)
            self._report(limit, verdict)
            if verdict.outcome is Outcome.SKIP:
                skipped.add(limit)
            elif verdict.is_bad:
                bad = limit
            else:
                good = limit

    def _judge(self, limit: int | None) -> tuple[Compiled | None, OracleVerdict]:
        """Compiles up to a limit; the result, None if that failed, and the verdict on it."""
        watch = PassWatch()
        compiled = None
        try:
            asked = self.compilation.action_limit if limit is None else limit
            compiled = replace(self.compilation, action_limit=asked, instruments=[watch]).compile()
            verdict = self.oracle.judge(compiled, self.compilation, self.data)
        except Exception as error:
            # Without any action, the model itself cannot be run.
            if isinstance(error, ModelError) and limit == 0:
                raise
            if compiled is not None and is_defect(error):
                raise
            verdict = self.oracle.judge_failure(error)
        actions = watch.actions()
        if limit is None:
            self.total = len(actions)
        if verdict.is_bad:
            self.actions = actions
        return compiled, verdict

    def _report(self, limit: int, verdict: OracleVerdict) -> None:
        self.probes.append(Probe(limit, verdict))
        self.on_probe(self.probes[-1], self.total)

    def _blame_quantizer(self, finding: Finding, whole: Compiled) -> Finding:
        """Looks at the quantizer of the first bad action, and at the others if it is not the only one."""
        number = finding.suspects[0].quantizer
        if number is None:
            return finding
        removals = Removals(whole, self.compilation, self.oracle, self.data)
        own = next((q for q in whole.ir.quant.quantizers() if q.id == number), None)
        if own is not None:
            finding = replace(finding, quantizer=removals.facts(own), without=removals.judge(own))
        cured = finding.without is not None and finding.without.outcome is Outcome.GOOD
        if cured or not isinstance(self.oracle, MetricOracle):
            return finding
        best, tried = removals.best(MOST_REMOVALS, finding.probes[0].verdict, self.progress)
        return replace(finding, best_removal=best, removals=tried)
