"""Lets an interrupt while the command ``qc`` starts end it in a word, as it does later on.

To import all of qc takes a while, in which :func:`qc.cli.main` cannot catch anything yet. This is imported
before anything else, and imports next to nothing itself. In a program that imports qc nothing is changed.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write("qc: error: interrupted\n")
    raise SystemExit(130)


_COMMANDS = (f"{os.sep}qc", f"{os.sep}qc.exe")
_is_command = any(word.endswith(_COMMANDS) for word in sys.argv[:1])  # a host program can give none

if _is_command or sys.orig_argv[1:3] == ["-m", "qc.cli"]:
    sys.excepthook = _end
