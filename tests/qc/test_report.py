"""``qc report``: what is on the page, that names stay text, and two pages beside each other."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from qc import UsageError, compile
from qc.layers import layer_errors
from qc.report import find, read_document, report_page
from qc.report.histograms import WIDTH, histograms_of
from qc.runtime import OpenModel, load_data, model_inputs
from qc.view import precision_map

MODEL, DATA = "model.onnx", "calibration.npz"


class Page(HTMLParser):
    """The texts of each section, and all elements."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.text = Path(path).read_text(encoding="utf-8")
        self.elements: list[str] = []
        self.sections: dict[str, list[str]] = {}
        self._section = ""
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.feed(self.text)
        assert self.links <= self.ids

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        if tag == "section":
            self._section = dict(attributes).get("id") or f"{len(self.sections)}"
            self.sections[self._section] = []
        for name, value in attributes:
            assert name not in ("src", "onclick", "onerror")
            if name == "href":
                self.links.add((value or "").removeprefix("#"))
            elif name == "id":
                self.ids.add(value or "")

    def handle_data(self, data: str) -> None:
        if data.strip() and self._section:
            self.sections[self._section].append(data.strip())


@pytest.fixture
def small(qc) -> None:
    """A few samples in ``few.npz``."""
    data = np.load(DATA)
    np.savez("few.npz", **{name: data[name][:16] for name in data.files})


def test_a_report(qc, small) -> None:
    result = qc("report", MODEL, "--data", "few.npz", "--sensitivity", "--tensor", "conv_1.weight")
    assert (result.code, result.made) == (0, ["model.report.html"])
    page = Page("model.report.html")
    assert list(page.sections) == [
        "verdict", "precision", "float", "layers", "time", "histograms", "sensitivity", "recipe",
    ]  # fmt: skip
    verdict = page.sections["verdict"]
    assert [name for name in ("SQNR", "agreement", "in integers", "time", "size") if name in verdict]
    assert "logits" in page.sections["float"]
    assert "int8 symmetric narrow channel(0)" in page.sections["precision"]
    assert page.sections["layers"].count("uint8") > 3
    assert "QLinearConv" in page.sections["time"]
    assert "conv_1.weight" in page.sections["histograms"]
    assert "alone" in page.sections["sensitivity"]
    assert re.match(r"SQNR of the outputs on \d+ samples, with", page.sections["sensitivity"][-1])
    command, *steps = page.sections["recipe"][1:]
    assert command.startswith("qc report model.onnx --data few.npz --sensitivity --tensor conv_1")
    assert any(step.startswith("calibrate") for step in steps)
    made = dict(zip(steps[0::2], steps[1::2], strict=False))
    assert made["pipeline"] == "w8a8" and made["calibrated on"].startswith("16 samples of 'few.npz'")
    assert made["onnxruntime"] == onnxruntime.__version__


def test_numbers_are_those_of_the_measurements(qc, small) -> None:
    compiled = compile(MODEL, data="few.npz")
    findings = find(compiled, "few.npz")
    Path("page.html").write_text(report_page(findings, "m", "c"))
    document = read_document("page.html")
    feeds = load_data("few.npz", model_inputs(compiled.ir.origin))
    errors = {layer.tensor: layer.isolated_db for layer in layer_errors(compiled, feeds).worst_first()[:5]}
    kept = {layer.tensor: layer.isolated_db for layer in document.layers}
    assert errors == {name: kept[name] for name in errors}
    assert document.formats == compiled.coverage.formats
    assert document.float_tensors == {one.name: one.reason for one in compiled.coverage.unquantized}


def test_histograms_count_every_value(qc, small) -> None:
    compiled = compile(MODEL, data="few.npz")
    feeds = load_data("few.npz", model_inputs(compiled.ir.origin))
    errors = layer_errors(compiled, feeds)
    first, weight = histograms_of(compiled, feeds, errors, ["relu_1", "conv_2.weight"])
    model = OpenModel(compiled.float_model, outputs=["relu_1"])
    values = np.concatenate([model.run(feed)["relu_1"].ravel() for feed in feeds])
    assert sum(first.counts) == values.size
    assert first.limits[0] <= values.min() and values.max() <= first.limits[1]
    constants = {one.name: one for one in compiled.float_model.graph.initializer}
    assert sum(weight.counts) == np.prod(constants["conv_2.weight"].dims)
    left, width = map(float, first.grid_span)
    assert left >= 0 and left + width <= WIDTH + 0.1
    assert all(0 <= float(x) <= WIDTH for x, _, _ in first.bars())
    with pytest.raises(UsageError, match=r"no quantized tensor has the name 'relu_11' \(did you mean"):
        list(histograms_of(compiled, feeds, errors, ["relu_11"]))


