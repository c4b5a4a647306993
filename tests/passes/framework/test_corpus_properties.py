"""What every registered pass must keep to, on models that others wrote.

The models of single operators are shared out: every pass gets other ones. With ``QC_CORPUS=all`` in the
environment every pass gets all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.corpus import Sample, all_samples, exported_samples, operator_samples, own_samples
from support.folders import TESTS
from support.properties import check_pass, prefixes

from qc.passes import Pass, registry

SHARES = 40


def samples_of(cls: type[Pass]) -> tuple[Sample, ...]:
    """The models that a pass gets."""
    if os.environ.get("QC_CORPUS") == "all":
        return all_samples()
    share = registry().names().index(cls.name)
    return own_samples() + exported_samples()[share % 8 :: 8] + operator_samples()[share % SHARES :: SHARES]


@pytest.mark.parametrize("cls", list(registry()), ids=lambda cls: cls.name)
def test_what_a_pass_claims(cls: type[Pass], tmp_path: Path) -> None:
    acted = 0
    for sample in samples_of(cls):
        for prefix in prefixes(cls):
            try:
                acted += check_pass(cls, prefix, sample.model, sample.feed, tmp_path)
            except AssertionError as error:
                raise AssertionError(f"'{cls.name}' after '{prefix}' on {sample.name}: {error}") from error
    assert acted, f"no model gives '{cls.name}' anything to do: add one to tests/support/corpus.py"


DIGESTS = """
import sys
sys.path.insert(0, sys.argv[1])
from support.digests import print_digests
print_digests()
"""


def test_results_do_not_depend_on_the_hash_seed() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS, str(TESTS)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0].splitlines() for process in processes)
    assert all(process.returncode == 0 for process in processes)
    assert len(first) > 200
    assert first == second
