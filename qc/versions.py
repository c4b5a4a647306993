"""The versions of what a result depends on."""

from __future__ import annotations

from importlib.metadata import version


def versions() -> dict[str, str]:
    """Of qc and of the packages whose arithmetic and kernels decide, by name."""
    packages = {"qc": "qc-onnx", "onnx": "onnx", "onnxruntime": "onnxruntime", "numpy": "numpy"}
    return {name: version(package) for name, package in packages.items()}