def test_ops_that_run_as_one_have_one_precision(qc) -> None:
    compiled = compile(MODEL, "w4a8", data=DATA)
    found = precision_map(compiled.ir)
    convs = [op for op in found if op.title.startswith("Conv")]
    assert {op.data for op in convs} == {"bits-8u"}
    assert "bits-4" in {op.weights for op in convs}
    assert not any(op.title.startswith("Clip") for op in found)


def test_a_tensor_that_its_grid_holds_exactly(qc) -> None:
    """As pictures of whole numbers from 0 to 255 are; their SQNR is infinite."""
    (name,) = (one.name for one in model_inputs(onnx.load(MODEL)))
    shape = np.load(DATA)[name].shape
    data = np.random.default_rng(0).integers(0, 256, (8, *shape[1:])).astype(np.float32)
    np.savez("whole.npz", **{name: data})
    result = qc("report", MODEL, "--data", "whole.npz", "-o", "whole.html")
    assert result.code == 0, result.err
    assert np.inf in {layer.isolated_db for layer in read_document("whole.html").layers}
    assert qc("report", "whole.html", "whole.html", "-o", "same.html").code == 0


def test_two_reports(qc, small) -> None:
    for name, pipeline in (("a", "w8a8"), ("b", "w4a8")):
        result = qc("report", MODEL, "--data", "few.npz", "--pipeline", pipeline, "-o", f"{name}.html")
        assert result.code == 0
    result = qc("report", "a.html", "b.html")
    assert (result.code, result.made) == (0, ["a.comparison.html"])
    page = Page("a.comparison.html")
    (sentence,), verdict, made, formats, floats, times, layers, *_ = page.sections.values()
    assert re.match(r"Beside a, b loses [\d.]+ dB at the worst output", sentence)
    assert verdict[:5] == ["Verdict", "measure", "a", "b", "difference"]
    assert any(re.fullmatch(r"-[\d.]+ dB", text) for text in verdict)
    assert floats[0] == "What stays float, and why" and floats[-1] == "+0"
    assert times[:5] == ["Time by op type", "op", "a", "b", "difference"] and "Conv" in times
    assert made[0] == "Made with" and "w4a8" in made
    assert formats[0] == "Tensors by format" and any(text.startswith("int4") for text in formats)
    assert "int4" in layers
    assert qc("report", "a.html", "b.html", "-o", "again.html").code == 0
    assert Path("again.html").read_bytes() == Path("a.comparison.html").read_bytes()


def test_two_reports_of_different_models(qc, small) -> None:
    shutil.copy(MODEL, "other.onnx")
    for name in (MODEL, "other.onnx"):
        assert qc("report", name, "--data", "few.npz").code == 0
    assert qc("report", "model.report.html", "other.report.html", "-o", "both.html").code == 0
    first = next(iter(Page("both.html").sections.values()))[0]
    assert first.startswith("These are two models, 'model.onnx' and 'other.onnx'")


def test_costs_that_were_not_measured_are_told(qc, small) -> None:
    findings = find(compile(MODEL, data="few.npz"), "few.npz")
    verdict = replace(findings.verdict, memory=None, unmeasured="peak memory left out after 5 s")
    Path("page.html").write_text(report_page(replace(findings, verdict=verdict), "m", "c"))
    told = Page("page.html").sections["verdict"]
    assert "not all costs were measured: peak memory left out after 5 s" in told
    assert "peak memory" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([MODEL], "there is no data to measure on"),
        ([MODEL, "--data", DATA, "-o", "report.pdf"], "'report.pdf' is not a page"),
        (["a.html"], "'a.html' is a report, not a model; give two reports"),
        (["a.html", "b.html"], "'a.html' is not a report of this version of qc"),
        (["missing.html", "b.html"], "there is no report 'missing.html'"),
        (["a.html", "b.html", "--data", DATA], "--data is for compiling, and two reports are only compared"),
        (["a.html", "b.html", "-o", "a.html"], "'a.html'"),
    ],
)
def test_wrong_options(qc, arguments: list[str], words: str) -> None:
    for name in ("a.html", "b.html"):
        Path(name).write_text("<p>another page")
    result = qc("report", *arguments)
    assert (result.code, result.made) == (2, [])
    assert words in result.err


def test_nothing_in_a_model_becomes_part_of_the_page(qc, small) -> None:
    model = onnx.load(MODEL)
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x07"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [evil if name == "relu_1" else name for name in names]
    model.graph.node[0].name = evil
    findings = find(compile(model, data="few.npz"), "few.npz", is_meaningful=False, sensitivity=True)
    Path("evil.html").write_text(report_page(findings, "evil <b>.onnx", f"qc {evil}"))
    page = Page("evil.html")
    assert page.elements.count("script") == 1
    assert "img" not in page.elements
    assert evil.replace("\x07", "\\x07") in page.sections["layers"]
    assert evil in {layer.tensor for layer in read_document("evil.html").layers}
    assert "\x07" not in re.sub(r'<script id="report".*', "", page.text, flags=re.DOTALL)
    assert json.loads(re.findall(r'application/json">(.*?)</script>', page.text)[0])["title"]
