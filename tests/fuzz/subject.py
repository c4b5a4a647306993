"""What is done with every hostile model, as a user would do it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

import qc
from qc.cli.commands.inspect import Inspect
from qc.ir.onnx.lift import lift
from qc.ir.onnx.load import load_model
from qc.ir.onnx.lower import lower, serialize
from qc.ir.tensor_ref import TensorRef
from qc.ir.text import print_model
from qc.ir.verifier import verify, verify_input
from qc.passes import Stage, registry
from qc.runtime import model_inputs, random_data
from qc.runtime.data.inputs import free_dimensions

from .capturing import SHAPE

_MOST_ITERATIONS = 100_000
_LEAST_RATIO = 10  # of signal to noise; of thousands of models in 8 bits, none was below a hundred
FLOAT_PASSES = ",".join(
    cls.name for cls in registry() if cls.stage is Stage.FLOAT and "data" not in cls.needs
)


def trip(path: Path, output: Path) -> None:
    """Lifts the model without the checker, prints it, and lowers it again."""
    ir = lift(path)
    verify_input(ir)
    print_model(ir)
    serialize(lower(ir))


def inspect(path: Path, output: Path) -> None:
    """``qc inspect``."""
    with redirect_stdout(io.StringIO()):
        Inspect(model=str(path)).run()


def rewrite(path: Path, output: Path) -> None:
    """Compiles the file with all passes that rewrite the float graph without data, and saves the result."""
    qc.compile(path, FLOAT_PASSES, threads=1).save(output / "rewritten.onnx")


def rewrite_in_memory(path: Path, output: Path) -> None:
    """Compiles the model as a proto, which has no folder."""
    compiled = qc.compile(load_model(path), FLOAT_PASSES, threads=1)
    verify(compiled.ir)
    compiled.save(output / "rewritten.onnx")


def quantize(path: Path, output: Path) -> None:
    """Calibrates on random data and saves the quantized model, the simulation and the encodings."""
    model = load_model(path)
    if _runs_for_ages(model):
        return  # it is not qc that takes so long
    inputs = model_inputs(model)
    data = random_data(inputs, 2, sizes=dict.fromkeys(free_dimensions(inputs).values(), 2))
    pipeline = str(qc.resolve_pipeline("w8a8").pipeline) + ",to-simulation,to-encodings"
    qc.compile(path, pipeline, data=data, threads=1, allow_unquantized=True).save(output / "quantized.onnx")


def compare(path: Path, output: Path) -> None:
    """Compiles a sound model, opens the result as applications do, and compares it with the model."""
    result = output / "compared.onnx"
    rng = np.random.default_rng(0)
    x = [rng.normal(size=SHAPE).astype(np.float32) for _ in range(4)]
    feeds = [{"x": x[i], "c": np.asarray(i % 2 == 0), "n": np.asarray(1 + i // 2)} for i in range(4)]
    try:
        wanted = _results(path, feeds)
    except Fail:  # of ONNX Runtime itself, as where it inlines an If wrongly
        return
    try:
        qc.compile(path, data=feeds, threads=1, allow_unquantized=True).save(result)
    except qc.QcError as error:
        raise RuntimeError("a sound model is refused") from error
    given = _results(result, feeds)
    for name in wanted[0]:
        signal = sum(np.square(run[name]).sum() for run in wanted)
        noise = sum(
            np.square(one[name] - other[name]).sum() for one, other in zip(wanted, given, strict=True)
        )
        if not noise <= signal / _LEAST_RATIO:
            raise RuntimeError(f"'{name}' is wrong: noise {noise:.3g}, signal {signal:.3g}")


def _results(path: Path, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """What a model computes of each feed, with all optimizations."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs, outputs = ([one.name for one in side] for side in (session.get_inputs(), session.get_outputs()))
    runs = (session.run(outputs, {name: feed[name] for name in inputs}) for feed in feeds)
    return [dict(zip(outputs, run, strict=True)) for run in runs]


def _runs_for_ages(model: ModelProto) -> bool:
    """Whether a Loop of the main graph may make more iterations than a runtime does in some seconds."""
    counts = {node.input[0] for node in model.graph.node if node.op_type == "Loop" and node.input}
    constants = (TensorRef(tensor) for tensor in model.graph.initializer if tensor.name in counts)
    return any(constant.extremes()[1] > _MOST_ITERATIONS for constant in constants)


Deed = Callable[[Path, Path], None]
DEEDS: dict[str, Deed] = {
    deed.__name__: deed for deed in (trip, inspect, rewrite, rewrite_in_memory, quantize)
}
SOUND_DEEDS: dict[str, Deed] = {compare.__name__: compare}
