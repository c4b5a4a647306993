"""Layer-centric encodings files, and the layers of models as exporters name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto
from support.folders import AIMET
from support.models import parse

from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.passes.encodings import (
    VERSIONS,
    by_layer,
    converted,
    dump_encodings,
    located,
    parse_encodings,
    read_encodings,
)
from qc.passes.encodings.comparison import compare
from qc.passes.encodings.layers import layers_of

FILES = sorted((path for path in AIMET.glob("*.encodings") if "lpbq" not in path.name), key=lambda p: p.name)

RESIDUAL = """g (float[1, 4, 5, 5] x) => (float[1, 4, 5, 5] y)
<float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2, float[4] b2> {
    s = Conv(x, w1)
    h = Sigmoid(s)
    a = Mul(s, h)
    c = Conv(a, w2, b2)
    y = Add(a, c)
}"""
TORCHSCRIPT = (
    "/stem/Conv",
    "/act/Sigmoid",
    "/act/Mul",
    "/layer1/layer1.0/conv1/Conv",
    "/layer1/layer1.0/Add",
)
SCOPES = (
    ["", "stem", "conv2d"],
    ["", "act", "silu"],
    ["", "act", "silu"],
    ["", "layer1", "layer1.0", "layer1.0.conv1", "conv2d_1"],
    ["", "layer1", "layer1.0", "add"],
)


def residual(spelling: str) -> ModelProto:
    """A convolution, SiLU of two ops, and a residual block, with the names of an exporter of PyTorch."""
    model = parse(RESIDUAL)
    for node, name, scopes in zip(model.graph.node, TORCHSCRIPT, SCOPES, strict=True):
        if spelling == "torchscript":
            node.name = name
        else:
            node.name = f"node_{scopes[-1]}"
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scopes))
    return model


@pytest.mark.parametrize(("spelling", "add"), [("torchscript", "Add"), ("dynamo", "add")])
def test_layers_are_the_modules(spelling: str, add: str) -> None:
    layers = layers_of(lift(residual(spelling)).graph)
    assert {str(port): value.name for port, value in layers.tensors.items()} == {
        "stem output 0": "s",
        "act output 0": "a",
        "layer1.0.conv1 output 0": "c",
        f"layer1.0.{add} output 0": "y",
        "stem input 0": "x",
        "act input 0": "s",
        "layer1.0.conv1 input 0": "a",
        f"layer1.0.{add} input 0": "a",
        f"layer1.0.{add} input 1": "c",
    }
    names = {name: value.name for name, value in layers.parameters.items()}
    assert names == {"stem.weight": "w1", "layer1.0.conv1.weight": "w2", "layer1.0.conv1.bias": "b2"}


def test_damaged_scopes_are_no_scopes() -> None:
    model = residual("dynamo")
    model.graph.node[0].metadata_props[0].value = "[1, 'x'"
    model.graph.node[1].metadata_props[0].value = "{}"
    layers = layers_of(lift(model).graph)
    assert {port.layer for port in layers.tensors} >= {"node_conv2d", "node_silu", "act"}


@pytest.fixture(scope="module")
def model() -> Model:
    return lift(AIMET / "model.onnx")


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_by_layers_and_back(path: Path, version: str, model: Model) -> None:
    document = located(read_encodings(path), model)
    layered, unnamed = by_layer(converted(document, version), model)
    text = dump_encodings(layered)
    again = parse_encodings(text, "f")
    assert (again.version, again.layout, unnamed) == (version, "layers", [])
    assert json.loads(dump_encodings(again)) == json.loads(text)
    back = located(again, model)
    assert back.layout == "tensors" and compare(document, back).is_equal
    for name, record in document.by_name().items():
        other = back.by_name()[name]
        assert (record.granularity, record.axis, record.block_size) == (
            other.granularity,
            other.axis,
            other.block_size,
        )


def test_the_form_of_a_file(model: Model) -> None:
    document = located(read_encodings(AIMET / "channel_0.6.1.encodings"), model)
    content = json.loads(dump_encodings(by_layer(document, model)[0]))
    listed = json.loads((AIMET / "channel_0.6.1.encodings").read_text())
    assert content["activation_encodings"] == {
        "conv": {"input": {"0": listed["activation_encodings"]["x"][0]}},
        "relu": {"output": {"0": listed["activation_encodings"]["r"][0]}},
        "mm": {"output": {"0": listed["activation_encodings"]["y"][0]}},
    }
    assert content["param_encodings"] == {
        "conv.weight": listed["param_encodings"]["w1"],
        "mm.weight": listed["param_encodings"]["w2"],
    }
    assert content["excluded_layers"] == [] and content["quantizer_args"] == listed["quantizer_args"]


ENTRY = {
    "bitwidth": 8,
    "dtype": "int",
    "is_symmetric": "False",
    "min": -1.5,
    "max": 126.0,
    "scale": 0.5,
    "offset": -3,
}


def written(activations: Any, parameters: Any = None, version: str = "0.6.1") -> str:
    return json.dumps(
        {"version": version, "activation_encodings": activations, "param_encodings": parameters or {}}
    )


def test_inside_of_a_layer() -> None:
    model = lift(residual("torchscript"))
    entries = [
        {
            "name": name,
            "enc_type": "PER_TENSOR",
            "dtype": "INT",
            "bw": 8,
            "is_sym": False,
            "scale": [0.5],
            "offset": [0],
        }
        for name in ("s", "h", "a", "y")
    ]
    text = json.dumps({"version": "1.0.0", "activation_encodings": entries, "param_encodings": []})
    layered, unnamed = by_layer(located(parse_encodings(text), model), model)
    assert unnamed == ["h"]
    assert [record.name for record in layered.records] == [
        "stem output 0",
        "act output 0",
        "layer1.0.Add output 0",
    ]


def test_two_sides_of_one_tensor() -> None:
    model = lift(residual("torchscript"))
    same = written({"stem": {"output": {"0": ENTRY}}, "act": {"input": {"0": ENTRY}}})
    assert [record.name for record in located(parse_encodings(same), model).records] == ["s"]
    other = {**ENTRY, "scale": 0.25, "min": -0.75, "max": 63.0}
    contradicting = written({"stem": {"output": {"0": ENTRY}}, "act": {"input": {"0": other}}})
    with pytest.raises(
        UsageError,
        match="f: 'stem output 0' and 'act input 0' are both tensor 's', but have different grids",
    ):
        located(parse_encodings(contradicting, "f"), model)


def test_a_layer_that_the_model_lacks(model: Model) -> None:
    records = located(parse_encodings(written({"conv9": {"output": {"0": ENTRY}}})), model).records
    assert [record.name for record in records] == ["conv9 output 0"]


@pytest.mark.parametrize(
    ("activations", "said"),
    [
        (
            {"a": {"input": {"0": ENTRY}, "inptu": {}}},
            "'a': there is no field 'inptu' (did you mean 'input'?)",
        ),
        ({"a": {"input": {"x": ENTRY}}}, "'a', input: 'x' is not the number of an input"),
        ({"a": {"output": {"00": ENTRY}}}, "'a', output: '00' is not the number of an output"),
        ({"a": {"output": {"-1": ENTRY}}}, "'-1' is not the number of an output"),
        ({"a": {"output": [ENTRY]}}, "f, activation_encodings, 'a', output must be an object, not a list"),
        ({"a": {"input": {"0": {**ENTRY, "scale": 0}}}}, "'a', input 0: 'scale' holds 0"),
        ({"a": {"input": {"0": ENTRY}}, "b": 3}, "f, activation_encodings, 'b' must be an object"),
    ],
)
def test_what_is_wrong_is_named(activations: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_encodings(written(activations), "f")
    assert said in str(caught.value)


JSON = st.recursive(
    st.one_of(st.integers(-3, 300), st.floats(-2, 2), st.text(max_size=3), st.none(), st.just(ENTRY)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["input", "output", "0", "1", "a"]), inner),
    ),
    max_leaves=8,
)


@given(version=st.sampled_from(["0.6.1", "1.0.0"]), activations=JSON, parameters=JSON)
def test_anything_else_is_refused_cleanly(version: str, activations: Any, parameters: Any) -> None:
    try:
        document = parse_encodings(written({"a": activations}, parameters, version))
    except UsageError:
        return
    again = parse_encodings(dump_encodings(document))
    assert compare(document, again).is_equal and again.layout == document.layout


def test_layers_have_no_version_2(model: Model) -> None:
    document = parse_encodings(written({"conv": {"output": {"0": ENTRY}}}), "f")
    with pytest.raises(UsageError, match=r"f lists layers, version 2\.0\.0 has tensors; give the model"):
        converted(document, "2.0.0")
    assert dump_encodings(converted(located(document, model), "2.0.0"))


@pytest.mark.parametrize("between", VERSIONS)
@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_through_every_version_and_back_to_layers(
    path: Path, version: str, between: str, model: Model
) -> None:
    document = converted(located(read_encodings(path), model), version)
    layered = parse_encodings(dump_encodings(by_layer(document, model)[0]))
    there = parse_encodings(dump_encodings(converted(located(layered, model), between)))
    assert (there.version, there.layout) == (between, "tensors")
    back, unnamed = by_layer(converted(located(there, model), version), model)
    assert not unnamed
    first, again = (json.loads(dump_encodings(found)) for found in (layered, back))
    sections = ("activation_encodings", "param_encodings")
    assert [first[section] for section in sections] == [again[section] for section in sections]


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
def test_layers_have_no_two_level_blocks(version: str, model: Model) -> None:
    document = converted(located(read_encodings(AIMET / "lpbq_1.0.0.encodings"), model), version)
    with pytest.raises(UsageError, match=r"'conv.weight': files by layer have no two-level blocks \(LPBQ\)"):
        dump_encodings(by_layer(document, model)[0])
