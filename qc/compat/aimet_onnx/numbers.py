"""Quantizers without numbers: made so for a calibration, and left out where numbers are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qc.ir.quant_table import QuantTable


@contextmanager
def numbers_kept_on_failure(table: QuantTable) -> Iterator[None]:
    """Opens all quantizers that are not frozen; after an exception inside they have their numbers back."""
    before = [(quantizer, quantizer.encoding) for quantizer in table.quantizers()]
    for quantizer, _ in before:
        table.reopen(quantizer, "calibrated again")
    try:
        yield
    except BaseException:
        for quantizer, encoding in before:
            if encoding is not None:
                table.calibrate(quantizer, encoding, "as it was before a calibration that failed")
        raise


@contextmanager
def without_open_quantizers(table: QuantTable) -> Iterator[None]:
    """Leaves the quantizers that have no numbers out for as long as it lasts."""
    if all(quantizer.encoding is not None for quantizer in table.quantizers()):
        yield
        return
    before = table.copy()
    table.drop_open()
    try:
        yield
    finally:
        table.restore(before)
