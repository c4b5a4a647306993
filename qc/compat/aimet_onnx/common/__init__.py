"""What scripts import from ``aimet_onnx.common`` or ``aimet_common``."""

from . import libpymo as _libpymo

__all__ = ["_libpymo"]
