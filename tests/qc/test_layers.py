"""Errors of single tensors equal their definitions; the table, the plot and the page show them all."""

from __future__ import annotations

import io
import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from rich.console import Console, RenderableType
from support.float_types import in_type
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc
from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError
from qc.ir.quant.arithmetic import fake_quantize
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.layers import (
    LayerError,
    LayerErrors,
    evaluation_page,
    layer_document,
    layer_errors,
    layer_plot,
    layer_table,
)
from qc.rendering.terminal import rendered
from qc.report import find, report_page
from qc.runtime import evaluate, expose_tensors, load_data, model_inputs

NETWORK = parse("""g (float[1, 3, 6, 6] x) => (float[1, 4, 6, 6] y)
<float[4, 3, 1, 1] w1, float[4] b1, float[4, 4, 3, 3] w2> {
    a = Conv(x, w1, b1)
    r = Relu(a)
    c = Conv <pads = [1, 1, 1, 1]> (r, w2)
    y = Add(c, r)
}""")
FEEDS = random_feeds(NETWORK, 3)


def compiled_network() -> Compiled:
    return qc.compile(NETWORK, "w8a8", data=FEEDS)


def errors_of(compiled: Compiled) -> LayerErrors:
    return layer_errors(compiled, load_data(FEEDS, model_inputs(NETWORK)), threads=1)


def sqnr(x: np.ndarray, y: np.ndarray) -> float:
    return 10 * math.log10(np.sum(np.square(x, dtype=float)) / np.sum(np.square(x.astype(float) - y)))


def over_feeds(model: ModelProto, tensor: str) -> np.ndarray:
    return np.stack([run_model(expose_tensors(model, [tensor]), feed)[tensor] for feed in FEEDS])


def test_a_tensor_in_isolation_is_the_tensor_rounded() -> None:
    compiled = compiled_network()
    layers = [layer for layer in errors_of(compiled).layers if not layer.is_constant]
    assert [layer.tensor for layer in layers][:2] == ["x", "r"]
    for layer in layers:
        quantizer = compiled.ir.quant.of_value(compiled.ir.graph.value_named(layer.tensor))  # type: ignore[arg-type]
        assert quantizer is not None and quantizer.encoding is not None
        x = over_feeds(compiled.float_model, layer.tensor)
        assert layer.isolated_db == pytest.approx(sqnr(x, fake_quantize(x, quantizer.encoding)))


def test_a_constant_in_isolation_is_its_op_with_that_alone_rounded() -> None:
    compiled = compiled_network()
    layers = {layer.tensor: layer for layer in errors_of(compiled).layers if layer.is_constant}
    assert set(layers) == {"w1", "b1", "w2"}
    outputs = {"w1": "a", "b1": "a", "w2": "c"}
    for name, output in outputs.items():
        model = ModelProto()
        model.CopyFrom(compiled.float_model)
        site = next(site for site in compiled.ir.quant.sites() if site.value.name == name)
        quantizer = compiled.ir.quant.get(site)
        assert quantizer is not None and quantizer.encoding is not None
        stored = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        rounded = fake_quantize(numpy_helper.to_array(stored), quantizer.encoding)
        stored.CopyFrom(numpy_helper.from_array(rounded, name))
        expected = sqnr(over_feeds(compiled.float_model, output), over_feeds(model, output))
        assert layers[name].isolated_db == pytest.approx(expected, rel=1e-4)


def test_cumulative_errors_are_those_of_the_simulation() -> None:
    compiled = compiled_network()
    layers = {layer.tensor: layer for layer in errors_of(compiled).layers}
    simulation = compiled.simulation
    rounded = {
        node.input[0]: node.output[0] for node in simulation.graph.node if node.op_type == "FakeQuantize"
    }
    assert layers["x"].cumulative_db == layers["x"].isolated_db, "nothing is rounded before the input"
    for tensor, place in {"r": rounded["r"], "w1": "a", "w2": "c"}.items():
        reference = {"w1": "a", "w2": "c"}.get(tensor, tensor)
        expected = sqnr(over_feeds(compiled.float_model, reference), over_feeds(simulation, place))
        assert layers[tensor].cumulative_db == pytest.approx(expected, rel=1e-4)


def test_an_interface_in_float16_is_looked_at_in_float32() -> None:
    model = in_type(NETWORK, TensorProto.FLOAT16)
    feeds = random_feeds(model, 3)
    compiled = qc.compile(model, "w8a8", data=feeds)
    found = layer_errors(compiled, load_data(feeds, model_inputs(model)), threads=1).layers
    assert {layer.tensor for layer in found} == {
        layer.tensor for layer in errors_of(compiled_network()).layers
    }
    (given,) = (layer for layer in found if layer.tensor == "x")
    assert given.cumulative_db == pytest.approx(given.isolated_db)


