"""A voice detector that hears sound frame by frame and hands on its state: Silero VAD, as its package has it.

`python voice.py` needs `pip install --no-deps silero-vad==6.2.3`. Samples for calibration are what the
model is given while it runs, its own states included; the quantized model is judged on its own states, too,
as errors may add up.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime

import qc

RATE, FRAME, BEFORE = 16000, 512, 64  # samples in a second, in a frame, and of the frame before
_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240))  # their formants in Hz
Feed = dict[str, np.ndarray]


def sound(seconds: int, seed: int) -> np.ndarray:
    """Sung syllables, five in a second, with a pause in every other second; float32 between -1 and 1."""
    random = np.random.default_rng(seed)
    heard = random.normal(0, 0.01, seconds * RATE)
    time = np.arange(RATE // 5) / RATE
    for start in range(0, heard.size, time.size):
        if start // RATE % 2 == 0:
            pitch = random.uniform(90, 220) * np.linspace(1.05, 0.92, time.size)
            harmonics = np.arange(1, 36)[:, None] * pitch
            formants = _VOWELS[random.integers(len(_VOWELS))]
            gain = sum(1 / (1 + ((harmonics - f) / 90) ** 2) for f in formants)
            vowel = (np.sin(2 * np.pi * np.cumsum(harmonics, axis=1) / RATE) * gain).sum(axis=0)
            heard[start : start + time.size] += (
                0.4 * vowel * np.hanning(time.size) ** 0.25 / np.abs(vowel).max()
            )
    return heard.astype(np.float32)


def listen(path: str | Path, heard: np.ndarray) -> Iterator[tuple[Feed, float]]:
    """Runs a model over sound: what it was given for each frame, and the probability of a voice."""
    session = onnxruntime.InferenceSession(path)
    state = np.zeros((2, 1, 128), np.float32)
    for start in range(BEFORE, heard.size - FRAME, FRAME):
        frame = heard[None, start - BEFORE : start + FRAME]
        feed = {"input": frame, "state": state, "sr": np.array(RATE)}
        probability, state = session.run(None, feed)
        yield feed, probability.item()


package = find_spec("silero_vad")  # not imported, as the package wants PyTorch and its model does not
assert package is not None and package.origin is not None, "pip install --no-deps silero-vad==6.2.3"
model = Path(package.origin).parent / "data" / "silero_vad.onnx"
feeds = [feed for seed in range(4) for feed, _ in listen(model, sound(4, seed))]
qc.compile(model, "w8a8", data=feeds[::4]).save("voice.q.onnx")
test = sound(20, seed=9)
wanted, found = (np.array([voice for _, voice in listen(path, test)]) for path in (model, "voice.q.onnx"))
print(f"voice {np.mean(wanted > 0.5):.2f}")
print(f"agree {np.mean((wanted > 0.5) == (found > 0.5)):.3f}")
print(f"size {Path('voice.q.onnx').stat().st_size / model.stat().st_size:.2f}")
