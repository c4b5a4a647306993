"""Every mistake in a pipeline text is answered with a sentence, the line at fault, and carets below it."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le
from hypothesis import given
from hypothesis import strategies as st

from qc.ir.errors import UsageError
from qc.passes import Pass, Registry, Stage, option
from qc.passes import parse_pipeline as parse


@dataclass(frozen=True)
class Calibrate(Pass):
    """Stands for a pass with options."""

    name = "calibrate"
    stage = Stage.ANNOTATE

    bins: Annotated[int, Ge(1), Le(99)] = option(8, "an integer")
    share: float = option(0.5, "a number")
    exact: bool = option(False, "a boolean")
    method: Literal["min-max", "mse"] = option("mse", "a choice")
    names: tuple[str, ...] = option((), "a list")
    pair: tuple[int, int] = option((0, 1), "two integers")

    def __post_init__(self):
        super().__post_init__()
        if self.exact and self.bins != 8:
            raise UsageError("pass 'calibrate' cannot be exact with bins")

    def run(self, model, context):
        pass


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Stands for a pass without options."""

    name = "fold-constants"
    stage = Stage.FLOAT

    def run(self, model, context):
        pass


KNOWN = Registry([Calibrate, FoldConstants])


def message(text):
    with pytest.raises(UsageError) as caught:
        parse(text, KNOWN)
    return str(caught.value)


BINS = "option 'bins' of pass 'calibrate' must be an integer, at least 1, at most 99"
OPTIONS = "its options are bins, share, exact, method, names, pair"

# Text, carets below it, sentence.
MISTAKES = [
    (
        "calibrat",
        "^^^^^^^^",
        "unknown pass 'calibrat' (did you mean 'calibrate'?); 'qc list-passes' shows all",
    ),
    (
        "fixpiont(a)",
        "^^^^^^^^",
        "unknown pass 'fixpiont' (did you mean 'fixpoint'?); 'qc list-passes' shows all",
    ),
    ("zzz", "^^^", "unknown pass 'zzz'; 'qc list-passes' shows all"),
    (
        "calibrate{bin=1}",
        "          ^^^",
        f"pass 'calibrate' has no option 'bin' (did you mean 'bins'?); {OPTIONS}",
    ),
    ("calibrate{q=1}", "          ^", f"pass 'calibrate' has no option 'q'; {OPTIONS}"),
    (
        "fold-constants{q=1}",
        "               ^",
        "pass 'fold-constants' has no option 'q'; it takes no options",
    ),
    ("calibrate{bins=abc}", "               ^^^", f"{BINS}, not 'abc'"),
    ("calibrate{bins=1.5}", "               ^^^", f"{BINS}, not 1.5"),
    ("calibrate{bins=8.0}", "               ^^^", f"{BINS}, not 8.0"),
    ("calibrate{bins=true}", "               ^^^^", f"{BINS}, not true"),
    ("calibrate{bins='8'}", "               ^^^", f"{BINS}, not '8'"),
    ("calibrate{bins=0}", "               ^", f"{BINS}, not 0"),
    ("calibrate{bins=100}", "               ^^^", f"{BINS}, not 100"),
    (
        "calibrate{bins=[1, 2]}",
        "               ^^^^^^",
        f"{BINS}, not [1, 2]",
    ),
    (
        "calibrate{exact=yes}",
        "                ^^^",
        "option 'exact' of pass 'calibrate' must be true or false, not 'yes'",
    ),
    (
        "calibrate{exact=1}",
        "                ^",
        "option 'exact' of pass 'calibrate' must be true or false, not 1",
    ),
    (
        "calibrate{share=x}",
        "                ^",
        "option 'share' of pass 'calibrate' must be a number, not 'x'",
    ),
    (
        "calibrate{share=1e999}",
        "                ^^^^^",
        "option 'share' of pass 'calibrate' must be a number, not inf",
    ),
    (
        "calibrate{method=msee}",
        "                 ^^^^",
        "option 'method' of pass 'calibrate' must be one of min-max, mse, not 'msee' (did you mean 'mse'?)",
    ),
    (
        "calibrate{names=a}",
        "                ^",
        "option 'names' of pass 'calibrate' must be a list, each item text, not 'a'",
    ),
    (
        "calibrate{names=[a, 1]}",
        "                ^^^^^^",
        "option 'names' of pass 'calibrate' must be a list, each item text, not ['a', 1]",
    ),
    (
        "calibrate{pair=[1]}",
        "               ^^^",
        "option 'pair' of pass 'calibrate' must be a list of 2: an integer; an integer, not [1]",
    ),
    ("calibrate{bins=1 bins=2}", "                 ^^^^", "option 'bins' is given twice"),
    ("calibrate{exact=true bins=1}", "^^^^^^^^^", "pass 'calibrate' cannot be exact with bins"),
    ("calibrate{bins}", "              ^", "expected '=' and a value for option 'bins'"),
    ("calibrate{bins=}", "               ^", "a value is missing here"),
    ("calibrate{=1}", "          ^", "expected an option or '}'"),
    ("calibrate{bins=1", "                ^", "expected an option or '}'"),
    ("calibrate{names=[a b]}", "                   ^", "expected ',' or ']'"),
    ("calibrate{names=[a", "                  ^", "expected ',' or ']'"),
    ("calibrate{names=[,]}", "                 ^", "a value is missing here"),
    ("calibrate{names=['a]}", "                 ^^^^", "this string has no closing quote"),
    (
        'calibrate{names=["\\q"]}',
        "                  ^^",
        "unknown escape in a string; write \\\\ for a backslash, or use single quotes",
    ),
    (
        "calibrate<bins=1>",
        "         ^",
        "the options of pass 'calibrate' belong in braces: calibrate{...}",
    ),
    (
        "calibrate(fold-constants)",
        "         ^",
        "'calibrate' is a pass and holds no other passes; only fixpoint and repeat do",
    ),
    (
        "fixpoint{max=2}(calibrate)",
        "        ^",
        "the options of 'fixpoint' belong in angle brackets: fixpoint<...>(...)",
    ),
    (
        "fixpoint<max=0>(calibrate)",
        "             ^",
        "option 'max' of combinator 'fixpoint' must be an integer, at least 1, not 0",
    ),
    (
        f"fixpoint<max={10**30}>(calibrate)",
        f"             {'^' * 31}",
        "option 'max' of combinator 'fixpoint' must be 9223372036854775807 at most",
    ),
    (
        "repeat<max=2>(calibrate)",
        "       ^^^",
        "combinator 'repeat' has no option 'max'; its options are n",
    ),
    ("fixpoint", "        ^", "expected '(' and the passes to fixpoint"),
    ("fixpoint(calibrate", "                  ^", "expected ',' or ')'"),
    ("calibrate)", "         ^", "expected ',' or the end"),
    ("calibrate calibrate", "          ^^^^^^^^^", "expected ',' or the end"),
    ("calibrate,,calibrate", "          ^", "a pass is missing here"),
    (",", "^", "a pass is missing here"),
    ("calibrate;", "         ^", "a pipeline cannot hold ';' here; put text that holds it in quotes"),
]


