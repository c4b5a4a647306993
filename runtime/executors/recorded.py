"""Calibration in two steps: statistics are recorded, on one machine or several, and used without data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from qc.ir.errors import DataError, UsageError, listed
from qc.ir.executor import Executor, Feed, Request, Requests, asked_of

from ..protos.detach import ModelParts
from ..statistics.model import Recording
from ..statistics.tensor import TensorStatistics
from .delegating import DelegatingExecutor
from .fingerprint import model_fingerprint
from .observer import OnFeeds

_NAMED = 3  # tensors in a message


@dataclass(frozen=True)
class RecordedExecutor(DelegatingExecutor):
    """An executor that has statistics already. Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        inner: runs models.
        recording: what :class:`Recorder` kept.
    """

    inner: Executor
    recording: Recording

    @classmethod
    def of(cls, inner: Executor, statistics: Recording | str | Path) -> RecordedExecutor:
        """Reads the statistics if they are in a file; raises DataError if it holds none, or no sample's."""
        if isinstance(statistics, Recording):
            return cls(inner, statistics)
        recording = Recording.load(statistics)
        if not len(recording.feeds):
            raise DataError(
                f"statistics '{statistics}' are of no sample; merge them with those of other shards"
            )
        return cls(inner, recording)

    def shapes(self, *given: Any, **named: Any) -> dict[str, tuple[int, ...]]:
        """Nothing: statistics do not tell."""
        return {}

    def observe(
        self,
        model: ModelProto,
        requests: Requests,
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> dict[Request, TensorStatistics]:
        """The recorded statistics; ``data`` are not read.

        Raises:
            UsageError: they were not recorded for this model, or not what is asked for of a tensor.
        """
        recorded = self.recording.of(model_fingerprint(*ModelParts.of(model, base_dir)))
        if recorded is None:
            raise UsageError(
                "the statistics were collected on another model, or after other passes; collect them with "
                "qc observe for this model, pipeline and target"
            )
        asked = asked_of(requests)
        found = {request: answer for request in asked if (answer := recorded.answer(request)) is not None}
        missing = [f"'{name}' ({one.kind})" for name, one in asked if (name, one) not in found]
        if missing:
            raise UsageError(
                f"the statistics lack {listed(missing, _NAMED)}; collect them with qc observe for "
                "this model and pipeline, and for all targets: the first with --target, the others with "
                "--also-for"
            )
        return found
