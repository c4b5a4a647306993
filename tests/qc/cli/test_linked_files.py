"""Models behind symbolic links, as the cache of the Hugging Face hub has them, and behind hard links."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import qc as package
from qc.ir.errors import ModelError
from qc.runtime.sessions.runnable import OpenModel

DATA = "calibration.npz"


def with_data_beside(source: str, name: str) -> tuple[Path, Path]:
    """The model under another name, with its larger constants in a file beside it."""
    model = onnx.load(source)
    path, data = Path(name), Path(f"{name}_data")
    onnx.save_model(model, path, save_as_external_data=True, location=data.name, size_threshold=256)
    return path, data


def in_hub(*files: Path) -> Path:
    """Moves files where the hub's cache has them, and gives the link to the first."""
    blobs, snapshot = Path("hub/blobs"), Path("hub/snapshots/main/onnx")
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        digest = f"{len(list(blobs.iterdir())):040x}"
        file.rename(blobs / digest)
        (snapshot / file.name).symlink_to(Path("../../../blobs") / digest)
    return snapshot / files[0].name


def predictions(path: Path) -> np.ndarray:
    session = ort.InferenceSession(path)
    return session.run(None, {"image": np.load(DATA)["image"][:4]})[0]


def run_by_qc(path: Path) -> np.ndarray:
    return OpenModel(path).run({"image": np.load(DATA)["image"][:4]})["logits"]


@pytest.fixture
def hub(qc) -> tuple[str, str]:
    """A float and a quantized model in the hub's cache; ONNX Runtime loads both."""
    linked = in_hub(*with_data_beside("model.onnx", "float.onnx"))
    assert qc("model.onnx", "--data", DATA, "-o", "q.onnx", "-q").code == 0
    quantized = in_hub(*with_data_beside("q.onnx", "quantized.onnx"))
    np.testing.assert_array_equal(predictions(linked), predictions(Path("model.onnx")))
    np.testing.assert_array_equal(predictions(quantized), predictions(Path("q.onnx")))
    return str(linked), str(quantized)


def test_every_command_takes_models_of_the_hub(qc, hub: tuple[str, str]) -> None:
    linked, quantized = hub
    for command in (
        [linked, "--data", DATA, "--cache", "cache", "-o", "of_link.onnx"],
        ["observe", linked, "--random-data", "2"],
        ["eval", linked, "--random-data", "2", "--quantized", quantized, "--latency-seconds", "0"],
        ["check", quantized, "--runs", "1"],
        ["bench", linked, "--quantized", quantized, "--seconds", "0.01"],
        ["inspect", linked],
        ["view", quantized, "-o", "view.html"],
        ["weights", quantized],
        ["print", linked],
        ["encodings", "strip", quantized, "-o", "stripped.onnx"],
        ["diff", linked, "model.onnx"],
        ["diff", quantized, "q.onnx"],
    ):
        result = qc(*command)
        assert result.code == 0, (command, result.err)
    np.testing.assert_array_equal(predictions(Path("of_link.onnx")), predictions(Path("q.onnx")))


def test_the_data_behind_a_link_is_not_overwritten(qc, hub: tuple[str, str]) -> None:
    blob = Path(f"{hub[0]}_data").resolve()
    before = blob.read_bytes()
    for output in (hub[0], f"{hub[0]}_data", str(blob)):
        result = qc(hub[0], "--data", DATA, "-o", output)
        assert result.code == 2 and "input model" in result.err
    assert blob.read_bytes() == before


def test_hard_links(qc) -> None:
    _, data = with_data_beside("model.onnx", "float.onnx")
    os.link(data, "kept")
    np.testing.assert_array_equal(predictions(Path("float.onnx")), predictions(Path("model.onnx")))
    assert qc("inspect", "float.onnx").code == 0
    np.testing.assert_array_equal(predictions(Path("model.onnx")), run_by_qc(Path("float.onnx")))


PLACES = {
    "data that is a link to its own folder": (None, "models/real.data"),
    "a linked model, the data beside the link": ("models/../away/model.onnx", "links/float.onnx_data"),
    "a linked model, the data beside the file": ("away/model.onnx", "away/float.onnx_data"),
    "a linked model, the data behind a link to its folder": ("away/model.onnx", "away/other.data"),
}


@pytest.mark.parametrize("name", PLACES)
def test_links_within_the_folders_that_the_user_names(qc, name: str) -> None:
    target, data = PLACES[name]
    path = placed(target, Path(data))
    np.testing.assert_array_equal(predictions(Path("model.onnx")), run_by_qc(path))
    measured = qc("bench", str(path), "--random-data", "2", "--seconds", "0.01")
    assert measured.code == 0, measured.err


def placed(target: str | None, data: Path) -> Path:
    """The model in ``models`` or, by a link from ``links``, at ``target``; its data by a link if need be."""
    for folder in ("models", "links", "away", "third"):
        Path(folder).mkdir()
    model, beside = with_data_beside("model.onnx", "float.onnx")
    path = Path("models" if target is None else "links", "float.onnx")
    real = path if target is None else Path(target)
    model.rename(real)
    beside.rename(data)
    if real != path:
        path.symlink_to(real.resolve())
    if data.name != "float.onnx_data":
        (path.parent / "float.onnx_data").symlink_to(data.resolve())
    return path


@pytest.mark.parametrize(
    ("target", "data"),
    [(None, "third/real.data"), ("away/model.onnx", "third/real.data"), ("away/model.onnx", "models/x.data")],
)
def test_links_out_of_these_folders_are_refused(qc, target: str | None, data: str) -> None:
    path = placed(target, Path(data))
    for command in ([str(path), "--data", DATA], ["inspect", str(path)]):
        result = qc(*command)
        assert result.code == 3 and "outside" in result.err, result.err
        assert result.made == []
    with pytest.raises(Exception, match="escapes model directory"):
        ort.InferenceSession(path)


def test_a_linked_model_cannot_point_out_of_its_folders(qc) -> None:
    path, data = with_data_beside("model.onnx", "float.onnx")
    linked = in_hub(path, data)
    Path("hub/secret").write_bytes(bytes(1 << 20))
    model = onnx.load(linked, load_external_data=False)
    for place in ("../../../secret", "/etc/hostname", str(Path("hub/secret").resolve())):
        model.graph.initializer[0].external_data[0].value = place
        linked.resolve().write_bytes(model.SerializeToString())
        with pytest.raises(ModelError, match="outside the folder of the model"):
            package.read_model(linked)
    model.graph.initializer[0].external_data[0].value = "nowhere"
    linked.resolve().write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="nowhere', which does not exist"):
        package.read_model(linked)


def test_links_to_what_is_no_file(qc) -> None:
    Path("circle.onnx").symlink_to("circle.onnx")
    Path("nowhere.onnx").symlink_to("absent.onnx")
    os.mkfifo("pipe")
    Path("pipe.onnx").symlink_to("pipe")
    Path("device.onnx").symlink_to("/dev/zero")
    for name, reason in (
        ("circle.onnx", "does not exist"),
        ("nowhere.onnx", "does not exist"),
        ("pipe.onnx", "not a regular file"),
        ("device.onnx", "not a regular file"),
    ):
        result = qc("inspect", name)
        assert result.code == 3 and reason in result.err, result.err
