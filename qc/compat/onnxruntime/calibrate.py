"""``onnxruntime.quantization.calibrate``: the types that scripts import from there, as they are."""

from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod

__all__ = ["CalibrationDataReader", "CalibrationMethod"]
