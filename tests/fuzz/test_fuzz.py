"""A slice of the campaign of ``make fuzz``, and that a campaign notices what it is for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .campaign import Campaign, Limits

COUNT = 1000
CAPTURING = 60


def test_hostile_models_are_refused_or_compiled(tmp_path: Path) -> None:
    outcome = Campaign(tmp_path, ["trip", "inspect", "rewrite"], Limits(seconds=60)).run(range(COUNT))
    assert not outcome.failures, "\n".join(outcome.failures.values())
    assert outcome.tried == COUNT
    assert COUNT / 5 < outcome.accepted["trip"] < COUNT
    assert COUNT / 10 < outcome.accepted["rewrite"] < COUNT / 2


def test_what_bodies_capture_is_opened_and_right(tmp_path: Path) -> None:
    outcome = Campaign(tmp_path, ["compare"], Limits(seconds=60), "capturing").run(range(CAPTURING))
    assert not outcome.failures, "\n".join(outcome.failures.values())
    assert outcome.accepted["compare"] == CAPTURING


NOTICED = {
    "stumble": "KeyError",
    "peep": "trespass: open '",
    "scribble": "trespass: open '",
    "follow": "trespass: open '",
    "peep_natively": "trespass: opened '",
}
SEED = 49  # of a model that is quickly made


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="native code is watched by inotify")
def test_misdeeds_are_noticed(tmp_path: Path) -> None:
    outcome = Campaign(tmp_path, ["trip", *NOTICED]).run([SEED])
    failure = outcome.failures[SEED]
    for deed, words in NOTICED.items():
        assert re.search(f"^{deed}: .*{words}", failure, re.MULTILINE | re.DOTALL), failure
    assert "\ntrip: " not in failure
    assert f"-m fuzz --count 1 --seed {SEED} --models hostile" in failure
    assert (tmp_path / "failures" / str(SEED) / "model.onnx").is_file()


@pytest.mark.parametrize(("deed", "words"), [("crash", "died: SIGABRT"), ("hang", "took more than 2 s")])
def test_the_end_of_a_process_is_noticed(tmp_path: Path, deed: str, words: str) -> None:
    outcome = Campaign(tmp_path, [deed], Limits(seconds=2)).run([SEED])
    assert words in outcome.failures[SEED]
    assert f" in {deed}" in outcome.failures[SEED]
