"""Errors of layers in words."""

from __future__ import annotations

import numpy as np


def ratio(power: float, error: float) -> str:
    """A signal-to-noise ratio, of mean squares: ``31.4 dB``."""
    return f"{10 * np.log10(power / error):.1f} dB" if power > 0 and error > 0 else "exact"
