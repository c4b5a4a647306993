"""AIMET's arithmetic: its answers to the last bit of a float32, on vectors kept here and on fresh ones.

The fresh ones need an environment with aimet-onnx 2.42: ``QC_AIMET_PYTHON`` names its Python.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import AIMET
from support.models import parse
from support.pipelines import PLACE, apply
from support.placement import of_value

from qc.ir.errors import UsageError
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec
from qc.ir.rewriter import Rewriter
from qc.passes import parse_pipeline
from qc.passes.quantize.aimet.arithmetic import (
    Grid,
    Histogram,
    grid_of_range,
    grid_of_weight,
    percentile_grid,
    searched_grid,
    with_fixed_ends,
)
from qc.passes.quantize.aimet.sums import least_scale
from qc.passes.quantize.placement.parameters import round_parameters

SYMMETRIES = {
    "asymmetric": {},
    "symmetric": {"symmetric": True},
    "strict": {"symmetric": True, "narrow": True},
    "unsigned": {"symmetric": True, "one_sided": True},
}


SCHEMES = ("min_max", "tf_enhanced", "percentile")


def spec_of(bits: int, symmetry: str) -> QuantSpec:
    return QuantSpec(IntFormat(bits, signed=symmetry != "asymmetric"), **SYMMETRIES[symmetry])  # type: ignore[arg-type]


def cases(file: Path) -> Iterator[tuple[int, list[np.ndarray], dict[str, np.ndarray]]]:
    """Bits, batches and AIMET's answers of each case."""
    with np.load(file) as stored:
        arrays = dict(stored)
    ends = np.cumsum(arrays["lengths"].ravel()).reshape(arrays["lengths"].shape)
    for index, bits in enumerate(arrays["bits"]):
        parts = [
            arrays["data"][end - n : end]
            for end, n in zip(ends[index], arrays["lengths"][index], strict=True)
        ]
        answers = {scheme: arrays[scheme][index] for scheme in SCHEMES}
        yield int(bits), [part for part in parts if part.size], answers


def differences(file: Path, scheme: str) -> dict[str, list[int]]:
    """The cases of each symmetry in which a number is not that of AIMET."""
    found: dict[str, list[int]] = {symmetry: [] for symmetry in SYMMETRIES}
    for index, (bits, batches, answers) in enumerate(cases(file)):
        histogram = None if scheme == "min_max" else Histogram(batches)
        low, high = min(map(np.min, batches)), max(map(np.max, batches))
        for place, symmetry in enumerate(SYMMETRIES):
            spec = spec_of(bits, symmetry)
            if histogram is None:
                grid = grid_of_range(spec, low, high)
            else:
                grid = (searched_grid if scheme == "tf_enhanced" else percentile_grid)(spec, histogram)
            if not np.array_equal(numbers(grid), answers[scheme][place].astype(np.float32)):
                found[symmetry].append(index)
    return found


def numbers(grid: Grid) -> np.ndarray:
    return np.asarray([grid.delta, grid.offset, grid.minimum, grid.maximum], np.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_grids_are_those_of_aimet(scheme: str) -> None:
    assert not any(differences(AIMET / "vectors.npz", scheme).values())


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="QC_AIMET_PYTHON names no Python with AIMET")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ten_thousand_grids_are_those_of_aimet(scheme: str, fresh_vectors: Path) -> None:
    assert not any(differences(fresh_vectors, scheme).values())


@pytest.fixture(scope="module")
def fresh_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("aimet") / "vectors.npz"
    script = AIMET / "make_vectors.py"
    subprocess.run([os.environ["QC_AIMET_PYTHON"], str(script), str(file), "10000"], check=True)
    return file


# -- after a calibration ---------------------------------------------------------------------------


