"""InstanceNorm and GroupNorm: statistics over positions, a scale and a bias for each channel."""

from __future__ import annotations

from ..attributes import attribute_of
from ..fragments import either, floating, parameter, varying_axes, widened
from ..pattern import Pattern, attribute, choice, op, value
from ..supergroup import Match, supergroup
from .normalizations import filled, shape_of, standardized


def _refuse_instance_norm(match: Match) -> str | None:
    """Whether the statistics are those of single channels, and the parameters one number per channel."""
    rank, axes = match.captures["x"].type.rank, match.attributes.get("axes")
    varying = _varying(match)
    if match.root.is_type("InstanceNormalization"):
        return None
    if not isinstance(axes, tuple):
        by_instance = any(op.is_type("InstanceNormalization") for op in match.ops)
        per_channel = varying <= {1 - rank} if rank is not None else -1 not in varying
        return None if by_instance and per_channel else "parameters that are not one number per channel"
    if rank is None or len(axes) != rank - 2 or 0 in axes:
        return f"a norm over the axes {list(axes)}"
    (channel,) = set(range(1, rank)) - set(axes)
    if varying != {channel - rank} and (varying or rank < 4):
        return f"parameters that vary along the axes {sorted(varying)}, counted from the end"
    return None


def _refuse_group_norm(match: Match) -> str | None:
    """Whether there is one parameter per channel, or else the shapes show that channels are grouped."""
    taken, varying = match.choices["parameters"], _varying(match)
    if taken == "grouped":
        return None if _is_per_group(match) else "parameters of a norm over whole axes"
    if taken == "channels" and len(varying) > 1:
        return "parameters that are not one number per channel"
    if taken == "proven" and not _groups_channels(match):
        return "shapes that do not show groups of channels"
    return None


def _varying(match: Match) -> set[int]:
    """The axes, counted from the end, along which scale or bias vary."""
    shapes = (shape_of(match, name) for name in ("scale", "bias"))
    return {axis for shape in shapes if shape is not None for axis in varying_axes(shape)}


def _is_per_group(match: Match) -> bool:
    """Whether parameters that are applied to the groups differ between them."""
    axes, rank = match.attributes["axes"], match.captures["grouped"].type.rank
    assert isinstance(axes, tuple)
    return rank is not None and not _varying(match) <= {axis - rank for axis in axes}


def _groups_channels(match: Match) -> bool:
    """Whether the Reshape before the norm splits axis 1 into groups, as far as one can tell."""
    before, grouped = match.captures["x"].type.shape, match.captures["grouped"]
    after = grouped.type.shape
    if before is None or after is None or len(before) < 3 or len(after) < 3:
        reshape = grouped.producer
        assert reshape is not None
        target = attribute_of(reshape, "shape", reshape.inputs)
        return isinstance(target, tuple) and (target[0], target[-1]) == (0, -1)
    (batch, channels), (same_batch, groups) = before[:2], after[:2]
    if not isinstance(channels, int) or not isinstance(groups, int) or batch != same_batch:
        return False
    return 0 < groups < channels and channels % groups == 0


@supergroup("normalization", inner=("epsilon", "grouped"), check=_refuse_instance_norm)
def instance_norm() -> Pattern:
    """a norm over the positions of a channel, with constant scale and bias, written out or as one op."""
    x, scale, bias = value("x", where=floating), parameter("scale"), parameter("bias")
    one_op = op.InstanceNormalization(value("x"), value(), value())
    parts = standardized(x, x, attribute("axes", where=_are_positions))
    affine = parts.scaled(scale)
    return either(
        _with_parameters(one_op), one_op, parts.folded(scale, bias), affine + bias, affine, parts.plain
    )


def _are_positions(axes: object) -> bool:
    """Two axes and more, or axis 1: what is left over is samples and channels."""
    return isinstance(axes, tuple) and 0 not in axes and (len(axes) > 1 or axes == (1,))


@supergroup("normalization", inner=("epsilon", "grouped"), check=_refuse_group_norm)
def group_norm() -> Pattern:
    """a norm over groups of channels, with constant scale and bias, written out or as one op."""
    x, scale, bias = value("x", where=floating), parameter("scale"), parameter("bias")
    grouped = op.Reshape(op.Reshape(x) | x).named("grouped")
    by_instance = op.Reshape(op.InstanceNormalization(grouped, filled(1), filled(0)))
    parts = standardized(grouped, grouped, attribute("axes"))
    affine = parts.scaled(scale)
    inside = op.Reshape(either(parts.folded(scale, bias), affine + bias, affine))
    ungrouped = standardized(x, grouped, attribute("axes")).scaled(
        scale
    )  # Flax: statistics alone are grouped
    bare = op.Reshape(widened(parts.plain))
    flat = _with_parameters(op.Cast(op.Reshape(bare)) | op.Reshape(bare))  # as the function body of ONNX
    return choice(
        "parameters",
        {
            "one op": op.GroupNormalization(x, value("scale"), value("bias")),
            "none": by_instance,
            "grouped": inside,
            "channels": either(
                op.Reshape(flat),
                _with_parameters(by_instance | bare),
                ungrouped + bias,
                ungrouped,
            ),
            "proven": bare,
        },
    )


def _with_parameters(plain: Pattern) -> Pattern:
    scale, bias = parameter("scale"), parameter("bias")
    return either(plain * scale + bias, plain * scale, plain + bias)
