"""What can be said about a pipeline before anything runs: the order of its stages, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence

from qc.ir.errors import UsageError

from .base import Pass
from .context import NEEDS, PassContext
from .notation import pointed
from .pipeline import Combinator, Layout, Pipeline, Placed, Step


def check_pipeline(pipeline: Pipeline, context: PassContext) -> None:
    """Raises UsageError for stages out of order, an artifact made twice, or what ``context`` lacks."""
    check_stages(pipeline)
    _check_artifacts(pipeline)
    check_needs(pipeline, context)


def check_stages(pipeline: Pipeline) -> None:
    """Raises UsageError if a pass comes after one of a later stage, and says what to move where."""
    layout = Layout.of(pipeline.steps)
    for placed in layout.passes:
        too_early = _first_of_later_stage(layout.passes, placed)
        if too_early:
            step, other = placed.step, too_early.step
            raise pointed(
                f"pass '{step.name}' {step.stage.deed}, but '{other.name}' before it {other.stage.deed}; "
                f"move '{step.name}' in front of '{other.name}'",
                layout.text,
                placed.start,
                placed.end,
            )
    _check_rounds(pipeline.steps)


def check_needs(pipeline: Pipeline, context: PassContext) -> None:
    """Raises UsageError that names every need which ``context`` lacks, passes that have it, and the cure."""
    faults = []
    for need, (what, how) in NEEDS.items():
        names = [step.name for step in pipeline.passes() if need in step.needs]
        if names and getattr(context, need) is None:
            users = [f"pass '{step.name}' uses and " for step in pipeline.passes() if need in step.uses]
            who = f"{users[-1] if users else ''}pass '{names[0]}' needs"
            faults.append(f"{what} is missing, which {who}: give it with {how}")
    if faults:
        raise UsageError("; ".join(faults))


def _check_artifacts(pipeline: Pipeline) -> None:
    """Raises UsageError if two passes make one artifact."""
    layout = Layout.of(pipeline.steps)
    makers: dict[str, Pass] = {}
    for step, start, end in layout.passes:
        made = _made_by(step)
        if made in makers:
            makes = f"makes '{made}', which '{makers[made].name}' before it makes"
            raise pointed(f"pass '{step.name}' {makes}; drop one of them", layout.text, start, end)
        if made:
            makers[made] = step


def _made_by(step: Pass) -> str:
    """The artifact that a pass is known to make; what a class says of it is not said of another ``run``."""
    kinds = map(vars, type(step).__mro__)
    return next((kind.get("makes", "") for kind in kinds if "makes" in kind or "run" in kind), "")


def _first_of_later_stage(passes: list[Placed], placed: Placed) -> Placed | None:
    before = passes[: passes.index(placed)]
    return next((other for other in before if other.step.stage > placed.step.stage), None)


def _check_rounds(steps: Sequence[Step]) -> None:
    """Within a combinator every pass comes after every other one, in the next round."""
    for step in steps:
        if not isinstance(step, Combinator):
            continue
        layout = Layout.of([step])
        for placed in layout.passes[1:]:
            first = layout.passes[0].step
            if placed.step.stage != first.stage:
                raise _out_of_turn(step, first, placed, layout.text)


def _out_of_turn(owner: Combinator, first: Pass, placed: Placed, text: str) -> UsageError:
    step = placed.step
    sentence = (
        f"'{first.name}' {first.stage.deed} and '{step.name}' {step.stage.deed}, so they cannot take turns "
        f"in one {owner.name}; move '{step.name}' out of it"
    )
    return pointed(sentence, text, placed.start, placed.end)
