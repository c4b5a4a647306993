"""Attributes of an AveragePool that change nothing, for which some runtimes have no or a wrong kernel."""

from __future__ import annotations

from qc.ir.graph import Op

_LAYOUT = 2  # batch and channels, in front of the axes of a picture
_READ = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")


def needless_attributes(op: Op) -> list[str]:
    """Those of an AveragePool with which it computes what it does without.

    They are dilations of 1, padding that is counted where there is none, and lengths that are rounded up
    where windows fit.
    """
    if not op.is_type("AveragePool") or any(map(op.refers, _READ)):
        return []
    found = ["dilations"] if set(op.attribute("dilations", ())) == {1} else []
    is_padded = any(op.attribute("pads", ())) or op.attribute("auto_pad", "NOTSET").startswith("SAME")
    if op.attribute("count_include_pad", 0) and not is_padded:
        found.append("count_include_pad")
    return [*found, "ceil_mode"] if op.attribute("ceil_mode", 0) and _fits(op) else found


def _fits(op: Op) -> bool:
    """Whether the last window along each axis ends where the padded picture does."""
    data, windows = op.inputs[0], op.attribute("kernel_shape", ())
    lengths = (data.type.shape or ())[_LAYOUT:] if data is not None else ()
    if len(lengths) != len(windows) or op.attribute("auto_pad", "NOTSET") != "NOTSET":
        return False
    ones, zeros = [1] * len(windows), [0] * 2 * len(windows)
    steps, dilations = op.attribute("strides", ones), op.attribute("dilations", ones)
    pads = op.attribute("pads", zeros)
    around = map(sum, zip(pads[: len(windows)], pads[len(windows) :], strict=True))
    return all(
        isinstance(length, int) and (length + padding - (window - 1) * dilation - 1) % step == 0
        for length, padding, window, dilation, step in zip(
            lengths, around, windows, dilations, steps, strict=True
        )
    )
