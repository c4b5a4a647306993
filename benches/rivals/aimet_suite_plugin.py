"""A pytest plugin: writes the outcome of every test to a file at once, so that a crash loses only one.

``QC_SUITE_OUTCOMES`` names the file. With ``QC_SUITE_INSTALL`` set, ``aimet_onnx`` is qc's layer.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# The tests know nodes by the names that torch gave them before its exporter was another one.
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
# Weights of some of their models are whatever lies in memory, NaN at times, which qc leaves in float.
np.empty = np.zeros


if os.environ.get("QC_SUITE_INSTALL"):
    from qc.compat.aimet_onnx import imports

    imports.install()
    imports.is_provided = lambda module: True


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Lets the tests of a file import what only some of them use, and fails those that do."""
    for node in ast.walk(ast.parse(module_path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aimet_"):
            _add_placeholders(node.module, [alias.name for alias in node.names])


def _add_placeholders(module: str, names: Iterable[str]) -> None:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return  # the file fails by itself
    for name in names:
        try:
            getattr(found, name)
        except (ImportError, AttributeError) as error:
            said = f"'{name}' is a private name of AIMET" if name.startswith("_") else str(error)
            setattr(found, name, functools.partial(_fail, said))


def _fail(said: str, *_: Any, **__: Any) -> None:
    pytest.fail(said)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names a form with the path of a file after its argument: each library has its files elsewhere."""
    return argname if isinstance(val, str) and Path(val).is_absolute() else None


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
