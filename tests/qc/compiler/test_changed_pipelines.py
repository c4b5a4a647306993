"""Pipelines that have a name, with options changed and passes added in few words."""

from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from qc.ir.errors import UsageError
from qc.named_pipelines import resolve_pipeline
from qc.passes import Pass, Registry, Stage, with_options

MODEL, DATA = "model.onnx", "calibration.npz"


@dataclass(frozen=True)
class Simplify(Pass):
    """A pass of a plugin with the name of a pipeline."""

    name = "simplify"
    stage = Stage.FLOAT

    def run(self, model, context):
        pass


def test_a_named_pipeline_stands_in_text_with_options_and_further_passes() -> None:
    plain, changed = resolve_pipeline("w8a8"), resolve_pipeline("w8a8{calibrate.method=entropy},to-encodings")
    expected = str(plain.pipeline).replace("calibrate{method=mse}", "calibrate{method=entropy}")
    assert str(changed.pipeline) == f"{expected},to-encodings"
    assert changed.target == plain.target


def test_options_inside_combinators_are_changed_too_and_others_stay() -> None:
    pipeline = resolve_pipeline("fixpoint<max=3>(fold-constants{max_growth=0.5}),fold-constants").pipeline
    changed = with_options(pipeline, "fold-constants.max_megabytes=1")
    assert str(changed) == (
        "fixpoint<max=3>(fold-constants{max_megabytes=1.0 max_growth=0.5}),fold-constants{max_megabytes=1.0}"
    )


@pytest.mark.parametrize(
    ("text", "sentence", "culprit"),
    [
        ("w8a8{calibrat.method=mse}", "no pass 'calibrat' (did you mean 'calibrate'?)", "calibrat.method"),
        ("w8a8{calibrate.metod=mse}", "no option 'metod' (did you mean 'method'?)", "calibrate.metod"),
        ("w8a8{calibrate.method=mes}", "did you mean 'mse'?", "mes"),
        ("w8a8{method=mse}", "is written PASS.OPTION", "method"),
        ("w8a8(to-encodings)", "expected ',' or the end", "("),
    ],
)
def test_a_mistake_is_pointed_at(text: str, sentence: str, culprit: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_pipeline(text)
    said, line, carets = str(caught.value).splitlines()
    assert sentence in said
    start = carets.index("^")
    assert line[start:].startswith(culprit) and len(carets) - start == len(culprit)


def test_all_ways_to_say_it_make_the_same_model(qc) -> None:
    ways = [
        ["--opt", "calibrate.method=percentile", "--opt", "calibrate.weights=mse"],
        ["--opt", "calibrate.method=percentile calibrate.weights=mse", "--append", "to-encodings"],
        ["--pipeline", "w8a8{calibrate.method=percentile calibrate.weights=mse}"],
        ["--passes", "w8a8{calibrate.method=percentile calibrate.weights=mse},to-encodings"],
    ]
    made = []
    for number, way in enumerate(ways):
        result = qc(MODEL, "--data", DATA, *way, "-o", f"{number}.onnx")
        assert result.code == 0, result.err
        assert (f"{number}.encodings" in result.made) == ("to-encodings" in str(way))
        made.append((qc.folder / f"{number}.onnx").read_bytes())
    assert len(set(made)) == 1


def test_a_wrong_option_leaves_no_file(qc) -> None:
    result = qc(MODEL, "--data", DATA, "--opt", "calibrate.methd=mse")
    assert (result.code, result.made) == (2, [])
    assert "pass 'calibrate' has no option 'methd'" in result.err


def test_a_target_that_a_pipeline_ignores_is_refused(qc) -> None:
    result = qc(MODEL, "--data", DATA, "--pipeline", "quantsim", "--target", "npu")
    assert (result.code, result.made) == (2, [])
    assert "pipeline 'quantsim' is the same for every target, so 'npu' would change nothing" in result.err
    changed = qc(
        MODEL, "--data", DATA, "--pipeline", "quantsim", "--opt", "configure-quantizers.config=htp_v73"
    )
    assert changed.code == 0, changed.err


def test_short_help(qc) -> None:
    assert qc("-h").out == qc("--help").out
    assert qc("encodings", "apply", "-h").out == qc("encodings", "apply", "--help").out


def test_quantsim_takes_another_configuration_and_writes_both_forms(qc) -> None:
    arguments = (MODEL, "--data", DATA, "--no-verdict", "-q")
    asked = (*arguments, "--pipeline", "quantsim-qdq", "--config", "htp_v73")
    assert qc(*asked, "-o", "a.onnx").made == ["a.encodings", "a.onnx"]
    option = (*arguments, "--pipeline", "quantsim", "--opt", "configure-quantizers.config=htp_v73")
    assert qc(*option, "-o", "b.onnx").code == 0
    assert Path("a.encodings").read_bytes() == Path("b.encodings").read_bytes()
    assert "DequantizeLinear" in {node.op_type for node in onnx.load("a.onnx").graph.node}
    plain = (*arguments, "--pipeline", "quantsim", "-o", "c.onnx")
    assert qc(*plain).code == 0 and Path("c.encodings").read_bytes() != Path("b.encodings").read_bytes()
    result = qc(*arguments, "--config", "htp_v73")
    assert result.code == 2 and "--config is for pipelines with configure-quantizers" in result.err


def test_a_file_that_names_a_pipeline_is_for_its_target(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[pipeline]\npasses = 'fp16'\n")
    assert resolve_pipeline(path).target == resolve_pipeline("fp16").target == "npu"
    path.write_text("target = 'openvino'\n[pipeline]\npasses = 'fp16'\n")
    assert resolve_pipeline(path).target == "openvino"


def test_a_pass_of_a_plugin_with_the_name_of_a_pipeline_is_told_of(monkeypatch) -> None:
    monkeypatch.setattr("qc.named_pipelines.registry", lambda: Registry([Simplify]))
    with pytest.raises(UsageError, match="'simplify' is a pipeline of qc and a pass of a plugin"):
        resolve_pipeline("simplify,fold-constants")
