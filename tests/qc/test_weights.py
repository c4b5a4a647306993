"""The weights of a compilation and ``qc weights``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from support.folders import AIMET
from support.models import parse

import qc as package
from qc.ir import Encoding, QuantSpec, Site, weights_of
from qc.ir.errors import UsageError


@pytest.fixture(scope="module")
def compiled() -> package.Compiled:
    folder = AIMET.parent
    return package.compile(folder / "digits_cnn.onnx", data=str(folder / "digits_calibration.npz"), threads=1)


def stored(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The arrays of a model by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_weights_are_those_of_the_qdq_model(compiled: package.Compiled) -> None:
    arrays = stored(compiled.model)
    assert len(compiled.weights) == 22
    for name, weight in compiled.weights.items():
        codes = arrays[f"{name}_quantized"]
        if codes.ndim == 4:  # the first convolution has channels of zeros, which ort-cpu wants
            assert not codes[:, weight.shape[1] :].any()
            codes = codes[:, : weight.shape[1]]
        assert weight.int_data.dtype == codes.dtype
        np.testing.assert_array_equal(weight.int_data, codes)
        np.testing.assert_array_equal(weight.tensor_impl.int_data, codes)  # older torchao's way to them
        np.testing.assert_array_equal(weight.scale, arrays[f"{name}_scale"])
        zero_point = arrays.get(f"{name}_zero_point", np.zeros_like(weight.zero_point))  # a bias stores none
        np.testing.assert_array_equal(weight.zero_point, zero_point)
        assert weight.packed.tobytes() == codes.tobytes()


def test_weights_of_a_file_are_those_of_its_compilation(compiled: package.Compiled, tmp_path: Path) -> None:
    compiled.save(tmp_path / "model.q.onnx")
    read = package.read_weights(tmp_path / "model.q.onnx")
    assert sorted(read) == sorted(compiled.weights)
    for name, weight in compiled.weights.items():
        np.testing.assert_array_equal(read[name].int_data, weight.int_data)
        np.testing.assert_array_equal(read[name].dequantize(), weight.dequantize())
        assert (read[name].axis, read[name].format) == (weight.axis, weight.format)


def test_a_weight_on_two_grids() -> None:
    model = parse(
        "g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] w> { a = Add(x, w)\n m = Mul(a, w)\n y = Relu(m) }"
    )
    ir = package.read_model(model)
    value = ir.graph.value_named("w")
    for use, scale in zip(value.uses, (0.5, 0.25), strict=True):
        quantizer = ir.quant.place(Site(value, use.op, use.port), QuantSpec.of("int8"), "test")
        ir.quant.calibrate(quantizer, Encoding(quantizer.spec, np.float32(scale), np.int32(0)), "test")
    found = weights_of(ir)
    assert {name: float(weight.scale) for name, weight in found.items()} == {
        "w": 0.5,
        "w into Mul of 'm'": 0.25,
    }


def test_a_model_of_another_tool(tmp_path: Path) -> None:
    folder = AIMET.parent
    image = np.load(folder / "digits_calibration.npz")["image"][:16]

    class Feeds(CalibrationDataReader):
        rest = iter([{"image": image}])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.rest, None)

    quantize_static(
        folder / "digits_cnn.onnx", tmp_path / "q.onnx", Feeds(), QuantFormat.QDQ, per_channel=True
    )
    arrays, weights = stored(onnx.load(tmp_path / "q.onnx")), package.read_weights(tmp_path / "q.onnx")
    codes = [name for name in arrays if name.endswith("_quantized")]
    assert len(codes) == len(weights) > 20
    for name in codes:
        np.testing.assert_array_equal(weights[name.removesuffix("_quantized")].int_data, arrays[name])


def test_an_unknown_name(compiled: package.Compiled) -> None:
    with pytest.raises(
        UsageError, match=r"there is no quantized weight 'gemm.weigt' \(did you mean 'gemm.weight'"
    ):
        compiled.weights["gemm.weigt"]
    assert compiled.weights.get("absent") is None and "gemm.bias" in compiled.weights


@pytest.fixture
def aimet(qc) -> None:
    """AIMET's model and the encodings of its blocks."""
    shutil.copy(AIMET / "model.onnx", "aimet.onnx")
    shutil.copy(AIMET / "block_2.0.0.encodings", "block.encodings")


