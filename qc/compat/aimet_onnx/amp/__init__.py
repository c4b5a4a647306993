"""What scripts import from ``aimet_onnx.amp``."""
