"""Outputs that are maps, as arrays that can be judged like any other output."""

from __future__ import annotations

from typing import Any

import numpy as np


def without_maps(value: Any) -> Any:
    """What a session gave for an output, with a row of numbers in place of each map.

    Classifiers of scikit-learn, LightGBM and XGBoost end in a ZipMap: a sequence with a map from classes to
    probabilities for each sample. Keys are taken in their order, so that columns are classes.

    Args:
        value: an array, a map, or a sequence of either.

    Returns:
        An array of one dimension for a map, of two for a sequence of maps with the same keys; anything else
        as it is.
    """
    rows = value if isinstance(value, list) else [value]
    if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return value
    keys = sorted(rows[0])
    table = np.array([[row[key] for key in keys] for row in rows])
    if table.dtype == np.float64:  # maps hold float32, which Python has not
        table = table.astype(np.float32)
    return table if isinstance(value, list) else table[0]
