"""The names of a model that are taken, and new ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Names:
    """Names that are taken, of values and ops of all scopes."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._used_up: dict[str, int] = {}  # by hint: all numbers up to this one are taken

    def __iter__(self) -> Iterator[str]:
        return iter(self._taken)

    def claim(self, name: str) -> None:
        """Records a name as taken."""
        self._taken.add(name)

    def release(self, name: str) -> None:
        """Makes a name free again."""
        self._taken.discard(name)
        self._used_up.clear()

    def free(self, hint: str) -> str:
        """The first that is free of ``hint``, ``hint_1``, ``hint_2`` and so on.

        Raises:
            TypeError: the hint is no text.
        """
        if not isinstance(hint, str):
            raise TypeError(f"a name is text, not {hint!r}")
        if hint not in self._taken:
            return hint
        count = self._used_up.get(hint, 0) + 1
        while f"{hint}_{count}" in self._taken:
            count += 1
        self._used_up[hint] = count - 1
        return f"{hint}_{count}"
