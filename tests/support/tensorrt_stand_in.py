"""What qc calls of TensorRT and of CUDA's runtime, on the processor: engines are sessions of ONNX Runtime.

The names and arguments are those of tensorrt 11.4 and cuda-bindings 13.5. What it tells of its layers is made
up: one for every node that does not round, in integers if what it reads first was quantized.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


def stand_in(monkeypatch: pytest.MonkeyPatch, failing: str = "") -> None:
    """Lets qc find it in place of TensorRT.

    Args:
        failing: the step that fails: device, start, parse, build or run.
    """
    monkeypatch.setitem(sys.modules, "tensorrt", _tensorrt(failing))
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", _cuda(failing))


class _Severity(IntEnum):
    INTERNAL_ERROR, ERROR, WARNING = range(3)


class _Logger:
    Severity = _Severity


class _Profiler:
    """The base of what layers are told to."""


class _Context:
    profiler: Any = None

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine

    def execute_v2(self, bindings: Sequence[int]) -> bool:
        if self._engine.failing == "run":
            self._engine.logger.log(_Severity.ERROR, "IExecutionContext::executeV2: Error Code 1: no")
            return False
        arrays = dict(
            zip(self._engine.names, map(self._engine.array, bindings, self._engine.names), strict=True)
        )
        session = self._engine.session
        feed = {one.name: arrays[one.name] for one in session.get_inputs()}
        for one, made in zip(session.get_outputs(), session.run(None, feed), strict=True):
            arrays[one.name][...] = made
        for layer in self._engine.layers if self.profiler is not None else ():
            self.profiler.report_layer_time(layer["Name"], 0.5)
        return True


class _Engine:
    def __init__(self, plan: bytes, logger: _Logger, failing: str) -> None:
        self.session, self.logger, self.failing = ort.InferenceSession(plan), logger, failing
        self._tensors = {one.name: one for one in (*self.session.get_inputs(), *self.session.get_outputs())}
        self.names = list(self._tensors)
        self.num_io_tensors = len(self.names)
        self.layers = list(_layers(onnx.load_from_string(plan)))

    def array(self, address: int, name: str) -> np.ndarray:
        shape, dtype = self.get_tensor_shape(name), self.get_tensor_dtype(name)
        memory = (ctypes.c_byte * (dtype.itemsize * int(np.prod(shape)))).from_address(address)
        return np.frombuffer(memory, dtype).reshape(shape)

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def get_tensor_dtype(self, name: str) -> np.dtype:
        return np.dtype(_TYPES[self._tensors[name].type])

    def get_tensor_location(self, name: str) -> str:
        return "device"

    def create_execution_context(self) -> _Context:
        return _Context(self)

    def create_engine_inspector(self) -> SimpleNamespace:
        told = json.dumps({"Layers": self.layers, "I/O Tensors": []})
        return SimpleNamespace(get_engine_information=lambda format: told)


def _layers(model: onnx.ModelProto):
    makers = {out: node.op_type for node in model.graph.node for out in node.output}
    for index, node in enumerate(model.graph.node):
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            kind = "Int8" if makers.get(node.input[0]) == "DequantizeLinear" else "Float"
            tensors = [{"Name": node.input[0], "Dimensions": [1], "Format/Datatype": kind}]
            told = {"Name": f"layer {index}", "LayerType": f"Stood{node.op_type}", "Inputs": tensors}
            yield {**told, "Outputs": tensors, "Metadata": f"[ONNX Layer: {node.name}]"}


def _tensorrt(failing: str) -> SimpleNamespace:
    class Builder:
        def __init__(self, logger: _Logger) -> None:
            self._logger = logger
            if failing == "start":
                logger.log(_Severity.ERROR, "[checkMacros.cpp::catchCudaError::203] CUDA fails: 35")
                raise TypeError("pybind11::init(): factory function returned nullptr")

        def create_network(self, flags: int) -> SimpleNamespace:
            return SimpleNamespace(plan=b"")

        def create_builder_config(self) -> SimpleNamespace:
            return SimpleNamespace(clear_flag=lambda flag: None)

        def build_serialized_network(self, network: SimpleNamespace, config: SimpleNamespace) -> bytes | None:
            if failing != "build":
                return network.plan
            self._logger.log(_Severity.WARNING, "slow")
            self._logger.log(_Severity.ERROR, "[a.cpp::b::1] Error Code 10: no implementation of #4#.")
            self._logger.log(_Severity.ERROR, "what follows")
            return None

    class OnnxParser:
        num_errors = 1

        def __init__(self, network: SimpleNamespace, logger: _Logger) -> None:
            self._network = network

        def parse_from_file(self, model: str) -> bool:
            self._network.plan = onnx.load(model).SerializeToString()
            return failing != "parse"

        def get_error(self, index: int) -> SimpleNamespace:
            said = "In node 4 with name: #4# and operator: Conv (importConv): UNSUPPORTED_NODE: not so"
            return SimpleNamespace(desc=lambda: said, node_name=lambda: "#4#", node_operator=lambda: "Conv")

    class Runtime:
        def __init__(self, logger: _Logger) -> None:
            self._logger = logger

        def deserialize_cuda_engine(self, plan: bytes) -> _Engine:
            return _Engine(plan, self._logger, failing)

    return SimpleNamespace(
        BuilderFlag=SimpleNamespace(TF32=7),
        ILogger=_Logger,
        IProfiler=_Profiler,
        LayerInformationFormat=SimpleNamespace(JSON=1),
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=0),
        ProfilingVerbosity=SimpleNamespace(DETAILED=2),
        TensorLocation=SimpleNamespace(DEVICE="device"),
        init_libnvinfer_plugins=lambda logger, namespace: True,
        nptype=lambda kind: kind,
        volume=lambda shape: int(np.prod(shape)),
        **{one.__name__: one for one in (Builder, OnnxParser, Runtime)},
    )


def _cuda(failing: str) -> SimpleNamespace:
    memory: dict[int, Any] = {}

    def allocate(size: int) -> tuple[int, int | None]:
        buffer = ctypes.create_string_buffer(size)
        memory[ctypes.addressof(buffer)] = buffer
        return 0, ctypes.addressof(buffer)

    def copy(to: int, source: int, count: int, kind: int) -> tuple[int]:
        ctypes.memmove(to, source, count)
        return (0,)

    return SimpleNamespace(
        cudaError_t=SimpleNamespace(cudaSuccess=0),
        cudaFree=lambda address: (0, memory.pop(address))[:1],
        cudaGetDeviceCount=lambda: (100, None) if failing == "device" else (0, 1),
        cudaGetErrorString=lambda error: (0, b"no CUDA-capable device is detected"),
        cudaMalloc=allocate,
        cudaMemcpy=copy,
        cudaMemcpyKind=SimpleNamespace(cudaMemcpyDeviceToHost=2, cudaMemcpyHostToDevice=1),
    )
