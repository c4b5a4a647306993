"""Runs a script that was written for AIMET-ONNX, as it is.

``python -m qc.compat.aimet_onnx SCRIPT [ARGUMENT...]``
"""

from ..script import main

if __name__ == "__main__":
    main("qc.compat.aimet_onnx")
