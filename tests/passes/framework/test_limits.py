"""A limit on the actions: every prefix of a compilation is a valid model, and the same prefix every time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.machine import needs_exact_sums
from support.models import parse, random_feeds

import qc
from qc.runtime import open_session, run_session

TEXT = """g (float[2, 4, 6, 6] x) => (float[2, 5] y, float[2, 4, 6, 6] s)
<float[4, 4, 3, 3] w1, float[4] b1, float[4, 4, 1, 1] w2, float[4] scale, float[4] bias, float[4] mean,
 float[4] var, float[4, 5] w3, float[5] b3> {
    i = Identity(x)
    c = Conv<pads = [1, 1, 1, 1]>(i, w1, b1)
    n = BatchNormalization(c, scale, bias, mean, var)
    r = Relu(n)
    d = Conv(r, w2)
    s = Add(d, r)
    p = GlobalAveragePool(s)
    f = Flatten(p)
    y = Gemm(f, w3, b3)
}"""


def model_with_variances() -> ModelProto:
    """The model; variances are above zero."""
    model = parse(TEXT)
    variance = next(tensor for tensor in model.graph.initializer if tensor.name == "var")
    array = np.abs(numpy_helper.to_array(variance)) + np.float32(0.5)
    variance.CopyFrom(numpy_helper.from_array(array, "var"))
    return model


@needs_exact_sums
@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
def test_every_prefix_is_valid(target: str) -> None:
    model = model_with_variances()
    feeds = random_feeds(model, 3)
    whole = qc.compile(model, data=feeds, target=target, threads=1)
    journal = [str(remark) for remark in whole.ir.journal.actions()]
    assert len(journal) > 15
    expected = run_session(open_session(model, threads=1), feeds[0])
    for limit in range(len(journal) + 1):
        part = qc.compile(
            model, data=feeds, target=target, action_limit=limit, allow_unquantized=True, threads=1
        )
        assert [str(remark) for remark in part.ir.journal.actions()] == journal[:limit]
        assert any("stopped after action" in note for note in part.notes) == (limit < len(journal))
        for result, wanted in zip(
            run_session(open_session(part.model, threads=1), feeds[0]), expected, strict=True
        ):
            assert np.abs(result - wanted).max() <= 0.1 * np.abs(wanted).max()


def test_passes_behind_the_limit_do_not_meet_what_it_left() -> None:
    model = model_with_variances()
    feeds = random_feeds(model, 2)
    passes = "match-supergroups,insert-quantizers,calibrate,correct-bias,insert-qdq"
    whole = qc.compile(model, passes, data=feeds, threads=1)
    journal = [str(remark) for remark in whole.ir.journal.actions()]
    for limit in range(len(journal) + 1):
        part = qc.compile(model, passes, data=feeds, action_limit=limit, allow_unquantized=True, threads=1)
        assert [str(remark) for remark in part.ir.journal.actions()] == journal[
            : len(part.ir.journal.actions())
        ]
        assert (
            len(part.ir.journal.actions()) >= limit - 4
        )  # those inside an action come with it or not at all
        open_session(part.model, threads=1)
