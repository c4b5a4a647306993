"""qc: a quantization compiler for ONNX.

``qc.compile(model, "w8a8", data=feeds)`` does the whole job; the pieces below it are ``qc.ir`` (the graph),
``qc.patterns`` (supergroups), ``qc.passes`` (the passes and pipelines) and ``qc.runtime`` (sessions, data,
statistics, evaluation). A name is imported when it is first used; ``__init__.pyi`` says from where.
"""

from pathlib import Path

import lazy_loader

_HERE = Path(__file__).parent
if not (_HERE / "ir").is_dir():  # in a clone, where the rooms stand beside this folder
    __path__.append(str(_HERE.parent))

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
