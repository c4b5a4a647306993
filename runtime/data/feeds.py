"""What a source gives, as a feed: arrays by input name, whatever holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qc.ir.errors import DataError, a_type

from .inputs import InputInfo, the_only_input, unused_names
from .source import with_batch_axis


def as_array(value: Any, place: str) -> Any:
    """A numpy array of anything that numpy or DLPack can view as one; what is none is given back as it is.

    Raises:
        DataError: it cannot be viewed, as an array on a GPU cannot.
    """
    if isinstance(value, np.ndarray) or not is_array(value):
        return value
    try:
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    except Exception as error:  # whatever the library of the array raises
        raise DataError(
            f"{place}: {a_type(value)} cannot be read as a numpy array: {' '.join(str(error).split())}"
        ) from error


def is_array(value: object) -> bool:
    """Whether numpy or DLPack should be able to view it as an array."""
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def as_feed(item: object, inputs: Sequence[InputInfo], place: str) -> tuple[object, list[str]]:
    """The arrays of a sample by input name, and the names in it that the model does not take.

    A sample is a mapping, an array for the only input, or a tuple or list of arrays in the order of the
    inputs, with one more behind them for a label, as data loaders give them. The latter two may lack a batch
    axis of length 1. What is nothing of this is given back as it is.

    Raises:
        DataError: a tuple has another length, or an array cannot be read.
    """
    if isinstance(item, Mapping):
        unused = unused_names(list(item), inputs)
        known = {name: value for name, value in item.items() if name not in unused}
        return {name: as_array(value, f"{place}: input '{name}'") for name, value in known.items()}, unused
    if is_array(item):
        info = the_only_input(inputs, place)
        return {info.name: with_batch_axis(as_array(item, place), info)}, []
    if not isinstance(item, (tuple, list)):
        return item, []
    required = [info for info in inputs if not info.optional]
    with_fixed = [info for info in inputs if not info.optional or info.value is not None]
    if len(item) == len(with_fixed):  # a value that stands in may be given all the same
        required = with_fixed
    if len(item) not in (len(required), len(required) + 1):
        raise DataError(
            f"{place}: {len(item)} values are neither one for each of the {len(required)} inputs nor those "
            "and a label"
        )
    feed = {
        info.name: with_batch_axis(as_array(value, f"{place}: input '{info.name}'"), info)
        for info, value in zip(required, item, strict=False)
    }
    return feed, ["label"] if len(item) > len(required) else []
