"""Feeds that look like what networks are made for: pictures, pages of text, speech, music, tokens.

What a feed holds for an input is said in a line, ``KIND SHAPE [RANGE]``:

    line 1x3x48x320 -1:1        a line of printed text, black 0 becoming -1 and white becoming 1
    speech 1x16000              a voice, sampled at 16 kHz
    integers 1x128 0:1000       whole numbers from 0 to 999

The kinds are the functions of :data:`KINDS`. All draw from the generator that they are given: the same seed
gives the same feed. Needs numpy, and pillow for text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Shape = tuple[int, ...]
Random = np.random.Generator

RATE = 16_000
_TEXT = """the quick brown fox jumps over a lazy dog while seven people at Zurich station order coffee and
read about 42 new results from last year in volume 19 of their journal Total 1,280.50 EUR invoice number 7731
date 2024-05-17 please return signed copy before Friday morning thank you"""
_PLAIN = {"zeros", "ones"}
_RANDOM = {"normal", "uniform", "integers", "choice"}


@dataclass(frozen=True)
class Content:
    """What one input is fed with; ``low`` and ``high`` are what 0 and 1 of its kind become."""

    kind: str
    shape: Shape
    low: float = 0.0
    high: float = 1.0
    choices: tuple[str, ...] = ()

    @classmethod
    def parse(cls, line: str) -> Content:
        """The content that a line asks for; ``scalar`` stands for the shape of a single number."""
        kind, shape, *rest = line.split()
        if kind not in KINDS:
            raise ValueError(f"{line!r}: there is no kind {kind!r}; there are {', '.join(KINDS)}")
        sizes = () if shape == "scalar" else tuple(map(int, shape.split("x")))
        if kind == "choice":
            return cls(kind, sizes, choices=tuple(rest))
        low, high = map(float, rest[0].split(":")) if rest else (0.0, 1.0)
        return cls(kind, sizes, low, high)

    def draw(self, random: Random, dtype: np.dtype) -> np.ndarray:
        """One array of this content."""
        if self.kind == "choice":
            return random.choice(np.array(self.choices, object), self.shape)
        if self.kind == "integers":
            return random.integers(int(self.low), int(self.high), self.shape).astype(dtype)
        drawn = KINDS[self.kind](random, self.shape)
        return np.asarray(self.low + (self.high - self.low) * drawn).astype(dtype)


def kinds_of(contents: Mapping[str, Content]) -> str:
    """In a word or two what the inputs are fed with; ``random`` if nothing of it looks like real data."""
    kinds = {content.kind for content in contents.values()} - _PLAIN
    return "+".join(sorted(kinds - _RANDOM)) or "random"


# -- pictures: values from 0 to 1, channels wherever the shape has 1 or 3 of them -------------------------


def picture(random: Random, shape: Shape) -> np.ndarray:
    """Things of plain colours in front of a ground, lit from one side, with noise as in photographs."""
    return _pictures(random, shape, _scene)


def page(random: Random, shape: Shape) -> np.ndarray:
    """A printed page: a heading, paragraphs, ruled lines and a figure."""
    return _pictures(random, shape, _page)


def line(random: Random, shape: Shape) -> np.ndarray:
    """One line of printed text that fills the height."""
    return _pictures(random, shape, _line)


def _pictures(random: Random, shape: Shape, draw: Callable[[Random, int, int], np.ndarray]) -> np.ndarray:
    last = shape[-1] in (1, 3)
    height, width = shape[-3:-1] if last else shape[-2:]
    channels = shape[-1] if last else shape[-3]
    drawn = []
    for _ in range(int(np.prod(shape[:-3]))):
        colours = draw(random, height, width)
        colours = colours if channels == 3 else colours.mean(axis=2, keepdims=True)
        drawn.append(colours if last else colours.transpose(2, 0, 1))
    return np.clip(np.stack(drawn), 0, 1).reshape(shape)


def _scene(random: Random, height: int, width: int) -> np.ndarray:
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    scene = random.uniform(0.2, 0.8, 3) + (rows * random.uniform(-0.4, 0.4))[..., None]
    for _ in range(random.integers(3, 9)):
        y, x, size, tall = *random.uniform(0, 1, 2), random.uniform(0.05, 0.35), random.uniform(0.5, 2)
        dy, dx = (rows - y) / tall, columns - x
        inside = np.hypot(dy, dx) < size if random.random() < 0.5 else np.maximum(abs(dy), abs(dx)) < size
        scene[inside] = random.uniform(0, 1, 3) + (0.5 * (dx - dy))[inside, None]
    return scene + 0.08 * _texture(random, height, width)[..., None]


def _texture(random: Random, height: int, width: int) -> np.ndarray:
    """Noise whose amplitude falls with the frequency, of variance 1."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    spectrum = np.fft.rfft2(random.standard_normal((height, width))) / np.maximum(frequency, 1 / width)
    noise = np.fft.irfft2(spectrum, (height, width))
    return np.asarray((noise - noise.mean()) / (noise.std() or 1))


