"""Where the scales of a record lie in a tensor: the axis and the shape that some versions do not store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import UsageError
from ..graph import Op, Use, Value
from ..model import Model
from ..op_traits import bias_port, channel_axis, input_channel_axis, is_parameter, weight_port
from ..scopes import scopes_of, tensors_by_name
from .record import Document, TensorRecord


def located(document: Document, model: Model) -> Document:
    """The document with axes, sizes of blocks, and which tensors are parameters, from a float model.

    Tensors that the model does not have stay as they are.

    Raises:
        UsageError: the scales of a tensor do not fit its shape, or it is no constant.
    """
    values, scopes = tensors_by_name(model.graph), scopes_of(model.graph)
    records = [
        _located(record, values[record.name], list(scopes.uses(values[record.name])), document.source)
        if record.name in values
        else record
        for record in document.records
    ]
    return replace(document, records=records)


def _located(record: TensorRecord, value: Value, uses: list[Use], source: str) -> TensorRecord:
    record = replace(record, is_parameter=value.const is not None and _is_parameter(record, uses))
    if record.granularity == "tensor" or record.axis is not None:
        return record
    if value.const is None:
        raise UsageError(
            f"{source}: '{record.name}' has {record.scale.size} scales, which only constants can have, and "
            "it is computed in this model; run 'fold-constants' before"
        )
    shape = value.const.shape
    op = next((use.op for use in uses if weight_port(use.op) == use.port), None)
    axes = (0, None) if op is None and len(shape) == 1 else _axes(op, value)
    channels = shape[axes[0]] if axes[0] is not None else None
    if record.granularity == "channel" and record.scale.size == channels:
        return replace(record, axis=axes[0], as_stored=False)
    blocks = _block_grid(record, shape, axes)
    if blocks is None:
        raise UsageError(
            f"{source}: '{record.name}' has {record.scale.size} scales, which do not fit a tensor of shape "
            f"{list(shape)}"
        )
    return _with_blocks(record, shape, axes, blocks)


def _is_parameter(record: TensorRecord, uses: list[Use]) -> bool:
    """Whether a constant counts as a parameter: a weight, a bias, or what has several scales."""
    several = record.granularity != "tensor"
    roles = (
        use.port in (weight_port(use.op), bias_port(use.op)) or is_parameter(use.op, use.port)
        for use in uses
        if isinstance(use.port, int)
    )
    return several or any(roles)


def _axes(op: Op | None, value: Value) -> tuple[int | None, int | None]:
    if op is None:
        return None, None
    return channel_axis(op, value), input_channel_axis(op, value)


def _block_grid(
    record: TensorRecord, shape: tuple[int, ...], axes: tuple[int | None, int | None]
) -> tuple[int, int] | None:
    """Number of channels and of blocks in each, if that many scales fit."""
    channel, inner = axes
    if channel is None or inner is None:
        return None
    integers = record.block_scales if record.block_scales is not None else record.scale
    channels = shape[channel]
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
        if record.as_stored or channel < inner:
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
