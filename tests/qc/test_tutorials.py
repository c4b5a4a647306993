"""The tutorials do what they say: their files are written and their commands run, as they stand there."""

from __future__ import annotations

import re
import shlex
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from support.models import parse

from qc.ir.errors import ModelError
from qc.runtime import open_session

ROOT = Path(__file__).parents[2]


def run_commands(qc, text: str) -> dict[str, object]:
    """Runs the commands of a page in their order; what each gave."""
    results = {
        command: qc(*shlex.split(command)[1:])
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for command in block.splitlines()
        if command.startswith("qc ")
    }
    for command, result in results.items():
        assert result.code == 0, f"{command}: {result.err}"
    return results


@pytest.fixture
def photos(qc) -> None:
    """60 pictures of digits, in one folder for each."""
    test = np.load(ROOT / "tests/fixtures/digits_test.npz")
    for index, (image, label) in enumerate(zip(test["image"][:60], test["label"], strict=False)):
        folder = Path("photos") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round((image[0] + 1) * 127.5).astype(np.uint8)).save(folder / f"{index}.png")


def test_the_image_tutorial(qc, photos, capsys: pytest.CaptureFixture) -> None:
    text = (ROOT / "docs/image-tutorial.md").read_text(encoding="utf-8")
    judge, deploy = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    Path("judge.py").write_text(judge)
    results = run_commands(qc, text)
    assert len(results) == 9
    assert all(Path(name).exists() for name in ("samples.html", "small.onnx", "report.html", "best.onnx"))
    (scores,) = [
        found
        for result in results.values()
        if (found := re.search(r"^judge.py:accuracy +(\S+) +(\S+) +(\S+)$", result.out, re.MULTILINE))
    ]
    assert min(map(float, scores.groups())) > 0.9
    exec(compile(deploy, "image-tutorial.md", "exec"), {})
    assert capsys.readouterr().out == "3\n"


WORDS = ["the", "a", "model", "compiler", "writes", "reads", "small", "large", "numbers", "codes", "of"]
LANGUAGE = f"""<ir_version: 10, opset_import: ["": 21]>
language (int64[1, n] input_ids) => (float[1, n, {len(WORDS)}] logits)
<float[{len(WORDS)}, 256] embedding, float[256, 256] middle, float[256, {len(WORDS)}] head> {{
    a = Gather (embedding, input_ids)
    b = MatMul (a, middle)
    c = Relu (b)
    logits = MatMul (c, head)
}}"""


def test_the_language_tutorial(qc) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: index for index, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    random = np.random.default_rng(0)
    Path("lines.txt").write_text("\n".join(" ".join(random.choice(WORDS, 16)) for _ in range(24)))
    onnx.save(parse(LANGUAGE), "model.onnx")
    results = run_commands(qc, (ROOT / "docs/language-tutorial.md").read_text(encoding="utf-8"))
    assert len(results) == 4
    (judged,) = (result.out for command, result in results.items() if command.startswith("qc eval"))
    (likelihood,) = re.findall(r"^likelihood .* (0\.\d+)$", judged, re.MULTILINE)
    assert float(likelihood) > 0.9
    assert Path("small.onnx").stat().st_size < 0.2 * Path("model.onnx").stat().st_size


SOUND = """<ir_version: 10, opset_import: ["": 21]>
sound (float[1, 4000] samples) => (float[1, 8] scores)
<float[64, 1, 128] filters, float[64, 64, 3] pattern, float[64, 8] last> {
    axis = Constant <value_ints = [1]> ()
    least = Constant <value_float = 0.001> ()
    line = Unsqueeze (samples, axis)
    bands = Conv <strides = [32]> (line, filters)
    power = Mul (bands, bands)
    audible = Max (power, least)
    spectrum = Log (audible)
    found = Conv (spectrum, pattern)
    positive = Relu (found)
    pooled = GlobalAveragePool (positive)
    features = Flatten (pooled)
    scores = MatMul (features, last)
}"""


def test_the_audio_tutorial(qc) -> None:
    random = np.random.default_rng(0)
    Path("recordings").mkdir()
    for index in range(4):
        with wave.open(f"recordings/{index}.wav", "wb") as file:
            file.setparams((1, 2, 8000, 8000, "NONE", ""))
            tone = np.sin(np.arange(8000) * random.uniform(0.2, 1)) * random.uniform(1000, 20000)
            file.writeframes(tone.astype("<i2").tobytes())
    onnx.save(parse(SOUND), "model.onnx")
    results = run_commands(qc, (ROOT / "docs/audio-tutorial.md").read_text(encoding="utf-8"))
    assert len(results) == 3 and Path("small.onnx").exists()


HARD_SWISH = """<ir_version: 10, opset_import: ["": 21]>
network (float[1, 3, 8, 8] image) => (float[1, 4] scores)
<float[8, 3, 3, 3] filters, float[8, 4] last> {
    three = Constant <value_float = 3.0> ()
    zero = Constant <value_float = 0.0> ()
    six = Constant <value_float = 6.0> ()
    c = Conv (image, filters)
    shifted = Add (c, three)
    gate = Clip (shifted, zero, six)
    product = Mul (gate, c)
    h = Div (product, six)
    pooled = GlobalAveragePool (h)
    features = Flatten (pooled)
    scores = Gemm (features, last)
}"""


def test_the_compiler_inside_another(tmp_path: Path) -> None:
    text = (ROOT / "docs/embedding.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {"__name__": "embedding"}
    exec(compile(code, "embedding.md", "exec", dont_inherit=True), names)
    onnx.save(parse(HARD_SWISH), tmp_path / "model.onnx")
    names["compile_for_device"](str(tmp_path / "model.onnx"), str(tmp_path / "device.onnx"))
    made = onnx.load(tmp_path / "device.onnx")
    assert [node.op_type for node in made.graph.node] == [
        "Conv",
        "HardSwish",
        "GlobalAveragePool",
        "Flatten",
        "Gemm",
    ]
    feed = {"image": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    before, after = (
        open_session(tmp_path / name).run(None, feed)[0] for name in ("model.onnx", "device.onnx")
    )
    np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)
    onnx.save(
        parse(HARD_SWISH.replace("Clip (shifted, zero, six)", "Tanh (shifted)")), tmp_path / "other.onnx"
    )
    with pytest.raises(ModelError, match="is Add, which the device does not have"):
        names["compile_for_device"](str(tmp_path / "other.onnx"), str(tmp_path / "device.onnx"))
