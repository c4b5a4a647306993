"""ONNX Runtime sessions: how a model is opened and run, and what its failures mean in plain words."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper
from onnx.external_data_helper import load_external_data_for_model

from qc.ir.base.files import temporary_error, temporary_folder
from qc.ir.base.underway import underway
from qc.ir.errors import ModelError, QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.load import load_model, model_folder, read_file
from qc.ir.onnx.names_apart import tell_apart
from qc.ir.onnx.protos import model_tensors, names_read

from ..data.inputs import InputInfo, check_fit
from ..native.library import QC_DOMAIN, library_path
from ..protos.detach import NATIVE_TYPES, detach_weights
from .blocked_layout import keep_blocked
from .custom_ops import register_custom_ops
from .failures import explain_load, explain_run
from .fused_activations import fuse_activations
from .providers import check_provider, choose_provider, session_providers

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
_OPTIMIZED_WEIGHTS = "session.optimized_model_external_initializers_file_name"
_OPTIMIZED_WEIGHTS_FROM = "session.optimized_model_external_initializers_min_size_in_bytes"
_SILENT = 4
_LARGEST_WRITTEN = 3 << 29  # bytes, into a temporary folder that may not have more


def open_session(
    model: ModelProto | str | Path,
    *,
    base_dir: Path | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    optimize: bool = True,
    threads: int | None = None,
    quiet: bool = True,
    optimized_file: Path | None = None,
    profile_prefix: Path | None = None,
    provider: str = "cpu",
    in_listed_order: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> ort.InferenceSession:
    """Opens a model for running.

    The large weights of a ``ModelProto`` are handed over as arrays and not serialized, so opening is quick
    and the whole may be larger than protobuf's 2 GB. The library of qc's own ops is loaded if it is needed.

    Args:
        model: a model, or the path of one.
        base_dir: the folder that external data is relative to; for a path, the folder of the file.
        weights: data of initializers that were taken out of ``model`` by :func:`detach_weights`.
        optimize: whether ONNX Runtime may rewrite the graph (fusion, layout, constant folding).
        threads: threads within an op; None for one per physical core.
        quiet: keep ONNX Runtime from writing warnings to the standard error stream.
        optimized_file: a temporary file where ONNX Runtime writes the graph that it runs; its weights lie in
            a second one.
        profile_prefix: measure every node; the name of the file that ``end_profiling`` writes begins so.
        provider: ``"cpu"``; ``"cuda"`` for a GPU of NVIDIA; ``"auto"`` for a GPU if CUDA can be used here.
        in_listed_order: run nodes as they are listed, those that were fused when nothing else is ready;
            otherwise ONNX Runtime runs them depth first, from the last leaf of the graph to the first.
        settings: attributes of ONNX Runtime's ``SessionOptions`` to set after all others.

    Raises:
        AttributeError: ``SessionOptions`` has no such attribute.
        UsageError: there is no provider of that name, no room left for temporary files, or ``threads`` is
            no whole number of at least 1.
        ModelError: the file is not a model, ONNX Runtime does not accept it, or an op is unknown to it.
        QcError: the model holds ops of qc, whose library was not built; or CUDA cannot be used here.
    """
    provider = choose_provider(provider)
    if not isinstance(model, ModelProto):
        model, base_dir = load_model(model), model_folder(model)
    if weights is None:
        model, weights = detach_weights(model)
    options = _options(optimize, threads, quiet, in_listed_order, settings)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
    rewrites = optimize and optimized_file is None and _has_own_ops(model)
    if rewrites and provider == "cuda":
        model = fuse_activations(model)
    if not rewrites or provider == "cuda" or not _may_be_blocked(model, weights):
        return _create(model, weights, base_dir, options, provider, optimized_file)
    with temporary_folder() as folder:
        session = _create(model, weights, base_dir, options, provider, folder / "optimized.onnx")
        optimized = read_file(folder / "optimized.onnx")
        tell_apart(optimized)  # what ONNX Runtime adds to bodies has the names of what it adds around them
        blocked = keep_blocked(optimized)
        if blocked is None:
            return session
        del session  # so that its memory serves the next one
        load_external_data_for_model(blocked, str(folder))
    options = _options(False, threads, quiet, in_listed_order, settings)
    return _create(*detach_weights(blocked), base_dir, options, provider)


def _may_be_blocked(model: ModelProto, weights: Mapping[str, np.ndarray]) -> bool:
    """Whether there may be a blocked layout, and the model is not too large to be written for it."""
    convolves = any(node.op_type == "Conv" for node in model.graph.node)
    return convolves and sum(array.nbytes for array in weights.values()) < _LARGEST_WRITTEN


def _has_own_ops(model: ModelProto) -> bool:
    return any(entry.domain == QC_DOMAIN for entry in model.opset_import)


def _create(
    model: ModelProto,
    weights: Mapping[str, np.ndarray],
    base_dir: Path | None,
    options: ort.SessionOptions,
    provider: str,
    optimized_file: Path | None = None,
) -> ort.InferenceSession:
    if optimized_file is not None:
        options.optimized_model_filepath = str(optimized_file)
        options.add_session_config_entry(_OPTIMIZED_WEIGHTS, f"{optimized_file.name}.data")
        options.add_session_config_entry(_OPTIMIZED_WEIGHTS_FROM, "1024")
    if base_dir is not None:
        options.add_session_config_entry(_EXTERNAL_FOLDER, str(Path(base_dir).resolve()))
    else:
        _refuse_files(model, weights)
    # ONNX Runtime drops what is neither read nor an input, and then does not find it.
    read = names_read(model.graph) | {info.name for info in model.graph.input}
    values = {
        name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in weights.items() if name in read
    }
    if values:
        options.add_external_initializers(list(values), list(values.values()))
    try:
        if _has_own_ops(model):
            options.register_custom_ops_library(str(library_path(cuda=provider == "cuda")))
        # Without the fallback, a failure on a GPU is an error, and does not go on with the CPU.
        providers = session_providers(provider)
        with underway("opened a model", outer=True):
            session = ort.InferenceSession(_serialize(model), options, providers=providers, enable_fallback=0)
        check_provider(session, provider)
    except QcError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        if optimized_file is not None:
            _create(model, weights, base_dir, _options(), provider)  # if that works, writing failed
            raise temporary_error() from error
        raise ModelError(explain_load(str(error))) from error
    # ONNX Runtime reads these arrays for as long as the session lives, and keeps no reference to them.
    session.qc_weights = values
    return session


def _refuse_files(model: ModelProto, weights: Mapping[str, np.ndarray]) -> None:
    """Raises ModelError for external data without a folder: ONNX Runtime would look in the current one."""
    for tensor in model_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL and tensor.name not in weights:
            raise ModelError(
                f"constant '{tensor.name}' has external data; load the model from its file, or name the "
                "folder of that file as base_dir"
            )


def run_session(session: ort.InferenceSession, feed: Feed, outputs: Sequence[str] | None = None) -> list[Any]:
    """Runs a session once; arrays in the order of ``outputs``, or of the graph's outputs.

    numpy has no bfloat16 or float8 of its own; such tensors go in and come out as arrays of ml_dtypes.
    An output that is a sequence comes back as a list of arrays, a map as a dictionary.

    Raises:
        DataError: an input is missing, unknown, or has the wrong dtype or shape.
        ModelError: ONNX Runtime failed; the sentence names the node.
    """
    names = list(outputs) if outputs is not None else [output.name for output in session.get_outputs()]
    options = ort.RunOptions()
    options.log_severity_level = session.get_session_options().log_severity_level
    try:
        with explaining_failures(), underway("ran a model", outer=True):
            if not _needs_values(session, names):
                return list(session.run(names, dict(feed), options))
            values = {name: to_value(array) for name, array in feed.items()}
            return [_from_value(value) for value in session.run_with_ort_values(names, values, options)]
    except ModelError:
        check_fit(feed, _inputs(session), "the feed")
        raise


@contextmanager
def explaining_failures() -> Iterator[None]:
    """Raises ModelError, in plain words, for what ONNX Runtime raises while it runs a session."""
    try:
        yield
    except QcError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        raise ModelError(explain_run(str(error))) from error


def _inputs(session: ort.InferenceSession) -> list[InputInfo]:
    """What a session takes; constants that may be overridden are optional."""
    return [
        InputInfo(node.name, element_type(node.type), tuple(node.shape), optional)
        for optional, nodes in ((False, session.get_inputs()), (True, session.get_overridable_initializers()))
        for node in nodes
    ]


def accepted_by(session: ort.InferenceSession, feed: Feed) -> Feed:
    """The part of a feed that a session has inputs for.

    An optional input that nothing needs was cut off with its default; it may still be fed.
    """
    known = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
    return {name: array for name, array in feed.items() if name in known}


def _options(
    optimize: bool = True,
    threads: int | None = None,
    quiet: bool = True,
    in_listed_order: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> ort.SessionOptions:
    options = ort.SessionOptions()
    if in_listed_order:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    if quiet:
        options.log_severity_level = _SILENT
    if threads is not None:
        if not isinstance(threads, Integral) or isinstance(threads, bool) or threads < 1:
            raise UsageError(f"threads={threads!r} is not a whole number of at least 1")
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    for name, value in (settings or {}).items():
        setattr(options, name, value)
    register_custom_ops(options)
    return options


def _serialize(model: ModelProto) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # EncodeError or ValueError, as the version of protobuf has it
        raise ModelError(
            "the model cannot be serialized, as what is not weights is larger than 2 GB; "
            "turn its large Constant nodes into initializers"
        ) from error


def element_type(type_name: str) -> int:
    """The ``TensorProto.DataType`` of ONNX Runtime's name of a type; 0 for what is no tensor.

    >>> element_type("tensor(float16)")
    10
    """
    match = re.fullmatch(r"tensor\((\w+)\)", type_name)
    return int(TensorProto.DataType.Value(match[1].upper())) if match else TensorProto.UNDEFINED


def _needs_values(session: ort.InferenceSession, outputs: Sequence[str]) -> bool:
    """Whether a tensor goes in or out whose type numpy does not have."""
    names = frozenset(outputs)
    asked = [output for output in session.get_outputs() if output.name in names]
    return any(_is_foreign(node.type) for node in (*session.get_inputs(), *asked))


@cache
def _is_foreign(type_name: str) -> bool:
    number = element_type(type_name)
    return number not in NATIVE_TYPES and number not in (TensorProto.UNDEFINED, TensorProto.STRING)


def to_value(array: np.ndarray) -> ort.OrtValue:
    """The array as ONNX Runtime takes it, also of types that numpy does not have; keep the array alive."""
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    if number in NATIVE_TYPES or number == TensorProto.STRING:
        return ort.OrtValue.ortvalue_from_numpy(array)
    codes = np.ascontiguousarray(array).view(f"uint{array.dtype.itemsize * 8}")
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(codes, number)


def _from_value(value: ort.OrtValue) -> np.ndarray:
    if not _is_foreign(value.data_type()):
        return np.asarray(value.numpy())
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type(value.data_type())))
    shape = tuple(value.shape())
    if value.tensor_size_in_bytes() != dtype.itemsize * int(np.prod(shape)):
        raise ModelError(
            f"an output of type {value.data_type()} cannot be read; cast it to int8 in the model"
        )
    memory = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(memory, dtype).reshape(shape)


def check_interface(reference: ort.InferenceSession, candidate: ort.InferenceSession, name: str) -> None:
    """Refuses a candidate that lacks outputs of the reference, or takes other inputs.

    Raises:
        ModelError: it does.
    """
    given = {output.name for output in candidate.get_outputs()}
    for output in reference.get_outputs():
        if output.name not in given:
            raise _made_of_another(name, f"lacks the output '{output.name}' of the float model")
    expected = {value.name: None for value in reference.get_inputs()}
    taken = {value.name: None for value in candidate.get_inputs()}
    if expected.keys() != taken.keys():
        theirs, ours = (", ".join(f"'{one}'" for one in names) or "nothing" for names in (taken, expected))
        raise _made_of_another(name, f"takes {theirs}, the float model takes {ours}")


def _made_of_another(name: str, difference: str) -> ModelError:
    return ModelError(
        f"the candidate '{name}' {difference}: it seems to be made of another model; compare models with the "
        "same inputs and outputs"
    )
