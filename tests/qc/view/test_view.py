"""``qc view``: what is on the page, and that nothing in a model can get out of its place there."""

from __future__ import annotations

import json
import re
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from support.pages import Page, branches, chain

from qc import UsageError, compile
from qc.diff.wiring import Wiring
from qc.ir import lift
from qc.layers import layer_errors
from qc.runtime import load_data, model_inputs
from qc.view import dot_source, error_overlay, html_page, time_overlay
from qc.view.folding import folded
from qc.view.layout import layers_of
from qc.view.modules import Module, ops_of
from qc.view.scenes import pictures_of
from qc.view.words import TIMES

MODEL, DATA = "model.onnx", "calibration.npz"


def times(text: str) -> str:
    """The text with multiplication signs for its asterisks."""
    return text.replace("*", TIMES)


def test_a_model_as_it_is(qc) -> None:
    result = qc("view", MODEL)
    assert (result.code, result.out, result.made) == (0, "", ["model.html"])
    assert re.fullmatch(r"wrote model.html, \d+ KB\n", result.err)
    page = Page("model.html")
    assert page.references == []
    assert page.elements.count("script") == 2
    assert ["Conv", "conv_1", times("W ⟨16*1*3*3⟩")] in page.boxes()
    assert ["Clip", "clip_1", "min = 0", "max = 6"] in page.boxes()
    assert {name: number for _, name, number in page.data["regions"]}["conv_bn_relu"] == 3
    assert page.data["facts"] == [["ops", "33"]]
    assert page.card("relu_1")["type"] == times("float batch*16*8*8")


def test_with_data_there_are_quantizers_and_reasons(qc) -> None:
    assert qc("view", MODEL, "--data", DATA, "-o", "page.html", "-q").err == ""
    page = Page("page.html")
    assert ["Conv", "conv_1", times("W ⟨16*1*3*3⟩ int8"), "B ⟨16⟩ int32"] in page.boxes()
    assert [[name, number] for _, name, number in page.data["formats"]][:3] == [
        ["int32", 11],
        ["int8", 11],
        ["uint8", 15],
    ]
    card = page.card("relu_1")
    assert card["quantized"].endswith("uint8 asymmetric")
    assert card["scale"].startswith("0.017") and card["zero point"] == "0"
    assert any("place: made by conv_relu at Relu 'relu_1'" in text for text in card.values())
    assert page.card("flatten_1")["tied to"] == "globalaveragepool_1"
    assert "can give a float result, and it is a graph output" in page.card("logits")["stays float"]


def test_ops_are_coloured_by_what_was_measured(qc) -> None:
    kinds = ["bits", "error", "sensitivity", "time"]
    asked = [word for kind in kinds for word in ("--overlay", kind)]
    assert qc("view", MODEL, "--data", DATA, "-o", "page.html", "-q", *asked).code == 0
    page = Page("page.html")
    assert [one["name"] for one in page.data["overlays"]] == kinds
    assert all(0 <= strength <= 1 for one in page.data["overlays"] for strength, _ in one["marks"].values())
    convs = {key for key, card in page.data["cards"].items() if card["kind"] == "Conv"}
    assert all(convs <= set(one["marks"]) for one in page.data["overlays"])
    card = page.card("conv_1", "Conv")
    assert card["bits"] == "64 bit operations" and re.fullmatch(r".* ms, .*%", card["time"])
    errors = layer_errors(compile(MODEL, data=DATA), load_data(DATA, model_inputs(onnx.load(MODEL)))).layers
    worst = min(one.isolated_db for one in errors if one.op == "Conv 'conv_1'")
    assert card["error"] == f"{worst:.1f} dB"


def test_a_module_has_the_colour_of_its_worst_op_and_the_time_of_all() -> None:
    model = lift(chain(250, [f"/net/block.{i // 50}/Neg_{i}" for i in range(250)]))
    scope = Wiring(model).scopes[model.graph]
    (module, *_) = (one for one in folded(scope, scope.ops) if isinstance(one, Module))
    ops = list(ops_of(module.items))
    labels = {op.label: float(number) for number, op in enumerate(ops, 1)}
    assert error_overlay(model, labels).mark(module) == (round(1 - 1 / 60, 3), "1.0 dB")
    whole = sum(labels.values())
    assert time_overlay(model, labels, 4 * whole).mark(module) == (0.5, f"{1000 * whole:.0f} ms, 25.0%")
    assert error_overlay(model, {}).mark(module) is None


def test_without_data_quantizers_have_no_numbers(qc) -> None:
    assert qc("view", MODEL, "--pipeline", "w8a8").code == 0
    card = Page("model.html").card("relu_1")
    assert card["state"] == "not calibrated" and "scale" not in card


