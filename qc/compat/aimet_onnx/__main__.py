"""Runs a script that was written for AIMET-ONNX, as it is.

``python -m qc.compat.aimet_onnx SCRIPT [ARGUMENT...]``
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from . import install


def main() -> None:
    """Runs the script, which sees its own arguments and finds modules beside itself."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m qc.compat.aimet_onnx SCRIPT [ARGUMENT...]")
    if not Path(sys.argv[1]).is_file():
        sys.exit(f"there is no script '{sys.argv[1]}'")
    del sys.argv[0]
    install()
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
