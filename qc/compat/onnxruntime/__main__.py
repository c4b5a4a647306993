"""Runs a script that calls ``onnxruntime.quantization``, as it is.

``python -m qc.compat.onnxruntime SCRIPT [ARGUMENT...]``
"""

from ..script import main

if __name__ == "__main__":
    main("qc.compat.onnxruntime")
