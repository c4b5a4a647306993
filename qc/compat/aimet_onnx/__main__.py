"""Runs a script that was written for AIMET-ONNX, as it is.

``python -m qc.compat.aimet_onnx SCRIPT [ARGUMENT...]``
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from . import install

SCRIPT = "QC_AIMET_SCRIPT"  # the environment variable that tells child processes the path of the script


def main() -> None:
    """Runs the script, which sees its own arguments and finds modules beside itself."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m qc.compat.aimet_onnx SCRIPT [ARGUMENT...]")
    if not Path(sys.argv[1]).is_file():
        sys.exit(f"there is no script '{sys.argv[1]}'")
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    os.environ[SCRIPT] = str(Path(sys.argv[0]).absolute())
    module = ModuleType("__main__")
    # What multiprocessing lets a new process import in place of the main module.
    module.__spec__ = ModuleSpec(f"{__package__}.child_process", None)
    sys.modules["__main__"] = module
    execute(module.__dict__)


def execute(namespace: dict[str, Any]) -> None:
    """Executes the script in a namespace, where ``aimet_onnx`` is the layer."""
    install()
    namespace["__file__"] = path = os.environ[SCRIPT]
    exec(compile(Path(path).read_bytes(), path, "exec"), namespace)


if __name__ == "__main__":
    main()
