"""``python -m supported``: asks the installed runtimes what they take, and writes the tables of targets."""

from __future__ import annotations

import sys

from qc.runtime.devices.known import DEVICES, open_device, version_of
from qc.runtime.execution.saturation import sums_saturate

from .tables import RUNTIMES, write

# These choose their kernels by the processor, and the tables are those of processors with VNNI.
_OF_THE_PROCESSOR = ("openvino",)


def main() -> int:
    """Writes the tables; the exit code is 1 if no runtime is installed."""
    installed = [name for name in RUNTIMES if version_of(DEVICES[name]) is not None]
    for name in installed:
        if name in _OF_THE_PROCESSOR and sums_saturate():
            print(f"{name} is not asked: its table is that of processors with VNNI", file=sys.stderr)
        else:
            print(write(name, open_device(name)))
    if not installed:
        print(
            f"none is installed of {', '.join(DEVICES[name].package for name in RUNTIMES)}", file=sys.stderr
        )
    return 0 if installed else 1


if __name__ == "__main__":
    sys.exit(main())
