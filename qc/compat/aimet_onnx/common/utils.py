"""The type that scripts import from ``aimet_onnx.common.utils`` or ``aimet_common.utils``."""

from ..defs import CallbackFunc

__all__ = ["CallbackFunc"]
