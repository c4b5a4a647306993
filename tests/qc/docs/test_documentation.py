"""What the documentation shows: its commands run, and its pass, command and target work."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.folders import ROOT
from support.models import parse

from qc.cli import commands
from qc.cli.run import cli
from qc.ir import lift
from qc.ir.verifier import verify
from qc.named_pipelines import pipeline_names
from qc.passes import PassContext, Pipeline, run_pipeline
from qc.passes.framework.definition import check_definition

MODEL, DATA = "model.onnx", "calibration.npz"


def test_the_pages_of_passes_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


def test_the_search_of_the_site_works_in_pages_that_are_opened_as_files() -> None:
    plugins = (ROOT / "mkdocs.yml").read_text().partition("\nplugins:\n")[2]
    assert plugins.startswith("  - search\n  - offline"), "without, the theme hides its search there"


def test_the_readme_tells_what_every_pipeline_is_for() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(re.findall(r"`([^`]+)`", ", ".join(rows))) == sorted(pipeline_names())


def test_the_glossary_has_the_words_of_a_summary_in_their_order(qc) -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    words = [word for word in rows if word not in ("word", "---")]
    assert words == sorted(words, key=str.casefold)
    said = qc(MODEL, "--data", DATA).err
    for word in ("float", "per channel", "multiplications", "asymmetric", "symmetric", "pipeline"):
        assert word in words and word in said
    assert {"dynamic", "encoding", "grid", "integer", "QDQ", "SQNR", "supergroup"} <= set(words)


def test_the_pass_in_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    code = textwrap.dedent(re.findall(r" *```python\n(.*?)```", guide, re.DOTALL)[0])
    path = tmp_path / "eliminate_double_neg.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("qc.passes.simplify.eliminate_double_neg", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    cls = module.EliminateDoubleNeg
    check_definition(cls)
    golden = textwrap.dedent(re.findall(r" *```\n( *--- run\n.*?)```", guide, re.DOTALL)[0])
    model = lift(parse(golden.partition("--- model\n")[2]))
    run_pipeline(Pipeline([cls()]), model, PassContext(verify=verify))
    relu = model.graph.ops()[-1]
    assert relu.inputs[0] is model.graph.inputs[0]


def test_the_command_of_the_guide(qc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    folder = Path(commands.__file__).parent
    place = shutil.copytree(folder, tmp_path / "commands")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (command,) = [block for block in blocks if "class CountOps(Command)" in block]
    (place / "count_ops.py").write_text(command)
    monkeypatch.setattr(cli, "folder", place)
    monkeypatch.setattr(commands, "__path__", [str(place), str(folder)])
    assert "Others:\n  count-ops         Count the ops of a model.\n" in qc("--help").out
    assert qc("count-ops", MODEL).out.startswith("BatchNormalization 10\nConv 10\nClip 5\n")
    assert qc("count-ops", MODEL, "--least", "5").out.endswith("Clip 5\n")
    assert "'0' is not a number of at least 1" in qc("count-ops", MODEL, "--least", "0").err


def test_the_target_of_the_guide(qc) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    Path("toy.toml").write_text(re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)[0])
    result = qc(MODEL, "--data", DATA, "--target", "toy.toml")
    assert result.code == 0 and "w8a8 for toy" in result.err


# Pages whose commands are run, in an order in which each finds the files that it reads.
PAGES = (
    *("command-line", "aimet-configurations", "calibration", "debugging", "comparing"),
    *("checking", "speed", "recipes", "simulation", "encodings", "looking"),
)


def documentation(*pages: str) -> str:
    return "\n".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in pages)


def documented_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", documentation(*PAGES), re.DOTALL)
    return [command for block in blocks for command in re.split(r"\n(?=qc )", block)]


def documented_files() -> dict[str, str]:
    text = documentation(*PAGES, "own-target")
    return dict(re.findall(r"A file `(\w+\.\w+)`.*?```(?:toml|python)\n(.*?)```", text, re.DOTALL))


def test_the_documented_commands_run(qc) -> None:
    with np.load(DATA) as data:
        images = data["image"][:16]  # that they run does not depend on how much they are given
    for name in (DATA, "few.npz"):
        np.savez(name, image=images)
    np.savez("test.npz", image=images, label=np.zeros(len(images), int))
    Path("samples.py").write_text(
        "import numpy\n\ndef feeds():\n    yield {'image': numpy.load('test.npz')['image']}\n"
    )
    Path("photos").mkdir()
    Image.fromarray(((images[0, 0] + 1) * 127).astype(np.uint8)).save("photos/0.png")
    for name, text in documented_files().items():
        Path(name).write_text(text)
    commands = documented_commands()
    assert len(commands) > 10
    for command in commands:
        result = qc(*shlex.split(command, comments=True)[1:])
        different = command.startswith("qc diff") and result.code == 1
        slower = "--objective latency" in command and result.code == 5  # as a busy machine times it
        assert result.code == 0 or different or slower, f"{command}: {result.err}"
