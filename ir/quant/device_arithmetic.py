"""How a device makes codes of what it computed in integers.

An accelerator multiplies what it accumulated by a number of few bits instead of dividing by the scale, so
that its codes differ from those of exact arithmetic, mostly by one step near ties. The kinds of arithmetic
here are those of Qualcomm's HTP, found by offering models of one op to its emulator
(``benches/device_arithmetic.py``). The kernels are those of ``runtime/csrc/requantize.h``, which
``tests/support/requantize.py`` defines in numpy.
"""

from __future__ import annotations

import enum


class Arithmetic(enum.Enum):
    """How accumulated integers become codes.

    Attributes:
        MATRIX: the zero point, in accumulated steps, is added to the sum; its low bits are cut off, so that
            4 or 5 stay behind those of the code; what is left is multiplied by a number of 11 bits, and
            ties go up.
        VECTOR: the zero point is added likewise; the whole sum is multiplied by a number of 15 bits, ties
            go up.
        CODES: the sum is multiplied by a number of 15 bits, ties go up, and the zero point is added to the
            code.
        HALVES: as CODES, but a 16th of the power of two above the multiplier is added before ties are looked
            for, as if what is multiplied were rounded to an eighth of it first, unless the multiplier is at
            least 1/2. Of several multipliers this is the largest one, and the others are whole numbers of
            its units.
        REDUCED: as CODES, but the multiplier is a whole number of 32767ths of the power of two above it.
        MOVED: as CODES, but the product is rounded to 6 bits behind the point before it is rounded to a code,
            to one less for every bit of the multiplier above the first in front of the point.
    """

    MATRIX = "matrix"
    VECTOR = "vector"
    CODES = "codes"
    HALVES = "halves"
    REDUCED = "reduced"
    MOVED = "moved"
