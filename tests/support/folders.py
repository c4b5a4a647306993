"""Folders of the repository, wherever a test lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FIXTURES = TESTS / "fixtures"
AIMET = FIXTURES / "aimet"
GOLDEN = TESTS / "golden"
