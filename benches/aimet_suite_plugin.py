"""A pytest plugin: writes the outcome of every test to a file at once, so that a crash loses only one.

``QC_SUITE_OUTCOMES`` names the file. With ``QC_SUITE_INSTALL`` set, ``aimet_onnx`` is qc's layer.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

# The tests know nodes by the names that torch gave them before its exporter was another one.
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)


def _with_placeholders(getattr_of_module: Callable[[str], Any]) -> Callable[[str], Any]:
    """Lets the tests of a file import what only some of them use, and fails those that do."""

    def find(name: str) -> Any:
        try:
            return getattr_of_module(name)
        except NotProvidedError as error:
            said = str(error)
        except AttributeError:
            if name.startswith("__") or not name.startswith("_"):
                raise
            said = f"'{name}' is a private name of AIMET"
        return lambda *_, **__: pytest.fail(said)

    return find


if os.environ.get("QC_SUITE_INSTALL"):
    from qc.compat.aimet_onnx import imports
    from qc.compat.missing import NotProvidedError

    imports.install()
    plain = imports.provided
    imports.provided = lambda module: _with_placeholders(plain(module))
    imports.is_provided = lambda module: True
    for name in [name for name in sys.modules if name.startswith(f"{imports.__package__}.")]:
        sys.modules[name].__getattr__ = imports.provided(name.removeprefix(f"{imports.__package__}."))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps some of the many forms of one test, evenly spaced, if ``QC_SUITE_FORMS`` says how many."""
    forms: dict[str, list[pytest.Item]] = {}
    for item in items:
        forms.setdefault(item.nodeid.partition("[")[0], []).append(item)
    most = int(os.environ.get("QC_SUITE_FORMS") or len(items))
    items[:] = [item for group in forms.values() for item in group[:: -(-len(group) // most)]]


def _write(test: str, outcome: str, message: str = "") -> None:
    with Path(os.environ["QC_SUITE_OUTCOMES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "message": message}) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test that has begun, and ends the process, counts as one that crashed."""
    _write(nodeid, "crashed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What became of it: a failure of its fixtures counts as its own."""
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        _write(report.nodeid, report.outcome, crash.message if crash else str(report.longrepr or ""))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be read is one test that failed."""
    if report.outcome == "failed" and report.nodeid:
        _write(report.nodeid, "failed", str(report.longrepr)[-400:])
