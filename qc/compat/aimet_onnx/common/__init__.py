"""What scripts import from ``aimet_onnx.common`` or ``aimet_common``."""
