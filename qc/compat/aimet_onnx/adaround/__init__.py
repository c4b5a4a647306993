"""What scripts import from ``aimet_onnx.adaround``."""
