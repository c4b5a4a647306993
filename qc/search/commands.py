"""Commands that judge a model: the path of a file is put into them, and their exit code counts."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from qc.ir.errors import UsageError

PLACE = "{}"
# What a shell returns for a file that it may not run, and for a command that it cannot find.
_CANNOT_RUN = (126, 127)


@dataclass(frozen=True)
class Command:
    """A command line for the shell.

    Attributes:
        text: ``{}`` stands for the path of the model; without it the path is appended.
        timeout: seconds after which it is ended; None for no limit.
    """

    text: str
    timeout: float | None = None

    def run(self, path: Path) -> int | None:
        """Runs the command on a file in the current folder; its exit code, None if it ran out of time.

        What it started ends with it. A signal counts as 128 and its number, as in a shell.

        Raises:
            UsageError: the shell cannot find or run it.
        """
        place = shlex.quote(str(path))
        line = self.text.replace(PLACE, place) if PLACE in self.text else f"{self.text} {place}"
        with tempfile.TemporaryFile() as output:
            # A session of its own, so that all of it can be ended; a file, so that nothing waits for a pipe.
            process = subprocess.Popen(
                line,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)
            if code in _CANNOT_RUN:
                output.seek(0)
                raise UsageError(self._why_not(output.read(4096)))
        return 128 - code if code < 0 else code

    def _why_not(self, output: bytes) -> str:
        lines = output.decode("utf-8", "replace").strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        return f"the command '{self.text}' cannot be run{said}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the session of a process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
