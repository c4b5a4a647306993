"""``onnxruntime.quantization.shape_inference``: the model before it is quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx import ModelProto

import qc
from qc.ir.errors import UsageError

from .errors import raised_as_in_onnxruntime

_PASSES = (
    "inline-functions, hoist-loop-invariants, fold-constants, eliminate-identity, fold-batch-norms, "
    "share-constants, eliminate-dead-code"
)


@raised_as_in_onnxruntime()
def quant_pre_process(
    input_model: str | Path | ModelProto | None = None,
    output_model_path: str | Path | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    **deprecated_kwargs: Any,
) -> None:
    """Writes the model as ``quantize`` simplifies it, which does so by itself.

    Args:
        input_model: a float model, or its path.
        output_model_path: where to write.
        skip_optimization: write the model as it is.
        skip_onnx_shape, skip_symbolic_shape, auto_merge, int_max, guess_output_rank, verbose: of ONNX
            Runtime's inference of shapes; qc infers shapes where it needs them, whatever is given.
        save_as_external_data, all_tensors_to_one_file, external_data_location, external_data_size_threshold:
            weights are written beside a model that is too large without, whatever is given.
        deprecated_kwargs: ``input_model_path``, as ``input_model`` was called once.

    Raises:
        ModelError: the model cannot be read, or is not valid.
        UsageError: the output is the input, or one of them is missing.
    """
    if input_model is None:
        input_model = deprecated_kwargs.pop("input_model_path", None)
    if deprecated_kwargs:
        raise UsageError(f"quant_pre_process has no argument '{next(iter(deprecated_kwargs))}'")
    if input_model is None or output_model_path is None:
        raise UsageError("quant_pre_process needs input_model and output_model_path")
    qc.compile(input_model, "" if skip_optimization else _PASSES).save(output_model_path)
