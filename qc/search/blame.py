"""Which action of a pass broke a model that the verifier refuses, or led to an exception."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qc.compiler import Compilation
from qc.ir.base.files import temporary_folder
from qc.ir.journal import Remark
from qc.ir.text import print_model
from qc.passes import Pass

from .watch import PassWatch, StoppedEarly, is_defect


@dataclass(frozen=True)
class Failure:
    """Where a compilation goes wrong.

    Attributes:
        error: what it raises.
        step: the pass that failed or left a broken model; None if it was no pass.
        executed: how many passes ran, this one included; rounds of a loop count each.
        actions: the actions of this pass, the last of which may have been taken back.
    """

    error: Exception
    step: Pass | None
    executed: int
    actions: tuple[Remark, ...]


def find_failure(compilation: Compilation) -> Failure | None:
    """Compiles and saves, and tells where that goes wrong through a defect; None if it does not.

    Raises:
        QcError: it goes wrong through what it was given.
    """
    watch = PassWatch()
    try:
        compiled = replace(compilation, instruments=[watch]).compile()
        with temporary_folder() as folder:
            compiled.save(folder / "result.onnx")
    except Exception as error:
        if not is_defect(error):
            raise
        own = watch.actions()[watch.first_action - 1 :] if watch.failed_pass is not None else []
        return Failure(error, watch.failed_pass, watch.begun, tuple(own))
    return None


def blame_action(compilation: Compilation, failure: Failure | None = None) -> Remark | None:
    """The first action of the failing pass after which the compilation fails.

    The pass is run up to one action after the other, halving what is left; later passes do not run.

    Args:
        compilation: what fails.
        failure: where it fails, if that is known already.

    Returns:
        None if nothing fails, or if it is not an action of a pass that makes the difference.
    """
    failure = failure or find_failure(compilation)
    if failure is None or not failure.actions:
        return None
    actions = failure.actions
    good, bad = 0, len(actions)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _fails(compilation, actions[middle - 1].number, failure.executed):
            bad = middle
        else:
            good = middle
    return actions[bad - 1]


def model_before(compilation: Compilation, failure: Failure) -> str:
    """The text of the model just before the pass that fails."""
    watch = PassWatch(stop_after=failure.executed - 1)
    try:
        replace(compilation, instruments=[watch]).compile()
    except StoppedEarly:
        assert watch.model is not None
        return print_model(watch.model)
    raise RuntimeError("the compilation ended before the pass that fails")


def _fails(compilation: Compilation, limit: int, executed: int) -> bool:
    """Whether a compilation of so many passes fails if it ends after an action."""
    try:
        replace(compilation, action_limit=limit, instruments=[PassWatch(executed)]).compile()
    except StoppedEarly:
        return False
    except Exception as error:
        return is_defect(error)
    return False
