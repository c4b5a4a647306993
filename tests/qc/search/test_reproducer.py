"""A defect leaves a folder that shows it again, and such a folder is not trusted."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from qc import UsageError, VerificationError
from qc.ir import lift
from qc.ir.text import print_model
from qc.search import Compilation, blame_action, find_failure, replay, write_reproducer

MODEL, DATA = "model.onnx", "calibration.npz"
USAGE, BAD_MODEL, BAD_DATA, DEFECT = 2, 3, 4, 6
BREAK, CRASH = "renew-relu{victim=relu_37 fault=break}", "renew-relu{victim=relu_37 fault=crash}"
FOLDER = "chain.reproducer"

pytestmark = pytest.mark.usefixtures("planted", "chain")


def record(folder: str = FOLDER) -> dict[str, Any]:
    return json.loads((Path(folder) / "reproducer.json").read_text())


# -- writing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passes", "said"), [(BREAK, "left the model broken"), (CRASH, "planted crash")])
def test_a_defect_leaves_a_folder_that_shows_it_again(qc, passes: str, said: str) -> None:
    result = qc("chain.onnx", "--passes", f"eliminate-dead-code,{passes}", "--seed", "7")
    assert (result.code, result.made) == (DEFECT, [FOLDER])
    error, note = result.err.splitlines()
    assert said in error
    assert note == (
        "qc: note: action 37 (renew-relu: renew on Relu 'relu_37') is the first to do this; "
        "'chain.reproducer' has all it takes to see it again: qc repro chain.reproducer"
    )
    held = record()
    assert held["command"] == ["qc", "chain.onnx", "--passes", f"eliminate-dead-code,{passes}", "--seed", "7"]
    assert (held["failing_pass"], held["action"]["number"], held["seed"]) == (passes, 37, 7)
    assert held["reproduces"] and held["feeds"] is None and held["zero_weights"] == []
    assert set(held["versions"]) == {"qc-onnx", "onnx", "onnxruntime", "numpy", "python"}
    assert (Path(FOLDER) / "before.qcir").read_text() == print_model(lift("chain.onnx"))
    assert (Path(FOLDER) / "model.onnx").read_bytes() == Path("chain.onnx").read_bytes()
    again = qc("repro", FOLDER)
    assert (again.code, again.made) == (DEFECT, [])
    assert again.err.splitlines() == [error]
    assert passes in again.out and "action 37 (" in again.out


def test_the_data_comes_along_if_a_pass_reads_it(qc) -> None:
    passes = f"{CRASH.replace('relu_37', 'relu_2')},insert-quantizers,calibrate,insert-qdq"
    shutil.copy(DATA, "samples.npz")
    result = qc(MODEL, "--data", "samples.npz", "--passes", f"fold-batch-norms,{passes}")
    assert (result.code, result.made) == (DEFECT, ["model.reproducer"])
    assert record("model.reproducer")["feeds"] == 4
    images = np.load("samples.npz")["image"]
    for index in range(4):
        with np.load(f"model.reproducer/feeds/{index}.npz") as feed:
            np.testing.assert_array_equal(feed["image"], images[index : index + 1])
    Path("samples.npz").unlink()
    assert qc("repro", "model.reproducer").code == DEFECT


def test_files_that_passes_read_come_along(qc) -> None:
    qc(
        "chain.onnx",
        "--random-data",
        "--passes",
        "insert-quantizers,calibrate,to-encodings",
        "--allow-unquantized",
    )
    Path("elsewhere").mkdir()
    shutil.move("chain.q.encodings", "elsewhere/grids.encodings")
    passes = f"{BREAK},repeat<n=1>(load-encodings{{file=elsewhere/grids.encodings}})"
    assert qc("chain.onnx", "--passes", passes).made == [FOLDER]
    assert record()["reproduces"]
    shutil.rmtree("elsewhere")
    assert 'file = "files/0-grids.encodings"' in (Path(FOLDER) / "pipeline.toml").read_text()
    assert qc("repro", FOLDER).code == DEFECT
    text = (Path(FOLDER) / "pipeline.toml").read_text()
    for name in ("/etc/hostname", "../chain.onnx"):
        spoilt = text.replace("files/0-grids.encodings", name)
        (Path(FOLDER) / "pipeline.toml").write_text(spoilt)
        assert "leads out of the folder" in qc("repro", FOLDER).err


def test_a_configuration_comes_along(qc) -> None:
    """It is named by an option of another name than ``file``, and not every name is that of a file."""
    Path("elsewhere").mkdir()
    assert qc("convert-config", "htp_v73", "-o", "elsewhere/mine.toml").code == 0
    passes = "configure-quantizers{config=%s}"
    assert qc("chain.onnx", "--passes", f"{BREAK},{passes % 'elsewhere/mine.toml'}").made == [FOLDER]
    shutil.rmtree("elsewhere")
    text = (Path(FOLDER) / "pipeline.toml").read_text()
    assert 'config = "files/0-mine.toml"' in text and record()["reproduces"]
    assert qc("repro", FOLDER).code == DEFECT
    for name in (Path("outside.toml").resolve(), "../outside.toml"):
        (Path(FOLDER) / "pipeline.toml").write_text(text.replace("files/0-mine.toml", str(name)))
        assert "leads out of the folder" in qc("repro", FOLDER).err
    (Path(FOLDER) / "pipeline.toml").write_text(text.replace("files/0-mine.toml", "htp_v73"))
    assert qc("repro", FOLDER).code == DEFECT


def test_statistics_come_along(qc) -> None:
    """Without them there is nothing to calibrate on, and the folder fails in another way."""
    passes, npu = "insert-quantizers,calibrate", ("--target", "npu")
    assert qc("observe", "chain.onnx", "--random-data", "--passes", passes, *npu, "-o", "seen.npz").code == 0
    result = qc("chain.onnx", "--statistics", "seen.npz", "--passes", f"{CRASH},{passes}", *npu)
    assert (result.code, result.made) == (DEFECT, [FOLDER])
    Path("seen.npz").unlink()
    assert record()["reproduces"] and record()["statistics"]
    assert qc("repro", FOLDER).code == DEFECT
    link("statistics.npz")(Path(FOLDER))
    assert "leads out of the folder" in qc("repro", FOLDER).err


def test_a_compilation_is_what_its_folder_says(qc, chain) -> None:
    compilation = Compilation(
        chain,
        "insert-quantizers,calibrate,insert-qdq",
        data=[{"x": np.full((2, 4), index, np.float32)} for index in range(3)],
        target="npu",
        precision=iter(["Relu=off", "Add=w8a16"]),
        seed=3,
        threads=2,
        action_limit=90,
        check_analyses=True,
        allow_unquantized=True,
    )
    Path("folder").mkdir()
    compilation.dump("folder")
    again = Compilation.load("folder")
    assert again.chosen_pipeline().pipeline == compilation.chosen_pipeline().pipeline
    assert "set-precision" in str(again.chosen_pipeline().pipeline)
    assert again.chosen_target().name == "npu"
    for name in ("seed", "threads", "device", "action_limit", "verify_each", "check_analyses"):
        assert getattr(again, name) == getattr(compilation, name)
    assert again.compile().model == compilation.compile().model
    for folder in ("folder", "absent", MODEL):
        with pytest.raises(UsageError, match=f"'{folder}' is not an empty folder"):
            compilation.dump(folder)


def test_the_target_that_a_pipeline_names_comes_along(qc, chain) -> None:
    Path("mine.toml").write_text('extends = "npu"\nname = "mine"\nsummary = "a device"\n')
    Path("pipeline.toml").write_text('target = "mine.toml"\n[pipeline]\npasses = "insert-quantizers"\n')
    Path("folder").mkdir()
    Compilation(chain, "pipeline.toml").dump("folder")
    Path("mine.toml").unlink()
    assert "mine.toml" not in Path("folder/pipeline.toml").read_text()
    assert Compilation.load("folder").chosen_target().name == "mine"


def test_names_of_folders(qc) -> None:
    for made, seed in ((FOLDER, "1"), (f"{FOLDER}-2", "2"), (f"{FOLDER}-3", "3")):
        result = qc("chain.onnx", "--passes", BREAK, "--seed", seed)
        assert result.made == [made] and f"qc repro {made}" in result.err
    again = qc("chain.onnx", "--passes", BREAK, "--seed", "2")  # nothing new: what is there is named
    assert again.made == [] and f"qc repro {FOLDER}-2" in again.err
    assert qc("chain.onnx", "--passes", BREAK, "--reproducer", "my case").made == ["my case"]
    assert qc("repro", "my case").code == DEFECT
    result = qc("chain.onnx", "--passes", BREAK, "--no-reproducer")
    assert (result.code, result.made, len(result.err.splitlines())) == (DEFECT, [], 1)
    result = qc("chain.onnx", "--passes", BREAK, "--no-reproducer", "--reproducer", "x")
    assert (result.code, result.made) == (USAGE, [])
    result = qc("chain.onnx", "--passes", BREAK, "--reproducer", "absent/x")
    assert (result.code, result.made) == (USAGE, []) and "'absent' does not exist" in result.err


def test_a_mistake_of_the_user_leaves_nothing(qc) -> None:
    for arguments in (
        ["--passes", "no-such-pass"],
        ["--data", "absent.npz"],
        ["--passes", BREAK, "--target", "x"],
    ):
        result = qc("chain.onnx", *arguments)
        assert result.code in (USAGE, BAD_DATA) and result.made == []


def test_no_reproducer_does_not_hide_the_error(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("qc.compiler.folder.save_model", fail)
    result = qc("chain.onnx", "--passes", BREAK)
    error, note = result.err.splitlines()
    assert (result.code, result.made) == (DEFECT, []) and "left the model broken" in error
    assert note == "qc: note: no reproducer could be written: [Errno 28] No space left on device"


def test_a_defect_outside_the_passes(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("nobody expected this")

    monkeypatch.setattr("qc.coverage.coverage_of", fail)
    result = qc("chain.onnx", "--passes", "renew-relu")
    assert (result.code, result.made) == (DEFECT, [FOLDER])
    held = record()
    assert (held["error"], held["error_type"]) == ("LookupError: nobody expected this", "LookupError")
    assert held["reproduces"] and held["failing_pass"] is None and held["action"] is None
    assert not (Path(FOLDER) / "before.qcir").exists()
    assert qc("repro", FOLDER).code == DEFECT


def test_large_weights_are_left_out(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qc.compiler.folder.MOST_WEIGHT_BYTES", 300)
    model = onnx.load("chain.onnx")
    large = np.arange(1000, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(large, "large"))
    model.graph.initializer.append(numpy_helper.from_array(large[:500], "smaller"))
    onnx.save(model, "chain.onnx", save_as_external_data=True, location="chain.data", size_threshold=0)
    assert qc("chain.onnx", "--passes", BREAK).made == [FOLDER]
    held = record()
    assert held["reproduces"] and held["zero_weights"][-2:] == ["smaller", "large"]
    left = {t.name: numpy_helper.to_array(t) for t in onnx.load(f"{FOLDER}/model.onnx").graph.initializer}
    assert left["large"].shape == (1000,) and not left["large"].any() and not left["smaller"].any()
    np.testing.assert_array_equal(left["w_1"], numpy_helper.to_array(model.graph.initializer[0]))
    data = Path(FOLDER) / "model.onnx.data"
    assert data.stat().st_size == large.nbytes and data.stat().st_blocks == 0
    assert qc("repro", FOLDER).code == DEFECT


def test_what_does_not_fail_again_is_told(qc) -> None:
    error = VerificationError("pass 'x' left the model broken")
    made = write_reproducer("once", Compilation("chain.onnx", "renew-relu"), error)
    assert not made.record.reproduces and made.record.failing_pass is None
    assert qc("repro", "once").out == "it does not fail any more; it was: pass 'x' left the model broken\n"


def test_from_python(qc, chain) -> None:
    feeds = [{"x": np.full((2, 4), index, np.float32)} for index in range(9)]
    compilation = Compilation(chain, f"{BREAK},insert-quantizers,calibrate", data=feeds, target="npu")
    with pytest.raises(VerificationError) as caught:
        compilation.compile()
    made = write_reproducer("python", compilation, caught.value)
    assert made.record.feeds == 4 and made.record.reproduces and made.record.target["name"] == "npu"
    again = replay(made.folder)
    assert again.same and str(again.error) == str(caught.value) and again.other_versions == {}
    once = Compilation(chain, f"{BREAK},insert-quantizers,calibrate", data=iter(feeds))
    assert write_reproducer("once", once, caught.value).record.feeds == 4


def test_the_action_is_found_in_any_round_of_a_loop(qc) -> None:
    victim = "r_37/Relu"  # the name after the first round
    again = Compilation(
        "chain.onnx", f"repeat<n=3>(renew-relu{{victim={victim} fault=break}},fold-constants)"
    )
    failure = find_failure(again)
    assert failure is not None and failure.executed == 3
    blamed = blame_action(again, failure)
    assert blamed is not None and (blamed.number, blamed.subject) == (77, f"Relu '{victim}'")
    assert blame_action(Compilation("chain.onnx", "renew-relu")) is None


# -- replaying what nobody vouches for ------------------------------------------------------------------


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "reproducer.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return apply


def link(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        outside = folder.parent / "outside"
        shutil.move(folder / name, outside)
        (folder / name).symlink_to(outside.resolve())

    return apply


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def pickled(folder: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return Path.touch, (folder / "ran",)

    with (folder / "feeds/0.npz").open("wb") as file:
        np.savez(file, x=np.array([Evil()], dtype=object))


def data_outside(folder: Path) -> None:
    (folder.parent / "secret.bin").write_bytes(bytes(16))
    model = onnx.load(folder / "model.onnx")
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "../secret.bin"), ("offset", 0), ("length", 16)):
        tensor.external_data.add(key=key, value=str(value))
    onnx.save(model, folder / "model.onnx")


@pytest.mark.parametrize(
    ("spoil", "code", "fault"),
    [
        (remove("reproducer.json"), USAGE, "it has no file 'reproducer.json'"),
        (remove("model.onnx"), USAGE, "it has no file 'model.onnx'"),
        (remove("pipeline.toml"), USAGE, "it has no file 'pipeline.toml'"),
        (remove("feeds/0.npz"), USAGE, "it has no file 'feeds/0.npz'"),
        (write("reproducer.json", b"{"), USAGE, "does not describe a reproducer"),
        (write("reproducer.json", b"\xff\xfe" * 9), USAGE, "does not describe a reproducer"),
        (write("reproducer.json", b"[" * 100_000), USAGE, "does not describe a reproducer"),
        (write("reproducer.json", b"[]"), USAGE, "does not describe a reproducer"),
        (edit(lambda r: r.pop("error")), USAGE, "at 'error': Field required"),
        (edit(lambda r: r.update(format=2)), USAGE, "at 'format'"),
        (edit(lambda r: r.update(threads=10**9)), USAGE, "at 'threads'"),
        (edit(lambda r: r.update(seed="7")), USAGE, "at 'seed'"),
        (edit(lambda r: r.update(feeds=10**9)), USAGE, "it has no file 'feeds/1.npz'"),
        (edit(lambda r: r.update(feeds=0)), BAD_DATA, "holds no data"),
        (edit(lambda r: r["target"].pop("summary")), USAGE, "at 'target.summary'"),
        (edit(lambda r: r["target"].update(ops={"Cnov": {}})), USAGE, "'Cnov'"),
        (write("pipeline.toml", b"passes = 3"), USAGE, "pipeline.toml"),
        (
            write("pipeline.toml", b"[pipeline]\npasses = 'no-such-pass'"),
            USAGE,
            "unknown pass 'no-such-pass'",
        ),
        (write("model.onnx", b"garbage"), BAD_MODEL, "model.onnx"),
        (write("feeds/0.npz", b"garbage"), BAD_DATA, "0.npz' cannot be read"),
        (write("feeds/0.npz", b"PK" + bytes(100)), BAD_DATA, "0.npz' cannot be read"),
        (pickled, BAD_DATA, "0.npz' cannot be read"),
        (data_outside, BAD_MODEL, ""),
        (link("model.onnx"), USAGE, "leads out of the folder"),
        (link("reproducer.json"), USAGE, "leads out of the folder"),
        (link("feeds"), USAGE, "leads out of the folder"),
    ],
)
def test_a_folder_is_not_trusted(qc, spoil: Callable[[Path], object], code: int, fault: str) -> None:
    np.save("x.npy", np.ones((1, 4), np.float32))
    result = qc("chain.onnx", "--data", "x.npy", "--passes", f"{BREAK},insert-quantizers,calibrate")
    assert result.made == [FOLDER] and record()["feeds"] == 1
    spoil(Path(FOLDER))
    result = qc("repro", FOLDER)
    assert result.code == code, result.err
    assert result.err.startswith("qc: error: ") and fault in result.err and "Traceback" not in result.err
    assert not (Path(FOLDER) / "ran").exists()


def test_a_folder_that_is_none(qc) -> None:
    Path("pickle.pkl").write_bytes(pickle.dumps([]))
    for name in ("absent", "pickle.pkl", "."):
        result = qc("repro", name)
        assert (result.code, result.made) == (USAGE, [])
    os.mkfifo("pipe")
    assert qc("repro", "pipe").code == USAGE
    Path("fifos").mkdir()
    os.mkfifo("fifos/reproducer.json")
    assert "it has no file 'reproducer.json'" in qc("repro", "fifos").err


def test_another_outcome_is_told(qc) -> None:
    qc("chain.onnx", "--passes", BREAK)
    error = record()["error"]
    path = Path(FOLDER) / "pipeline.toml"
    text = path.read_text()
    path.write_text(text.replace('"break"', '"crash"'))
    result = qc("repro", FOLDER)
    assert (result.code, result.out) == (DEFECT, f"it fails in another way; it was: {error}\n")
    assert "the planted crash" in result.err
    path.write_text(text.replace('"relu_37"', '"nobody"'))
    result = qc("repro", FOLDER)
    assert (result.code, result.out, result.err) == (0, f"it does not fail any more; it was: {error}\n", "")
    edit(lambda r: r["versions"].update(onnx="0.1"))(Path(FOLDER))
    assert f"qc: note: recorded with onnx 0.1, this is {onnx.__version__}" in qc("repro", FOLDER).err
