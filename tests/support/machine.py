"""What tests need of the processor that they run on."""

from __future__ import annotations

import pytest

from qc.runtime.execution.saturation import sums_saturate

needs_exact_sums = pytest.mark.skipif(
    sums_saturate(), reason="this processor has no VNNI, and sums of products of 8-bit codes saturate on it"
)
