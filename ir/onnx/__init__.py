"""The way from ONNX models into the IR and back: lifting, types, lowering, saving."""
