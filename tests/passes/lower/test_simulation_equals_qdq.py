"""The simulation computes what the QDQ model does, bit for bit, wherever both run the same float ops.

ONNX Runtime runs both without optimizations. The weights of the simulation are rounded when it runs, as the
DequantizeLinear of the QDQ model makes them: weights of a MatMul or Gemm that are stored are packed, and
their products summed in another order. With ``QC_CORPUS=all`` in the environment all models are run,
otherwise every twelfth of those with a single operator.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from support.corpus import Sample, exported_samples, operator_samples, own_samples
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, run_model

from qc.ir.errors import QcError

# The IR of newer models is unknown to ONNX Runtime, which does not matter to them.
_NEWEST_IR = 13
_LOWER = "insert-qdq,to-simulation{weights=settable}"


def samples() -> Iterator[Sample]:
    step = 1 if os.environ.get("QC_CORPUS") == "all" else 12
    for sample in own_samples() + exported_samples() + operator_samples()[::step]:
        if sample.feed is not None:
            model = ModelProto()
            model.CopyFrom(sample.model)
            model.ir_version = min(model.ir_version, _NEWEST_IR)
            yield Sample(sample.name, model, sample.feed)


def run(model: ModelProto, feed: dict[str, np.ndarray]) -> dict[str, Any]:
    """The outputs; ONNX Runtime writes the new statistics of a BatchNormalization over what it was given."""
    return run_model(model, {name: array.copy() for name, array in feed.items()})


def same_bits(x: Any, y: Any) -> bool:
    """Whether two outputs are equal, NaN in one place to NaN in the same place."""
    if isinstance(x, list):
        return len(x) == len(y) and all(map(same_bits, x, y))
    if x is None or y is None:
        return x is y
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind != "f":
        return bool(x.tobytes() == y.tobytes()) if x.dtype.kind == "V" else bool((x == y).all())
    return np.array_equal(x, y, equal_nan=True)


@pytest.mark.parametrize("target", ["npu", "ort-cpu"])
def test_the_simulation_equals_the_qdq_model(target: str) -> None:
    compared, different = 0, []
    for sample in samples():
        feed = sample.feed
        assert feed is not None
        try:
            ir, context, _ = apply(f"inline-functions,{QUANTIZE},{_LOWER}", sample.model, target, [feed])
            if not ir.quant.quantizers():
                continue
            real = run(artifact(context, "qdq"), feed)
        except QcError:  # the model cannot be calibrated, quantized at its opset, or run at all
            continue
        simulated = run(artifact(context, "simulation"), feed)
        compared += 1
        if not all(same_bits(array, simulated[name]) for name, array in real.items()):
            different.append(sample.name)
    assert not different
    assert compared > {"npu": 75, "ort-cpu": 25}[target]


FORMATS = """g (float[2, 3, 6, 6] x) => (float[2, 5] y) <
    float[4, 3, 3, 3] w, float[4] b, float[64, 5] v, float[5] c
> {
    a = Conv(x, w, b)
    r = Relu(a)
    f = Flatten(r)
    m = MatMul(f, v)
    y = Add(m, c)
}"""


@pytest.mark.parametrize("weight", ["int4", "uint8", "int16", "float8e4m3fn"])
@pytest.mark.parametrize("activation", ["int8", "uint16", "float8e5m2", "bfloat16", "float16"])
def test_in_every_format(weight: str, activation: str) -> None:
    model = parse(f'<ir_version: 10, opset_import: ["" : 21]>{FORMATS}')
    options = f"insert-quantizers{{weight={weight} activation={activation}}}"
    feeds = random_feeds(model, 4)
    pipeline = f"{QUANTIZE.replace('insert-quantizers', options)},{_LOWER}"
    _, context, _ = apply(pipeline, model, "npu", feeds)
    for feed in feeds:
        real, simulated = run(artifact(context, "qdq"), feed), run(artifact(context, "simulation"), feed)
        np.testing.assert_array_equal(simulated["y"], real["y"])