def test_listing(qc, aimet) -> None:
    result = qc("weights", "aimet.onnx", "--encodings", "block.encodings")
    assert (result.code, result.err, result.made) == (0, "", [])
    assert result.out.splitlines() == [
        "weight  shape         format  scales                           size",
        "w1      [4, 8, 1, 1]  int4    8 for blocks of 4 along axis 1   16 B",
        "b1      [4]           int32   4 along axis 0                   16 B",
        "w2      [16, 6]       int4    24 for blocks of 4 along axis 0  48 B",
    ]


def test_one_weight(qc, aimet) -> None:
    result = qc("weights", "aimet.onnx", "w1", "--encodings", "block.encodings")
    assert result.out.splitlines() == [
        "weight       'w1': [4, 8, 1, 1], int4 symmetric block(1,4)",
        "codes        -8 to 7, 13 values in use",
        "scale        8 for blocks of 4 along axis 1, 0.09148895 to 0.29062885",
        "zero point   0",
        "rounding     at most 0.14 off, 25.0 dB",
        "begins with  1 -1 7 1 -3 2 7 5 -4 -8 -4 0 -8 -1 -4 -3 ...",
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_writing(qc, aimet, suffix: str, packed: bool) -> None:
    from safetensors import safe_open

    flags = ("--packed",) if packed else ()
    file = f"weights{suffix}"
    result = qc("weights", "aimet.onnx", "--encodings", "block.encodings", "-o", file, *flags)
    assert (result.code, result.out, result.err, result.made) == (0, "", "", [file])
    if suffix == ".npz":
        with np.load(file) as archive:
            arrays = dict(archive)
        metadata = json.loads(str(arrays["metadata"]))
    else:
        with safe_open(file, "numpy") as archive:
            arrays = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
            metadata = json.loads(archive.metadata()["weights"])
    weights = package.read_weights("aimet.onnx", "block.encodings")
    assert list(metadata) == list(weights)
    for name, weight in weights.items():
        codes = weight.packed if packed and weight.bits == 4 else weight.int_data
        np.testing.assert_array_equal(arrays[f"{name}.qdata"], codes)
        np.testing.assert_array_equal(arrays[f"{name}.scale"], weight.scale)
        np.testing.assert_array_equal(arrays[f"{name}.zero_point"], weight.zero_point)
        assert metadata[name] == {
            "format": weight.format,
            "shape": list(weight.shape),
            "axis": weight.axis,
            "block_size": weight.block_size,
            "packed": packed and weight.bits == 4,
        }
    first = Path(file).read_bytes()
    qc("weights", "aimet.onnx", "--encodings", "block.encodings", "-o", file, *flags)
    assert Path(file).read_bytes() == first


def test_what_is_wrong(qc, aimet) -> None:
    def said(*arguments: str) -> str:
        result = qc("weights", *arguments)
        assert (result.code, result.out, result.made) == (2, "", [])
        return str(result.err)

    assert "no weight of 'aimet.onnx' is quantized; give a QDQ model, or" in said("aimet.onnx")
    grids = ("--encodings", "block.encodings")
    assert "no quantized weight 'w3' (did you mean 'w2'?)" in said("aimet.onnx", "w3", *grids)
    assert "its suffix must be .npz or .safetensors" in said("aimet.onnx", *grids, "-o", "w.bin")
    assert "--packed is about a file; add -o FILE.npz" in said("aimet.onnx", *grids, "--packed")
    assert "'block.encodings' has a grid for" in said("model.onnx", *grids)
