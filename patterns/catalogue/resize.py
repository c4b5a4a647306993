"""Resizing of images: Resize, Upsample, and nearest neighbours by repetition."""

from __future__ import annotations

from ..fragments import either
from ..pattern import Pattern, attribute, op, value
from ..supergroup import BLOCK, supergroup

_FIRST_POSITION = 2  # axes 0 and 1 are samples and channels


@supergroup(BLOCK)
def resize() -> Pattern:
    """Resize, Upsample, or every element repeated by Unsqueeze, Expand or Tile, and Reshape.

    The new axis is behind the repeated one and is joined with it.
    """
    x = value("x")
    once = op.Unsqueeze(x, axes=attribute("axes", where=_are_behind_positions))
    repeated = op["Expand", "Tile"](op.Unsqueeze(once) | once)
    return either(op.Resize(x, ...), op.Upsample(x, ...), op.Reshape(repeated))


def _are_behind_positions(axes: object) -> bool:
    """Repeated heads of attention have the same form, but the new axis is behind axis 1."""
    found = axes if isinstance(axes, tuple) else (axes,)
    return all(isinstance(axis, int) and axis > _FIRST_POSITION for axis in found)
