"""Where the scales of a record lie in a tensor: the axis and the shape that some versions do not store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import bias_port, channel_axis, input_channel_axis, is_parameter, weight_ports
from qc.ir.facts.scopes import scopes_of, tensors_by_name
from qc.ir.graph import Op, Use, Value
from qc.ir.model import Model

from .by_layer import by_tensor
from .record import Document, TensorRecord


def located(document: Document, model: Model) -> Document:
    """The document by tensors, with axes, sizes of blocks, and which are parameters, from a float model.

    Tensors that the model does not have stay as they are.

    Raises:
        UsageError: the scales of a tensor do not fit its shape, or it is no constant.
    """
    document = by_tensor(document, model)
    values, scopes = tensors_by_name(model), scopes_of(model.graph)
    records = [
        _located(record, values[record.name], list(scopes.uses(values[record.name])), document.source)
        if record.name in values
        else record
        for record in document.records
    ]
    return replace(document, records=records)


def check_axes(document: Document, model: Model, remedy: str = "use 2.0.0") -> None:
    """Checks that scales lie along the axes that the versions without axes, 0.6.1 and 1.0.0, mean.

    Args:
        remedy: how whoever asks gets a version with axes.

    Raises:
        UsageError: those of a weight do not, and would be read back along another axis.
    """
    values, scopes = tensors_by_name(model), scopes_of(model.graph)
    for record in document.records:
        value = values.get(record.name)
        if value is None or value.const is None or record.axis is None:
            continue
        op = next((use.op for use in scopes.uses(value) if use.port in weight_ports(use.op)), None)
        meant = _axes(op, value)[0 if record.granularity == "channel" else 1]
        if meant is not None and meant != record.axis:
            raise UsageError(
                f"{document.source}: '{record.name}' has scales along axis {record.axis}, which versions "
                f"before 2.0.0 cannot say: they mean axis {meant}; {remedy}"
            )


def _located(record: TensorRecord, value: Value, uses: list[Use], source: str) -> TensorRecord:
    record = replace(record, is_parameter=value.const is not None and _is_parameter(record, uses))
    if record.granularity == "tensor":
        return record
    if value.const is None:
        raise UsageError(
            f"{source}: '{record.name}' has {record.scale.size} scales, which only constants can have, and "
            "it is computed in this model; run 'fold-constants' before"
        )
    shape = value.const.shape
    if record.axis is not None:
        return _checked(record, shape, source)
    op = next((use.op for use in uses if use.port in weight_ports(use.op)), None)
    axes = (0, None) if op is None and len(shape) == 1 else _axes(op, value)
    channels = shape[axes[0]] if axes[0] is not None else None
    if record.granularity == "channel" and record.scale.size == channels:
        return replace(record, axis=axes[0], as_stored=False)
    blocks = _block_grid(record, shape, axes)
    if blocks is None:
        raise _misfit(record, shape, source)
    return _with_blocks(record, shape, axes, blocks)


def _checked(record: TensorRecord, shape: tuple[int, ...], source: str) -> TensorRecord:
    """The record with its axis counted from the first, if its scales fit the shape."""
    assert record.axis is not None
    if not -len(shape) <= record.axis < len(shape):
        raise UsageError(
            f"{source}: '{record.name}' has axis {record.axis}, but is a tensor of shape {list(shape)}"
        )
    axis, size = record.axis % len(shape), record.block_size
    if record.granularity == "channel":
        scales, wanted = record.scale.shape, shape[axis : axis + 1]
    else:
        assert size is not None
        blocks = record.block_scales if record.block_scales is not None else record.scale
        scales, wanted = blocks.shape, tuple(-(-n // size) if i == axis else n for i, n in enumerate(shape))
        if len(scales) == len(wanted):  # a scale may be meant for several indices of an axis
            wanted = tuple(1 if scale == 1 else n for scale, n in zip(scales, wanted, strict=True))
    if scales != wanted:
        raise _misfit(record, shape, source)
    return replace(record, axis=axis)


def _misfit(record: TensorRecord, shape: tuple[int, ...], source: str) -> UsageError:
    return UsageError(
        f"{source}: '{record.name}' has {_scale_count(record)} scales, which do not fit a tensor of shape "
        f"{list(shape)}"
    )


def _scale_count(record: TensorRecord) -> int:
    return int((record.block_scales if record.block_scales is not None else record.scale).size)


def _is_parameter(record: TensorRecord, uses: list[Use]) -> bool:
    """Whether a constant counts as a parameter: a weight, a bias, or what has several scales."""
    several = record.granularity != "tensor"
    roles = (
        use.port in (*weight_ports(use.op), bias_port(use.op)) or is_parameter(use.op, use.port)
        for use in uses
        if isinstance(use.port, int)
    )
    return several or any(roles)


def _axes(op: Op | None, value: Value) -> tuple[int | None, int | None]:
    if op is None:
        return None, None
    return channel_axis(op, value), 0 if op.is_type("ConvTranspose") else input_channel_axis(op, value)


def _block_grid(
    record: TensorRecord, shape: tuple[int, ...], axes: tuple[int | None, int | None]
) -> tuple[int, int] | None:
    """Number of channels and of blocks in each, if that many scales fit."""
    channel, inner = axes
    if channel is None or inner is None:
        return None
    integers = record.block_scales if record.block_scales is not None else record.scale
    channels = shape[channel]
    if record.block_scales is not None and record.scale.size not in (1, channels):
        return None
    blocks, rest = divmod(integers.size, channels) if channels else (0, 1)
    if rest or not blocks or shape[inner] % blocks:
        return None
    size = shape[inner] // blocks
    return (channels, blocks) if record.block_size in (None, size) else None


def _with_blocks(
    record: TensorRecord, shape: tuple[int, ...], axes: tuple[int | None, int | None], blocks: tuple[int, int]
) -> TensorRecord:
    channel, inner = axes
    assert channel is not None and inner is not None
    nested = [1] * len(shape)
    nested[channel], nested[inner] = blocks

    def nest(numbers: np.ndarray) -> np.ndarray:
        if record.as_stored or channel < inner or len(shape) > 2:  # only matrices are turned, see by_channel
            return numbers.reshape(nested)
        return np.asarray(numbers.reshape(blocks).T).reshape(nested)

    two_level = record.block_scales is not None
    return replace(
        record,
        granularity="two-level" if two_level else "block",
        axis=inner,
        block_size=shape[inner] // blocks[1],
        as_stored=False,
        scale=record.scale if two_level else nest(record.scale),
        zero_point=record.zero_point if two_level else nest(record.zero_point),
        block_scales=nest(record.block_scales) if record.block_scales is not None else None,
    )