def test_pairs_of_ops_are_marks_on_the_lines(qc) -> None:
    qc(MODEL, "--data", DATA)
    assert qc("view", "model.q.onnx").made == ["model.q.html"]
    page = Page("model.q.html")
    assert not any("QuantizeLinear" in box[0] for box in page.boxes())
    assert page.data["facts"][1] == ["quantized ops", "15 of 15"]
    assert page.card("relu_1")["quantized"] == "uint8 asymmetric, by QuantizeLinear and DequantizeLinear"
    lines = [
        group.get("class") for group in page.drawings[0].iter("g") if "line" in group.get("class", "").split()
    ]
    assert lines.count("line bits-8u") == 15


def test_subgraphs(qc) -> None:
    onnx.save(branches(), "if.onnx")
    assert qc("view", "if.onnx").code == 0
    page = Page("if.html")
    labels = [(scene["label"], scene["ops"]) for scene in page.data["scenes"]]
    assert labels == [("main graph", 2), ("then_branch", 1), ("else_branch", 2)]
    assert [scene["owner_label"] for scene in page.data["scenes"]] == ["", "If", "If"]
    assert page.boxes(1)[0] == ["h"]
    main, then, _ = (scene["key"] for scene in page.data["scenes"])
    (row,) = (text for text in page.drawings[0].iter("text") if text.text == "then_branch: 1 op")
    assert row.get("data-card") == then
    assert page.data["scenes"][1]["parent"] == main


def test_a_part(qc) -> None:
    assert qc("view", MODEL, "--around", "relu_1", "--radius", "1").code == 0
    page = Page("model.html")
    assert [box[0] for box in page.boxes()] == ["batchnormalization_1", "Relu", "Conv"]
    assert ["not shown", "31 ops"] in page.data["facts"]
    result = qc("view", MODEL, "--around", "relu_11")
    assert (result.code, result.err) == (
        2,
        "qc: error: the model has no tensor or op 'relu_11' (did you mean 'relu_1'?); 'qc print' lists all\n",
    )


def test_a_model_that_is_too_large(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(chain(301), "long.onnx")
    monkeypatch.setattr("qc.view.scenes.MAX_OPS", 300)
    result = qc("view", "long.onnx")
    assert (result.code, result.made) == (2, [])
    assert "a page shows at most 300 ops, and these are 301: give --around TENSOR" in result.err
    assert qc("view", "long.onnx", "--around", "v150").code == 0
    assert len(Page("long.html").boxes()) == 12 + 1
    assert qc("view", "long.onnx", "-o", "long.dot").code == 0
    assert Path("long.dot").read_text().count(" -> ") == 302


def test_lines_that_are_too_long_become_references() -> None:
    chain = "".join(f"v{i + 1} = Neg(v{i}) " for i in range(120))
    far = "".join(f"s{i + 1} = Add(s{i}, v{i}) " for i in range(1, 60))
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        f"g (float[2] v0) => (float[2] y) {{ {chain} s1 = Neg(v120) {far} y = Neg(s60) }}"
    )
    (picture,) = pictures_of(Wiring(lift(model)), None, is_page=False)
    references = [box for box in picture.boxes if box.kind == "reference"]
    assert 20 < len(references) < 60
    links = picture.links()
    assert sum(len(link.targets) for link in links) == 120 + 1 + 2 * 59 + 1 + 1
    layers = layers_of(len(picture.boxes), links)
    spans = [max(layers[target] for target in link.targets) - layers[link.source] for link in links]
    assert sum(spans) < 4 * len(picture.boxes)


def test_nothing_in_a_model_becomes_part_of_the_page(qc) -> None:
    model = onnx.load(MODEL)
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x07"
    rename(model, {"conv_1": evil, "image": f"{evil}{evil}"})
    model.graph.node[0].name = evil
    model.graph.node[0].attribute.add(name=evil, s=evil.encode(), type=onnx.AttributeProto.STRING)
    lifted = lift(model)
    Path("evil.html").write_text(html_page(lifted, "evil <b>.onnx"))
    page = Page("evil.html")
    assert page.elements.count("script") == 2
    assert "img" not in page.elements and "b" not in page.elements
    shown = evil.replace("\x07", "\\x07")
    assert page.card(shown, "Conv")[shown] == shown
    dot = dot_source(lifted, evil)
    assert "\x07" not in dot and "\\\"'&" in dot


def rename(model: onnx.ModelProto, names: dict[str, str]) -> None:
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for info in (*model.graph.input, *model.graph.output):
        info.name = names.get(info.name, info.name)


def test_source_for_graphviz(qc) -> None:
    assert qc("view", MODEL, "--data", DATA, "-o", "model.dot").made == ["model.dot"]
    text = Path("model.dot").read_text()
    assert text.startswith('digraph "model.onnx" {\n') and text.endswith("}\n")
    assert text.count("{") == text.count("}")
    assert 'label="conv_relu";' in text
    assert times('g0_0 -> g0_1 [label="uint8 batch*1*8*8" color="#1f77d0"') in text
    onnx.save(branches(), "if.onnx")
    assert qc("view", "if.onnx", "-o", "if.gv").code == 0
    assert "label=\"else_branch of If of 'y'\";" in Path("if.gv").read_text()