def test_layers_come_in_the_order_of_the_graph_or_worst_first() -> None:
    errors = errors_of(compiled_network())
    names = [layer.tensor for layer in errors.layers]
    assert names.index("x") < names.index("w1") < names.index("r") < names.index("w2")
    alone = [layer.isolated_db for layer in errors.worst_first()]
    assert alone == sorted(alone) and len(alone) == len(names)
    assert (errors.feeds, errors.left_out) == (3, "")


def test_an_output_of_the_graph_that_is_rounded_keeps_its_place() -> None:
    model = parse("g (float[1, 4] x) => (float[1, 4] y) <float[4, 4] w> { y = MatMul(x, w) }")
    feeds = random_feeds(model, 2)
    compiled = qc.compile(model, "w8a8", data=feeds)
    x, y = (compiled.ir.graph.value_named(name) for name in ("x", "y"))
    assert x is not None and y is not None
    quantizer = compiled.ir.quant.of_value(x)
    assert quantizer is not None
    compiled.ir.quant.place(Site(y), quantizer, "asked for")
    errors = layer_errors(compiled, load_data(feeds, model_inputs(model)), threads=1)
    layers = {layer.tensor: layer for layer in errors.layers}
    outputs = [run_model(compiled.float_model, feed)["y"] for feed in feeds]
    simulated = [run_model(compiled.simulation, feed)["y"] for feed in feeds]
    assert layers["y"].cumulative_db == pytest.approx(sqnr(np.stack(outputs), np.stack(simulated)), rel=1e-4)
    before = layers["w"].cumulative_db
    assert before is not None and before != layers["y"].cumulative_db


def test_what_is_inside_bodies_is_counted() -> None:
    model = parse("""g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
        a = MatMul(x, w)
        y = If(c) <
            then_branch = t () => (float[2, 4] p) { k = MatMul(a, w)  p = Tanh(k) },
            else_branch = e () => (float[2, 4] q) { q = Tanh(a) }
        >
    }""")
    feeds = random_feeds(model, 2)
    for flag, feed in zip((True, False), feeds, strict=True):
        feed["c"] = np.asarray(flag)
    compiled = qc.compile(model, "w8a8", data=feeds)
    errors = layer_errors(compiled, load_data(feeds, model_inputs(model)), threads=1)
    assert [layer.tensor for layer in errors.layers] == ["x", "w"]
    assert (errors.inside_bodies, errors.not_computed) == (2, 0), "'a' and 'w' where the branch reads them"


def test_a_model_that_is_quantized_in_bodies_alone_has_a_report() -> None:
    model = parse("""g (float[2, 4] x, bool c) => (float[2, 4] y) {
        y = If(c) <
            then_branch = t () => (float[2, 4] p) <float[4, 4] w> { k = MatMul(x, w)  p = Tanh(k) },
            else_branch = e () => (float[2, 4] q) { q = Tanh(x) }
        >
    }""")
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    model.graph.node[0].attribute[0].g.initializer.append(weight)
    feeds = random_feeds(model, 2)
    for feed in feeds:
        feed["c"] = np.asarray(True)
    compiled = qc.compile(model, "w8a8", data=feeds)
    data = load_data(feeds, model_inputs(model))
    errors = layer_errors(compiled, data, threads=1)
    assert (errors.layers, errors.inside_bodies) == ((), 2)
    assert "left out: 2 quantized tensors inside If, Loop or Scan" in str(errors)
    page = report_page(find(compiled, data, threads=1), "a model", "qc report", {})
    assert "there are 2 quantized tensors inside If, Loop or Scan alone" in page


def test_a_tensor_that_only_moves_numbers_of_another_is_left_out() -> None:
    model = parse("""g (float[1, 3, 3, 3] x) => (float[1, 2] y) <float[4, 3, 1, 1] v, float[4, 2] w> {
        c = Conv(x, v)
        p = GlobalAveragePool(c)
        f = Flatten(p)
        y = Gemm(f, w)
    }""")
    feeds = random_feeds(model, 2)
    compiled = qc.compile(model, "w8a8", data=feeds)
    errors = layer_errors(compiled, load_data(feeds, model_inputs(model)), threads=1)
    tensors = [layer.tensor for layer in errors.layers]
    assert [name for name in tensors if not name.endswith("_bias")] == ["x", "v", "c", "p", "w"]
    assert [tensor.name for tensor in compiled.coverage.unquantized] == ["y"], "'f' is quantized, as 'p' is"


def test_nothing_to_measure_is_an_error() -> None:
    compiled = qc.compile(NETWORK, qc.resolve_pipeline("fold-constants"), data=FEEDS)
    with pytest.raises(UsageError, match="no tensor is quantized"):
        errors_of(compiled)


