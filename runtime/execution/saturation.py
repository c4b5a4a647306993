"""Whether sums of 8-bit products saturate on this processor."""

from __future__ import annotations

import functools

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ..sessions.open import open_session

_PRODUCTS = 4  # that are summed: two pairs


@functools.cache
def sums_saturate() -> bool:
    """Whether ONNX Runtime limits sums of two products of uint8 and int8 to 16 bits here.

    It does on x86 without VNNI, where vpmaddubsw adds products in pairs: 255 * 127 * 2 > 32767.
    """
    weight = numpy_helper.from_array(np.full((_PRODUCTS, 1), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "sum",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, _PRODUCTS])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)
    (found,) = open_session(model, threads=1).run(None, {"x": np.full((1, _PRODUCTS), 255, np.uint8)})
    return int(found.item()) != 255 * 127 * _PRODUCTS
