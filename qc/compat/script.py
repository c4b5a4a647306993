"""Runs scripts and modules that were written for another quantizer: ``python -m qc.compat.LAYER``."""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

# The environment variables that tell child processes which layer is in place, and the path of the script.
LAYER, SCRIPT = "QC_COMPAT_LAYER", "QC_COMPAT_SCRIPT"


def main(layer: str) -> None:
    """Runs ``SCRIPT [ARGUMENT...]``, which finds modules beside itself, or ``-m MODULE [ARGUMENT...]``.

    Args:
        layer: the package whose ``install`` puts it in the place of the other quantizer.
    """
    if len(sys.argv) < 2 or sys.argv[1:] == ["-m"]:
        sys.exit(f"usage: python -m {layer} SCRIPT [ARGUMENT...], or -m MODULE [ARGUMENT...]")
    os.environ[LAYER] = layer
    if sys.argv[1] == "-m":
        import_module(layer).install()
        name = sys.argv[2]
        del sys.argv[:2]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
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
    """Executes the script in a namespace, where the layer is in place."""
    import_module(os.environ[LAYER]).install()
    namespace["__file__"] = path = os.environ[SCRIPT]
    exec(compile(Path(path).read_bytes(), path, "exec"), namespace)
