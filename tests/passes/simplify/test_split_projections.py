"""Queries, keys and values come from products of their own, whichever way they were cut apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import apply

from qc.ir.onnx.lower import lower
from qc.runtime import open_session, run_session

ATTENTION = """g (float[2, 6, 16] x) => (float[2, 2, 6, 4] y)
<float[16, 24] w, float[24] b, int64[5] heads = {-1, 6, 3, 2, 4}, int64[1] along = {0}, int64[1] one = {1},
 int64[1] two = {2}, int64[1] three = {3}, int64 k0 = {0}, int64 k1 = {1}, int64 k2 = {-1}> {
    PRODUCT
    r = Reshape(a, heads)
    t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
    CUT
    kt = Transpose<perm = [0, 1, 3, 2]>(k)
    s = MatMul(q, kt)
    p = Softmax(s)
    y = MatMul(p, v)
}"""
BIASED = "m = MatMul(x, w)  a = Add(b, m)"
BY_GATHER = "q = Gather(t, k0)  k = Gather(t, k1)  v = Gather(t, k2)"
CUTS = {
    "gather": BY_GATHER,
    "split": """q1, k1_, v1 = Split<axis = 0, num_outputs = 3>(t)
        q = Squeeze(q1, along)  k = Squeeze(k1_, along)  v = Squeeze(v1, along)""",
    "slice": """q1 = Slice(t, along, one, along)  k1_ = Slice(t, one, two, along)
        v1 = Slice(t, two, three, along)
        q = Squeeze(q1, along)  k = Squeeze(k1_, along)  v = Squeeze(v1, along)""",
}


def model(product: str = BIASED, cut: str = BY_GATHER) -> ModelProto:
    return parse(ATTENTION.replace("PRODUCT", product).replace("CUT", cut))


def split(given: ModelProto, target: str = "openvino") -> list[str]:
    """The ops that are left, which compute what the model did."""
    ir, _, _ = apply("split-projections", given, target)
    made = lower(ir)
    onnx.checker.check_model(made, full_check=True)
    (feed,) = random_feeds(given, 1)
    one, other = (run_session(open_session(m), feed)[0] for m in (given, made))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return [op.op_type for op in ir.graph.ops()]


def test_a_product_of_unknown_shape_is_split_too() -> None:
    given = model("z = com.microsoft.Trilu(x)  m = MatMul(z, w)  a = Add(b, m)")
    given.opset_import.add(domain="com.microsoft", version=1)
    assert split(given).count("MatMul") == 5


@pytest.mark.parametrize("product", [BIASED, "a = MatMul(x, w)"], ids=["biased", "bare"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_each_has_a_product_of_its_own(product: str, cut: str) -> None:
    left = split(model(product, cut))
    assert left.count("MatMul") == 5 and left.count("Add") == (3 if "Add" in product else 0)
    assert not {"Gather", "Split", "Slice", "Squeeze"} & set(left)


def test_parts_that_are_not_the_first_axis_of_the_columns_are_found() -> None:
    text = ATTENTION.replace("{-1, 6, 3, 2, 4}", "{-1, 6, 2, 3, 4}")
    text = text.replace("[2, 0, 3, 1, 4]", "[3, 0, 2, 1, 4]")
    assert split(parse(text.replace("PRODUCT", BIASED).replace("CUT", BY_GATHER))).count("MatMul") == 5


def test_a_device_that_does_not_ask_for_it_gets_one_product() -> None:
    assert split(model(), "ort-cpu").count("MatMul") == 3


@pytest.mark.parametrize(
    ("product", "cut"),
    [
        (BIASED, "q = Gather(t, k0)  k = Gather(t, k1)  u = Relu(t)  v = Gather(u, k2)"),  # read as a whole
        ("m = MatMul(x, w)  n = Add(b, m)  a = Add(n, n)", BY_GATHER),
        ("m = MatMul(x, w)  a = Relu(m)", BY_GATHER),
    ],
)
def test_what_is_read_as_one_stays_one(product: str, cut: str) -> None:
    assert split(model(product, cut)).count("MatMul") == 3


def test_what_is_cut_along_the_words_stays_one() -> None:
    text = """g (float[2, 3, 16] x) => (float[2, 2, 8] y)
    <float[16, 16] w, int64[4] heads = {2, 3, 2, 8}, int64 k = {1}> {
        a = MatMul(x, w)
        r = Reshape(a, heads)
        t = Transpose<perm = [1, 0, 2, 3]>(r)
        y = Gather(t, k)
    }"""
    assert "Gather" in split(parse(text))


def test_a_column_with_a_bias_of_one_number_stays_one() -> None:
    left = split(
        parse("""g (float[2, 6, 16] x) => (float[2, 6, 1] y)
        <float[16, 1] w, float b = {0.5}, int64[3] s = {0, 6, 1}> {
            m = MatMul(x, w)  a = Add(m, b)  y = Reshape(a, s)
        }""")
    )
    assert left.count("MatMul") == 1
