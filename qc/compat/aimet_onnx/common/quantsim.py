"""What scripts take from ``aimet_common.quantsim``: grids of ranges, and the version of encodings files."""

from __future__ import annotations

import os

import numpy as np

from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import QuantSpec
from qc.passes.encodings import VERSIONS
from qc.passes.quantize.aimet.arithmetic import grid_of_range

from ..defs import TfEncoding

Numbers = float | np.ndarray

VALID_ENCODING_VERSIONS = tuple(VERSIONS)
# Of files that are exported without one; scripts set it.
encoding_version = os.environ.get("AIMET_ENCODING_VERSION", "1.0.0")


def calculate_delta_offset(
    min_val: Numbers,
    max_val: Numbers,
    bitwidth: int,
    use_symmetric_encodings: bool,
    use_strict_symmetric: bool,
) -> tuple[Numbers, Numbers]:
    """Step and offset of the grid that covers ranges, which zero belongs to.

    Where nothing is negative, a symmetric grid begins at zero.
    """
    symmetric = use_symmetric_encodings and bool(np.any(np.asarray(min_val) < 0))
    format = IntFormat.of_width(bitwidth, signed=symmetric)
    spec = QuantSpec(format, symmetric, symmetric and use_strict_symmetric)
    grid = grid_of_range(spec, np.asarray(min_val), np.asarray(max_val))
    if isinstance(min_val, np.ndarray):
        return grid.delta, grid.offset
    return float(grid.delta), int(grid.offset)


def compute_min_max_given_delta_offset(
    delta: Numbers,
    offset: Numbers,
    bitwidth: int,
    use_symmetric_encodings: bool,
    use_strict_symmetric: bool,
) -> tuple[Numbers, Numbers]:
    """The real values of the first and the last code."""
    steps = 2**bitwidth - (2 if use_symmetric_encodings and use_strict_symmetric else 1)
    return delta * offset, delta * (offset + steps)


def create_encoding_from_min_max(
    min_val: float,
    max_val: float,
    bitwidth: int,
    use_symmetric_encodings: bool,
    use_strict_symmetric: bool,
) -> TfEncoding:
    """The grid that covers a range."""
    symmetry = use_symmetric_encodings, use_strict_symmetric
    delta, offset = calculate_delta_offset(min_val, max_val, bitwidth, *symmetry)
    low, high = compute_min_max_given_delta_offset(delta, offset, bitwidth, *symmetry)
    return TfEncoding(float(low), float(high), float(delta), float(offset), bitwidth)


def recompute_grid_params(
    current_encoding: TfEncoding,
    bitwidth: int,
    use_symmetric_encoding: bool,
    use_strict_symmetric: bool = False,
) -> TfEncoding:
    """The grid of another width that covers the range of one."""
    ends = current_encoding.min, current_encoding.max
    return create_encoding_from_min_max(*ends, bitwidth, use_symmetric_encoding, use_strict_symmetric)
