"""Products by stored weights whose data is quantized in every run (insert-qdq{products=dynamic})."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import apply, artifact, check, run_model

import qc
from qc.rendering.coverage import coverage_summary

TEXT = """<ir_version: 10, opset_import: ["" : {}]>
g (float[n, 5, 40] x, float[6, 40] f) => (float[n, 5, 24] y, float[n, 5, 40] z, float[6, 24] g)
<float[40, 24] w, float[40, 40] v, float[24, 40] u, float[24] b, float[24] c> {{
    p = MatMul(x, w)
    y = Add(p, b)
    z = MatMul(x, v)
    g = Gemm<transB = 1>(f, u, c)
}}"""
PASSES = "insert-quantizers{{activation=float weight={}}},{}calibrate,insert-qdq{{products=dynamic}}"
# On it small matrices are written so as well.
SMALL = 'extends = "{0}"\nname = "{0}-small"\nsummary = "for tests"\n[lowering]\nstored_products_from = 0\n'
LARGE = """g (float[n, 256] x) => (float[n, 256] y) <float[256, 256] w, float[256, 256] v> {
    m = MatMul(x, w)
    r = Relu(m)
    y = MatMul(r, v)
}"""


def lowered(
    folder: Path, weight: str = "int8", opset: int = 20, target: str = "ort-cpu", granularity: str = ""
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The float model, and what is made of it."""
    source, file = parse(TEXT.format(opset)), folder / "target.toml"
    file.write_text(SMALL.format(target))
    _, context, _ = apply(PASSES.format(weight, granularity), source, str(file))
    made = artifact(context, "qdq")
    check(made)
    return source, made


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def rounded(data: np.ndarray) -> np.ndarray:
    """Numbers on the grid that DynamicQuantizeLinear has for them."""
    low, high = min(data.min(), 0), max(data.max(), 0)
    scale = (high - low) / 255
    zero_point = np.rint(-low / scale)
    return (np.clip(np.rint(data / scale) + zero_point, 0, 255) - zero_point) * scale


@pytest.mark.parametrize("granularity", ["", "annotate-per-channel,"])
@pytest.mark.parametrize("weight", ["int8", "uint8", "int7"])
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cpu-avx2"])
def test_results_are_products_of_both_grids(
    tmp_path: Path, weight: str, granularity: str, target: str
) -> None:
    source, made = lowered(tmp_path, weight, target=target, granularity=granularity)
    assert kinds(made)["MatMulInteger"] == 3
    (feed,) = random_feeds(source, 1)
    found, back = run_model(made, feed), qc.compile(made, "dequantize", allow_unquantized=True).float_model
    numbers = {tensor.name: numpy_helper.to_array(tensor) for tensor in back.graph.initializer}
    assert sorted(array.shape for array in numbers.values()) == [(24,), (24,), (40, 24), (40, 24), (40, 40)]
    wanted = run_model(back, {name: rounded(array).astype(np.float32) for name, array in feed.items()})
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * np.abs(array).max())
    for name, array in run_model(source, feed).items():
        assert np.abs(found[name] - array).max() < 0.06 * np.abs(array).max()


def test_data_is_quantized_once_and_one_kernel_runs_a_product(tmp_path: Path) -> None:
    _, made = lowered(tmp_path)
    assert kinds(made)["DynamicQuantizeLinear"] == 2
    assert not {node.domain for node in made.graph.node} - {""}, "all are ops of ONNX"
    check = qc.check(made)
    kernels = {op.kernel for op in check.ops if op.op_type == "MatMulInteger"}
    assert kernels <= {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"}


def test_weights_for_processors_that_saturate_are_unsigned(tmp_path: Path) -> None:
    types = {}
    for target in ("ort-cpu", "ort-cpu-avx2"):
        _, made = lowered(tmp_path, target=target)
        (types[target],) = {t.data_type for t in made.graph.initializer if t.name.endswith("_quantized")}
    assert types == {"ort-cpu": onnx.TensorProto.INT8, "ort-cpu-avx2": onnx.TensorProto.UINT8}


@pytest.mark.parametrize(
    ("weight", "opset", "granularity"),
    [("int8", 10, ""), ("int4", 20, ""), ("int8", 21, "annotate-per-channel{block_size=20},")],
    ids=["opset-without", "four-bits", "blocks"],
)
def test_other_matrices_are_written_as_ever(
    tmp_path: Path, weight: str, opset: int, granularity: str
) -> None:
    _, made = lowered(tmp_path, weight, opset, granularity=granularity)
    assert not kinds(made)["MatMulInteger"]


def test_sums_that_may_not_fit_32_bits_are_left_alone() -> None:
    source = parse("g (float[n, 33100] x) => (float[n, 2] y) <float[33100, 2] w> { y = MatMul(x, w) }")
    made = qc.compile(source, "w8a8-dynamic", target="ort-cpu").model
    assert kinds(made)["MatMulInteger"] == 0
    feed = {"x": np.ones((1, 33100), np.float32)}
    wanted, found = run_model(source, feed)["y"], run_model(made, feed)["y"]
    np.testing.assert_allclose(found, wanted, atol=1)


def test_a_target_without_kernels_of_onnx_runtime_has_none_of_its_ops() -> None:
    made = qc.compile(parse(LARGE), "w8a8-dynamic", target="openvino").model
    assert kinds(made)["MatMulInteger"] == 2
    assert not {node.domain for node in made.graph.node} - {""}


def test_a_model_without_such_products_is_told_of() -> None:
    convolution = "g (float[1, 8, 6, 6] x) => (float[1, 8, 4, 4] y) <float[8, 8, 3, 3] w> { y = Conv(x, w) }"
    result = qc.compile(parse(convolution), "w8a8-dynamic", target="ort-cpu")
    assert any(note.startswith("no product has data that is quantized in every run") for note in result.notes)


def test_the_pipeline_needs_no_data_and_says_what_it_does() -> None:
    source = parse(LARGE)
    result = qc.compile(source, "w8a8-dynamic", target="ort-cpu")
    told = "the data of 2 products by stored weights is quantized in every run, each tensor by its own range"
    assert told in result.notes
    made = result.model
    assert kinds(made)["MatMulInteger"] == 2 and made.ByteSize() < source.ByteSize() / 3.5
    (feed,) = random_feeds(source, 1)
    wanted, found = run_model(source, feed)["y"], run_model(made, feed, optimize=True)["y"]
    assert np.square(wanted - found).sum() < np.square(wanted).sum() / 1000


def test_the_coverage_counts_products_that_are_quantized_in_every_run() -> None:
    source = parse(
        LARGE.replace("y = MatMul(r, v)", "p = MatMul(r, v)\n t = Transpose(p)\n y = MatMul(p, t)")
    )
    coverage = qc.compile(source, "w8a8-dynamic", target="ort-cpu").coverage
    assert coverage.ops["MatMul"] == (2, 3)
    done = coverage.multiplied
    assert (done.quantized, done.weights) == (0, 0) and done.dynamic == 2 * 256**2 < done.total
    assert done.share == done.dynamic / done.total
    reasons = {tensor.name: tensor.reason for tensor in coverage.unquantized}
    assert reasons["x"] == "MatMul of 'm' quantizes it in every run"
    assert reasons["p"] == "MatMul of 'p' quantizes its data in every run, and gives a float result"
    assert reasons["y"] == "MatMul of 'y' runs in float: activations stay float", "it has no weight"
    told = " ".join(str(content) for _, content in coverage_summary(coverage)[:2])
    assert "2 of 5 ops" in told and "% of the multiplications are of data that is quantized in every" in told
