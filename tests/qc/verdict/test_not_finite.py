"""Outputs that are NaN or infinite: told in words, without numpy's warnings."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds

import qc
from qc.ir.errors import UsageError
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.tensor_ref import TensorRef
from qc.verdict.measure import Accuracy, Verdict
from qc.verdict.words import verdict_facts, verdict_warnings

TWO = """g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w, float[3, 3] v> {
    a = MatMul(x, w)
    y = MatMul(a, v)
}"""


def scaled(factor: float) -> ModelProto:
    """The model with weights that are so many times as large."""
    model = parse(TWO)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor) * np.float32(factor)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("pipeline", "factor", "whose", "warning"),
    [
        ("fp16", 1e6, "result", "outputs are NaN or infinite where those of the float model are numbers"),
        ("w8a8", 1e30, "float model", "outputs of the float model are NaN or infinite on the data"),
    ],
)
def test_infinite_outputs_are_told_in_words(pipeline: str, factor: float, whose: str, warning: str) -> None:
    source = scaled(factor)
    feeds = list(random_feeds(source, 8))
    seen = None if pipeline == "fp16" else feeds  # with which fp16 would keep in float32 what it has not
    verdict = qc.measure_verdict(qc.compile(source, pipeline, data=seen), feeds, with_costs=False)
    assert verdict.accuracy is not None
    assert (verdict.accuracy.sqnr_db, verdict.accuracy.not_finite) == (None, whose)
    (said,) = [words for title, words in verdict_facts(verdict) if title == "accuracy"]
    assert said.startswith(f"NaN or infinity in outputs of the {whose}") and "nan%" not in said
    assert any(one.startswith(warning) for one in verdict_warnings(verdict))


def test_no_agreement_is_below_zero() -> None:
    verdict = Verdict(Accuracy(8, -6.0, -1.0, "cosine"))
    assert verdict_facts(verdict) == [
        ("accuracy", "-6.0 dB at the worst output, 0.0% agreement (cosine), on 8 samples")
    ]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_numbers_beyond_a_type_raise_no_warning_of_numpy() -> None:
    spec = QuantSpec.of("int8", symmetric=True)
    with pytest.raises(UsageError, match="every scale must be finite"):
        Encoding(spec, np.asarray(1e300), np.asarray(0))
    assert np.isinf(Encoding(spec, np.asarray(3e38), np.asarray(0)).maximum)
    kind = QuantSpec.of("float16").format.onnx_type
    assert np.isinf(TensorRef.from_array(np.asarray([1e6], np.float32), kind).numpy())
