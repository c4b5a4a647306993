"""Fourier transforms as products with cosines and sines."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Writer, lengths_of


def short_time(op: Op) -> Writer | None:
    """A STFT of real data as a Conv, whose window moves by the step between frames, where both are known."""
    signal, *given = (*op.graph.op_inputs(op), None, None)[:4]
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
