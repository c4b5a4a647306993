"""Executors that collect statistics in a way of their own, and leave the rest to another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qc.ir.executor import Executor, Segments, Steps


class DelegatingExecutor:
    """What an executor with an ``inner`` one hands on as it is; see the protocol."""

    inner: Executor

    def run(self, *given: Any, **named: Any) -> Iterator[dict[str, np.ndarray]]:
        """Runs a model with ``inner``."""
        return self.inner.run(*given, **named)

    def element_types(self, *given: Any, **named: Any) -> dict[str, int]:
        """Asks the runtime with ``inner``."""
        return self.inner.element_types(*given, **named)

    def shapes(self, *given: Any, **named: Any) -> dict[str, tuple[int, ...]]:
        """Asks for shapes with ``inner``."""
        return self.inner.shapes(*given, **named)

    def segments(self, *given: Any, **named: Any) -> Segments:
        """Opens a model with ``inner``."""
        return self.inner.segments(*given, **named)

    def steps(self, *given: Any, **named: Any) -> Steps:
        """Keeps results of steps with ``inner``."""
        return self.inner.steps(*given, **named)

    def gram(self, *given: Any, **named: Any) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Multiplies features with ``inner``."""
        return self.inner.gram(*given, **named)

    def squared_error(self, *given: Any, **named: Any) -> np.ndarray:
        """Judges grids with ``inner``."""
        return self.inner.squared_error(*given, **named)

    def histogram_error(self, *given: Any, **named: Any) -> np.ndarray:
        """Judges grids with ``inner``."""
        return self.inner.histogram_error(*given, **named)
