"""``onnxruntime.quantization.execution_providers.qnn``: models for the HTP, qc's target ``qnn-htp``."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from ...missing import refuse
from ..configs import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]


def qnn_preprocess_model(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    exclude_initializer_from_input: bool = False,
    fuse_layernorm: bool = False,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    external_data_convert_attribute: bool = False,
    inputs_to_make_channel_last: list[str] | None = None,
    outputs_to_make_channel_last: list[str] | None = None,
    dynamic_input_shapes: list[tuple[str, str]] | None = None,
) -> bool:
    """Tells that no other model has to be made: ``quantize`` fuses itself what the HTP runs as one op.

    Args:
        model_input, model_output: the float model, and where ONNX Runtime would write another.
        exclude_initializer_from_input, fuse_layernorm: what ``quantize`` does, whatever is given.
        save_as_external_data, all_tensors_to_one_file, external_data_location, external_data_size_threshold,
            external_data_convert_attribute: how a model would be written.
        inputs_to_make_channel_last, outputs_to_make_channel_last: not provided.
        dynamic_input_shapes: not provided.

    Returns:
        False: nothing was written, and the input is to be quantized as it is.

    Raises:
        NotProvidedError: the interface of the model is to become another.
    """
    if inputs_to_make_channel_last or outputs_to_make_channel_last:
        refuse("an interface with channels last", "leave the interface as it is")
    if dynamic_input_shapes:
        refuse("'dynamic_input_shapes'", "qc MODEL --passes 'fix-shapes{...}' gives free dimensions a length")
    return False
