"""Starting costs little: what takes long to import is imported when it is wanted, and from any folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import ROOT

import qc

HEAVY = ["networkx", "numpy", "onnx", "onnx_graphsurgeon", "onnxruntime", "pydantic", "rich"]


def python(code: str, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(code: str) -> list[str]:
    """Which of the libraries that take time to import are there after ``code``."""
    out = python(f"import json, sys\n{code}\nprint(json.dumps([n for n in {HEAVY} if n in sys.modules]))")
    return json.loads(out.splitlines()[-1])


def test_importing_qc_imports_nothing_that_takes_time() -> None:
    assert imported("import qc") == []
    assert imported("import qc; qc.compile; qc.Compilation; qc.QcError") == []
    assert imported("import qc.ir.errors") == []


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["compile", "--help"], []])
def test_version_and_help_import_nothing_that_takes_time(arguments: list[str]) -> None:
    assert imported(f"from qc.cli import main; main({arguments})") == []


def test_every_name_is_there() -> None:
    for module in (qc, qc.ir):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert callable(qc.check) and callable(qc.ir.verify) and qc.QcError.exit_code == 2


def test_a_clone_can_be_used_where_it_stands() -> None:
    """As if qc were installed from elsewhere: without what an editable installation adds to Python."""
    code = (
        "import sys; sys.meta_path = [one for one in sys.meta_path if 'skb' not in type(one).__module__]\n"
        f"sys.path = [''] + [one for one in sys.path if one != {str(ROOT)!r}]\n"
        "import qc, qc.ir, qc.passes, qc.runtime\n"
        "print(qc.__file__, qc.ir.__file__, qc.passes.__file__, qc.compile.__name__)\n"
        "print(qc.runtime.library_path().is_file(), len(qc.pipeline_names()) > 3)"
    )
    out = python(code, ROOT).split()
    assert out[:3] == [str(ROOT / place / "__init__.py") for place in ("qc", "ir", "passes")]
    assert out[3:] == ["compile", "True", "True"]
