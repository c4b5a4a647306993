"""The comparison of models of which one is quantized."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.diffs import CHAIN, diff, groups, lines, rename
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact

import qc as package
from qc.diff import ChangeCount, diff_models
from qc.ir import lift
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.quant_table import Site
from qc.passes.lower.qdq.fit_kernels import unfit_kernels

# Padded channels are taken away before models are compared, by "qc diff".
QDQ = "insert-qdq{pad_channels=false}"

NORMALIZED = """
g (float[1,2,4,4] x) => (float[1,3,4,4] y)
<float[3,2,1,1] w, float[3] s, float[3] o, float[3] m, float[3] var> {
    a = Conv(x, w)
    n = BatchNormalization(a, s, o, m, var)
    y = Relu(n)
}
"""


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("weight", ["int8", "int4"])
def test_quantizing_shows_as_quantizing(renamed: bool, weight: str) -> None:
    model = parse(NORMALIZED)
    quantize = QUANTIZE.replace("insert-quantizers", f"insert-quantizers{{weight={weight}}}")
    pipeline = f"{quantize},insert-qdq{{storage=packed pad_channels=false}}"
    ir, context, _ = apply(pipeline, model, feeds=random_feeds(model, 4))
    lowered = artifact(context, "qdq")
    found = diff(model, rename(lowered) if renamed else lowered)
    (fold,) = lines(found, "ops")
    assert fold == "- BatchNormalization of 'n': folded into Conv of 'a'"
    assert found.count("quantizers") == ChangeCount(added=len(ir.quant.quantizers()))
    assert any(line.startswith(f"+ 'w': {weight} symmetric") for line in lines(found, "quantizers"))
    assert set(groups(found)) <= {"model", "ops", "quantizers", "names"}


HARD_SWISHES = {
    "HardSwish": "y{i} = HardSwish(n{i})",
    "Add, Clip, Mul, Div": "a{i} = Add(n{i}, three) k{i} = Clip(a{i}, zero, six) "
    "p{i} = Mul(n{i}, k{i}) y{i} = Div(p{i}, six)",
    "Add, Clip, Div, Mul": "a{i} = Add(n{i}, three) k{i} = Clip(a{i}, zero, six) "
    "p{i} = Div(k{i}, six) y{i} = Mul(n{i}, p{i})",
}


@pytest.mark.parametrize("spelling", HARD_SWISHES)
def test_normalizations_in_front_of_ops_that_became_others_are_folded(spelling: str) -> None:
    layer = "c{i} = Conv<pads = [1, 1, 1, 1]>(x{i}, w{i}) n{i} = BatchNormalization(c{i}, s, o, m, var) "
    layers = [(layer + HARD_SWISHES[spelling]).format(i=i) for i in range(3)]
    weights = ", ".join(f"float[8,8,3,3] w{i}" for i in range(3))
    text = f"""
    g (float[1,8,8,8] x0) => (float[1,8,8,8] y2)
    <{weights}, float[8] s, float[8] o, float[8] m, float[8] var,
     float three = {{3}}, float zero = {{0}}, float six = {{6}}> {{ {" ".join(layers)} }}
    """
    model = parse(text.replace("(x1,", "(y0,").replace("(x2,", "(y1,"))
    for number, node in enumerate(node for node in model.graph.node if node.op_type == "Conv"):
        node.name = f"conv{number}"
    made = package.read_model(package.compile(model, data=random_feeds(model, 4), target="ort-cpu").model)
    unfit_kernels(made)
    found = diff_models(lift(model), made)
    folds = [f"- BatchNormalization of 'n{i}': folded into Conv 'conv{i}'" for i in range(3)]
    assert [line for line in lines(found, "ops") if "conv" in line and "before" not in line] == folds
    assert not [line for line in lines(found, "constants") if "'w" in line]


def test_a_normalization_whose_parameters_are_behind_identity_ops_is_folded_too() -> None:
    """As exporters write it for two normalizations that begin with the same parameters."""
    model = parse(
        NORMALIZED.replace(
            "a = Conv(x, w)", "t = Identity(s) p = Identity(o) q = Identity(t) a = Conv(x, w)"
        ).replace("n = BatchNormalization(a, s, o, m, var)", "n = BatchNormalization(a, q, p, m, var)")
    )
    _, context, _ = apply(f"eliminate-identity,{QUANTIZE},{QDQ}", model, feeds=random_feeds(model, 4))
    found = diff(model, artifact(context, "qdq"))
    assert lines(found, "ops") == ["- BatchNormalization of 'n': folded into Conv of 'a'"]
    assert set(groups(found)) <= {"model", "ops", "quantizers"}


def test_the_ir_and_what_it_is_lowered_to_mean_the_same() -> None:
    model = parse(NORMALIZED)
    ir, context, _ = apply(f"{QUANTIZE},{QDQ}", model, feeds=random_feeds(model, 4))
    found = diff_models(ir, lift(artifact(context, "qdq")))
    assert groups(found) == ["model", "regions"]
    assert [line for line in lines(found, "model") if "qc.target" not in line] == []


def test_a_weight_that_was_changed_before_it_was_quantized() -> None:
    model = parse(NORMALIZED)
    _, context, _ = apply(f"{QUANTIZE},{QDQ}", model, feeds=random_feeds(model, 4))
    lowered = artifact(context, "qdq")
    for tensor in lowered.graph.initializer:
        if tensor.name == "w_quantized":
            codes = onnx.numpy_helper.to_array(tensor).copy()
            codes[0, 0] -= 9 * np.sign(codes[0, 0])
            tensor.CopyFrom(onnx.numpy_helper.from_array(codes, tensor.name))
    found = diff(model, lowered)
    assert not any("folded into" in line for line in lines(found, "ops"))
    assert any("values differ by more than rounding" in line for line in lines(found, "constants"))


def test_quantizers_of_the_ir() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Neg(x) b = Relu(a) y = Add(a, b) }"
    first, second = lift(parse(text)), lift(parse(text))
    values = {value.name: value for value in second.graph.values()}
    kept = second.quant.place(Site(values["a"]), QuantSpec.of("uint8"), "for the test")
    second.quant.place(Site(values["b"]), kept, "for the test")
    second.quant.place(Site(values["x"], second.graph.ops()[0], 0), QuantSpec.of("int8"), "for the test")
    assert lines(diff_models(first, second), "quantizers") == [
        "+ 'x': int8 asymmetric, not calibrated",
        "+ 'a': uint8 asymmetric, not calibrated",
        "+ 'b': uint8 asymmetric, not calibrated",
        "+ tie: 'a', 'b'",
    ]
    assert [difference.sign for difference in diff_models(second, first).differences] == ["-"] * 3
    third = lift(parse(text))
    a = next(value for value in third.graph.values() if value.name == "a")
    third.quant.place(Site(a, third.graph.ops()[1], 0), QuantSpec.of("int16"), "for the test")
    changed = lines(diff_models(second, third), "quantizers")
    assert (
        "~ 'a': uint8 asymmetric, not calibrated -> "
        "int16 asymmetric, not calibrated, for Relu of 'b' of 2 readers"
    ) in changed
    assert "- tie: 'a', 'b'" in changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (QuantSpec.of("int8", symmetric=True), QuantSpec.of("int8", symmetric=True, narrow=True)),
        (QuantSpec.of("int2", symmetric=True), QuantSpec.of("int2", symmetric=True, shifted=True)),
    ],
    ids=["narrow", "shifted"],
)
@pytest.mark.parametrize("name", ["x", "w"])
def test_the_same_scale_with_other_codes_is_another_grid(
    name: str, before: QuantSpec, after: QuantSpec
) -> None:
    models = []
    for spec in (before, after):
        model = lift(parse("g (float[2] x) => (float[2] y) <float[2] w> { y = Add(x, w) }"))
        quantizer = model.quant.place(Site(model.graph.value_named(name)), spec, "for the test")
        model.quant.calibrate(quantizer, Encoding(spec, np.float32(0.5), np.int32(0)), "for the test")
        models.append(model)
    (line,) = lines(diff_models(*models), "quantizers")
    assert line == f"~ '{name}': {before}, scale 0.5, zero point 0 -> {after}, scale 0.5, zero point 0"
    assert not diff_models(models[1], models[1]).differences


def test_regions() -> None:
    model = parse(CHAIN)
    matched, _, _ = apply("match-supergroups", model)
    assert lines(diff_models(lift(model), matched), "regions") == ["+ conv_relu at Relu of 'b': 2 ops"]
