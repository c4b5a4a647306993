"""The printed text of a model: complete, stable, and equal for equal models."""

from __future__ import annotations

import numpy as np
from onnx import helper
from support.models import floats, model_of, parse

from qc.ir.lift import lift
from qc.ir.lower import lower
from qc.ir.quant import Encoding, PerChannel, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.region import Region
from qc.ir.text import print_model

MODEL = """<ir_version: 10, opset_import: ["" : 21, "my" : 2]>
g (float[N, 4] x, bool c) => (float[N, 3] y, float[N, 3] z) <float[4, 3] w> {
    a = MatMul(x, w)
    y = my.scaled<slope = 0.25>(a)
    z = If(c) <
        then_branch = t () => (float[N, 3] r) { r = Clip(a, , w) },
        else_branch = e () => (float[N, 3] u) { u = Cast<to = 1>(y) }
    >
}
<domain: "my", opset_import: ["" : 21]>
scaled <slope> (v) => (s) { s = LeakyRelu<alpha: float = @slope>(v) }
"""

TEXT = """model ir 10 opset "" 21, "my" 2
graph g(%x: float[N,4], %c: bool[]) {
  const %w: float[4,3]
  %a: float[N,3] = MatMul(%x, %w)
  %y: float[N,3] = my::scaled(%a) {slope=0.25}
  %z: float[N,3] = If(%c)
    then_branch:
    graph t() {
      %r: float[N,3] = Clip(%a, _, %w)
      return %r
    }
    else_branch:
    graph e() {
      %u: float[N,3] = Cast(%y) {to=1}
      return %u
    }
  return %y, %z
}
function my::scaled
  graph scaled(%v: ?) {
    %s: ? = LeakyRelu(%v) {alpha=@slope}
    return %s
  }
region all: MatMul of 'a', scaled of 'y'
quantizer q1 uint8 asymmetric calibrated scale=0.5 zero_point=3: 'x'
quantizer q2 int8 asymmetric channel(1) calibrated scale=[1,1,1] zero_point=[0,0,0]: 'w' into MatMul of 'a'
quantizer q3 float16 open: 'a'
"""


def test_the_whole_text() -> None:
    model = lift(parse(MODEL))
    graph, quant = model.graph, model.quant
    matmul, scaled, _ = graph.ops()
    x, w, a = (graph.value_named(name) for name in ("x", "w", "a"))
    assert x is not None and w is not None and a is not None
    model.add_region(Region("all", graph, (matmul, scaled)), "test")
    activation = quant.place(Site(x), QuantSpec.of("uint8"), "test")
    quant.calibrate(activation, Encoding(activation.spec, np.asarray(0.5), np.asarray(3)), "test")
    weight = quant.place(Site(w, matmul, 1), QuantSpec.of("int8", granularity=PerChannel(1)), "test")
    quant.calibrate(weight, Encoding(weight.spec, np.ones(3), np.zeros(3)), "test")
    quant.place(Site(a), QuantSpec.of("float16"), "test")
    assert print_model(model) == TEXT


def test_equal_models_have_equal_text() -> None:
    first, second = lift(parse(MODEL)), lift(parse(MODEL))
    assert print_model(first) == print_model(second) == print_model(lift(lower(first)))


def test_every_kind_of_attribute() -> None:
    node = helper.make_node(
        "Magic",
        ["x"],
        ["y"],
        domain="vendor",
        number=-3,
        real=0.1,
        word='a "b"\n ü',
        raw=b"\xff\x00",
        numbers=[1, 2],
        reals=[0.1, 1e-9],
        words=["a", "b"],
        table=helper.make_tensor("t", 1, [2, 1], [2.0, 3.0]),
    )
    text = print_model(lift(model_of([node], [floats("x")], ["y"], domains=["vendor"])))
    assert text.splitlines()[2].split(" {")[1] == (
        'number=-3 numbers=[1,2] raw="\\\\xff\\u0000" real=0.100000001 reals=[0.100000001,9.99999972e-10] '
        'table=tensor<float[2, 1]> word="a \\"b\\"\\n ü" words=["a","b"]}'
    )


def test_long_scales_are_cut() -> None:
    model = lift(parse("g (float[9, 1] x) => (float[9, 1] y) { y = Neg(x) }"))
    spec = QuantSpec.of("int8", granularity=PerChannel(0))
    quantizer = model.quant.place(Site(model.graph.inputs[0]), spec, "test")
    model.quant.calibrate(quantizer, Encoding(spec, np.arange(1, 10), np.zeros(9)), "test")
    assert "scale=[1,2,3,4,... 9] zero_point=[0,0,0,0,... 9]: 'x'" in print_model(model)
