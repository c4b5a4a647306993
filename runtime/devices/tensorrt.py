"""TensorRT as a device: NVIDIA's compiler and runtime for its GPUs, by its own package for Python."""

from __future__ import annotations

import functools
import importlib
import re
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto

from qc.ir.base.extras import install_command
from qc.ir.base.files import temporary_folder
from qc.ir.base.underway import underway
from qc.ir.errors import ModelError, QcError, UsageError, nearest
from qc.ir.executor import Feed
from qc.ir.onnx.save import save_model

from ..execution.executed import Execution
from ..execution.profile import NodeTime
from ..protos.marks import marked_copy, with_names
from .device import DeviceModel, Options, require_fixed_shapes
from .tensorrt_layers import EngineLayer, executed_ops, read_layers

_TF32 = "TF32"
_LONGEST = 400  # of a message, which can hold a whole graph
_PLACE_IN_SOURCE = re.compile(r"^\[[^\]]*\] ?|In node \d+ with name: .*? and operator: \w+ \(\w+\): ?")


class TensorRt:
    """TensorRT on the first GPU that CUDA sees; by the option ``TF32=1`` it may round factors to 10 bits."""

    name = "tensorrt"
    title = "TensorRT"
    provider = "TensorrtExecutionProvider"
    package = "tensorrt"
    extra = "tensorrt"
    fixed_shapes = True
    emulated = False

    def __init__(self, options: Options) -> None:
        """Raises QcError, with the reason, where TensorRT cannot be used; see :class:`Device`."""
        for name, value in options.items():
            if name != _TF32:
                raise UsageError(f"tensorrt has no device option '{name}'{nearest(name, [_TF32])}")
            if value not in ("0", "1"):
                raise UsageError(f"the device option {_TF32} of tensorrt is 0 or 1, not '{value}'")
        self._tf32 = options.get(_TF32) == "1"
        _libraries()

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> TensorRtModel:
        """See :class:`Device`; an engine is built for the model, with as many threads as TensorRT likes."""
        return TensorRtModel(model, base_dir, tf32=self._tf32)

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        """See :class:`Device`."""
        marked = marked_copy(model)
        try:
            opened = TensorRtModel(marked, base_dir, tf32=self._tf32)
        except ModelError as error:
            raise ModelError(with_names(str(error), model)) from error
        layers = opened.layers()
        seconds = opened.layer_seconds(feeds)
        times = [NodeTime(one.name, one.type, seconds[one.name]) for one in layers if one.name in seconds]
        return Execution(executed_ops(model, layers, seconds), tuple(times))


class _Tensor(NamedTuple):
    """An input or output of an engine, and its memory on the GPU."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    address: int


class TensorRtModel(DeviceModel):
    """A model that TensorRT has built an engine of.

    Args:
        model: the model; not changed.
        base_dir: the folder that its external data is relative to.
        tf32: whether factors of floats may be rounded to 10 bits of mantissa.

    Raises:
        QcError: TensorRT cannot be used here.
        ModelError: TensorRT cannot read the model, or build an engine of it.
    """

    def __init__(self, model: ModelProto, base_dir: Path | None, *, tf32: bool = False) -> None:
        require_fixed_shapes(model, TensorRt.name)
        super().__init__(model)
        self._trt, self._cuda = _libraries()
        with temporary_folder() as folder, underway("opened a model", outer=True, runtime=TensorRt.title):
            path = folder / "model.onnx"
            save_model(model, path, base_dir)
            self._engine = _built(self._trt, path, tf32)
            self._context = _made(self._engine.create_execution_context())
        self._addresses: list[int] = []
        self._close = weakref.finalize(self, _free, self._cuda, self._addresses)
        names = map(self._engine.get_tensor_name, range(self._engine.num_io_tensors))
        self._tensors = {name: self._allocated(name) for name in names}

    def _allocated(self, name: str) -> _Tensor:
        shape, kind = tuple(self._engine.get_tensor_shape(name)), self._engine.get_tensor_dtype(name)
        on_device = self._engine.get_tensor_location(name) == self._trt.TensorLocation.DEVICE
        if not on_device or min(shape, default=0) < 0:
            raise ModelError(
                f"tensorrt takes shapes that do not depend on data, and '{name}' is such a shape or has one; "
                "an input that chooses a shape gets a value by --fix-input"
            )
        try:
            dtype = np.dtype(self._trt.nptype(kind))
        except TypeError as error:
            raise ModelError(f"'{name}' is {kind.name} in TensorRT, which numpy does not know") from error
        size = max(1, self._trt.volume(shape) * dtype.itemsize)
        self._addresses.append(int(_done(self._cuda, self._cuda.cudaMalloc(size))))
        return _Tensor(name, shape, dtype, self._addresses[-1])

    def _results(self, feed: Feed) -> Sequence[Any]:
        kinds, copy = self._cuda.cudaMemcpyKind, self._cuda.cudaMemcpy
        made = [self._tensors[name] for name in self._outputs]
        results = [np.empty(tensor.shape, tensor.dtype) for tensor in made]
        with underway("ran a model", outer=True, runtime=TensorRt.title):
            for tensor in self._tensors.values():
                if tensor not in made:
                    data = np.ascontiguousarray(feed[tensor.name], tensor.dtype)
                    told = copy(tensor.address, data.ctypes.data, data.nbytes, kinds.cudaMemcpyHostToDevice)
                    _done(self._cuda, told)
            _logger().told.clear()
            if not self._context.execute_v2(self._addresses):
                raise ModelError(f"TensorRT failed to run the model: {_reason()}")
            for tensor, data in zip(made, results, strict=True):
                told = copy(data.ctypes.data, tensor.address, data.nbytes, kinds.cudaMemcpyDeviceToHost)
                _done(self._cuda, told)
        return results

    def layers(self) -> list[EngineLayer]:
        """The layers of the engine, as TensorRT's inspector tells them."""
        inspector = _made(self._engine.create_engine_inspector())
        told = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        try:
            return read_layers(told)
        except ValueError as error:
            raise ModelError(f"what TensorRT tells of its engine cannot be read: {error}") from error

    def layer_seconds(self, feeds: Sequence[Feed]) -> Mapping[str, float]:
        """The time of every layer by its name, the median over the runs on all feeds but the first."""
        measured: dict[str, list[float]] = defaultdict(list)
        for index, feed in enumerate(feeds):
            if index == 1:
                self._context.profiler = _profiler(self._trt, measured)
            self.run(feed)
        return {name: median(taken) for name, taken in measured.items()}


