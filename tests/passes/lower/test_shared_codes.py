"""Codes that several grids read: the HTP takes them for codes of one, so each grid has its own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.masks import attention, feeds_of, sqnr
from support.models import parse
from support.pipelines import run_model

import qc
from qc.runtime.devices.device import version_of
from qc.runtime.devices.known import DEVICES, open_device

FAR = -3.4028235e38
# Both constants become the code 255 with the zero point 0.
TWO_FACTORS = """g (float[1, 8] x, float[1, 8] z) => (float[1, 8] y) <float a = {0.35}, float b = {5}> {
    s = Mul(x, a)
    t = Mul(z, b)
    y = Add(s, t)
}"""
FEEDS = [{"x": np.linspace(-9, 9, 8, dtype=np.float32)[None], "z": np.eye(1, 8, 3, dtype=np.float32)}]


def grids_by_codes(model: ModelProto) -> dict[str, set[tuple[bytes, ...]]]:
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in model.graph.initializer}
    found: dict[str, set[tuple[bytes, ...]]] = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in stored:
            grid = tuple(stored[name] for name in node.input[1:])
            found.setdefault(node.input[0], set()).add(grid)
    return found


@pytest.mark.parametrize("target", ["qnn-htp", "npu"])
def test_no_codes_are_read_on_two_grids(target: str) -> None:
    model = qc.compile(parse(TWO_FACTORS), "w8a8", data=FEEDS, target=target).model
    found = grids_by_codes(model)
    assert len(found) == 2 and all(len(grids) == 1 for grids in found.values())


def test_a_check_names_codes_of_two_grids_and_the_command_that_mends_them() -> None:
    model = qc.compile(parse(TWO_FACTORS), "w8a8", data=FEEDS, target="qnn-htp").model
    assert not any(rule == "shared codes" for _, rule, _ in qc.check(model, "qnn-htp").broken)
    first, second = (node for node in model.graph.node if node.input[0] in grids_by_codes(model))
    second.input[0] = first.input[0]
    (told,) = (text for _, rule, text in qc.check(model, "qnn-htp").broken if rule == "shared codes")
    assert f"'{first.input[0]}' are read on 2 grids" in told and "import-qdq,insert-qdq" in told
    assert not any(rule == "shared codes" for _, rule, _ in qc.check(model, "npu").broken)
    mended = qc.compile(model, "import-qdq,insert-qdq", target="qnn-htp").model
    assert all(len(grids) == 1 for grids in grids_by_codes(mended).values())


def test_attention_with_a_computed_mask_on_the_htp() -> None:
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")
    model = attention("added, computed", FAR)
    feeds = feeds_of(model, FAR, 2)
    opened = open_device("qnn-htp").open(qc.compile(model, "w8a8", data=feeds, target="qnn-htp").model)
    assert sqnr(run_model(model, feeds[0])["y"], opened.run(feeds[0])["y"]) > 25