def rule_differences(file: Path) -> dict[str, list[int]]:
    """The cases of each rule in which a number is not that of AIMET."""
    with np.load(file) as stored:
        arrays = dict(stored)
    found: dict[str, list[int]] = {"fixed end": [], "sums": []}
    for index, bits in enumerate(arrays["bits"]):
        low, high, bottom, top, symmetric, strict = arrays["ends"][index]
        ends = (-np.inf if np.isnan(bottom) else bottom, np.inf if np.isnan(top) else top)
        symmetric, narrow = bool(symmetric), bool(symmetric and strict)
        spec = QuantSpec(IntFormat(int(bits), symmetric), symmetric, narrow, fixed_range=ends)
        seen = grid_of_range(spec, low, high)
        grid = with_fixed_ends(spec, seen)
        is_narrow = min(ends[1], seen.maximum.max()) - max(ends[0], seen.minimum.min()) < 0.01
        if not is_narrow and not np.array_equal(numbers(grid), arrays["grids"][index].astype(np.float32)):
            found["fixed end"].append(index)
        weight, bias, given, made, offset, expected = arrays["sums"][index]
        scale = least_scale(
            weight if index % 2 else weight[0],
            bias,
            Encoding(QuantSpec.of("uint16"), given[0], 0),  # type: ignore[arg-type]
            Encoding(QuantSpec.of("uint16"), made[0], -offset[0]),
        )
        if not np.array_equal(np.broadcast_to(scale, 3), expected):
            found["sums"].append(index)
    return found


def test_rules_are_those_of_aimet() -> None:
    assert rule_differences(AIMET / "rules.npz") == {"fixed end": [], "sums": []}


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="QC_AIMET_PYTHON names no Python with AIMET")
def test_rules_are_those_of_aimet_ten_thousand_times(tmp_path: Path) -> None:
    file, script = tmp_path / "rules.npz", AIMET / "make_rules.py"
    subprocess.run([os.environ["QC_AIMET_PYTHON"], str(script), str(file), "10000"], check=True)
    assert rule_differences(file) == {"fixed end": [], "sums": []}


@pytest.mark.parametrize("config", ["default", "htp_v66", "htp_v73"])
def test_weights_near_zero_get_the_scales_of_aimet(config: str) -> None:
    folder = AIMET / "sums"
    feeds = [{"x": np.random.default_rng(i).normal(size=(1, 8, 2, 2)).astype("f")} for i in range(4)]
    pipeline = (
        "fold-constants{max_megabytes=0},"
        f"configure-quantizers{{config={config} weight=int4 activation=uint16}},"
        "calibrate-as-aimet{rounded_parameters=true},to-encodings"
    )
    context = apply(pipeline, onnx.load(folder / "model.onnx"), "npu", feeds)[1]
    texts = str(context.artifacts["encodings"].payload), (folder / f"{config}.encodings").read_text()
    for section in ("param_encodings", "activation_encodings"):
        ours, theirs = ({entry["name"]: entry for entry in json.loads(text)[section]} for text in texts)
        assert ours.keys() == theirs.keys()
        for name, entry in ours.items():
            np.testing.assert_allclose(entry.pop("scale"), theirs[name].pop("scale"), rtol=1e-6)
            assert entry == theirs[name]


# -- what the formulas say -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "symmetry", "ends", "delta", "offset"),
    [
        (8, "asymmetric", (-1000, 0.3), 1000.3 / 255, -255),
        (8, "symmetric", (-2, 1), 0.015625, -128),
        (8, "symmetric", (-1, 2), 2 / 127, -128),
        (8, "strict", (-2, 1), 2 / 127, -127),
        (8, "unsigned", (0.5, 2.55), 0.01, 0),
        (8, "unsigned", (-1.28, 0), 0.01, -128),
        (8, "asymmetric", (0, 0), 2**-23, 0),
    ],
)
def test_ranges(bits: int, symmetry: str, ends: tuple[float, float], delta: float, offset: int) -> None:
    grid = grid_of_range(spec_of(bits, symmetry), *map(np.asarray, ends))
    assert (float(grid.delta), float(grid.offset)) == pytest.approx((delta, offset), rel=1e-12)


@pytest.mark.parametrize("symmetry", list(SYMMETRIES))
def test_the_encoding_is_the_same_grid(symmetry: str) -> None:
    spec = spec_of(8, symmetry)
    grid = grid_of_range(spec, np.asarray([0.0, -1.5]), np.asarray([3.0, 1.0]))
    encoding = grid.encoding(spec)
    np.testing.assert_allclose(encoding.minimum, grid.minimum, rtol=1e-6)
    np.testing.assert_allclose(encoding.maximum, grid.maximum, rtol=1e-6)