@functools.cache
def _libraries() -> tuple[Any, Any]:
    """TensorRT, and CUDA's runtime; both are imported when they are used.

    Raises:
        QcError: one cannot be loaded, or there is no GPU.
    """
    try:
        tensorrt, cuda = (importlib.import_module(name) for name in ("tensorrt", "cuda.bindings.runtime"))
    except (ImportError, OSError, RuntimeError) as error:
        again = f"install it anew by: {install_command(TensorRt.extra)}"
        raise QcError(f"TensorRT cannot be loaded: {_plain(str(error))}; {again}") from error
    outcome, _ = cuda.cudaGetDeviceCount()
    if outcome != cuda.cudaError_t.cudaSuccess:
        raise QcError(f"tensorrt needs a GPU of NVIDIA and its driver: {_failure(cuda, outcome)}")
    return tensorrt, cuda


@functools.cache
def _logger() -> Any:
    """What TensorRT tells of errors; one for all, as TensorRT keeps the first logger that it is given."""
    trt, _ = _libraries()
    severities = trt.ILogger.Severity
    worst = (severities.INTERNAL_ERROR, severities.ERROR)

    class Errors(trt.ILogger):  # type: ignore[misc,name-defined]  # TensorRT may not be installed
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.told: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in worst:
                self.told.append(msg)

    return Errors()


def _profiler(trt: Any, measured: dict[str, list[float]]) -> Any:
    """What TensorRT tells the time of every layer to, which is added to ``measured`` in seconds."""

    class Times(trt.IProfiler):  # type: ignore[misc,name-defined]  # TensorRT may not be installed
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            measured[layer_name].append(ms / 1e3)

    return Times()


def _built(trt: Any, path: Path, tf32: bool) -> Any:
    """The engine of a model; NVIDIA's package lets what is made of a thing keep that alive."""
    logger = _logger()
    logger.told.clear()
    try:
        builder = trt.Builder(logger)
        trt.init_libnvinfer_plugins(logger, "")
        # The types are those of the model, which TensorRT 11 has in all networks.
        typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = _made(builder.create_network(typed))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(path)):
            raise ModelError(f"TensorRT cannot read the model: {_parser_error(parser)}")
        config = _made(builder.create_builder_config())
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        if not tf32:
            config.clear_flag(trt.BuilderFlag.TF32)
        plan = _made(builder.build_serialized_network(network, config))
        return _made(trt.Runtime(logger).deserialize_cuda_engine(plan))
    except TypeError as error:  # of a constructor that gets nothing from TensorRT
        raise ModelError(f"TensorRT cannot be started: {_reason(str(error))}") from error


def _made(thing: Any) -> Any:
    """What a function of TensorRT gave; ModelError if that is nothing."""
    if thing is None:
        raise ModelError(f"TensorRT cannot build an engine of the model: {_reason()}")
    return thing


def _parser_error(parser: Any) -> str:
    if not parser.num_errors:
        return _reason()
    error = parser.get_error(0)
    where = f"{error.node_operator()} '{error.node_name()}': " if error.node_operator() else ""
    return where + _plain(error.desc())


def _reason(otherwise: str = "it does not say why") -> str:
    """The first error that TensorRT told; those that follow from it come later."""
    return _plain(next(iter(_logger().told), otherwise))


def _plain(message: str) -> str:
    """A message on one line, without the places in TensorRT's source."""
    return _PLACE_IN_SOURCE.sub("", " ".join(message.split()))[:_LONGEST]


def _done(cuda: Any, answer: tuple) -> Any:
    """What a function of CUDA gave; ModelError if it failed."""
    error, *made = answer
    if error != cuda.cudaError_t.cudaSuccess:
        raise ModelError(f"tensorrt cannot use the memory of the GPU: {_failure(cuda, error)}")
    return made[0] if made else None


def _failure(cuda: Any, error: Any) -> str:
    return str(cuda.cudaGetErrorString(error)[1].decode())


def _free(cuda: Any, addresses: Sequence[int]) -> None:
    for address in addresses:
        cuda.cudaFree(address)
