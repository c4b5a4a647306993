"""The functions of the native library, as ctypes calls them; csrc/c_api.cpp defines them."""

from __future__ import annotations

import ctypes
import functools

from .library import library_path


class Tensor(ctypes.Structure):
    """A contiguous array: its data, and its shape."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int64),
    )


class Quantizer(ctypes.Structure):
    """How a grid lies on an array, and its format."""

    _fields_ = (
        ("granularity", ctypes.c_char_p),
        ("axis", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("rounding", ctypes.c_char_p),
        ("format", ctypes.c_char_p),
    )


class Features(ctypes.Structure):
    """As ``qc::Window``: the features of rows; c_api.cpp says what is in it."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("axes", "channel_axis", "group", "transposed")),
        ("auto_pad", ctypes.c_char_p),
        *(
            (name, ctypes.POINTER(ctypes.c_int64))
            for name in ("kernel", "strides", "dilations", "pads", "output_padding", "output_shape")
        ),
    )


class DifferenceSums(ctypes.Structure):
    """How far y is from x: sums of ``x x``, ``y y``, ``x y`` and ``(x - y)^2``, the largest ``|x - y|``, and
    how many elements are equal.
    """

    _fields_ = (
        *((name, ctypes.c_double) for name in ("signal", "energy", "product", "noise", "largest")),
        ("equal", ctypes.c_int64),
    )


class Error(ctypes.Structure):
    """Room for one sentence."""

    _fields_ = (("text", ctypes.c_char * 512),)


@functools.cache
def library() -> ctypes.CDLL:
    """The library with the types of its functions."""
    found = ctypes.CDLL(str(library_path()))
    tensor, pointer = ctypes.POINTER(Tensor), ctypes.c_void_p
    error = ctypes.POINTER(Error)
    quantizer, text = ctypes.POINTER(Quantizer), ctypes.c_char_p
    found.qc_fake_quantize.argtypes = [tensor, text, quantizer, tensor, tensor, tensor, pointer, error]
    found.qc_squared_error.argtypes = [
        tensor,
        quantizer,
        tensor,
        tensor,
        tensor,
        ctypes.c_float,
        pointer,
        error,
    ]
    found.qc_histogram_errors.argtypes = [
        pointer,
        pointer,
        ctypes.c_int64,
        pointer,
        pointer,
        ctypes.c_int64,
        ctypes.c_double,
        ctypes.c_double,
        pointer,
    ]
    found.qc_histogram_errors.restype = None
    found.qc_compare.argtypes = [pointer, pointer, ctypes.c_int64, ctypes.POINTER(DifferenceSums)]
    found.qc_compare.restype = None
    found.qc_observe.argtypes = [tensor, text, ctypes.c_int64, *[pointer] * 5, error]
    found.qc_add_counts.argtypes = [pointer, pointer, ctypes.c_int64, pointer]
    found.qc_add_counts.restype = None
    found.qc_add_exact.argtypes = [pointer, ctypes.c_int64, pointer, pointer]
    found.qc_add_exact.restype = None
    features, number = ctypes.POINTER(Features), ctypes.c_int64
    found.qc_rows.argtypes = [tensor, features, pointer, error]
    found.qc_products.argtypes = [tensor, number, features, pointer, number, pointer, pointer, error]
    found.qc_instruction_sets.restype = ctypes.c_char_p
    found.qc_use_instruction_set.argtypes = [ctypes.c_char_p]
    return found
