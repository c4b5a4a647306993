"""Loading grids from encodings files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.folders import AIMET
from support.models import parse, random_feeds

import qc
from qc.ir.errors import UsageError
from qc.passes.encodings import VERSIONS, read_encodings
from qc.passes.encodings.comparison import compare
from qc.runtime import open_session, run_session

PLACE = "insert-quantizers,annotate-per-channel,tie-quantizers"
MODEL = """g (float[2, 3, 5, 5] x) => (float[2, 6] y)
<float[4, 3, 3, 3] w1, float[4] b1, float[4, 6] w2, float[6] b2> {
    c = Conv(x, w1, b1)
    r = Relu(c)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    y = Gemm(f, w2, b2)
}"""


@pytest.fixture(scope="module")
def model() -> ModelProto:
    return parse(MODEL)


def compiled(model: ModelProto, passes: str, **options: object) -> qc.Compiled:
    return qc.compile(model, passes, data=random_feeds(model, 4), threads=1, **options)


def saved(model: ModelProto, folder: Path, version: str, target: str = "npu") -> qc.Compiled:
    """A calibrated model whose encodings are in ``folder/f.encodings``."""
    passes = f"{PLACE},calibrate,insert-qdq,to-encodings{{version={version}}}"
    result = compiled(model, passes, target=target)
    (folder / "f.encodings").write_text(str(result.artifacts["encodings"].payload))
    return result


def outputs(model: ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return run_session(open_session(model, optimize=False, threads=1), feed)


@pytest.mark.parametrize("target", ["npu", "ort-cpu"])
@pytest.mark.parametrize("version", ["2.0.0", "2.1.0"])
def test_a_file_alone_makes_the_same_model(
    model: ModelProto, tmp_path: Path, version: str, target: str
) -> None:
    first = saved(model, tmp_path, version, target)
    load = f"load-encodings{{file={tmp_path}/f.encodings}}"
    again = compiled(model, f"{load},insert-qdq,to-encodings{{version={version}}}", target=target)
    assert again.artifacts["encodings"].payload == first.artifacts["encodings"].payload
    feed = random_feeds(model, 1)[0]
    for a, b in zip(outputs(first.model, feed), outputs(again.model, feed), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("version", VERSIONS)
def test_loaded_grids_are_frozen(model: ModelProto, tmp_path: Path, version: str) -> None:
    first = saved(model, tmp_path, version)
    load = f"load-encodings{{file={tmp_path}/f.encodings only=parameters}}"
    again = compiled(model, f"{PLACE},{load},calibrate{{weights=mse}},insert-qdq", target="npu")
    for name in ("w1", "w2"):
        before, after = (_quantizer(result, name) for result in (first, again))
        assert after.frozen and not before.frozen
        assert before.encoding is not None and after.encoding is not None
        np.testing.assert_array_equal(after.encoding.scale, before.encoding.scale)
    assert not _quantizer(again, "y").frozen and _quantizer(again, "y").encoding is not None


def _quantizer(result: qc.Compiled, name: str):
    value = result.ir.graph.value_named(name)
    assert value is not None
    quantizer = result.ir.quant.get(result.ir.quant.sites_on(value)[0])
    assert quantizer is not None
    return quantizer


def test_tensors_that_the_file_does_not_list(model: ModelProto) -> None:
    load = f"load-encodings{{file={AIMET}/channel_1.0.0.encodings others=remove}}"
    aimets = qc.compile(str(AIMET / "model.onnx"), f"{PLACE},{load},insert-qdq", target="npu", threads=1)
    quantized = {site.value.name for site in aimets.ir.quant.sites()}
    assert quantized == {"x", "r", "y", "w1", "w2"}
    assert {tensor.name for tensor in aimets.coverage.unquantized} == {"c", "f", "b1"}
    with pytest.raises(UsageError, match=r"has a grid for 'r', which the model lacks"):
        compiled(parse(MODEL.replace("r = ", "q = ").replace("(r)", "(q)")), load, target="npu")


def test_a_file_by_layers(model: ModelProto, tmp_path: Path) -> None:
    passes = f"{PLACE},calibrate,to-encodings{{version=1.0.0 layout=layers}}"
    first = compiled(model, passes, target="npu")
    artifact = first.artifacts["encodings"]
    assert artifact.suffix == "_torch.encodings"
    (tmp_path / "f_torch.encodings").write_text(str(artifact.payload))
    again = compiled(model, f"load-encodings{{file={tmp_path}/f_torch.encodings}},to-encodings", target="npu")
    (tmp_path / "f.encodings").write_text(str(again.artifacts["encodings"].payload))
    other = compiled(model, f"{PLACE},calibrate,to-encodings", target="npu").artifacts["encodings"].payload
    (tmp_path / "g.encodings").write_text(str(other))
    assert compare(*(read_encodings(tmp_path / f"{name}.encodings") for name in "fg")).is_equal


def test_formats_that_were_placed(model: ModelProto, tmp_path: Path) -> None:
    saved(model, tmp_path, "2.0.0")
    load = f"load-encodings{{file={tmp_path}/f.encodings formats=error}}"
    compiled(model, f"{PLACE},{load}", target="npu")
    with pytest.raises(
        UsageError,
        match=r"has int8 symmetric channel\(0\) for 'w1'.*, where int8 symmetric narrow was placed",
    ):
        compiled(model, f"insert-quantizers,{load}", target="npu")


def test_a_grid_for_integers(tmp_path: Path) -> None:
    model = parse("g (float[2, 3] x, int64[2] i) => (float[2, 3] y) { y = Gather(x, i) }")
    (tmp_path / "f").write_text(
        '{"version": "2.0.0", "encodings": [{"name": "i", "output_dtype": "uint8", "y_scale": 1.0}]}'
    )
    with pytest.raises(UsageError, match=r"has a grid for 'i', which is .*int64.*, not float"):
        compiled(model, f"load-encodings{{file={tmp_path}/f}}")


def test_a_file_is_needed(model: ModelProto, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'load-encodings' needs a file"):
        compiled(model, "load-encodings")
    with pytest.raises(UsageError, match="there is no encodings file"):
        compiled(model, f"load-encodings{{file={tmp_path}/absent}}")


@pytest.mark.parametrize(
    ("method", "scheme"),
    [
        ("min_max", "min_max"),
        ("tf_enhanced", "post_training_tf_enhanced"),
        ("percentile", "post_training_percentile"),
        ("entropy", "entropy"),
    ],
)
def test_a_file_says_how_ranges_were_found(
    model: ModelProto, tmp_path: Path, method: str, scheme: str
) -> None:
    def exported(passes: str) -> dict[str, object]:
        text = str(compiled(model, f"{passes},to-encodings").artifacts["encodings"].payload)
        (tmp_path / "f.encodings").write_text(text)
        return dict(read_encodings(tmp_path / "f.encodings").arguments)

    assert exported(f"{PLACE},calibrate{{method={method}}}")["quant_scheme"] == scheme
    loaded = f"load-encodings{{file={tmp_path}/f.encodings}}"
    assert exported(loaded)["quant_scheme"] == scheme
    assert (
        exported(f"{PLACE},{loaded.replace('}', ' only=parameters}')},calibrate")["quant_scheme"] == "min_max"
    )


def test_a_file_claims_no_scheme_that_is_not_known(model: ModelProto, tmp_path: Path) -> None:
    saved(model, tmp_path, "2.0.0")
    passes = f"load-encodings{{file={tmp_path}/f.encodings}},to-encodings"
    content = json.loads(str(compiled(model, passes).artifacts["encodings"].payload))
    assert "quant_scheme" not in content["quantizer_args"]


def test_a_bias_too_large_for_a_frozen_weight_stays_float(model: ModelProto, tmp_path: Path) -> None:
    saved(model, tmp_path, "1.0.0")
    large = ModelProto()
    large.CopyFrom(model)
    bias = next(tensor for tensor in large.graph.initializer if tensor.name == "b1")
    bias.CopyFrom(numpy_helper.from_array(np.full(4, 1e9, np.float32), "b1"))
    load = f"load-encodings{{file={tmp_path}/f.encodings bias=int32}}"
    result = compiled(large, f"{load},calibrate,insert-qdq", target="npu")
    value = result.ir.graph.value_named("b1")
    assert value is not None and not result.ir.quant.sites_on(value)
    assert "too large for 32 bits" in str(result.ir.quant.why_not(value))
    assert _quantizer(result, "b2").encoding is not None


def test_what_a_file_of_aimet_misses_for_a_device_is_completed_and_named(
    model: ModelProto, tmp_path: Path
) -> None:
    """AIMET lists neither what a Flatten moves nor what a fused Relu reads, and the HTP wants grids there."""
    listed = compiled(model, "configure-quantizers,calibrate,to-encodings")
    (tmp_path / "f.encodings").write_text(str(listed.artifacts["encodings"].payload))
    names = {record.name for record in read_encodings(str(tmp_path / "f.encodings")).records}
    assert not {"c", "f"} & names and "p" in names
    load = f"{PLACE},load-encodings{{file={tmp_path}/f.encodings}},calibrate,insert-qdq"
    made = compiled(model, load, target="qnn-htp")
    assert _quantizer(made, "f") is _quantizer(made, "p") and _quantizer(made, "f").frozen
    assert _quantizer(made, "c").encoding is not None and not _quantizer(made, "c").frozen
    (note,) = (note for note in made.notes if "has no grid" in note)
    assert "a quantized tensor, which 'calibrate' finds: 'c'" in note
    assert qc.check(made.model, "qnn-htp").share == 1
