"""What ONNX Runtime's scripts import for single execution providers."""
