"""What a pipeline must fulfil before anything runs."""

from dataclasses import dataclass

import pytest

from qc.ir.errors import UsageError
from qc.passes import Pass, PassContext, Registry, Stage, check_needs, check_stages
from qc.passes import parse_pipeline as parse


@dataclass(frozen=True)
class Fold(Pass):
    """Rewrites."""

    name = "fold"
    stage = Stage.FLOAT

    def run(self, model, context):
        pass


@dataclass(frozen=True)
class Calibrate(Pass):
    """Annotates."""

    name = "calibrate"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})

    def run(self, model, context):
        pass


@dataclass(frozen=True)
class ScaleChannels(Pass):
    """Rewrites by what data tells."""

    name = "scale-channels"
    stage = Stage.FLOAT
    needs = frozenset({"data"})

    def run(self, model, context):
        pass


@dataclass(frozen=True)
class InsertQdq(Pass):
    """Lowers."""

    name = "insert-qdq"
    stage = Stage.LOWER
    needs = frozenset({"target"})

    def run(self, model, context):
        pass


KNOWN = Registry([Fold, ScaleChannels, Calibrate, InsertQdq])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "insert-qdq",
        "fold,fold,calibrate,calibrate,insert-qdq,insert-qdq",
        "fixpoint(fold),repeat(calibrate),insert-qdq",
        "fixpoint(fold,repeat(fold)),fold",
    ],
)
def test_stages_in_order(text):
    check_stages(parse(text, KNOWN))


FLOAT, ANNOTATE, LOWER = (stage.deed for stage in Stage)
FOLD_LATE = f"pass 'fold' {FLOAT}, but 'calibrate' before it {ANNOTATE}"
CALIBRATE_LATE = f"pass 'calibrate' {ANNOTATE}, but 'insert-qdq' before it {LOWER}"
TURNS = f"'fold' {FLOAT} and 'calibrate' {ANNOTATE}, so they cannot take turns"


@pytest.mark.parametrize(
    ("text", "carets", "sentence"),
    [
        ("fold,calibrate,fold", "               ^^^^", f"{FOLD_LATE}; move 'fold' in front of 'calibrate'"),
        (
            "calibrate,fixpoint(fold)",
            "                   ^^^^",
            f"{FOLD_LATE}; move 'fold' in front of 'calibrate'",
        ),
        (
            "insert-qdq,calibrate",
            "           ^^^^^^^^^",
            f"{CALIBRATE_LATE}; move 'calibrate' in front of 'insert-qdq'",
        ),
        (
            "fixpoint(fold,calibrate)",
            "              ^^^^^^^^^",
            f"{TURNS} in one fixpoint; move 'calibrate' out of it",
        ),
        (
            "repeat(fold,fixpoint(calibrate))",
            "                     ^^^^^^^^^",
            f"{TURNS} in one repeat; move 'calibrate' out of it",
        ),
        (
            "repeat(repeat(fold),repeat(fold,calibrate))",
            "                                ^^^^^^^^^",
            f"{TURNS} in one repeat; move 'calibrate' out of it",
        ),
    ],
)
def test_stages_out_of_order(text, carets, sentence):
    with pytest.raises(UsageError) as caught:
        check_stages(parse(text, KNOWN))
    assert str(caught.value) == f"{sentence}\n  {text}\n  {carets}"


def test_missing_needs_are_told_all_at_once():
    with pytest.raises(UsageError) as caught:
        check_needs(parse("fixpoint(calibrate),insert-qdq", KNOWN), PassContext())
    assert str(caught.value) == (
        "calibration data is missing, which pass 'calibrate' needs: give it with --data, or --random-data "
        "to try out (data= in Python); 'qc list-pipelines' tells which need none; "
        "an executor is missing, which pass 'calibrate' needs: give it with "
        "PassContext(executor=...) in Python; "
        "a target is missing, which pass 'insert-qdq' needs: give it with --target on the command line, or "
        "target= in Python"
    )


def test_who_uses_what_is_missing_is_told_too():
    @dataclass(frozen=True)
    class Uses(Calibrate):
        """Needs data for a part of what it does."""

        needs = frozenset({"executor"})
        uses = frozenset({"data"})

    known = Registry([ScaleChannels, Uses])
    with pytest.raises(UsageError, match="which pass 'calibrate' uses and pass 'scale-channels' needs: give"):
        check_needs(parse("scale-channels,calibrate", known), PassContext(executor=object()))


def test_needs_that_are_met():
    check_needs(
        parse("calibrate,insert-qdq", KNOWN), PassContext(data=[], executor=object(), target=object())
    )
    check_needs(parse("fold", KNOWN), PassContext())
