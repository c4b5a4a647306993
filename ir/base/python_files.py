"""Python code of users: modules, and files that belong to none."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType


def import_module(name: str) -> ModuleType:
    """Imports ``package.module``, from the current folder as ``python -m`` does it, or the file ``file.py``.

    A file finds the modules beside it, as it does when Python runs it.

    Raises:
        Exception: whatever the code raises while it runs, which is ImportError if there is no such module.
    """
    is_file = name.endswith(".py")
    here = str(Path(name).resolve().parent if is_file else Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if not is_file:
        return importlib.import_module(name)
    # Its path is its name, as that of another module might be the same as that of the file.
    spec = importlib.util.spec_from_file_location(str(Path(name).resolve()), name)
    if spec is None or spec.loader is None:
        raise ImportError(f"'{name}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up annotations that are text
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def line_of(error: Exception) -> str:
    """`` (FILE, line N)``, the last line of the user's own file that was reached; empty without one.

    The first frame is that of the call, where the error was caught.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
