"""Parses JSON in which no key stands twice."""

from __future__ import annotations

import json
from typing import Any

from ..errors import UsageError


def load_json(text: str, source: str) -> Any:
    """The content of a text. NaN and infinity are floats, for whoever knows the key to refuse them.

    Args:
        source: what errors call the text.

    Raises:
        UsageError: it is no JSON, or a key stands twice in one object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise UsageError(f"{source}: the key '{key}' stands twice in one object; remove one of them")
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise UsageError(f"{source} is not valid JSON: {error}") from error
