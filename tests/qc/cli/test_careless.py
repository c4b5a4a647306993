"""What people type in a hurry, and the one sentence that says what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from support.models import parse

import qc as package
from qc.cli.run import cli
from qc.ir.base.extras import install_command
from qc.ir.errors import UsageError, nearest

MODEL, DATA = "model.onnx", "calibration.npz"


@pytest.fixture
def images(qc) -> np.ndarray:
    """Of the calibration data."""
    return np.load(DATA)["image"]


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        ("float64", "save array.astype('float32'): qc never converts data"),
        ("uint8", "prepare it as for training, and save array.astype('float32')"),
        ("complex64", "save array.astype('float32')"),
        ("str", "text needs a tokenizer"),
    ],
)
def test_data_of_another_type_names_the_remedy(qc, images, dtype: str, advice: str) -> None:
    np.savez("other.npz", image=np.abs(images).astype(dtype))
    result = qc(MODEL, "--data", "other.npz")
    assert (result.code, result.made) == (4, [])
    assert advice in result.err and "the model takes float32" in result.err


@pytest.mark.parametrize("samples", [8, 100])
def test_one_sample_that_is_repeated_is_told(qc, images, samples: int) -> None:
    np.savez("same.npz", image=np.repeat(images[:1], samples, axis=0))
    said = qc(MODEL, "--data", "same.npz", "--no-verdict").err
    assert f"all {samples} samples give the same ranges, as one that is repeated does" in said


def test_inputs_that_span_the_same_range_are_no_reason_to_worry(qc, images) -> None:
    images[:, 0, 0, 0], images[:, 0, 0, 1] = -1, 1
    np.savez("full.npz", image=images)
    assert "the same ranges" not in qc(MODEL, "--data", "full.npz", "--no-verdict").err


def test_a_layout_that_changes_nothing_is_told(qc, images) -> None:
    idle = "layout nchw changed nothing: the arrays fit the model as they are"
    assert idle in qc(MODEL, "--data", DATA, "--layout", "nchw", "--no-verdict").err
    np.savez("nhwc.npz", image=images.transpose(0, 2, 3, 1))
    assert "changed nothing" not in qc(MODEL, "--data", "nhwc.npz", "--layout", "nchw", "--no-verdict").err
    assert "changed nothing" not in qc(MODEL, "--data", DATA, "--no-verdict").err


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["auto"], "'qc auto FLOAT.onnx' looks for a recipe for the float model"),
        (["eval"], "'qc eval FLOAT.onnx --quantized MODEL.onnx' compares it"),
        (["report"], "'qc report FLOAT.onnx' is for the float model"),
        (["why", "logits"], "'qc why FLOAT.onnx TENSOR' is for the float model"),
        (["view"], "'qc view MODEL.onnx' without data and options for compiling shows it as it is"),
    ],
)
def test_a_command_says_what_to_do_with_a_quantized_model(qc, command: list[str], advice: str) -> None:
    assert qc(MODEL, "--data", DATA, "--no-verdict", "-o", "small.onnx").code == 0
    result = qc(command[0], "small.onnx", *command[1:], "--data", DATA)
    assert (result.code, result.made) == (3, [])
    assert "the model is quantized already, static, in QDQ form" in result.err
    assert "to try:" not in result.err
    assert advice in result.err and "use it as it is" not in result.err
    assert "'qc MODEL.onnx --passes dequantize -o FLOAT.onnx' makes one" in result.err


def test_who_compiles_without_data_is_told_how_to_give_them(qc) -> None:
    result = qc(MODEL)
    assert (result.code, result.made) == (2, [])
    assert result.err.startswith("qc: error: calibration data is missing, ")
    assert "give it with --data, or --random-data to try out" in result.err


@pytest.mark.parametrize("given", [["--random-data"], ["--random-data=4"], ["--random-data", "4"]])
def test_auto_takes_no_random_data_and_says_why(qc, given: list[str]) -> None:
    result = qc("auto", MODEL, *given)
    assert (result.code, result.made) == (2, []) and "did you mean" not in result.err
    assert "'--random-data': random numbers tell nothing of accuracy; give samples with --data" in result.err


def test_external_data_that_is_missing_is_said_to_be_a_part_of_the_model(qc) -> None:
    onnx.save(onnx.load(MODEL), "outside.onnx", save_as_external_data=True, location="data", size_threshold=0)
    Path("data").unlink()
    result = qc("outside.onnx", "--data", DATA)
    assert result.code == 3 and "which does not exist: it is a part of the model and belongs" in result.err


def test_an_address_in_place_of_a_file(qc) -> None:
    said = qc("https://example.com/m.onnx", "--data", DATA).err
    assert "it is an address: download the file first" in said
    assert "address" not in qc("models/m.onnx", "--data", DATA).err


def test_a_current_folder_that_was_deleted(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    model, gone = Path(MODEL).absolute(), Path("gone")
    gone.mkdir()
    monkeypatch.chdir(gone)
    Path("../gone").rmdir()
    result = qc(str(model), "--random-data", "2")
    assert result.code == 2
    assert result.err.endswith("error: the current folder does not exist any more; change to one that does\n")


def test_python_and_the_command_line_miss_a_folder_in_the_same_words(qc) -> None:
    with pytest.raises(UsageError) as refused:
        package.compile(MODEL, data=DATA).save("absent/q.onnx")
    assert str(refused.value) == "cannot write 'absent/q.onnx': the folder 'absent' does not exist"
    assert f"error: {refused.value}\n" in qc(MODEL, "--data", DATA, "-o", "absent/q.onnx").err


def test_options_that_contradict_each_other(qc) -> None:
    result = qc(MODEL, "--data", DATA, "--quiet", "--verbose")
    assert (result.code, result.made) == (2, []) and "give --quiet or --verbose, not both" in result.err


def test_a_target_that_is_none_is_answered_by_all(qc) -> None:
    said = qc(MODEL, "--data", DATA, "--target", "gpu").err
    assert "unknown target 'gpu'; known: npu," in said and "tensorrt" in said and "'qc list-targets'" in said
    assert nearest("gpu", ["npu"]) == "" and "'qnn-htp'" in nearest("qnn", ["qnn-htp"])


def test_where_names_are_listed(qc) -> None:
    for arguments in (("why", MODEL, "cnov_1"), ("view", MODEL, "--around", "cnov_1")):
        said = qc(*arguments).err
        assert "no tensor or op 'cnov_1' (did you mean 'conv_1'?); 'qc print' lists all" in said


def test_another_model_in_place_of_the_quantized_one(qc) -> None:
    import onnx
    from support.models import parse

    onnx.save(parse("g (float[n, 3] x) => (float[n, 3] logits) { logits = Relu(x) }"), "relu.onnx")
    said = qc("eval", MODEL, "--data", DATA, "--quantized", "relu.onnx").err
    assert "takes 'x', the float model takes 'image': it seems to be made of another model" in said


@pytest.mark.parametrize("text", ["1e999999999", "1/0", "1/2/3", "nan", "-inf", "x", ""])
def test_numbers_that_are_none_are_refused_at_once(qc, text: str) -> None:
    result = qc(MODEL, "--data", DATA, f"--scale={text}")
    assert result.code == 2 and f"'{text}' is not a number such as 0.5 or 1/255" in result.err
    assert "'qc compile --help'" in result.err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"resize": "224"}, "resize='224' is neither a whole number of at least 1 nor (height, width)"),
        ({"resize": (1, 2, 3)}, "resize=(1, 2, 3) is neither"),
        ({"crop": 2.5}, "crop=2.5 is neither"),
        ({"crop": 0}, "crop=0 is neither"),
        ({"length": "4"}, "length='4' is not a whole number of at least 1"),
        ({"rate": 0.5}, "rate=0.5 is not a whole number"),
        ({"scale": "x"}, "scale='x' is not a number"),
        ({"mean": "0.5"}, "mean='0.5' is not a number"),
        ({"mean": [float("nan")]}, "mean=nan is not a number"),
        ({"std": [0.0]}, "std holds 0"),
        ({"columns": "age"}, "columns='age' is not a list of names"),
        ({"layout": 3}, "unknown layout '3'; known: nchw, nhwc"),
    ],
)
def test_python_refuses_what_is_no_option_of_data(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        package.DataFiles(Path("photos"), **given)
    assert sentence in str(refused.value)


def test_numbers_of_numpy_are_numbers() -> None:
    made = package.DataFiles("photos", resize=np.int64(8), mean=np.float32(0.5), std=np.ones(3))
    assert (made.resize, made.mean, made.std) == (8, (0.5,), (1.0, 1.0, 1.0))


def test_an_extra_is_installed_from_an_index_or_a_clone() -> None:
    assert install_command("pictures") == "pip install 'qc-onnx[pictures]', or '.[pictures]' in a clone of qc"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("passes", " (it is called 'pipeline')"), ("dat", " (did you mean 'data'?)"), ("foo", "")],
)
def test_an_argument_that_there_is_not(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        package.compile("model.onnx", **{name: 1})  # type: ignore[arg-type]
    assert str(caught.value) == f"compile() has no argument '{name}'{hint}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["model.onnx", "--data", "calibration.npz", "--opt", "calibrate"], "is written PASS.OPTION=VALUE"),
        (["report", "model.onnx", "other.onnx", "--data", "a.npz"], "'model.onnx' is not a report"),
        (["help", "cal"], "did you mean 'calibrate'?"),
        (["model.onnx", "--data", "calibration.npz", "--data=b.npz"], "--data is given twice"),
        (["model.onnx", "calibration.npz"], "data is given as --data calibration.npz"),
        (["w8a8", "model.onnx"], "a pipeline is given as --pipeline w8a8"),
        (["eval", "model.onnx", "b.onnx"], "a model to compare with is given as --quantized b.onnx"),
        (["diff", "model.onnx", "model.onnx", "x.onnx"], "extra argument (x.onnx); 'qc diff --help'"),
        (
            ["model.onnx", "--random-data", "--fix-shape", "batch=1", "--size", "batch=1"],
            "'batch' has the length of --fix-shape; leave --size batch out",
        ),
        (["model.onnx", "--calibration", "b.npz"], "'--calibration': what is calibrated on is --data"),
        (["model.onnx", "--out", "b.onnx"], "did you mean '--output'?"),
        (["eval", "model.onnx", "--calib", "b.npz"], "did you mean '--calibration'?"),
        (["check", "model.onnx", "--random-data"], "without --data numbers are random"),
        (["report", "model.onnx", "--quantized", "b.onnx"], "'qc eval MODEL.onnx --quantized FILE' compares"),
        (["model.onnx", "--data", "calibration.npz", "--target", "htp"], "did you mean 'qnn-htp'?"),
        (["model.onnx", "--data", "calibration.npz", "--set", "conv_1=float"], "or 'off' for float"),
    ],
)
def test_what_means_nothing_is_one_sentence_on_how_to_mend_it(qc, arguments: list[str], said: str) -> None:
    result = qc(*arguments)
    assert (result.code, result.made) == (2, []) and said in result.err.replace("\n", " ")


def test_weights_alone_are_told_of_where_the_device_multiplies_them_in_float(qc) -> None:
    onnx.save(parse("g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> { y = MatMul(x, w) }"), "m.onnx")
    told = qc("m.onnx", "--pipeline", "w4", "--target", "qnn-htp", "--threads", "1").err
    assert "weights alone are quantized, and qnn-htp multiplies in integers only where data is" in told
    assert "weights alone are quantized" not in qc("m.onnx", "--pipeline", "w4", "--threads", "1").err


def test_integers_that_run_nothing_are_told_of(qc) -> None:
    save_parsed = """g (float[4, 16] x) => (float[4, 16] y) <float[16, 16] w> { y = MatMul(x, w) }"""
    onnx.save(parse(save_parsed), "m.onnx")
    common = ("m.onnx", "--random-data", "4", "--threads", "1", "--target", "ort-cpu")
    note = "no op runs in integers, and weights alone are stored so"
    assert note in qc(*common, "--set", "MatMul=activation:off").err
    assert note not in qc(*common).err and note not in qc(*common, "--pipeline", "w8").err


def test_a_function_of_a_file_uses_the_module_beside_it(qc) -> None:
    onnx.save(parse("g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> { y = MatMul(x, w) }"), "m.onnx")
    Path("mine").mkdir()
    Path("mine/numbers_beside.py").write_text("import numpy as np\nONES = np.ones((2, 4), np.float32)\n")
    text = "from numbers_beside import ONES\ndef feeds():\n    return [{'x': ONES}]\n"
    Path("mine/data.py").write_text(text)
    assert qc("m.onnx", "--data", "mine/data.py:feeds", "--threads", "1").code == 0


def test_an_encodings_file_that_is_a_model(qc) -> None:
    onnx.save(parse("g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> { y = MatMul(x, w) }"), "m.onnx")
    result = qc("encodings", "check", "m.onnx", "m.onnx")
    assert result.code == 2 and "'m.onnx' is no encodings file, which is text in JSON" in result.err


def test_the_free_dimension_that_a_device_cannot_have_is_named_with_what_mends_it(qc) -> None:
    onnx.save(
        parse("g (float[batch, n, 4] x) => (float[batch, n, 4] y) <float[4, 4] w> { y = MatMul(x, w) }"),
        "m.onnx",
    )
    np.savez("data.npz", x=np.ones((3, 2, 4), np.float32))
    told = qc("m.onnx", "--data", "data.npz", "--target", "qnn-htp", "--threads", "1").err
    assert "the free dimension 'batch'; all must be known: --fix-shape batch=1 --fix-shape n=LENGTH" in told


def _outputs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that has -o, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _outputs(command.get_command(context, name), (*path, name))
    elif any("-o" in one.opts for one in command.params):
        yield path


def test_standard_output_is_no_file_to_write(qc) -> None:
    commands = list(_outputs(cli))
    assert len(commands) >= 14
    for words in [(), *commands]:
        result = qc(*words, MODEL, "-o", "-")
        assert (result.code, result.made, result.out) == (2, [], "")
        assert "'-o' / '--output': '-' is no file" in result.err and len(result.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["q.tflite", "q.pt", "q.ENGINE", "q.bin", "q.ort", "q.npz", "q.html"])
@pytest.mark.parametrize(
    "command",
    [
        [MODEL, "--data", DATA],
        ["auto", MODEL, "--data", DATA],
        ["reduce", MODEL, "--interesting", "fails"],
        ["parse", "model.qcir"],
        ["encodings", "apply", "f.encodings", MODEL],
        ["encodings", "strip", MODEL],
    ],
)
def test_a_model_is_not_written_under_the_suffix_of_another_format(qc, command: list[str], name: str) -> None:
    result = qc(*command, "-o", name)
    assert (result.code, result.made, result.out) == (2, [], "")
    assert result.err == f"qc: error: '{name}' would be ONNX, whatever its suffix says; name it q.onnx\n"


def test_the_option_that_writes_another_format_is_named(qc) -> None:
    result = qc(MODEL, "--data", DATA, "--target", "qnn-htp", "-o", "q.dlc")
    assert (result.code, result.made) == (2, [])
    assert result.err.endswith("name it q.onnx, and --emit qnn-dlc writes .dlc beside it\n")


def test_a_float_model_does_not_take_the_place_of_a_quantized_one(qc) -> None:
    assert qc(MODEL, "--data", DATA, "--no-verdict").made == ["model.q.onnx"]
    before = Path("model.q.onnx").read_bytes()
    passes = ["--passes", "insert-quantizers,calibrate", "--data", DATA, "--no-verdict"]
    result = qc(MODEL, *passes)
    assert (result.code, Path("model.q.onnx").read_bytes()) == (2, before)
    assert "'model.q.onnx' holds a quantized model" in result.err and "add 'insert-qdq'" in result.err
    for _ in range(2):  # a float one may
        assert qc(MODEL, *passes, "-o", "float.onnx").code == 0
    assert qc("model.q.onnx", "--passes", "dequantize", "-o", "float.onnx").code == 0


@pytest.mark.parametrize("name", ["q", "q.model", "q.v1.5"])
def test_any_other_suffix_is_part_of_the_name(qc, name: str) -> None:
    assert qc(MODEL, "--data", DATA, "--no-verdict", "-o", name).made == [name]


@pytest.mark.parametrize("weight, is_told", [("int8", True), ("uint8", False)])
def test_a_quantized_model_whose_sums_saturate_here_is_told_of(qc, monkeypatch, weight, is_told) -> None:
    """ONNX Runtime adds products of uint8 and int8 in 16 bits where there is no VNNI."""
    monkeypatch.setattr("qc.cli.commands.eval.sums_saturate", lambda: True)
    onnx.save(
        parse("g (float[4, 16] x) => (float[4, 16] y) <float[16, 16] w> { y = MatMul(x, w) }"), "m.onnx"
    )
    np.savez("m.npz", x=np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32))
    common = ("m.onnx", "--data", "m.npz", "--threads", "1")
    assert (
        qc(*common, "--target", "ort-cpu", "--opt", f"insert-quantizers.weight={weight}", "-o", "q.onnx").code
        == 0
    )
    told = qc("eval", *common, "--quantized", "q.onnx", "--latency-seconds", "0")
    assert told.code == 0 and ("so that sums of 8-bit products saturate" in told.err) is is_told


@pytest.mark.parametrize("option", ["--fix-shape", "--fix-input", "--size"])
def test_several_values_in_one_option_are_refused_with_how_to_write_them(qc, option: str) -> None:
    result = qc(MODEL, "--random-data", option, "batch=1,b=2")
    assert (result.code, result.made) == (2, [])
    assert "'batch=1,b=2' is more than one: repeat the option, for batch=1 and for b=2" in result.err


@pytest.mark.parametrize(
    ("name", "exporter"), [("m.pt", "torch.onnx.export"), ("m.tflite", "tf2onnx"), ("m.pkl", "skl2onnx")]
)
def test_what_makes_onnx_of_another_format_is_named(qc, name: str, exporter: str) -> None:
    Path(name).write_bytes(b"another format")
    result = qc(name, "--data", DATA)
    assert (
        result.code == 3 and f"not an ONNX file; {exporter} makes one of a {Path(name).suffix}" in result.err
    )
    Path("m.onnx").write_bytes(b"another format")
    assert qc("m.onnx", "--data", DATA).err.endswith("it is truncated or not an ONNX file\n")


def test_sides_of_a_comparison_that_are_not_what_they_seem(qc) -> None:
    assert qc(MODEL, "--data", DATA, "-q").made == ["model.q.onnx"]
    common = ("--data", DATA, "--threads", "1", "--latency-seconds", "0", "--quantized")
    plain, itself = "nothing in 'model.onnx' is quantized", "'model.q.onnx' is quantized itself"
    assert plain in qc("eval", MODEL, *common, MODEL).err
    assert itself in qc("eval", "model.q.onnx", *common, "model.q.onnx").err
    said = qc("eval", MODEL, *common, "model.q.onnx").err
    assert plain not in said and itself not in said


def test_a_part_of_a_name_is_enough_to_find_it() -> None:
    assert "'--output'" in nearest("--out", ["--opt", "--output"])
    assert "'qnn-htp'" in nearest("htp", ["npu", "qnn-htp"]) and "'w8a8'" in nearest("w8a", ["w4", "w8a8"])
    assert nearest("-", ["a-b"]) == ""
