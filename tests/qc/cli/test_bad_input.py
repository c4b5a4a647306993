"""Whatever is wrong with the input: an exit code, one sentence that names the culprit, and no file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.models import parse

MODEL, DATA = "model.onnx", "calibration.npz"
USAGE, BAD_MODEL, BAD_DATA, DEMAND, DEFECT = 2, 3, 4, 5, 6


def assert_refused(result, code: int, culprit: str, made: Sequence[str] = ()) -> None:
    """One error, whose first line is the sentence; a position in a pipeline may follow it."""
    errors = [line for line in result.err.splitlines() if line.startswith("qc: error: ")]
    assert len(errors) == 1, result.err
    assert culprit in errors[0], errors[0]
    assert result.code == code, result.err
    assert "Traceback" not in result.err
    assert result.made == list(made)


# -- the command line itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ([MODEL, "--dato", DATA], "'--dato' (did you mean '--data'?)"),
        ([MODEL, "--data"], "--data"),
        ([MODEL, "surplus.onnx", "--data", DATA], "surplus.onnx"),
        (["--data", DATA], "MODEL.onnx"),
        ([MODEL, "--data", DATA, "--threads", "two"], "'two'"),
        ([MODEL, "--data", DATA, "--threads", "0"], "'0'"),
        ([MODEL, "--data", DATA, "--seed", "lucky"], "'lucky'"),
        ([MODEL, "--random-data=some"], "'some'"),
        ([MODEL, "--random-data", "0"], "'0'"),
        ([MODEL, "--random-data", "--size", "batch"], "'batch'"),
        ([MODEL, "--data", DATA, "--size", "batch=4"], "--size"),
        ([MODEL, "--data", DATA, "--random-data"], "--random-data"),
        ([MODEL, "--passes", "calibrate", "--pipeline", "w8a8"], "--pipeline"),
        ([MODEL], "calibration data"),
        (["lst-passes"], "'list-passes'"),
        (["list-passes", "surplus"], "surplus"),
        (["help", "calibrat"], "'calibrate'"),
        (["inspect"], "MODEL.onnx"),
        (["eval", MODEL], "--data"),
        (["eval", MODEL, "--data", DATA, "--quantized", "q.onnx", "--target", "npu"], "--target"),
        (["eval", MODEL, "--data", DATA, "--latency-seconds", "-1"], "-1"),
    ],
)
def test_a_wrong_command_line(qc, arguments: list[str], culprit: str) -> None:
    assert_refused(qc(*arguments), USAGE, culprit)


# -- pipelines and targets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passes", "culprit"),
    [
        ("fold-constant", "'fold-constant' (did you mean 'fold-constants'?)"),
        ("calibrate{methud=mse}", "'methud' (did you mean 'method'?)"),
        ("calibrate{percentile=high}", "'percentile'"),
        ("calibrate{method=median}", "'method'"),
        ("calibrate{", "'}'"),
        ("insert-qdq,fold-constants", "'fold-constants'"),
        ("insert-quantizers{skip_nodes=[conv_99]}", "'conv_99'"),
    ],
)
def test_wrong_passes(qc, passes: str, culprit: str) -> None:
    assert_refused(qc(MODEL, "--passes", passes, "--data", DATA), USAGE, culprit)


def test_a_wrong_pipeline(qc) -> None:
    assert_refused(qc(MODEL, "--pipeline", "w8a9", "--data", DATA), USAGE, "'w8a9' (did you mean 'w8a8'?)")
    assert_refused(qc(MODEL, "--pipeline", "absent.toml", "--data", DATA), USAGE, "'absent.toml'")
    Path("torn.toml").write_text("[pipeline\n")
    assert_refused(qc(MODEL, "--pipeline", "torn.toml", "--data", DATA), USAGE, "torn.toml")
    Path("wrong.toml").write_text('[[pass]]\nname = "calibrate"\nmethod = 3\n')
    assert_refused(qc(MODEL, "--pipeline", "wrong.toml", "--data", DATA), USAGE, "wrong.toml, line 3")
    Path("other.toml").write_text('target = "foo"\n[pipeline]\npasses = "match-supergroups"\n')
    unknown = qc(MODEL, "--pipeline", "other.toml", "--data", DATA)
    assert_refused(unknown, USAGE, "other.toml, line 1: unknown target 'foo'; known: npu,")


def test_a_wrong_target(qc) -> None:
    assert_refused(qc(MODEL, "--target", "ort-gpu", "--data", DATA), USAGE, "'ort-gpu'")
    assert_refused(qc(MODEL, "--target", "absent.toml", "--data", DATA), USAGE, "'absent.toml'")
    Path("torn.toml").write_text("[target\n")
    assert_refused(qc(MODEL, "--target", "torn.toml", "--data", DATA), USAGE, "'torn.toml'")
    Path("wrong.toml").write_text('name = "mine"\nsumary = "x"\n')
    assert_refused(qc(MODEL, "--target", "wrong.toml", "--data", DATA), USAGE, "'wrong.toml'")


# -- models ---------------------------------------------------------------------------------------------

TAKES_A_MODEL = [
    pytest.param(["compile", "--data", DATA], id="compile"),
    pytest.param(["eval", "--data", DATA], id="eval"),
    pytest.param(["inspect"], id="inspect"),
]


@pytest.mark.parametrize("command", TAKES_A_MODEL)
def test_a_model_that_is_none(qc, command: list[str]) -> None:
    assert_refused(qc(*command, "absent.onnx"), BAD_MODEL, "'absent.onnx'")
    Path("folder").mkdir()
    assert_refused(qc(*command, "folder"), BAD_MODEL, "'folder'")
    for content in (b"", b"hello, world", b"\x89PNG\r\n\x1a\n" + bytes(1000), bytes(range(256)) * 20):
        Path("other.onnx").write_bytes(content)
        culprit = "'other.onnx' cannot" if content else "'other.onnx' is empty"
        assert_refused(qc(*command, "other.onnx"), BAD_MODEL, culprit)


@pytest.mark.parametrize("command", TAKES_A_MODEL)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_model(qc, command: list[str], share: float) -> None:
    whole = Path(MODEL).read_bytes()
    Path("cut.onnx").write_bytes(whole[: int(len(whole) * share)])
    assert_refused(qc(*command, "cut.onnx"), BAD_MODEL, "cut.onnx")


def spoilt(change: Callable[[onnx.ModelProto], None]) -> str:
    """The fixture with a fault, saved; the name of the file."""
    model = onnx.load(MODEL)
    change(model)
    Path("spoilt.onnx").write_bytes(model.SerializeToString())
    return "spoilt.onnx"


def _rename_op(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Rectify"


def _drop_op(model: onnx.ModelProto) -> None:
    model.graph.node.pop(2)


def _close_cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = model.graph.node[3].output[0]


def _loosen(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "nowhere"


def _newer_format(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def _double_definition(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = model.graph.node[0].output[0]


def _wrong_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("colour", "red"))


@pytest.mark.parametrize("command", TAKES_A_MODEL)
@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        (_rename_op, "Rectify"),
        (_drop_op, "spoilt.onnx"),
        (_close_cycle, "model 'spoilt.onnx' fails the ONNX checker: the graph has a cycle through Conv"),
        (_loosen, "BatchNormalization 'batchnormalization_1' reads 'nowhere', which nothing defines"),
        (_newer_format, f"newest known here is {onnx.IR_VERSION}: save it with ir_version = "),
        (_double_definition, "spoilt.onnx"),
        (_wrong_attribute, "colour"),
    ],
)
def test_a_model_that_fails_the_checker(qc, command: list[str], change, culprit: str) -> None:
    assert_refused(qc(*command, spoilt(change)), BAD_MODEL, culprit)


@pytest.mark.parametrize("columns", [9, 8])
def test_shapes_that_do_not_fit(qc, columns: int) -> None:
    """What is only declared wrongly is no error: runtimes do not mind."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[2, {columns}] x, float[8, 4] w) => (float[2, 4] y) <float[2, 5] a> {{
            a = MatMul(x, w)  y = Relu(a) }}""")
    model.graph.node[0].name = "first"
    onnx.save(model, "shapes.onnx")
    result = qc("shapes.onnx", "--random-data", "2", "--allow-unquantized")
    if columns == 8:
        assert result.code == 0
    else:
        assert_refused(result, BAD_MODEL, "shapes that do not fit at MatMul 'first': Incompatible dimensions")


def test_an_op_that_no_runtime_knows(qc) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.opset_import.append(helper.make_opsetid("acme", 1))
        node = next(node for node in model.graph.node if node.op_type == "Relu")
        node.op_type, node.domain = "Frobnicate", "acme"

    for command in ("compile", "eval"):
        result = qc(command, spoilt(change), "--data", DATA)
        assert_refused(result, BAD_MODEL, "'Frobnicate' of domain 'acme'")
        assert "load its library with --custom-ops LIBRARY, or name it in QC_CUSTOM_OPS" in result.err


def test_an_opset_of_the_future(qc) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 999

    result = qc(spoilt(change), "--data", DATA)
    assert_refused(result, BAD_MODEL, "the model has opset 999 of domain 'ai.onnx', and the newest")
    assert "export it with that one, or install a newer onnxruntime" in result.err


def test_external_data_that_is_missing(qc) -> None:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="absent.bin")

    assert_refused(qc(spoilt(change), "--data", DATA), BAD_MODEL, "absent.bin")


# -- data -----------------------------------------------------------------------------------------------


def image(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape or (4, 1, 8, 8), dtype)


def with_value(value: float) -> np.ndarray:
    array = image()
    array[2, 0, 3, 3] = value
    return array


@pytest.mark.parametrize("command", [["compile"], ["eval"]])
@pytest.mark.parametrize(
    ("arrays", "culprit"),
    [
        ({"imago": image()}, "'imago' (did you mean 'image'?)"),
        ({"image": image(), "label": image(3)}, "'label'"),
        ({}, "'image'"),
        ({"image": image(dtype="float64")}, "float64"),
        ({"image": image(dtype="uint8")}, "uint8"),
        ({"image": image(4, 1, 9, 9)}, "(1, 1, 9, 9)"),
        ({"image": image(8, 8)}, "'image'"),
        ({"image": image(0, 1, 8, 8)}, "bad.npz"),
        ({"image": with_value(np.nan)}, "NaN"),
        ({"image": with_value(np.inf)}, "'image'"),
        ({"image": with_value(-np.inf)}, "feed 2"),
    ],
)
def test_data_that_does_not_fit(qc, command: list[str], arrays: dict[str, np.ndarray], culprit: str) -> None:
    np.savez("bad.npz", **arrays)
    assert_refused(qc(*command, MODEL, "--data", "bad.npz"), BAD_DATA, culprit)


def test_data_that_is_none(qc) -> None:
    assert_refused(qc(MODEL, "--data", "absent.npz"), BAD_DATA, "'absent.npz'")
    Path("empty").mkdir()
    assert_refused(qc(MODEL, "--data", "empty"), BAD_DATA, "'empty'")
    Path("text.npz").write_text("hello")
    assert_refused(qc(MODEL, "--data", "text.npz"), BAD_DATA, "text.npz")
    whole = Path(DATA).read_bytes()
    Path("cut.npz").write_bytes(whole[: len(whole) // 2])
    assert_refused(qc(MODEL, "--data", "cut.npz"), BAD_DATA, "'cut.npz': it is damaged or cut short")
    Path("table.csv").write_text("1,2,3\n")
    assert_refused(qc(MODEL, "--data", "table.csv"), BAD_DATA, "'table.csv'")


def test_a_function_that_gives_no_data(qc) -> None:
    Path("feeds.py").write_text(
        "def broken():\n    raise RuntimeError('no disk')\n"
        "def number():\n    return 3\n"
        "def nothing():\n    return []\n"
        "def pairs():\n    return [('image', 1)]\n"
    )
    for source, culprit in (
        ("absent_module:feeds", "'absent_module'"),
        ("feeds.py:absent", "'absent'"),
        ("feeds.py:broken", "no disk"),
        ("feeds.py:number", "an 'int'"),
        ("feeds.py:nothing", "feeds.py:nothing"),
        ("feeds.py:pairs", "'str'"),
    ):
        assert_refused(qc(MODEL, "--data", source), BAD_DATA, culprit)


def test_random_data_for_an_unknown_size(qc) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"

    model = spoilt(change)
    assert_refused(qc(model, "--random-data"), BAD_DATA, "give --size height=N")
    assert_refused(qc(model, "--random-data", "--size", "heigth=4"), USAGE, "did you mean 'height'?")
    assert qc(model, "--random-data", "--size", "height=8").code == 0


# -- files to write -------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-o", "--coverage"])
def test_a_file_that_cannot_be_written(qc, option: str) -> None:
    assert_refused(qc(MODEL, "--data", DATA, option, "absent/out"), USAGE, "'absent'")
    Path("folder").mkdir()
    assert_refused(qc(MODEL, "--data", DATA, option, "folder"), USAGE, "'folder'")


@pytest.mark.parametrize("option", ["-o", "--coverage"])
def test_the_input_is_never_overwritten(qc, option: str) -> None:
    before = Path(MODEL).read_bytes()
    Path("link.onnx").symlink_to(MODEL)
    for output in (MODEL, f"./{MODEL}", "link.onnx", str(Path(MODEL).absolute())):
        assert_refused(qc(MODEL, "--data", DATA, option, output), USAGE, "is the input model")
    assert Path(MODEL).read_bytes() == before


def test_eval_checks_its_file_first(qc) -> None:
    assert_refused(qc("eval", MODEL, "--data", DATA, "--json", "absent/x.json"), USAGE, "'absent'")
    assert_refused(qc("eval", MODEL, "--data", DATA, "--json", MODEL), USAGE, MODEL)


def test_a_full_disk_is_no_defect_of_qc(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", fail)
    assert_refused(qc(MODEL, "--data", DATA), USAGE, os.strerror(errno.ENOSPC))
    monkeypatch.setattr("qc.compiler.compiled.stage_model", fail)
    assert_refused(qc(MODEL, "--data", DATA), USAGE, os.strerror(errno.ENOSPC))


# -- demands --------------------------------------------------------------------------------------------


def test_nothing_quantized(qc) -> None:
    result = qc(MODEL, "--passes", "match-supergroups")
    assert_refused(result, DEMAND, "nothing was quantized")
    assert result.err.endswith("qc: note: --allow-unquantized accepts such a result\n")


def test_nothing_quantized_is_explained_by_what_was_asked_for(qc) -> None:
    onnx.save(parse("g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> { y = MatMul(x, w) }"), "m.onnx")
    result = qc("m.onnx", "--random-data", "2", "--set", "MatMul=off")
    assert_refused(result, DEMAND, "'x' and others stay float (set to float by hand)")


def test_nothing_quantized_is_explained_by_a_product(qc) -> None:
    text = """g (float[1, 4] x, bool c) => (float[1, 4] y) <float[4, 4] w> {
        y = If(c) <
            then_branch = t () => (float[1, 4] a) { s = Abs(x) a = MatMul(s, w) },
            else_branch = e () => (float[1, 4] b) { b = Neg(x) }
        >
    }"""
    onnx.save(parse(text), "branches.onnx")
    result = qc("branches.onnx", "--random-data", "2", "--target", "qnn-htp")
    assert_refused(result, DEMAND, "'a' and others stay float (MatMul of 'a' runs in float: it is inside If")
    assert "the HTP has no control flow" in result.err


def test_a_model_without_floats_has_a_reason_too(qc) -> None:
    """As trees are that were trained in doubles: there is not even a tensor that stays float."""
    onnx.save(parse("g (double[2] x) => (double[2] y) { y = Relu(x) }"), "doubles.onnx")
    result = qc("doubles.onnx", "--random-data", "2")
    assert_refused(result, DEMAND, "nothing was quantized: no op computes on floats of 32 or 16 bits")


def test_commands_that_judge_need_something_quantized(qc) -> None:
    onnx.save(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"), "relu.onnx")
    for command in ("eval", "sensitivity", "bench"):
        result = qc(command, "relu.onnx", "--random-data", "2")
        assert_refused(result, DEMAND, "nothing was quantized")
        assert "--allow-unquantized" not in result.err, "they have no such option"
    assert_refused(qc("check", "relu.onnx"), USAGE, "nothing in the model is quantized")


def test_something_unquantized(qc) -> None:
    result = qc(MODEL, "--data", DATA, "--fail-if-unquantized")
    assert_refused(result, DEMAND, "'logits'")


def test_a_failure_leaves_the_old_result(qc) -> None:
    Path("model.q.onnx").write_text("the old result")
    assert_refused(qc(MODEL, "--data", DATA, "--fail-if-unquantized"), DEMAND, "'logits'")
    assert Path("model.q.onnx").read_text() == "the old result"


# -- qc at fault ----------------------------------------------------------------------------------------


def test_a_defect_is_one_sentence_too(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("nobody\nexpected this")

    monkeypatch.setattr("qc.compiler.Compilation.compile", fail)
    kept = ["model.reproducer"]
    assert_refused(qc(MODEL, "--data", DATA), DEFECT, "LookupError: nobody expected this", made=kept)
    monkeypatch.setenv("QC_TRACEBACK", "1")
    assert "Traceback" in qc(MODEL, "--data", DATA).err


def test_a_terminal_gets_sentences_in_lines_that_end_with_a_word(qc, monkeypatch) -> None:
    place = f"{20 * 'a_folder/'}absent.onnx"
    sentence = f"qc: error: model '{place}' does not exist"
    assert qc(place).err == f"{sentence}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert qc(place).err.splitlines() == ["qc: error: model", f"'{place}'", "does not exist"]
    known = qc("--pipeline", "w7a7", MODEL).err
    assert len(known.splitlines()) > 1 and max(map(len, known.splitlines())) <= 80
    monkeypatch.delenv("FORCE_COLOR")
    assert " ".join(known.split()) == qc("--pipeline", "w7a7", MODEL).err.rstrip()
