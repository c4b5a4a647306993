"""Artificial speech: sung vowels with pauses in between, which detectors of voices take for speech."""

from __future__ import annotations

import numpy as np

# The first three formants of some vowels in Hz (Peterson and Barney, 1952, means of men), and their widths.
_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
_WIDTHS = (60, 90, 150)


def speech(rng: np.random.Generator, seconds: float, rate: int) -> tuple[np.ndarray, np.ndarray]:
    """Words of some syllables in weak noise.

    Args:
        rate: samples per second.

    Returns:
        The sound as float32 between -1 and 1, and for each sample whether somebody speaks.
    """
    sound = rng.normal(size=int(seconds * rate)) * 0.01
    spoken = np.zeros(sound.size, bool)
    at = int(rng.uniform(0.2, 0.8) * rate)
    while at < sound.size:
        pitch = rng.uniform(90, 220)
        for _ in range(rng.integers(3, 8)):
            syllable = _syllable(rng, pitch, rate)[: max(sound.size - at, 0)]
            sound[at : at + syllable.size] += syllable
            spoken[at : at + syllable.size] = True
            at += syllable.size
        at += int(rng.uniform(0.5, 1.2) * rate)
    return sound.astype(np.float32), spoken


def _syllable(rng: np.random.Generator, pitch: float, rate: int) -> np.ndarray:
    """A vowel of falling pitch: harmonics that are loud near its formants."""
    count = int(rng.uniform(0.12, 0.28) * rate)
    time = np.arange(count) / rate
    tremor = 1 + 0.08 * np.sin(2 * np.pi * (rng.uniform(2, 5) * time + rng.uniform()))
    frequency = pitch * tremor * np.linspace(1.05, 0.92, count)
    order = np.arange(1, int(0.45 * rate / pitch))[:, None]
    harmonics = order * frequency
    formants = _VOWELS[rng.integers(len(_VOWELS))]
    gain = sum(1 / (1 + ((harmonics - f) / w) ** 2) for f, w in zip(formants, _WIDTHS, strict=True))
    phase = 2 * np.pi * np.cumsum(frequency) / rate
    vowel = np.sum(gain * np.sin(order * phase), axis=0) * np.hanning(count) ** 0.25
    return np.asarray(0.4 * vowel / np.abs(vowel).max())
