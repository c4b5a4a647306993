"""The inputs of a model, and whether a feed fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, TensorProto, TensorShapeProto, ValueInfoProto, helper

from qc.ir.base.fix_shape import free_axes
from qc.ir.errors import DataError, a_type, nearest
from qc.ir.executor import Feed
from qc.ir.onnx.types import dimension
from qc.ir.value_type import Dimension, Shape


@dataclass(frozen=True)
class InputInfo:
    """What a model says of one of its inputs.

    Attributes:
        name: the name to feed it under.
        elem_type: the ``TensorProto.DataType``; 0 for an input that is not a tensor, which is not checked.
        shape: for each axis a number, or the name of a free dimension, or None; None if the rank is free.
        optional: whether an initializer, or ``value``, stands in when it is not fed.
        value: what an input of one number is fed with where data has nothing for it; None for others.
    """

    name: str
    elem_type: int
    shape: Shape | None
    optional: bool = False
    value: float | None = None

    @property
    def dtype(self) -> np.dtype | None:
        """The dtype of an array for this input; None for strings and for what is not a tensor."""
        if self.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            return None
        return np.dtype(helper.tensor_dtype_to_np_dtype(self.elem_type))

    def __str__(self) -> str:
        if self.elem_type == TensorProto.UNDEFINED:
            return "not a tensor"
        kind = str(self.dtype or "string")
        if self.shape is None:
            return f"{kind} of any shape"
        return f"{kind} ({', '.join('?' if size is None else str(size) for size in self.shape)})"


def model_inputs(model: ModelProto) -> tuple[InputInfo, ...]:
    """The inputs of the main graph in its order.

    An input that has an initializer is a default that may be overridden, hence optional.
    """
    defaults = {tensor.name for tensor in model.graph.initializer}
    defaults.update(sparse.values.name for sparse in model.graph.sparse_initializer)
    return tuple(_input_info(value, value.name in defaults) for value in model.graph.input)


def free_dimensions(inputs: Sequence[InputInfo]) -> dict[str, str]:
    """The dimensions without a length: ``input[axis]``, and the name, which without one is the same.

    Inputs with a default are left out; they need not be fed.
    """
    return {
        f"{info.name}[{axis}]": name
        for info in inputs
        if not info.optional
        for axis, name in free_axes(info.name, info.shape or ()).items()
    }


def with_lengths(inputs: Sequence[InputInfo], lengths: Mapping[str, int]) -> tuple[InputInfo, ...]:
    """The inputs with lengths for free dimensions, by the names that :func:`free_dimensions` gives them."""
    return tuple(info if info.optional else _with_lengths(info, lengths) for info in inputs)


def _with_lengths(info: InputInfo, lengths: Mapping[str, int]) -> InputInfo:
    if info.shape is None:
        return info
    names = free_axes(info.name, info.shape)
    shape = tuple(lengths.get(names.get(axis, ""), size) for axis, size in enumerate(info.shape))
    return replace(info, shape=shape)


def with_values(inputs: Sequence[InputInfo], values: Mapping[str, float]) -> tuple[InputInfo, ...]:
    """The inputs with values by their names; only one of one number can have a value."""
    return tuple(
        replace(info, optional=True, value=values[info.name])
        if info.name in values
        and info.dtype is not None
        and info.shape is not None
        and set(info.shape) <= {1}
        else info
        for info in inputs
    )


def with_stand_ins(feed: Feed, inputs: Sequence[InputInfo]) -> Feed:
    """A feed with the values of inputs for which it has nothing."""
    missing = {
        info.name: np.full(len(info.shape or ()) * (1,), info.value, info.dtype)
        for info in inputs
        if info.value is not None and info.name not in feed
    }
    return {**feed, **missing} if missing else feed


def _input_info(value: ValueInfoProto, optional: bool) -> InputInfo:
    if not value.type.HasField("tensor_type"):
        return InputInfo(value.name, TensorProto.UNDEFINED, None, optional)
    tensor = value.type.tensor_type
    shape: Shape | None = None
    if tensor.HasField("shape"):
        shape = tuple(_length(axis) for axis in tensor.shape.dim)
    return InputInfo(value.name, tensor.elem_type, shape, optional)


def _length(dim: TensorShapeProto.Dimension) -> Dimension:
    size = dimension(dim)
    return None if isinstance(size, int) and size < 0 else size


def check_feed(feed: object, inputs: Sequence[InputInfo], place: str) -> Feed:
    """Returns ``feed`` if it can be run on finite numbers; nothing is converted.

    Args:
        feed: an array for each input, by name; inputs with a default may be left out.
        place: where the feed came from, for the message.

    Raises:
        DataError: it is no mapping, a name is unknown or missing, or an array has the wrong dtype, rank or
            size, or holds NaN or infinity.
    """
    checked = check_fit(feed, inputs, place)
    for info in inputs:
        array = checked.get(info.name)
        if isinstance(array, np.ndarray) and array.dtype.kind not in "biuOUS" and not _is_finite(array):
            raise DataError(f"{place}: input '{info.name}' holds NaN or infinity{_instead(array)}")
    return checked


def _instead(array: np.ndarray) -> str:
    """What masks are given as, if an array may be one."""
    is_mask = not np.isnan(array).any() and not np.isposinf(array).any()
    return "; of a mask give -10000 for it here: the model may get -infinity when it runs" if is_mask else ""


def _is_finite(array: np.ndarray) -> bool:
    """Whether there is no NaN or infinity, without a mask, which would take memory and time.

    The sum of squares tells, and is quick; where it overflows, the extremes do.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if array.dtype in (np.float32, np.float64) and np.isfinite(np.vdot(array, array)):
            return True
        return not array.size or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def check_fit(feed: object, inputs: Sequence[InputInfo], place: str) -> Feed:
    """Like :func:`check_feed`, but takes NaN and infinity as well."""
    if not isinstance(feed, Mapping):
        raise DataError(f"{place}: expected a dictionary of arrays by input name, got {a_type(feed)}")
    check_names(list(feed), inputs, place)
    for info in inputs:
        if info.name in feed:
            _check_array(feed[info.name], info, f"{place}: input '{info.name}'")
    return feed


