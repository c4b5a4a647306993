"""Fourier transforms as products with cosines and sines."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

from .builder import Builder, Writer, lengths_of

_LONGEST = 2048  # of a DFT, whose matrix has the square of that


def short_time(op: Op) -> Writer | None:
    """A STFT of real data as a Conv, whose window moves by the step between frames, where both are known."""
    signal, *given = (*op.inputs, None, None)[:4]
    lengths = lengths_of(signal)
    step, window, length = (None if value is None else fixed_constant(value) for value in given)
    is_unknown = any(value is not None and fixed_constant(value) is None for value in given)
    is_real = lengths is not None and (len(lengths) == 2 or lengths[2:] == (1,))
    if signal is None or lengths is None or step is None or is_unknown or not is_real:
        return None
    if window is not None:
        shape = window.numpy()
    elif length is not None:
        shape = np.ones(int(length.numpy().item()))
    else:
        return None
    hop, taps, (batch, samples) = int(step.numpy().item()), shape.size, lengths[:2]
    bins = taps // 2 + 1 if op.attribute("onesided", 1) else taps
    frames = 1 + (samples - taps) // hop
    if frames < 1:
        return None

    def write(build: Builder) -> list[Value | None]:
        angles = 2 * np.pi / taps * (np.outer(np.arange(bins), np.arange(taps)) % taps)
        waves = np.stack([np.cos(angles), -np.sin(angles)], axis=1) * shape
        weight = build.constant(waves.reshape(2 * bins, 1, taps).astype(np.float32), "waves")
        row = build.reshape(signal, (batch, 1, samples))
        made = build.op("Conv", row, weight, shape=(batch, 2 * bins, frames), strides=[hop])
        turned = build.op("Transpose", made, shape=(batch, frames, 2 * bins), perm=[0, 2, 1])
        return [build.reshape(turned, (batch, frames, bins, 2))]

    return write


def transform(op: Op) -> Writer | None:
    """A DFT of a known length along a known axis as a MatMul."""
    read = op.inputs
    signal, lengths, given = read[0], lengths_of(read[0]), read[1] if len(read) > 1 else None
    axis, length = attribute_of(op, "axis", read), fixed_constant(given)
    if signal is None or lengths is None or not isinstance(axis, int) or (given and length is None):
        return None
    axis %= len(lengths)
    places, is_inverse, is_half = lengths[axis], *(bool(op.attribute(n, 0)) for n in ("inverse", "onesided"))
    whole = 2 * (places - 1) if is_inverse and is_half else places
    size = whole if length is None else int(length.numpy().item())
    if max(size, places) > _LONGEST or axis == len(lengths) - 1:
        return None
    waves = _waves(places, lengths[-1], size, is_inverse, is_half)
    order = list(range(len(lengths)))
    order[axis], order[-2] = order[-2], axis  # its own inverse

    def write(build: Builder) -> list[Value | None]:
        kept, (_, parts, made, made_parts) = [lengths[place] for place in order[:-2]], waves.shape
        turned = _ordered(build, signal, order, (*kept, places, parts))
        flat = build.reshape(turned, (*kept, places * parts))
        matrix = build.constant(waves.reshape(places * parts, made * made_parts), "waves")
        found = build.op("MatMul", flat, matrix, shape=(*kept, made * made_parts))
        apart = build.reshape(found, (*kept, made, made_parts))
        return [_ordered(build, apart, order, (*lengths[:axis], made, *lengths[axis + 1 : -1], made_parts))]

    return write


def _ordered(build: Builder, data: Value, order: list[int], shape: tuple[int, ...]) -> Value:
    return data if order == sorted(order) else build.op("Transpose", data, shape=shape, perm=order)


def _waves(places: int, parts: int, size: int, is_inverse: bool, is_half: bool) -> np.ndarray:
    """What the real (and imaginary) part of each place adds to those of each result; float32.

    Places behind ``size`` add nothing, and places that are not there are zero. Of real data only half of the
    results are made, or the other half is that of the one which is given, and results are real.

    Returns:
        Of shape (places, parts, results, parts of results).
    """
    results = size // 2 + 1 if is_half and not is_inverse else size
    angles = 2 * np.pi / size * (np.outer(np.arange(places), np.arange(results)) % size)
    cos, sin = np.cos(angles), np.sin(-angles if is_inverse else angles)
    waves = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)[:, :parts]
    if is_inverse and is_half:
        twice = (np.arange(places) * 2) % size != 0  # all but the first place and the middle one
        waves = waves[..., :1] * np.where(twice, 2, 1)[:, None, None, None]
        waves[size // 2 + 1 :] = 0
    waves[size:] = 0
    return (waves / (size if is_inverse else 1)).astype(np.float32)
