"""Sessions of the operators of the domain "qc", with each library that has them.

The kernels for CUDA also run where there is no GPU, compiled for the processor; see cuda_on_host.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.runtime.sessions.providers import session_providers


class Implementation(NamedTuple):
    """Which library sessions take their operators from, and where they run."""

    library: Path
    provider: str


running: Implementation


def use(library: Path, provider: str) -> None:
    """Sets what the sessions that follow run with."""
    global running
    running = Implementation(library, provider)


def grid(format: str, scale: Any, zero_point: Any, granularity: Granularity | None = None) -> Encoding:
    spec = QuantSpec.of(format, granularity=granularity or PerTensor())
    return Encoding(spec, np.asarray(scale), np.asarray(zero_point))


def session_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: Mapping[str, int],
    initializers: Mapping[str, Any] | None = None,
    threads: int = 1,
    provider: str | None = None,
) -> onnxruntime.InferenceSession:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()],
        [helper.make_tensor_value_info(name, type, None) for name, type in outputs.items()],
        [
            value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value), name)
            for name, value in (initializers or {}).items()
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("qc", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(running.library))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=session_providers(provider or running.provider),
        enable_fallback=0,
    )


def quantizer_session(
    encoding: Encoding,
    shape: Any,
    element: int = TensorProto.FLOAT,
    overridable: bool = False,
    threads: int = 1,
    **attributes: Any,
) -> onnxruntime.InferenceSession:
    spec = encoding.spec
    limits = spec.code_range if isinstance(spec.format, IntFormat) else (0, 0)
    described: dict[str, Any] = {}
    if isinstance(spec.granularity, PerChannel | PerBlock):
        described = {"granularity": "channel", "axis": spec.granularity.axis}
    if isinstance(spec.granularity, PerBlock):
        described |= {"granularity": "block", "block_size": spec.granularity.size}
    if not isinstance(spec.format, IntFormat):
        described |= {"format": spec.format.name}
    node = helper.make_node(
        "FakeQuantize", ["x", "scale", "zero_point", "limits"], ["y"], domain="qc", **(described | attributes)
    )
    inputs: dict[str, tuple[int, Any]] = {"x": (element, shape)}
    if overridable:
        inputs["scale"] = (TensorProto.FLOAT, encoding.scale.shape)
        inputs["zero_point"] = (TensorProto.INT32, encoding.zero_point.shape)
        inputs["limits"] = (TensorProto.INT32, [2])
    parameters = {
        "scale": encoding.scale,
        "zero_point": encoding.zero_point,
        "limits": np.array(limits, np.int32),
    }
    return session_of([node], inputs, {"y": element}, parameters, threads)
