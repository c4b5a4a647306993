"""What scripts import from ``aimet_onnx.sequential_mse``."""
