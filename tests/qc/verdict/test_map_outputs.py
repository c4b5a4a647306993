"""Outputs that are maps, as classifiers of scikit-learn and LightGBM have, are judged like tensors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from support.models import parse, random_feeds

import qc as package
from qc.runtime import OpenModel
from qc.runtime.sessions.maps import without_maps
from qc.verdict.measure import measure_verdict

TEXT = """
    <ir_version: 10, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
    classifier (float[n, 16] x) => (float[n, 3] probabilities) <float[16, 3] w> {
        scores = MatMul (x, w)
        probabilities = Softmax (scores)
    }
"""
KEYS = {"classlabels_int64s": [3, 1, 2], "classlabels_strings": ["red", "blue", "green"]}


def classifier(keys: str) -> ModelProto:
    """A layer with a ZipMap behind it, which ONNX's text has no type for."""
    model = parse(TEXT)
    zipped = helper.make_node(
        "ZipMap", ["probabilities"], ["zipped"], domain="ai.onnx.ml", **{keys: KEYS[keys]}
    )
    key = TensorProto.INT64 if keys == "classlabels_int64s" else TensorProto.STRING
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, number))
    model.graph.node.append(zipped)
    del model.graph.output[:]
    model.graph.output.append(helper.make_value_info("zipped", kind))
    return model


@pytest.mark.parametrize("keys", KEYS)
def test_a_map_for_each_sample_is_a_table_of_classes(keys: str) -> None:
    model = classifier(keys)
    (feed,) = random_feeds(model, 1, size=4)
    found = OpenModel(model).run(feed)["zipped"]
    plain = OpenModel(parse(TEXT)).run(feed)["probabilities"]
    np.testing.assert_array_equal(found, plain[:, np.argsort(KEYS[keys])])
    assert found.dtype == np.float32


@pytest.mark.parametrize("command", ["eval", "sensitivity"])
def test_commands_compare_them(qc, command: str) -> None:
    onnx.save(classifier("classlabels_int64s"), "maps.onnx")
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.standard_normal((8, 16), np.float32))
    result = qc(command, "maps.onnx", "--data", "data.npz")
    assert result.code == 0, result.err
    assert " dB" in result.out


def test_the_verdict_has_their_accuracy() -> None:
    model = classifier("classlabels_strings")
    feeds = random_feeds(model, 4, size=8)
    found = measure_verdict(package.compile(model, data=feeds), feeds).accuracy
    assert found is not None and found.sqnr_db is not None and 20 < found.sqnr_db < 90


def test_what_is_no_table_stays() -> None:
    array = np.ones((2, 3), np.float32)
    assert without_maps(array) is array
    assert without_maps([]) == []
    assert without_maps([array, array])[1] is array
    uneven = [{"a": 1.0}, {"b": 1.0}]
    assert without_maps(uneven) is uneven
    np.testing.assert_array_equal(without_maps({2: 0.25, 1: 0.75}), np.float32([0.75, 0.25]))
    assert without_maps({1: "one"}).tolist() == ["one"]
