"""What all tests share: importable helpers, the hypothesis profile, and the option of the golden files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # for `from support.models import ...`

# The same examples on every machine; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=500)
os.environ["QC_NO_VERDICT"] = "1"  # its processes would take most of the time of tests that compile
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected parts of all golden files that run"
    )