def check_names(names: Sequence[str], inputs: Sequence[InputInfo], place: str) -> None:
    """Raises DataError if a name is not that of an input, or an input without default has no name."""
    known = [info.name for info in inputs]
    for name in names:
        if name not in known:
            raise DataError(
                f"{place}: the model has no input '{name}'{nearest(str(name), known)}; "
                f"its inputs are {_listed_inputs(inputs)}"
            )
    for info in inputs:
        if info.name not in names and not info.optional:
            raise DataError(f"{place}: no array for the input '{info.name}' ({info})")


def unused_names(names: Sequence[str], inputs: Sequence[InputInfo]) -> list[str]:
    """Names that are no inputs; none if a required input is missing, as one of them may be that, misspelt."""
    if any(not info.optional and info.name not in names for info in inputs):
        return []
    known = {info.name for info in inputs}
    return [name for name in names if name not in known]


def the_only_input(inputs: Sequence[InputInfo], place: str) -> InputInfo:
    """The one input that has to be fed; raises DataError if there are several or none."""
    required = [info for info in inputs if not info.optional]
    if len(required) != 1:
        names = _listed([info.name for info in required])
        raise DataError(f"{place}: arrays without names need a model with one input, this one has {names}")
    return required[0]


def _check_array(array: object, info: InputInfo, subject: str) -> None:
    if info.elem_type == TensorProto.UNDEFINED:
        return
    if not isinstance(array, np.ndarray):
        raise DataError(f"{subject} must be a numpy array, got {a_type(array)}")
    expected = info.dtype
    fits = array.dtype.kind in "OUS" if expected is None else array.dtype == expected
    if not fits:
        raise DataError(
            f"{subject} has dtype {array.dtype}, the model takes {expected or 'strings'}; "
            f"{_dtype_advice(array.dtype, expected)}"
        )
    _check_shape(array.shape, info, subject)


def _dtype_advice(given: np.dtype, expected: np.dtype | None) -> str:
    """What to do about numbers of another type."""
    if expected is None:
        return "array.astype(str) makes strings of numbers"
    if given.kind in "OUS":
        return "text needs a tokenizer, and other objects have to become numbers before they are saved"
    raw = "prepare it as for training, and " if given.kind != expected.kind else ""
    return (
        f"{raw}save array.astype('{expected}'): qc never converts data, as that can hide a mistake in "
        "preprocessing"
    )


def _check_shape(shape: tuple[int, ...], info: InputInfo, subject: str) -> None:
    if info.shape is None:
        return
    if len(shape) != len(info.shape):
        raise DataError(f"{subject} has rank {len(shape)}, shape {shape}; the model takes {info}")
    for axis, (size, declared) in enumerate(zip(shape, info.shape, strict=True)):
        if isinstance(declared, int) and size != declared:
            raise DataError(
                f"{subject} has size {size} on axis {axis}, shape {shape}; the model takes {info}"
                f"{_layout_advice(shape, info)}"
            )


# For a layout that the model takes: the axes of the other one in its order.
_AXES = {"nchw": (0, 3, 1, 2), "nhwc": (0, 2, 3, 1)}


def in_layout(feed: Feed, inputs: Sequence[InputInfo], layout: str) -> dict[str, np.ndarray]:
    """A feed with those arrays transposed to a layout, ``nchw`` or ``nhwc``, that fit the model only then."""
    infos = {info.name: info for info in inputs}
    axes = _AXES[layout]
    return {
        name: array.transpose(axes)
        if name in infos and isinstance(array, np.ndarray) and _fits_only(array.shape, infos[name], axes)
        else array
        for name, array in feed.items()
    }


def _fits_only(shape: tuple[int, ...], info: InputInfo, axes: tuple[int, ...]) -> bool:
    """Whether a shape fits an input with its axes in this order and not as it is."""
    if info.shape is None or len(shape) != len(axes) or len(info.shape) != len(axes):
        return False
    return not _fits(shape, info.shape) and _fits(tuple(shape[axis] for axis in axes), info.shape)


def _fits(shape: tuple[int, ...], declared: Shape) -> bool:
    return all(not isinstance(size, int) or size == got for got, size in zip(shape, declared, strict=True))


def _layout_advice(shape: tuple[int, ...], info: InputInfo) -> str:
    """What to do about data in the other layout; nothing if that is not what is wrong."""
    for layout, axes in _AXES.items():
        if _fits_only(shape, info, axes):
            other = "NHWC" if layout == "nchw" else "NCHW"
            return (
                f"; your data is {other}: --layout {layout} transposes files, array.transpose{axes} an array"
            )
    return ""


def _listed_inputs(inputs: Sequence[InputInfo]) -> str:
    """The names of the inputs; of those with a default only how many, as a simulation has three per grid."""
    required = [info.name for info in inputs if not info.optional]
    optional = [info.name for info in inputs if info.optional]
    if not required or not optional:
        return _listed(required or optional)
    return f"{_listed(required)}, and {len(optional):,} with a default"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none at all"