def _words(random: Random, count: int) -> str:
    return " ".join(random.choice(_TEXT.split(), count))


def _line(random: Random, height: int, width: int) -> np.ndarray:
    ground, ink = random.uniform(0.75, 1.0), random.uniform(0.0, 0.3)
    ground, ink = (ink, ground) if random.random() < 0.2 else (ground, ink)
    text = _words(random, 12)
    return _printed(random, height, width, ground, [(0, int(height * 0.1), int(height * 0.7), text, ink)])


def _page(random: Random, height: int, width: int) -> np.ndarray:
    texts, y, margin = [], height // 20, width // 15
    texts.append((margin, y, height // 18, _words(random, 4), 0.0))
    y += height // 8
    size = max(height // random.integers(28, 50), 8)
    while y < height - 2 * size:
        if random.random() < 0.15:
            y += int(2.5 * size)
        texts.append((margin, y, size, _words(random, int(random.integers(3, 14))), random.uniform(0, 0.4)))
        y += int(1.5 * size)
    drawn = _printed(random, height, width, random.uniform(0.85, 1), texts)
    if random.random() < 0.7:
        tall, wide = height // 4, width // 3
        top = random.integers(0, height - tall)
        drawn[top : top + tall, -wide - margin : -margin] = _scene(random, tall, wide)
    drawn[random.integers(0, height), margin:-margin] = 0
    return drawn


def _printed(
    random: Random, height: int, width: int, ground: float, texts: list[tuple[int, int, int, str, float]]
) -> np.ndarray:
    """Texts of the given place, size and grey on a ground, with the unevenness of a scan."""
    from PIL import Image, ImageDraw, ImageFont

    paper = Image.new("L", (width, height), int(255 * ground))
    pen = ImageDraw.Draw(paper)
    for x, y, size, text, ink in texts:
        pen.text((x, y), text, fill=int(255 * ink), font=ImageFont.load_default(size))
    scan = np.asarray(paper, np.float64) / 255 + 0.02 * _texture(random, height, width)
    return scan[..., None] * random.uniform(0.95, 1.0, 3)


# -- sound: values from -1 to 1, samples along the last axis ----------------------------------------------


def speech(random: Random, shape: Shape) -> np.ndarray:
    """Syllables between pauses: a buzz through resonances that move, or noise, with a little room noise."""
    return _sounds(random, shape, _voice)


def melody(random: Random, shape: Shape) -> np.ndarray:
    """Notes with overtones that die away, two or three at a time."""
    return _sounds(random, shape, _notes)


def _sounds(random: Random, shape: Shape, make: Callable[[Random, int], np.ndarray]) -> np.ndarray:
    channels = shape[-1] == 1  # as in (batch, samples, 1)
    samples = shape[-2] if channels else shape[-1]
    made = [make(random, samples) for _ in range(int(np.prod(shape)) // samples)]
    return np.clip(np.stack(made), -1, 1).reshape(shape)


def _voice(random: Random, samples: int) -> np.ndarray:
    sound = 0.003 * random.standard_normal(samples)
    start = int(random.integers(0, max(samples // 8, 1)))
    while start < samples:
        length = int(RATE * random.uniform(0.08, 0.3))
        sound[start : start + length] += _syllable(random, length)[: samples - start]
        start += length + int(RATE * random.choice([0.02, 0.05, 0.3], p=[0.5, 0.3, 0.2]))
    return sound


def _syllable(random: Random, length: int) -> np.ndarray:
    """Harmonics weighed by three resonances, or the same of noise."""
    seconds = np.arange(length) / RATE
    envelope = np.sin(np.pi * np.arange(length) / length) ** 0.5 * random.uniform(0.1, 0.5)
    formants = np.array([random.uniform(250, 850), random.uniform(850, 2400), random.uniform(2400, 3400)])
    if random.random() < 0.25:
        return np.asarray(0.2 * envelope * np.diff(random.standard_normal(length + 1)))
    pitch = random.uniform(85, 255) * (1 + 0.1 * np.sin(2 * np.pi * 3 * seconds))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    tones = np.arange(1, 28)
    gains = sum(1 / (1 + ((tones * pitch.mean() - formant) / 90) ** 2) for formant in formants) / tones**0.5
    buzz = (gains[:, None] * np.sin(tones[:, None] * phase)).sum(axis=0)
    return np.asarray(envelope * buzz / (np.abs(buzz).max() or 1))


def _notes(random: Random, samples: int) -> np.ndarray:
    sound = 0.001 * random.standard_normal(samples)
    start = 0
    while start < samples:
        length = int(RATE * random.choice([0.2, 0.4, 0.8]))
        seconds = np.arange(min(length, samples - start)) / RATE
        for _ in range(random.integers(1, 4)):
            pitch = 440 * 2 ** (random.integers(-24, 13) / 12)
            tones = np.arange(1, 9)
            waves = np.sin(2 * np.pi * pitch * tones[:, None] * seconds) * 0.7 ** tones[:, None]
            sound[start : start + length] += 0.25 * np.exp(-3 * seconds) * waves.sum(axis=0)
        start += length
    return sound


def spectrogram(random: Random, shape: Shape) -> np.ndarray:
    """Logarithms of the magnitudes of a melody, frames times bands, the bands at equal intervals of pitch."""
    frames, bands = shape[-2:]
    window, hop = 2048, 160
    sound = _notes(random, window + hop * frames)
    cut = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop][:frames] * np.hanning(window)
    magnitudes = np.abs(np.fft.rfft(cut))
    places = np.geomspace(4, window // 2, bands + 1).astype(int)
    summed = np.stack(
        [magnitudes[:, low : max(low + 1, high)].mean(axis=1) for low, high in pairwise(places)],
        axis=1,
    )
    return np.broadcast_to(np.log10(1 + summed), shape)


# -- the rest ---------------------------------------------------------------------------------------------


def text(random: Random, shape: Shape) -> np.ndarray:
    """The codes of characters of sentences, as shares of 255."""
    letters = _words(random, int(np.prod(shape)) // 3).encode()[: int(np.prod(shape))]
    return np.frombuffer(letters, np.uint8).reshape(shape) / 255


def _normal(random: Random, shape: Shape) -> np.ndarray:
    return random.standard_normal(shape)


def _uniform(random: Random, shape: Shape) -> np.ndarray:
    return random.uniform(size=shape)


def _zeros(random: Random, shape: Shape) -> np.ndarray:
    return np.zeros(shape)


def _ones(random: Random, shape: Shape) -> np.ndarray:
    return np.ones(shape)


KINDS: dict[str, Callable[[Random, Shape], np.ndarray]] = {
    "picture": picture,
    "page": page,
    "line": line,
    "speech": speech,
    "melody": melody,
    "spectrogram": spectrogram,
    "text": text,
    "normal": _normal,
    "uniform": _uniform,
    "integers": _uniform,
    "choice": _uniform,
    "zeros": _zeros,
    "ones": _ones,
}
