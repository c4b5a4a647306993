"""ONNX Runtime sessions: opened, run, and their failures in plain words."""
