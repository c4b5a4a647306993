"""Weights get chosen codes wherever they are read, and what keeps the nearest ones has a reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import PLACE, Feeds, apply, artifact, run_model
from support.recurrent import recurrent, recurrent_feeds

from qc.ir import lift
from qc.ir.executor import Executor
from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.scopes import scopes_of
from qc.ir.model import Model
from qc.ir.quant.spec import PerBlock, TwoLevelBlock
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.framework.target import load_target
from qc.passes.optimize.round_weights import RoundWeights
from qc.runtime import OrtExecutor, Recorder, ShardedExecutor

INT4 = (
    PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}") + ",annotate-per-channel,calibrate"
)


def compiled(
    source: onnx.ModelProto, feeds: Feeds, passes: str = f"{INT4},round-weights", target: str = "npu"
) -> tuple[Model, onnx.ModelProto]:
    model, context, _ = apply(f"{passes},to-simulation", source, target, feeds)
    return model, artifact(context, "simulation")


def errors(
    source: onnx.ModelProto, feeds: Feeds, rounding: str = "round-weights", target: str = "npu"
) -> tuple[float, float]:
    """The squared error at all outputs with the nearest codes, and with chosen ones."""
    plain, better = (
        squared_error(source, compiled(source, feeds, passes, target)[1], feeds)
        for passes in (INT4, f"{INT4},{rounding}")
    )
    return plain, better


def squared_error(source: onnx.ModelProto, made: onnx.ModelProto, feeds: Feeds) -> float:
    """The squared error of a simulation at all outputs."""
    pairs = [(run_model(source, feed), run_model(made, feed)) for feed in feeds]
    return float(sum(np.square(a[name] - b[name]).sum() for a, b in pairs for name in a))


def chosen(model: Model) -> list[str]:
    """The names of the constants with chosen codes."""
    held = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    return sorted({site.value.name for one in held for site in model.quant.sites_of(one)})


def left(model: Model) -> dict[str, str]:
    """By the name of a constant, why it keeps the nearest codes."""
    begin = "keeps its nearest codes: "
    remarks = [remark for remark in model.journal.remarks if remark.reason.startswith(begin)]
    return {remark.about.name: remark.reason.removeprefix(begin) for remark in remarks}


def alike_feeds(source: onnx.ModelProto, count: int = 4) -> Feeds:
    """Random feeds whose neighbours are alike, and not of mean 0; conditions are true and false in turns."""
    found = []
    for index, feed in enumerate(random_feeds(source, count)):
        smooth = {}
        for name, x in feed.items():
            if x.dtype == np.float32:
                for axis in range(x.ndim):
                    x = x + np.roll(x, 1, axis)
                x = (x + 0.5).astype(np.float32)
            elif x.dtype == bool:
                x = np.asarray(index % 2 == 0)
            smooth[name] = x
        found.append(smooth)
    return found


SHARED = """g (float[8, 6, 8, 8] x, float[8, 6, 8, 8] z) => (float[8, 6, 8, 8] y, float[8, 6, 8, 8] t)
    <float[6, 6, 3, 3] w, float[6] b> {
    y = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    t = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>(z, w)
}"""


def test_a_weight_that_two_layers_read_is_rounded_for_both() -> None:
    source = parse(SHARED)
    feeds = alike_feeds(source)
    plain, better = errors(source, feeds)
    assert better < 0.8 * plain
    model, _ = compiled(source, feeds)
    assert chosen(model) == ["w"]
    assert left(model) == {}


def test_a_layer_behind_itself_reads_what_it_was_settled_to() -> None:
    source = parse("""g (float[32, 12] x) => (float[32, 12] y) <float[12, 12] w> {
        a = MatMul(x, w)
        r = Relu(a)
        y = MatMul(r, w)
    }""")
    plain, better = errors(source, alike_feeds(source))
    assert better < plain


def test_the_means_of_all_layers_that_read_a_weight_are_those_of_float() -> None:
    source = parse("""g (float[64, 16] x) => (float[64, 16] y, float[64, 16] a)
        <float[16, 16] w, float[16] b, float[16] d> {
        a = Gemm(x, w, b)
        r = Relu(a)
        y = Gemm<alpha = 0.5>(r, w, d)
    }""")
    feeds = alike_feeds(source)
    passes = INT4.replace("insert-quantizers{", "insert-quantizers{activation=float ")
    _, made = compiled(source, feeds, f"{passes},round-weights")
    pairs = [(run_model(source, feed), run_model(made, feed)) for feed in feeds]
    for name in ("a", "y"):
        shift = np.mean([exact[name] - found[name] for exact, found in pairs], axis=(0, 1))
        np.testing.assert_allclose(shift, 0, atol=1e-5)


UNSEEN = "no sample reaches it, or none with as many rows as in float"
BODY = """g (float[16, 12] x, bool c) => (float[16, 6] y)
    <float[12, 12] w, float[12, 6] v, float[6] b, float[12, 6] u> {
    h = MatMul(x, w)
    y = If (c) <
        then_branch = g1 () => (float[16, 6] p) { a = Sigmoid(h) m = MatMul(a, v) p = Add(m, b) },
        else_branch = g2 () => (float[16, 6] q) { s = Relu(h) q = MatMul(s, u) }
    >
}"""
LOOP = """g (float[16, 8] x) => (float[16, 8] y) <int64 n = {3}, bool t = {1}, float[8, 8] w> {
    y = Loop (n, t, x) <
        body = g1 (int64 i, bool c, float[16, 8] s) => (bool d, float[16, 8] r) {
            d = Identity(c)
            m = MatMul(s, w)
            r = Tanh(m)
        }
    >
}"""


@pytest.mark.parametrize(("text", "weights"), [(BODY, ["u", "v", "w"]), (LOOP, ["w"])])
def test_weights_in_bodies(text: str, weights: list[str]) -> None:
    source = parse(text)
    feeds = alike_feeds(source, 6)
    plain, better = errors(source, feeds)
    assert better < 0.85 * plain
    model, _ = compiled(source, feeds)
    assert chosen(model) == weights


def test_a_branch_that_no_sample_takes_keeps_the_nearest_codes() -> None:
    source = parse(BODY)
    grids = [{**feed, "c": np.asarray(index == 0)} for index, feed in enumerate(alike_feeds(source, 2))]
    model = apply(INT4, source, "npu", grids)[0]
    model = apply("round-weights", model, "npu", [{**feed, "c": np.asarray(False)} for feed in grids])[0]
    assert chosen(model) == ["u", "w"]
    assert left(model) == {"v": UNSEEN}


def test_one_of_two_branches_that_read_a_weight_is_never_taken() -> None:
    """Its bias stays: nothing tells what it would have to take back."""
    source = parse("""g (float[16, 12] x, bool c) => (float[16, 6] y)
        <float[12, 6] w, float[6] b = {1, 1, 1, 1, 1, 1}, float[6] d = {2, 2, 2, 2, 2, 2}> {
        y = If (c) <
            then_branch = g1 () => (float[16, 6] p) { a = Sigmoid(x) p = Gemm(a, w, b) },
            else_branch = g2 () => (float[16, 6] q) { s = Relu(x) q = Gemm(s, w, d) }
        >
    }""")
    feeds = [{**feed, "c": np.asarray(False)} for feed in alike_feeds(source)]
    passes = INT4.replace("insert-quantizers{", "insert-quantizers{activation=float ")
    model = apply(f"{passes},round-weights", source, "npu", feeds)[0]
    assert chosen(model) == ["w"]
    gemms = [op for op in scopes_of(model.graph).ops if op.is_type("Gemm")]
    never, always = (constant_numbers(op.inputs[2]) for op in gemms)
    assert (never == 1).all() and (always != 2).all()


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_both_weights_of_recurrent_ops(op_type: str, direction: str) -> None:
    source = recurrent(op_type, hidden=12, inputs=16, direction=direction)
    feeds = [{"x": np.cumsum(feed["x"], 0) / 2} for feed in recurrent_feeds(source, 4)]
    plain, better = errors(source, feeds, target="ort-cpu")
    assert better < 0.9 * plain
    model, _ = compiled(source, feeds, target="ort-cpu")
    assert chosen(model) == ["r", "w"]


def test_the_state_of_a_recurrent_op_that_gives_back_the_last_one_is_not_known() -> None:
    source = recurrent("GRU", hidden=12, inputs=16, outputs=("", "h"))
    model, _ = compiled(source, recurrent_feeds(source, 3), target="ort-cpu")
    assert chosen(model) == ["w"]
    assert "gives back its last state alone" in left(model)["r"]


def test_reasons() -> None:
    source = parse("""g (float[4, 8] x) => (float[4, 8] y, float[4, 8] t, float[8, 8] v)
        <float[8, 8] v, float[8, 8] w, float[8, 8] k> {
        b = MatMul(x, v)
        f = MatMul(b, w)
        s = Transpose(w)
        y = MatMul(f, s)
        t = MatMul(x, k)
    }""")
    model = apply(f"{INT4},round-weights", source, "npu", alike_feeds(source))[0]
    assert chosen(model) == ["k"]
    assert "result of the model" in left(model)["v"]
    assert "Transpose" in left(model)["w"]


def test_embeddings_are_read_row_by_row() -> None:
    source = parse("""g (int64[4] i) => (float[4, 8] y) <float[2000, 64] e, float[64, 8] w> {
        n = Gather(e, i)
        y = MatMul(n, w)
    }""")
    passes = (
        f"{PLACE.replace('insert-quantizers', 'insert-quantizers{weight=int4 activation=float}')},calibrate"
    )
    feeds = [{"i": np.arange(start, start + 4)} for start in range(8)]
    model = apply(f"{passes},round-weights", source, "ort-cpu", feeds)[0]
    assert chosen(model) == ["w"]
    assert "each row alone" in left(model)["e"]


def test_shared_weights_are_one_in_the_file() -> None:
    source = parse(SHARED)
    model, context, _ = apply(f"{INT4},round-weights,insert-qdq", source, "npu", alike_feeds(source))
    (held,) = [one for one in model.quant.quantizers() if one.codes is not None]
    stored = [numpy_helper.to_array(one) for one in artifact(context, "qdq").graph.initializer]
    same = [one for one in stored if one.shape == (6, 6, 3, 3)]
    assert len(same) == 1
    np.testing.assert_array_equal(same[0].astype(np.int32), held.codes)


@pytest.mark.parametrize("options", ["block_size=8", "block_size=8 scale_bits=4"])
@pytest.mark.parametrize("scales", ["true", "false"])
def test_blocks_and_their_two_levels(options: str, scales: str) -> None:
    source = parse("g (float[64, 32] x) => (float[64, 6] y) <float[32, 6] w> { y = MatMul(x, w) }")
    feeds = alike_feeds(source)
    placed = INT4.replace("annotate-per-channel", f"annotate-per-channel{{{options}}}")
    rounded = f"{placed},round-weights{{scales={scales}}}"
    (plain, _), (better, model) = (
        (squared_error(source, made, feeds), model)
        for model, made in (compiled(source, feeds, passes) for passes in (placed, rounded))
    )
    assert better < 0.8 * plain
    (held,) = [one for one in model.quant.quantizers() if one.codes is not None]
    assert held.encoding is not None
    granularity, scale = held.spec.granularity, held.encoding.scale
    assert isinstance(granularity, PerBlock)
    if isinstance(granularity, TwoLevelBlock):
        integers, of_channels = granularity.levels(scale)
        np.testing.assert_allclose(integers * of_channels, scale, rtol=1e-6)


DEEP = """g (float[8, 12] x, bool c) => (float[8, 6] y)
    <float[12, 12] u, float[12, 12] v, float[12, 12] w, float[12, 6] t, float[6] b> {
    i = If (c) <
        then_branch = g1 () => (float[8, 12] p) { r = Relu(x) p = MatMul(r, u) },
        else_branch = g2 () => (float[8, 12] q) { s = Sigmoid(x) q = MatMul(s, u) }
    >
    a = MatMul(i, v)
    d = Tanh(a)
    e = MatMul(d, w)
    f = Tanh(e)
    y = Gemm(f, t, b)
}"""


def codes(source: onnx.ModelProto, feeds: Feeds, executor: Executor) -> list[np.ndarray]:
    """The chosen codes and all biases, by an executor."""
    model = lift(source)
    context = PassContext(data=feeds, executor=executor, target=load_target("npu"))
    run_pipeline(parse_pipeline(f"{INT4},round-weights"), model, context)
    held = [one.codes for one in model.quant.quantizers() if one.codes is not None]
    biases = [value.const.numpy() for value in model.graph.values() if value.const is not None]
    assert len(held) == 4
    return [*held, *biases]


def test_any_executor_gives_the_same_codes(tmp_path: Path) -> None:
    source = parse(DEEP)
    feeds = list(alike_feeds(source, 6))
    expected = codes(source, feeds, OrtExecutor(threads=1))
    pool = ThreadPoolExecutor(2)
    executors = [
        OrtExecutor(threads=3),
        OrtExecutor(cache=tmp_path),
        ShardedExecutor(OrtExecutor(threads=1), pool, 2),
        Recorder(OrtExecutor(threads=1)),
    ]
    for executor in executors:
        for found, array in zip(codes(source, feeds, executor), expected, strict=True):
            np.testing.assert_array_equal(found, array)


def test_a_run_that_was_killed_goes_on_behind_the_last_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = parse(DEEP)
    feeds = list(alike_feeds(source, 6))
    expected = codes(source, feeds, OrtExecutor(threads=1))
    solved, stop = [], 2

    def solve(self: RoundWeights, *given: object) -> object:
        if len(solved) == stop:
            raise KeyboardInterrupt
        solved.append(given)
        return original(self, *given)

    original = RoundWeights._found
    monkeypatch.setattr(RoundWeights, "_found", solve)
    with pytest.raises(KeyboardInterrupt):
        codes(source, feeds, OrtExecutor(cache=tmp_path))
    assert len(list(tmp_path.glob("*-step-*.npz"))) == 2
    stop = 100
    for found, array in zip(codes(source, feeds, OrtExecutor(cache=tmp_path)), expected, strict=True):
        np.testing.assert_array_equal(found, array)
    assert len(solved) == 4
    codes(source, feeds[::-1], OrtExecutor(cache=tmp_path))  # other data are other work
    assert len(solved) == 8


def test_a_damaged_step_is_done_again(tmp_path: Path) -> None:
    source = parse(DEEP)
    feeds = list(alike_feeds(source, 6))
    expected = codes(source, feeds, OrtExecutor(cache=tmp_path))
    for path in tmp_path.glob("*-step-1.npz"):
        path.write_bytes(path.read_bytes()[:-100])
    notes: list[str] = []
    found = codes(source, feeds, OrtExecutor(cache=tmp_path, on_note=notes.append))
    for one, array in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, array)
    assert any("its step is done again" in note for note in notes)


def test_a_layer_of_too_many_features_keeps_its_nearest_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense layer behind a whole picture has tens of thousands, whose Gram matrix took all memory."""
    source = parse(DEEP)
    widest = max(np.prod(tensor.dims) // tensor.dims[0] for tensor in source.graph.initializer)
    feeds = list(alike_feeds(source, 4))
    everything = chosen(compiled(source, feeds)[0])
    monkeypatch.setattr("qc.passes.optimize.layers.open._MOST_BYTES", (2 * widest) ** 2 * 8 - 1)
    model, _ = compiled(source, feeds)
    kept = {name for name, why in left(model).items() if "too much memory" in why}
    assert kept and kept | set(chosen(model)) == set(everything)
