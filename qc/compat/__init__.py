"""Layers that let scripts written for other quantizers run on qc: change the import, keep the rest.

``qc.compat.aimet_onnx`` stands for ``aimet_onnx``, ``qc.compat.onnxruntime`` for
``onnxruntime.quantization``. What such a script asks for and qc does not have is an error that says so.
"""