def test_a_graph_for_model_explorer(qc) -> None:
    assert qc("view", MODEL, "--data", DATA, "-o", "model.json").made == ["model.json"]
    found = json.loads(Path("model.json").read_text())
    (graph,) = found["graphs"]
    assert (found["label"], graph["id"]) == ("model.onnx", "main")
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    (gemm,) = (node for node in nodes.values() if node["label"] == "Gemm")
    (edge,) = gemm["incomingEdges"]
    source = nodes[edge["sourceNodeId"]]
    (made,) = (one for one in source["outputsMetadata"] if one["id"] == edge["sourceNodeOutputId"])
    assert {"key": "format", "value": "uint8"} in made["attrs"]
    assert {"key": "reads", "value": "quantized numbers only"} in gemm["attrs"]
    onnx.save(chain(2, ["/net/block.0/Neg", "/net/block.1/Neg"]), "scopes.onnx")
    assert qc("view", "scopes.onnx", "-o", "scopes.json").code == 0
    (graph,) = json.loads(Path("scopes.json").read_text())["graphs"]
    spaces = [node["namespace"] for node in graph["nodes"] if node["label"] == "Neg"]
    assert spaces == ["net/block.0", "net/block.1"]
    onnx.save(branches(), "if.onnx")
    assert qc("view", "if.onnx", "-o", "if.json").code == 0
    main, *bodies = json.loads(Path("if.json").read_text())["graphs"]
    (branching,) = (node for node in main["nodes"] if node["label"] == "If")
    assert branching["subgraphIds"] == [body["id"] for body in bodies]
    assert bodies[0]["id"] == "then_branch of If of 'y'"


def test_the_format_is_named_or_that_of_the_suffix(qc) -> None:
    assert qc("view", MODEL, "--format", "model-explorer").made == ["model.json"]
    assert qc("view", MODEL, "--format", "dot", "-o", "graph.txt").made == ["graph.txt"]
    assert Path("graph.txt").read_text().startswith("digraph")
    assert qc("view", MODEL, "-o", "by-suffix.json").code == 0
    assert Path("by-suffix.json").read_bytes() == Path("model.json").read_bytes()


def test_the_same_model_gives_the_same_page(qc) -> None:
    for name in ("a.html", "b.html"):
        qc("view", MODEL, "-o", name)
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_open(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Iterator[bool] = iter([True, False])
    asked = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: asked.append(uri) or next(opened))
    assert "warning" not in qc("view", MODEL, "--open").err
    assert "qc: warning: there is no browser to open 'model.html' with\n" in qc("view", MODEL, "--open").err
    assert asked == [Path("model.html").resolve().as_uri()] * 2


def test_a_region_in_a_body_may_read_what_the_body_captures(qc) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 3, 8, 8] x, bool c) => (float[1, 2, 8, 8] y) <float[2, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}> {
            y = If (c) <
                then_branch = t () => (float[1, 2, 8, 8] a) { m = Conv(x, w) a = Relu(m) },
                else_branch = e () => (float[1, 2, 8, 8] b) { b = Conv(x, w) }
            >
        }"""
    )
    onnx.save(model, "bodies.onnx")
    result = qc("view", "bodies.onnx")
    assert (result.code, result.made) == (0, ["bodies.html"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "page.pdf"], "'page.pdf' is neither a page nor for Graphviz or Model Explorer"),
        (["-o", "a.dot", "--open"], "--open is for pages"),
        (["--overlay", "tim"], "not by 'tim' (did you mean 'time'?)"),
        (["--overlay", "time", "--data", DATA, "-o", "a.dot"], "--overlay is for pages, and dot is none"),
        (["--format", "model-explore"], "not as 'model-explore' (did you mean 'model-explorer'?)"),
        (["--overlay", "bits"], "--overlay measures the compiled model, which needs --data"),
        (["--radius", "3"], "--radius is for --around, which is not given"),
        (["-o", "absent/page.html"], "the folder 'absent' does not exist"),
        (["--pipeline", "w9"], "unknown pipeline 'w9'"),
        (["--passes", "fold-constants", "--pipeline", "w8a8"], "give --passes or --pipeline, not both"),
    ],
)
def test_wrong_options(qc, arguments: list[str], words: str) -> None:
    result = qc("view", MODEL, *arguments)
    assert (result.code, result.made) == (2, [])
    assert words in result.err


def test_a_compiled_model_draws_itself(qc) -> None:
    compiled = compile(MODEL, data=DATA)
    compiled.view("page.html", around="relu_1", radius=2)
    assert "uint8" in {name for _, name, _ in Page("page.html").data["formats"]}
    with pytest.raises(UsageError, match="is the input model"):
        compiled.view(MODEL)
