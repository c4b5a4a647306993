"""A Python file as a plugin: ``--plugin file.py``, and ``file.py:Class`` among passes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from qc import resolve_pipeline
from qc.ir.base import plugins
from qc.passes import registry

OWN = '''
from __future__ import annotations

from dataclasses import dataclass

from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.passes import Pass, PassContext, Stage, option


@dataclass(frozen=True)
class DropRelu(Pass):
    """Takes away every Relu."""

    name = "drop-relu"
    stage = Stage.FLOAT
    most: int = option(100, "how many at most")

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for op in [op for op in model.graph.ops() if op.is_type("Relu")][: self.most]:
            with rewriter.action("drop", op):
                rewriter.replace_uses(op.outputs[0], op.inputs[0])
                rewriter.erase_op(op)
'''


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qc) -> None:
    """The file of a user, forgotten again at the end."""
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.setattr(plugins, "_used", [])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)


def relus(file: str) -> int:
    return sum(node.op_type == "Relu" for node in onnx.load(file).graph.node)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--passes", "fold-constants,mine.py:DropRelu"),
        ("--passes", "mine:DropRelu"),
        ("--plugin", "mine.py", "--passes", "drop-relu"),
        ("--plugin", "mine.py", "--passes", "mine:DropRelu"),
        ("--plugin", "mine", "--passes", "mine.py:DropRelu{most=9}"),
    ],
)
def test_a_pass_of_a_file_runs(qc, arguments: tuple[str, ...]) -> None:
    assert relus("model.onnx") == 3
    result = qc("model.onnx", *arguments, "-o", "made.onnx")
    assert result.code == 0, result.err
    assert relus("made.onnx") == 0


def test_its_options_are_read_and_explained(qc) -> None:
    assert qc("model.onnx", "--passes", "mine.py:DropRelu{most=1}", "-o", "made.onnx").code == 0
    assert relus("made.onnx") == 2
    assert "how many at most" in qc("help", "drop-relu", "--plugin", "mine.py").out
    assert "  drop-relu " in qc("list-passes", "--plugin", "mine.py").out


def test_a_module_without_a_file_among_plugins(qc) -> None:
    assert qc("model.onnx", "--plugin", "sys", "--plugin", "mine.py", "--passes", "drop-relu").code == 0


def test_it_runs_from_python_and_stands_in_texts_by_its_name(qc) -> None:
    assert "drop-relu" not in registry()
    assert str(resolve_pipeline("mine.py:DropRelu{most=2}").pipeline) == "drop-relu{most=2}"
    assert "drop-relu" in registry()


def test_a_file_that_was_named_may_bring_several_passes(qc) -> None:
    """The names of its passes are known behind it, and so they are in the same text."""
    assert qc("model.onnx", "--passes", "mine.py:DropRelu{most=1},drop-relu", "-o", "made.onnx").code == 0
    assert relus("made.onnx") == 0


def test_the_folder_of_a_package_brings_its_targets(qc) -> None:
    Path("own/targets").mkdir(parents=True)
    Path("own/__init__.py").write_text("")
    Path("own/targets/mine.toml").write_text('name = "mine"\nextends = "ort-cpu"\nsummary = "for a test"')
    assert "for a test" in qc("list-targets", "--plugin", "./own").out


def test_packages_that_are_none_or_do_not_load(qc) -> None:
    Path("own").mkdir()
    result = qc("list-passes", "--plugin", "./own")
    assert result.code == 2 and "the folder './own' of a plugin has no __init__.py" in result.err
    Path("own/__init__.py").write_text("")
    Path("own/passes.py").write_text("from qc.passes import Nothing")
    result = qc("list-passes", "--plugin", "./own")
    assert result.code == 2 and "own/__init__.py.passes' cannot be imported: ImportError" in result.err


def test_a_reproducer_says_which_plugin_it_needs(qc) -> None:
    Path("mine.py").write_text(OWN.replace("rewriter = Rewriter(model)", "rewriter = Rewriter(1 / 0)"))
    result = qc("model.onnx", "--plugin", "mine.py", "--passes", "drop-relu")
    assert result.code == 6 and "qc repro --plugin mine.py model.reproducer" in result.err
    plugins._used.clear()
    result = qc("repro", "model.reproducer")
    assert result.code == 2 and "it was made with --plugin mine.py, code that is not in" in result.err
    assert qc("repro", "--plugin", "mine.py", "model.reproducer").code == 6


def test_arguments_in_the_wrong_order_are_a_defect_of_the_pass(qc) -> None:
    wrong = 'rewriter = Rewriter(model)\n        rewriter.add_constant(model.graph, "low", b"numbers")'
    Path("mine.py").write_text(OWN.replace("rewriter = Rewriter(model)", wrong))
    result = qc("model.onnx", "--passes", "mine.py:DropRelu")
    assert result.code == 6
    assert "pass 'drop-relu' failed with TypeError: a name is text, not b'numbers'" in result.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--plugin", "no.py"), "the Python file 'no.py' of a plugin does not exist"),
        (("--passes", "no.py:Pass"), "the Python file 'no.py' of a plugin does not exist"),
        (
            ("--passes", "nomodule:Pass"),
            "plugin 'nomodule' cannot be imported: ModuleNotFoundError",
        ),
        (("--plugin", "bad.py"), "plugin 'bad.py' cannot be imported: ZeroDivisionError: division by zero"),
        (
            ("--passes", "mine.py:DropRelus"),
            "no pass 'DropRelus' (did you mean 'DropRelu'?); its passes",
        ),
        (("--passes", "empty.py:Any"), "'empty.py' has no pass 'Any'; its passes: none"),
    ],
)
def test_what_cannot_be_used(qc, arguments: tuple[str, ...], sentence: str) -> None:
    Path("bad.py").write_text("1 / 0")
    Path("empty.py").write_text("")
    result = qc("model.onnx", *arguments)
    assert (result.code, result.made) == (2, []) and sentence in result.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[pipeline]\npasses = "mine.py:DropRelu"', "only --passes takes a pass of a Python file"),
        ('[[pass]]\nname = "mine.py:DropRelu"', "unknown pass 'mine.py:DropRelu'"),
    ],
)
def test_a_pipeline_file_runs_no_code(qc, text: str, sentence: str) -> None:
    """Unlike text that is typed, it may come from anywhere."""
    Path("pipeline.toml").write_text(text)
    result = qc("model.onnx", "--pipeline", "pipeline.toml")
    assert result.code == 2 and sentence in result.err and not plugins._used


def test_a_plugin_that_brings_nothing_is_warned_of(qc) -> None:
    Path("empty.py").write_text("x = 1\n")
    told = qc("list-targets", "--plugin", "empty.py")
    assert told.code == 0 and "warning: plugin 'empty.py' brings nothing: it has no pass" in told.err
