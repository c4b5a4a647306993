"""Calibration in two steps: statistics are recorded, on one machine or several, and used without data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Executor, Feed, Observation

from ..protos.detach import ModelParts
from ..statistics.model import ModelStatistics
from .delegating import DelegatingExecutor
from .fingerprint import model_fingerprint
from .in_process import OrtExecutor
from .observer import OnFeeds
from .sharded import ShardedExecutor

_NAMED = 3  # tensors in a message


@dataclass
class Recorder(DelegatingExecutor):
    """An executor that keeps the statistics it collects. Implements :class:`qc.ir.executor.Executor`.

    It collects histograms whether they are asked for or not, so that every method can calibrate on them.

    Attributes:
        inner: collects them; should identify feeds.
        statistics: what was collected; None before that.
    """

    inner: OrtExecutor | ShardedExecutor
    statistics: ModelStatistics | None = None

    def observe(
        self,
        model: ModelProto,
        requests: Mapping[str, Observation],
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> ModelStatistics:
        """Collects, keeps and returns statistics; see the protocol.

        Raises:
            UsageError: it did so once already; only one calibration can be recorded.
        """
        if self.statistics is not None:
            raise UsageError(
                "tensors are observed more than once, by several passes or in another model for another "
                "target, which cannot be recorded; observe for one target at a time"
            )
        wide = {name: replace(request, histogram=True) for name, request in requests.items()}
        found = self.inner.observe(model, wide, data, base_dir=base_dir, on_feeds=on_feeds)
        statistics = replace(found, model=model_fingerprint(*ModelParts.of(model, base_dir)))
        self.statistics = statistics
        return statistics


@dataclass(frozen=True)
class RecordedExecutor(DelegatingExecutor):
    """An executor that has statistics already. Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        inner: runs models.
        statistics: what :class:`Recorder` kept.
    """

    inner: Executor
    statistics: ModelStatistics

    @classmethod
    def of(cls, inner: Executor, statistics: ModelStatistics | str | Path) -> RecordedExecutor:
        """Reads the statistics if they are in a file; raises DataError if it holds none, or no sample's."""
        if not isinstance(statistics, ModelStatistics):
            path, statistics = statistics, ModelStatistics.load(statistics)
            if not len(statistics.feeds):
                raise DataError(
                    f"statistics '{path}' are of no sample; merge them with those of other shards"
                )
        return cls(inner, statistics)

    def observe(
        self,
        model: ModelProto,
        requests: Mapping[str, Observation],
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> ModelStatistics:
        """The recorded statistics; ``data`` are not read.

        Raises:
            UsageError: they were not recorded for this model, or not for a tensor that is asked for.
        """
        recorded = self.statistics
        if recorded.model != model_fingerprint(*ModelParts.of(model, base_dir)):
            raise UsageError(
                "the statistics were collected on another model, or after other passes; collect them with "
                "qc observe for this model, pipeline and target"
            )
        missing = [name for name in requests if name not in recorded]
        if missing:
            named = ", ".join(f"'{name}'" for name in missing[:_NAMED])
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise UsageError(
                f"the statistics lack {named}{more}; collect them with qc observe for this model and "
                "pipeline, and for all targets: the first with --target, the others with --also-for"
            )
        return replace(recorded, tensors={name: recorded[name] for name in requests})
