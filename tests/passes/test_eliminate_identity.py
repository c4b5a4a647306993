"""Numbers that change nothing, which the text of a model cannot say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse
from support.pipelines import apply


@pytest.mark.parametrize(
    ("op_type", "number", "left"), [("Max", -np.inf, 1), ("Max", np.inf, 2), ("Min", np.inf, 1)]
)
def test_a_limit_at_infinity_is_none(op_type: str, number: float, left: int) -> None:
    model = parse(
        f"g (float[2, 4] x) => (float[2, 4] y) <float far> {{ a = {op_type}(far, x)  y = Relu(a) }}"
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(number), "far"))
    ir, _, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == left


def test_a_number_that_a_caller_may_feed_stays() -> None:
    model = parse("g (float[2, 4] x, float zero) => (float[2, 4] y) { a = Add(x, zero)  y = Relu(a) }")
    model.graph.initializer.append(onnx.helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0]))
    ir, _, _ = apply("eliminate-identity", model)
    assert len(list(ir.graph.ops())) == 2
