"""``onnxruntime.quantization.execution_providers.qnn``: models for the HTP, qc's target ``qnn-htp``."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

import qc
from qc.compiler.compiled import refuse_overwrite
from qc.ir.base.fix_shape import free_axes
from qc.ir.errors import UsageError, nearest
from qc.ir.onnx.save import save_model
from qc.reading import read_model
from qc.runtime import model_inputs

from ..configs import get_qnn_qdq_config
from ..errors import raised_as_in_onnxruntime
from .channels_last import with_channels_last

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]


@raised_as_in_onnxruntime()
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
    """Changes the interface; what the HTP runs as one op ``quantize`` fuses itself.

    Args:
        model_input, model_output: the float model, and where another one is written if lengths are given.
        exclude_initializer_from_input, fuse_layernorm: what ``quantize`` does, whatever is given.
        save_as_external_data, all_tensors_to_one_file, external_data_location, external_data_size_threshold,
            external_data_convert_attribute: how a model would be written.
        inputs_to_make_channel_last, outputs_to_make_channel_last: names of what has channels behind the
            batch, and is to have them last.
        dynamic_input_shapes: inputs by name with all their lengths, such as ``("x", "1,3,224,224")``.

    Returns:
        Whether a model was written; else the input is to be quantized as it is.

    Raises:
        ModelError: the model cannot be read, or is not valid.
        UsageError: there is no such input or output, or it cannot have such lengths, or channels last.
    """
    moved = inputs_to_make_channel_last or (), outputs_to_make_channel_last or ()
    proto = read_model(model_input).origin
    if not dynamic_input_shapes and not any(moved):
        return False
    shapes = dynamic_input_shapes or ()
    lengths = tuple(length for name, text in shapes for length in _lengths(proto, name, text))
    fixed = qc.compile(model_input, "", fix_shapes=lengths)
    if not any(moved):
        fixed.save(model_output)
        return True
    if not isinstance(model_input, ModelProto):
        refuse_overwrite(model_input, model_output)
    save_model(with_channels_last(fixed.model, *moved), model_output, fixed.ir.base_dir)
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
    lengths = [int(one) for one in given]
    for axis, (length, wanted) in enumerate(zip(shape, lengths, strict=True)):
        if isinstance(length, int) and length != wanted:
            raise UsageError(f"dynamic_input_shapes: axis {axis} of '{name}' has {length}, not {wanted}")
    return [f"{free}={lengths[axis]}" for axis, free in free_axes(name, shape).items()]