# -- what is shown ------------------------------------------------------------------------------------------


def text(item: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(item)
    return [line.rstrip() for line in capture.get().splitlines()]


def made_up(count: int, name: str = "tensor_{}") -> LayerErrors:
    """Errors of computed tensors that fall from 60 dB, with a weight that loses nothing at the end."""
    layers = [
        LayerError(
            name.format(i), False, f"Relu 'relu_{i}'", "Relu", "uint8 asymmetric", i, 60 - i / 10, 50 - i / 10
        )
        for i in range(count)
    ]
    layers.append(LayerError("w", True, "Conv 'c'", "Conv", "int8 symmetric", count, math.inf, None))
    return LayerErrors(2, tuple(layers), 0, 0)


def test_the_table_has_the_worst() -> None:
    assert text(rendered(layer_table(made_up(30), 2))) == [
        "tensor     at    format  isolated  cumulative",
        "tensor_29  Relu  uint8    57.1 dB     47.1 dB",
        "tensor_28  Relu  uint8    57.2 dB     47.2 dB",
    ]
    assert text(rendered(layer_table(made_up(0), 5))) == [
        "tensor  at         format  isolated  cumulative",
        "w       into Conv  int8       equal",
    ]


@pytest.mark.parametrize("count", [0, 1, 30, 39, 40, 500])
def test_the_plot_is_one_screen_and_loses_no_tensor(count: int) -> None:
    lines = text(layer_plot(made_up(count, "a/very/long/path/of/scopes/to/tensor_{}")))
    assert len(lines) <= 41 and max(map(len, lines)) <= 80
    shared = sum(int(line.split(" +")[1].split()[0]) for line in lines[1:] if " +" in line)
    assert len(lines) - 1 + shared == count + 1


def test_a_longer_bar_loses_less() -> None:
    bars = [line.count("\u2588") for line in text(layer_plot(made_up(30)), width=200)[1:]]
    assert bars[0] > bars[15] > bars[29]


def test_the_document_has_no_infinity() -> None:
    document = json.loads(json.dumps(layer_document(made_up(1)), allow_nan=False))
    assert [layer["isolated_db"] for layer in document["layers"]] == [60.0, "inf"]
    assert set(document) == {"feeds", "layers", "inside_bodies", "not_computed"}
    assert document["layers"][0] == {
        "tensor": "tensor_0",
        "is_constant": False,
        "op": "Relu 'relu_0'",
        "op_type": "Relu",
        "spec": "uint8 asymmetric",
        "quantizer": 0,
        "isolated_db": 60.0,
        "cumulative_db": 50.0,
    }


class Outline(HTMLParser):
    """The elements of a page, which must all be closed."""

    VOID = ("meta",)

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_shows_every_tensor_and_loads_nothing() -> None:
    compiled = compiled_network()
    evaluation = evaluate(NETWORK, {"simulation": compiled.simulation}, FEEDS, latency_seconds=0.01)
    errors = errors_of(compiled)
    page = evaluation_page("model.onnx", "on 3 samples", evaluation, errors)
    outline = Outline(page)
    rows = [given["id"] for tag, given in outline.seen if tag == "tr" and "id" in given]
    links = [given["href"] for tag, given in outline.seen if tag == "a"]
    assert sorted(links) == sorted(f"#{row}" for row in rows) and len(rows) == len(errors.layers)
    assert not [tag for tag, _ in outline.seen if tag in ("script", "link", "img")]
    assert "http" not in page.replace("http://www.w3.org", "")
    assert {"model.onnx", "on 3 samples", "simulation", "w2"} <= set(outline.words)


def test_names_cannot_become_markup() -> None:
    evaluation = evaluate(NETWORK, {"simulation": NETWORK}, FEEDS, latency_seconds=0)
    evil = "</title><script>alert('&')</script>\x1b[2J{}"
    page = evaluation_page(evil, evil, evaluation, made_up(3, evil))
    outline = Outline(page)
    assert "script" not in [tag for tag, _ in outline.seen] and "\x1b" not in page


def test_a_corrected_bias_does_not_count_as_an_error_of_its_grid() -> None:
    """What a bias takes back of the errors of others is not lost at the bias."""
    compiled = compiled_network()
    plain = {layer.tensor: layer.isolated_db for layer in errors_of(compiled).layers}
    bias = next(value for value in compiled.ir.graph.values() if value.name == "b1")
    assert bias.const is not None
    rewriter = Rewriter(compiled.ir)
    with rewriter.action("correct bias", bias):
        rewriter.set_constant(bias, bias.const.numpy() + np.float32(0.5), in_float=False)
    assert bias.float_const is not None
    corrected = {layer.tensor: layer.isolated_db for layer in errors_of(compiled).layers}
    assert corrected["b1"] == plain["b1"]