def test_each_channel_and_block_of_a_weight_has_its_own_search() -> None:
    weight = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    plain = QuantSpec.of("int4", symmetric=True)
    channels = grid_of_weight(plain.with_granularity(PerChannel(0)), weight, searched_grid)
    blocks = grid_of_weight(plain.with_granularity(PerBlock(1, 4)), weight, searched_grid)
    assert channels.delta.shape == (3,) and blocks.delta.shape == (3, 2)
    assert channels.delta[1] == searched_grid(plain, Histogram([weight[1]])).delta
    assert blocks.delta[2, 1] == searched_grid(plain, Histogram([weight[2, 4:]])).delta


def test_what_lies_outside_the_first_batch_is_dropped_as_aimet_does() -> None:
    first, far = np.linspace(-1, 1, 50), np.full(50, 9.0)
    alone, both = Histogram([first]), Histogram([first, far])
    np.testing.assert_array_equal(both.edges, alone.edges)
    np.testing.assert_array_equal(both.shares, alone.shares / 2)


# -- the pass --------------------------------------------------------------------------------------

MODEL = """g (float[1, 4] x) => (float[1, 2] y) <float[4, 2] w> {
    y = MatMul(x, w)
}"""


@pytest.mark.parametrize("name", ["min_max", "post_training_tf", "tf_enhanced", "sqnr", "percentile"])
def test_calibrate_gives_the_grids_of_aimet(name: str) -> None:
    feeds = [{"x": np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)} for seed in range(4)]
    model = apply(f"{PLACE},calibrate-as-aimet{{method={name}}}", parse(MODEL), "npu", feeds)[0]
    batches = [feed["x"] for feed in feeds]
    quantizer = of_value(model, "x")
    assert quantizer is not None and quantizer.encoding is not None
    histogram, ends = Histogram(batches), (np.min(batches), np.max(batches))
    if name == "percentile":
        grid = percentile_grid(quantizer.spec, histogram, 99.999)
    elif name in ("tf_enhanced", "sqnr"):
        grid = searched_grid(quantizer.spec, histogram)
    else:
        grid = grid_of_range(quantizer.spec, *ends)
    assert quantizer.encoding.equals(grid.encoding(quantizer.spec))


def test_names_of_aimet_are_other_names() -> None:
    assert str(parse_pipeline("calibrate{method=tf_enhanced}")) == "calibrate{method=sqnr}"
    assert parse_pipeline("calibrate{method=post_training_tf}") == parse_pipeline("calibrate")
    with pytest.raises(
        UsageError, match=r"moving-average \(also min_max for min-max, .* for sqnr\), not 'tf'"
    ):
        parse_pipeline("calibrate{method=tf}")


@pytest.mark.parametrize("options", ["method=mse", "method=entropy", "weights=mse"])
def test_aimet_has_no_other_methods(options: str) -> None:
    with pytest.raises(UsageError, match=r"must be one of|has no option"):
        parse_pipeline(f"calibrate-as-aimet{{{options}}}")


def test_the_option_of_old_names_the_pass() -> None:
    with pytest.raises(UsageError, match="'arithmetic' any more: the pass 'calibrate-as-aimet'"):
        parse_pipeline("calibrate{arithmetic=aimet}")


def test_parameters_are_rounded_in_float32_as_aimet_does() -> None:
    """What lies just below a tie, but on it once it is counted from the lowest code, goes up."""
    model = apply("configure-quantizers", parse(MODEL), "npu")[0]
    quantizer = of_value(model, "w")
    assert quantizer is not None
    spec = QuantSpec.of("uint8")
    model.quant.respec(quantizer, spec, "test")
    model.quant.calibrate(quantizer, Encoding(spec, np.float32(1), np.int32(128)), "test")
    rewriter = Rewriter(model)
    weight = next(value for value in model.graph.values() if value.name == "w")
    with rewriter.trial():
        rewriter.set_constant(weight, np.full((4, 2), 0.49999997, np.float32))
        round_parameters(rewriter)
        read = next(op for op in model.graph.ops() if op.is_type("MatMul"))
        rounded = read.inputs[1]
        assert rounded is not None and rounded.const is not None
        assert (rounded.const.numpy() == 1).all()
