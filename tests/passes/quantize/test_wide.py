"""Among 8 bits the HTP has 16 where 8 lose most: angles, squares, spectra, results that it cuts off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from support.models import parse

import qc
from qc.ir.quant.formats import IntFormat

# The time of a diffusion model, and a layer that sees its sine and its cosine.
TIME = """g (float[1] t) => (float[1, 8] y) <float[1, 4] frequency, float[8, 8] w, int64[1] axis = {1}> {
    column = Unsqueeze(t, axis)
    angle = Mul(column, frequency)
    cosine = Cos(angle)
    sine = Sin(angle)
    both = Concat<axis = 1>(cosine, sine)
    y = MatMul(both, w)
}"""
# A sum and a product in front of normalizations, and what else reads the sum.
NORMS = """<ir_version: 11, opset_import: ["" : 23]>
g (float[1, 8, 16] x, float[1, 8, 16] z) => (float[1, 8, 16] y)
    <float[16] scale, float[16] other, float[16, 16] w, float[16, 16] v> {
    sum = Add(x, z)
    norm = RMSNormalization(sum, scale)
    product = MatMul(norm, w)
    again = RMSNormalization(product, other)
    back = MatMul(again, v)
    y = Add(sum, back)
}"""


def test_times_have_16_bits() -> None:
    model = parse(TIME)
    for tensor in model.graph.initializer:
        if tensor.name == "frequency":
            tensor.ClearField("float_data")
            tensor.raw_data = np.geomspace(1, 1e-3, 4, dtype=np.float32).tobytes()
    feeds = [{"t": np.array([time], np.float32)} for time in np.linspace(3, 997, 16)]
    wide = compiled(model, "insert-quantizers", feeds)
    plain = compiled(model, "insert-quantizers{spectra=integer}", feeds)
    assert widths(wide) == {
        **dict.fromkeys(("t", "column", "angle", "cosine", "sine", "both"), 16),
        "y": 8,
    }
    assert set(widths(plain).values()) == {8}
    score = qc.runtime.evaluate(model, {"wide": wide.model, "plain": plain.model}, feeds, latency_seconds=0)
    kept, lost = (one.worst_sqnr_db for one in score.candidates)
    assert kept > 30 > 15 > lost


# The magnitude of a spectrum, or its logarithm, and a layer that sees it.
SPECTRUM = """g (float[1, 16, 40] x) => (float[1, 8, 40] y)
    <float[16, 16] real, float[16, 16] imaginary, float[8, 16] w> {
    a = MatMul(real, x)
    b = MatMul(imaginary, x)
    c = Mul(a, a)
    d = Mul(b, b)
    e = Add(c, d)
    f = END(e)
    y = MatMul(w, f)
}"""


@pytest.mark.parametrize(("end", "wide"), [("Sqrt", set("cdef")), ("Log", set("xabcdef")), ("Relu", set())])
def test_what_roots_and_logarithms_see_has_16_bits(end: str, wide: set[str]) -> None:
    model = parse(SPECTRUM.replace("END", end))
    rng = np.random.default_rng(0)
    loudness = rng.gamma(1, 1, size=(1, 16, 1))
    feeds = [{"x": (rng.normal(size=(1, 16, 40)) * loudness).astype(np.float32)} for _ in range(8)]
    made, plain = (
        compiled(model, f"insert-quantizers{options}", feeds) for options in ("", "{spectra=integer}")
    )
    assert {name for name, width in widths(made).items() if width == 16} == wide
    assert set(widths(plain).values()) == {8}
    score = qc.runtime.evaluate(model, {"made": made.model, "plain": plain.model}, feeds, latency_seconds=0)
    kept, lost = (one.worst_sqnr_db for one in score.candidates)
    assert kept > lost + 3 if wide else kept == lost


def test_what_moves_a_product_has_its_grid() -> None:
    model = parse(
        """g (float[1, 16, 40] x) => (float[1, 8, 40] y) <float[16, 16] both, int64[1] axis = {1},
            int64[1] start = {0}, int64[1] middle = {8}, int64[1] end = {16}> {
            p = MatMul(both, x)
            a = Slice(p, start, middle, axis)
            b = Slice(p, middle, end, axis)
            c = Mul(a, a)
            d = Mul(b, b)
            e = Add(c, d)
            y = Sqrt(e)
        }"""
    )
    feeds = [{"x": np.random.default_rng(0).normal(size=(1, 16, 40)).astype(np.float32)}]
    found = widths(compiled(model, "insert-quantizers", feeds))
    assert {name for name, width in found.items() if width == 16} == set("cdey")


@pytest.mark.parametrize("text", [TIME.replace("Cos(", "Sin("), TIME.replace("Cos(", "Tanh(")])
def test_a_sine_alone_has_8(text: str) -> None:
    model = parse(text)
    made = compiled(model, "insert-quantizers", [{"t": np.ones(1, np.float32)}])
    assert set(widths(made).values()) == {8}


def test_what_normalizations_read_and_make_has_16_bits_but_products() -> None:
    model = parse(NORMS)
    rng = np.random.default_rng(0)
    feeds = [{name: rng.normal(size=(1, 8, 16)).astype(np.float32) for name in ("x", "z")} for _ in range(4)]
    found = widths(compiled(model, "insert-quantizers", feeds))
    assert found["sum"] == found["norm"] == found["again"] == 16
    assert found["product"] == 8
    elsewhere = widths(compiled(model, "insert-quantizers", feeds, "npu"))
    assert set(elsewhere.values()) == {8}


def test_a_limit_of_a_product_stays_with_it() -> None:
    limited = NORMS.replace(
        "again = RMSNormalization(product", "low = Relu(product) again = RMSNormalization(low"
    )
    feeds = [{name: np.ones((1, 8, 16), np.float32) for name in ("x", "z")}]
    found = widths(compiled(parse(limited), "insert-quantizers", feeds))
    assert found["product"] == found["low"] == 8


def test_readers_of_8_bits_share_what_is_rounded_again() -> None:
    more = NORMS.replace(
        "y = Add(sum, back)", "c = MatMul(sum, w) d = MatMul(sum, v) e = Add(c, d) y = Add(e, back)"
    )
    feeds = [{name: np.ones((1, 8, 16), np.float32) for name in ("x", "z")}]
    made = compiled(parse(more), "insert-quantizers", feeds).ir
    value = next(value for value in made.graph.values() if value.name == "sum")
    narrow = {made.quant.of_use(value, use.op, use.port) for use in value.uses if use.op.is_type("MatMul")}
    assert len(narrow) == 1


def test_signed_activations_have_one_format() -> None:
    feeds = [{name: np.ones((1, 8, 16), np.float32) for name in ("x", "z")}]
    made = compiled(parse(NORMS), "insert-quantizers{activation=int8}", feeds)
    assert set(widths(made).values()) == {8}


def test_grids_of_a_file_are_rounded_to_once(tmp_path: Path) -> None:
    """A file with 8 bits for what would have 16 leaves nothing to round again."""
    model, file = parse(NORMS), tmp_path / "model.encodings"
    feeds = [{name: np.ones((1, 8, 16), np.float32) for name in ("x", "z")}]
    listed = qc.compile(
        model, "match-supergroups,insert-quantizers,calibrate,to-encodings", target="npu", data=feeds
    )
    file.write_text(str(listed.artifacts["encodings"].payload))
    insert = f"insert-quantizers,load-encodings{{file={file} formats=take}}"
    made = compiled(model, insert, feeds)
    assert set(widths(made).values()) == {8}
    data = {value for value in made.ir.graph.values() if value.const is None}
    assert not [site for site in made.ir.quant.sites() if site.value in data and site.op is not None]


def widths(made: qc.Compiled) -> dict[str, int]:
    """The bits of the grids that hold for tensors of data as they are made."""
    found = {}
    for value in made.ir.graph.values():
        held = made.ir.quant.of_value(value) if value.const is None else None
        if held is not None and isinstance(held.spec.format, IntFormat):
            found[value.name] = held.spec.format.bits
    return found


def compiled(
    model: ModelProto, insert: str, feeds: list[dict[str, np.ndarray]], target: str = "qnn-htp"
) -> qc.Compiled:
    passes = f"match-supergroups,{insert},annotate-per-channel,tie-quantizers,calibrate,insert-qdq"
    return qc.compile(model, passes, target=target, data=feeds)
