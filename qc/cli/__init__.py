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
    traceback comes before it. The command of the process runs in a fork of it, so that even a crash of native
    code ends in a sentence.
    """
    try:
        # Both take a moment, and an interrupt then ends in a word, too.
        from .run import run
        from .supervise import supervised

        if arguments is not None:
            return run(list(arguments))
        return supervised(lambda: run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("qc: error: interrupted\n")
        return INTERRUPTED
