"""``python -m supported``: asks the installed runtimes what they take, and writes the tables of targets."""

from __future__ import annotations

import sys

from qc.runtime.devices.known import DEVICES, open_device, version_of

from .tables import RUNTIMES, write


def main() -> int:
    """Writes the tables; the exit code is 1 if no runtime is installed."""
    installed = [name for name in RUNTIMES if version_of(DEVICES[name]) is not None]
    for name in installed:
        print(write(name, open_device(name)))
    if not installed:
        print(
            f"none is installed of {', '.join(DEVICES[name].package for name in RUNTIMES)}", file=sys.stderr
        )
    return 0 if installed else 1


if __name__ == "__main__":
    sys.exit(main())
