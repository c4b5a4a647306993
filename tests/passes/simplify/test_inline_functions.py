"""Local functions: opened where they are called, and told of where that is not possible."""

from __future__ import annotations

import numpy as np
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, run_model
from support.placement import placed, reason

from qc.ir.onnx.lower import lower

FUNCTIONS = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
g (float[4, 4] x, bool c) => (float[4, 4] y) <float[4, 4] w, float[4, 4] v> {
    a = my.layer(x, w)
    y = If(c) <
        then_branch = t () => (float[4, 4] r) { r = my.gate(c, a, v) },
        else_branch = e () => (float[4, 4] r) { r = my.layer(a, v) }
    >
}
<domain: "my", opset_import: ["" : 21, "my" : 1]>
gate (c, x, w) => (y) {
    y = If(c) <
        then_branch = t () => (r) { r = my.layer(x, w) },
        else_branch = e () => (r) { r = Relu(x) }
    >
}
<domain: "my", opset_import: ["" : 21]>
layer (x, w) => (y) {
    m = MatMul(x, w)
    y = Tanh(m)
}"""


def test_functions_are_opened_and_quantized() -> None:
    model = parse(FUNCTIONS)
    feeds = random_feeds(model, 4)
    ir, context, _ = apply(f"inline-functions,{QUANTIZE},insert-qdq,to-simulation", model, feeds=feeds)
    for feed in feeds:
        real, simulated = (run_model(artifact(context, name), feed)["y"] for name in ("qdq", "simulation"))
        np.testing.assert_allclose(simulated, real, atol=1e-5)
    assert not ir.functions and len(list(ir.graphs())) == 5
    products = [o for graph in ir.graphs() for o in graph.ops() if o.is_type("MatMul")]
    assert len(products) == 3
    for product in products:
        given, weight = product.inputs
        assert given is not None and weight is not None
        assert (
            ir.quant.of_use(given, product, 0) is not None and ir.quant.of_use(weight, product, 1) is not None
        )


def test_a_call_that_is_not_opened_says_so() -> None:
    model = placed(FUNCTIONS)
    assert reason(model, "x") == "read by layer of 'a', which runs in float"
    assert "'inline-functions' opens it" in next(
        remark.reason for remark in model.journal.remarks if "'a'" in remark.subject
    )


def test_functions_may_name_another_version_of_their_domain() -> None:
    model = parse(FUNCTIONS)
    for function in model.functions:
        del function.opset_import[1:]
        function.opset_import.add(domain="my", version=7)
    ir, context, _ = apply("inline-functions", model)
    assert not ir.functions and not context.notes
    feed = random_feeds(model)[0]
    expected = run_model(parse(FUNCTIONS), feed)["y"]
    np.testing.assert_allclose(run_model(lower(ir), feed)["y"], expected, rtol=1e-6)


def test_a_function_for_other_operators_stays_closed() -> None:
    text = FUNCTIONS.replace('domain: "my", opset_import: ["" : 21]', 'domain: "my", opset_import: ["" : 17]')
    model = parse(text)
    ir, context, report = apply("inline-functions", model)
    assert "'layer' of domain 'my' was not inlined" in context.notes[0]
    assert [key[1] for key in ir.functions] == ["layer"] and report.actions == 1
    assert apply("inline-functions", ir)[2].actions == 0
    feed = random_feeds(model)[0]
    np.testing.assert_allclose(run_model(lower(ir), feed)["y"], run_model(model, feed)["y"], rtol=1e-6)
