"""What ONNX Runtime makes of a model: its optimized graph, the kernels it chose, and their time."""