@pytest.mark.parametrize(("text", "carets", "sentence"), MISTAKES)
def test_mistake(text, carets, sentence):
    assert message(text) == f"{sentence}\n  {text}\n  {carets}"


def test_only_the_line_at_fault_is_shown():
    assert message("calibrate,\n  calibrat,\ncalibrate").splitlines()[1:] == ["    calibrat,", "    ^^^^^^^^"]


def test_the_end_is_right_behind_the_last_piece():
    assert message("calibrate,\nfixpoint(calibrate\n\n").splitlines()[1:] == [
        "  fixpoint(calibrate",
        "                    ^",
    ]


def test_a_long_line_is_cut_around_the_culprit():
    _sentence, shown, carets = message(
        ",".join(["calibrate"] * 40 + ["calibrat"] + ["calibrate"] * 40)
    ).splitlines()
    start = carets.index("^")
    assert shown.startswith("  ...") and len(shown) < 110
    assert shown[start : start + len(carets.strip())] == "calibrat"


def test_endless_nesting_is_an_error():
    assert "nested too deeply" in message("fixpoint(" * 5000)


def test_options_given_in_python_are_checked_alike():
    with pytest.raises(UsageError, match="option 'bins' of pass 'calibrate' must be an integer"):
        Calibrate(bins="abc")
    with pytest.raises(UsageError, match="option 'names' of pass 'calibrate' must be a list"):
        Calibrate(names=(b"bytes",))


@given(st.text("calibrate-fxpo{}<>()[]=, '\"\\1.e\n", max_size=40))
def test_any_text_is_read_or_refused_with_carets(text):
    try:
        pipeline = parse(text, KNOWN)
    except UsageError as error:
        assert str(error).rstrip("^") != str(error)
    else:
        assert parse(str(pipeline), KNOWN) == pipeline
