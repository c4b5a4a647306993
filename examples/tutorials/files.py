"""The model and the data of a tutorial, written into the current folder.

`python files.py image`, `python files.py language`, `python files.py audio`; the first takes the pictures of
qc's tests. Weights of the other two are random: they show commands, and tell nothing of accuracy.
"""

import shutil
import sys
import wave
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

FIXTURES = Path(__file__).resolve().parents[2] / "tests/fixtures"

WORDS = ["the", "a", "model", "compiler", "writes", "reads", "small", "large", "numbers", "codes", "of"]
LANGUAGE = f"""<ir_version: 10, opset_import: ["": 21]>
language (int64[1, n] input_ids) => (float[1, n, {len(WORDS)}] logits) {{
    a = Gather (embedding, input_ids)
    b = MatMul (a, middle)
    c = Relu (b)
    logits = MatMul (c, head)
}}"""
AUDIO = """<ir_version: 10, opset_import: ["": 21]>
audio (float[1, 4000] samples) => (float[1, 8] scores) {
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


def write_model(text: str, **shapes: tuple[int, ...]) -> None:
    """The model of a text, with random weights of these shapes."""
    model, random = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in shapes.items():
        weight = random.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(model, "model.onnx")


def image() -> None:
    """A network for digits, and 60 pictures of 8 by 8 pixels in a folder for each digit."""
    from PIL import Image

    shutil.copyfile(FIXTURES / "digits_cnn.onnx", "model.onnx")
    digits = np.load(FIXTURES / "digits_test.npz")
    for index, (pixels, label) in enumerate(zip(digits["image"][:60], digits["label"][:60], strict=True)):
        folder = Path("photos") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round((pixels[0] + 1) * 127.5).astype(np.uint8)).save(folder / f"{index}.png")


def language() -> None:
    """A model of eleven words, its tokenizer, and 24 lines."""
    import tokenizers

    words = {word: index for index, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    random = np.random.default_rng(0)
    Path("lines.txt").write_text("\n".join(" ".join(random.choice(WORDS, 16)) for _ in range(24)))
    write_model(LANGUAGE, embedding=(len(WORDS), 256), middle=(256, 256), head=(256, len(WORDS)))


def audio() -> None:
    """A model that scores half a second, and four tones of a second at 8 kHz."""
    random = np.random.default_rng(0)
    Path("recordings").mkdir(exist_ok=True)
    for index in range(4):
        tone = np.sin(np.arange(8000) * random.uniform(0.2, 1)) * random.uniform(1000, 20000)
        with wave.open(f"recordings/{index}.wav", "wb") as file:
            file.setparams((1, 2, 8000, 8000, "NONE", ""))
            file.writeframes(tone.astype("<i2").tobytes())
    write_model(AUDIO, filters=(64, 1, 128), pattern=(64, 64, 3), last=(64, 8))


{"image": image, "language": language, "audio": audio}[sys.argv[1]]()
