"""The command ``qc``.

What was asked for goes to standard output, everything told about the work goes to standard error. The exit
codes are those of :mod:`qc.ir.errors`, and 130 after an interrupt, 141 after a closed pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; ``arguments`` default to those of the process.

    Every failure is one sentence on standard error. With ``QC_TRACEBACK=1`` in the environment the Python
    traceback comes before it.
    """
    try:
        from .run import run  # takes a moment, and an interrupt then ends in a word, too

        return run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("qc: error: interrupted\n")
        return INTERRUPTED
