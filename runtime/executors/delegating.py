"""Executors that collect statistics in a way of their own, and leave the rest to another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto

from qc.ir.executor import Executor, Feed, Segments


class DelegatingExecutor:
    """What an executor with an ``inner`` one hands on."""

    inner: Executor

    def run(
        self,
        model: ModelProto,
        data: Iterable[Feed],
        outputs: Sequence[str] | None = None,
        *,
        base_dir: Path | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Runs ``model`` with ``inner``; see the protocol."""
        return self.inner.run(model, data, outputs, base_dir=base_dir)

    def element_types(
        self, model: ModelProto, names: Sequence[str], *, base_dir: Path | None = None
    ) -> dict[str, int]:
        """Asks ONNX Runtime with ``inner``; see the protocol."""
        return self.inner.element_types(model, names, base_dir=base_dir)

    def segments(self, model: ModelProto, feeds: Sequence[Feed], *, base_dir: Path | None = None) -> Segments:
        """Opens ``model`` with ``inner``; see the protocol."""
        return self.inner.segments(model, feeds, base_dir=base_dir)
