"""``onnxruntime.quantization.execution_providers.qnn``: models for the HTP, qc's target ``qnn-htp``."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

import qc
from qc.ir.errors import UsageError, nearest
from qc.reading import read_model
from qc.runtime import model_inputs

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
    """Gives free dimensions their lengths; ``quantize`` fuses itself what the HTP runs as one op.

    Args:
        model_input, model_output: the float model, and where another one is written if lengths are given.
        exclude_initializer_from_input, fuse_layernorm: what ``quantize`` does, whatever is given.
        save_as_external_data, all_tensors_to_one_file, external_data_location, external_data_size_threshold,
            external_data_convert_attribute: how a model would be written.
        inputs_to_make_channel_last, outputs_to_make_channel_last: not provided.
        dynamic_input_shapes: inputs by name with all their lengths, such as ``("x", "1,3,224,224")``.

    Returns:
        Whether a model was written; else the input is to be quantized as it is.

    Raises:
        NotProvidedError: inputs or outputs are to have channels last.
        ModelError: the model cannot be read, or is not valid.
        UsageError: there is no such input, or it cannot have such lengths.
    """
    if inputs_to_make_channel_last or outputs_to_make_channel_last:
        refuse("an interface with channels last", "leave the interface as it is")
    proto = read_model(model_input).origin
    if not dynamic_input_shapes:
        return False
    lengths = tuple(length for name, text in dynamic_input_shapes for length in _lengths(proto, name, text))
    qc.compile(model_input, "", fix_shapes=lengths).save(model_output)
    return True


def _lengths(model: ModelProto, name: str, text: str) -> list[str]:
    """The lengths of an input, as the pass ``fix-shapes`` takes those that are free."""
    shapes = {info.name: info.shape for info in model_inputs(model)}
    shape, given = shapes.get(name), text.split(",")
    if name not in shapes:
        raise UsageError(
            f"dynamic_input_shapes: the model has no input '{name}'{nearest(name, list(shapes))}"
        )
    if shape is None or len(shape) != len(given) or not all(one.strip().isdecimal() for one in given):
        raise UsageError(f"dynamic_input_shapes: '{text}' are no lengths for '{name}' of shape {shape}")
    found = []
    for axis, (length, wanted) in enumerate(zip(shape, map(int, given), strict=True)):
        if isinstance(length, int) and length != wanted:
            raise UsageError(f"dynamic_input_shapes: axis {axis} of '{name}' has {length}, not {wanted}")
        if not isinstance(length, int):
            found.append(f"{length or f'{name}[{axis}]'}={wanted}")
    return found
