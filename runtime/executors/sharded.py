"""Collects statistics in many places at once: threads, processes, whatever ``concurrent.futures`` reaches."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures import Executor as Pool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path

from onnx import ModelProto

from qc.ir.base.files import folder_mark, mark_folders
from qc.ir.errors import DataError, QcError
from qc.ir.executor import Feed, Request, Requests, asked_of

from ..data.data_files import DataFiles
from ..data.inputs import InputInfo, model_inputs
from ..data.load import Data, Share, load_data
from ..protos.detach import ModelParts
from ..statistics.model import ModelStatistics
from .delegating import DelegatingExecutor
from .in_process import OrtExecutor
from .observer import OnFeeds

_HELD = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name))


@dataclass(frozen=True)
class ShardedExecutor(DelegatingExecutor):
    """Divides the feeds among workers and merges their statistics, which are those of one run, bit for bit.

    Shard ``i`` of ``n`` has the feeds ``i``, ``i + n``, ``i + 2 n`` and so on. Workers find data that were
    given as a path or as ``module:function`` by themselves; other data are sent to them, all at once, and so
    is the model, but for its external data. Only statistics are collected by the workers; ``run`` runs here.

    Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        inner: how a worker runs the model.
        pool: where the workers are: any ``concurrent.futures.Executor``, such as the one that Dask's
            ``Client.get_executor()`` gives; or a function that makes one, which is shut down after use, and
            made anew if it breaks because a worker died.
        shards: into how many parts the feeds are divided; one for each feed if there are fewer.
        retries: how often a shard whose worker fails is tried again, for any reason but an error of qc.
    """

    inner: OrtExecutor
    pool: Pool | Callable[[], Pool]
    shards: int
    retries: int = 2

    def observe(
        self,
        model: ModelProto,
        requests: Requests,
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> ModelStatistics:
        """Runs ``model`` on every feed and summarizes the requested tensors; see the protocol.

        Raises:
            QcError: a shard failed more than ``retries`` times for other reasons than an error of qc.
        """
        asked = asked_of(requests)
        if not asked:
            return ModelStatistics({})
        parts = ModelParts.of(model, base_dir)
        whole = load_data(data, model_inputs(model))
        executor = replace(self.inner, on_note=None)
        work = {
            index: partial(_observe_shard, executor, parts, asked, shard)
            for index, shard in enumerate(_shards(whole, min(self.shards, whole.length or self.shards)))
        }
        results = self._results(work, on_feeds)
        if not any(result.feeds for result in results):
            raise DataError(f"{whole.origin}: there is no sample; give data with at least one")
        for note in (note for result in results for note in result.notes):
            self._note(note)
        return reduce(ModelStatistics.merge, (result.statistics for result in results))

    def _note(self, note: str) -> None:
        if self.inner.on_note is not None:
            self.inner.on_note(note)

    def _results(
        self, work: Mapping[int, Callable[[], _ShardResult]], on_feeds: OnFeeds | None
    ) -> list[_ShardResult]:
        """The result of every shard, in their order, each counted once however often it was tried."""
        results: dict[int, _ShardResult] = {}
        refusals: dict[int, QcError] = {}
        failures: Counter[int] = Counter()
        while len(results) < len(work):
            failure: Exception | None = None
            for index, future in self._submitted({i: work[i] for i in work if i not in results}):
                try:
                    results[index] = future.result()
                except QcError as error:
                    refusals[index] = error
                except Exception as error:  # whatever a worker dies of, or a pool says of it
                    failures[index] += 1
                    failure = error
                    if failures[index] > self.retries:
                        raise QcError(
                            f"shard {index} of {self.shards} failed {failures[index]} times, at last with "
                            f"{type(error).__name__}: {error}"
                        ) from error
                else:
                    if on_feeds is not None:
                        on_feeds(results[index].feeds)
            if refusals:
                raise refusals[min(refusals)]
            if failure is not None:
                self._note(
                    f"{len(work) - len(results)} of {self.shards} shards are done again, as a worker failed "
                    f"with {type(failure).__name__}: {failure}"
                )
        return [results[index] for index in sorted(results)]

    def _submitted(
        self, work: Mapping[int, Callable[[], _ShardResult]]
    ) -> Iterator[tuple[int, Future[_ShardResult]]]:
        """The shards and their futures, as they are done."""
        with self._opened() as pool:
            with _holding_signals():
                futures = {_submit(pool, task): index for index, task in work.items()}
            for future in as_completed(futures):
                yield futures[future], future

    @contextmanager
    def _opened(self) -> Iterator[Pool]:
        if isinstance(self.pool, Pool):
            yield self.pool
            return
        with self.pool() as pool:
            yield pool


def process_executor(jobs: int, inner: OrtExecutor | None = None) -> ShardedExecutor:
    """An executor that collects statistics in so many new processes of this machine.

    Args:
        jobs: the number of processes, which share the processor cores unless ``inner`` says otherwise.
        inner: how each of them runs the model.
    """
    inner = inner or OrtExecutor()
    if inner.threads is None:
        inner = replace(inner, threads=max(1, (os.cpu_count() or 1) // jobs))
    return ShardedExecutor(inner, partial(process_pool, jobs), jobs)


def process_pool(jobs: int) -> Pool:
    """So many new processes of this machine, which end with this one and without a word at Ctrl-C."""
    # A forked process would inherit locks of threads that it does not have, those of ONNX Runtime among them.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(folder_mark(),))


@contextmanager
def _holding_signals() -> Iterator[None]:
    """Holds back Ctrl-C and its like in this thread and in processes started meanwhile, where the system can.

    A pool that is left while its processes are started never tells them to end, and this one waits for them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    with _deferring_handlers():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _deferring_handlers() -> Iterator[None]:
    """Handles signals that come meanwhile at the end: other threads take those that this one blocks, and the
    handlers run in this one nevertheless."""
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {one: found for one in _HELD if is_main and callable(found := signal.getsignal(one))}
    came: list[int] = []
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def _begin(mark: str) -> None:
    """Begins a worker, whose temporary folders have the mark of those of its command."""
    mark_folders(mark)
    _end_with_parent()


def _end_with_parent() -> None:
    """Makes a worker end without a word at Ctrl-C, which a terminal sends to all, or without its parent.

    A parent that is killed cannot tell its workers, which would wait for it with all that they have loaded.
    """
    threading.Thread(target=_await_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True)
class _ShardResult:
    """What a worker gives back: statistics, the number of feeds in them, and notes for the user."""

    statistics: ModelStatistics
    feeds: int
    notes: list[str]


@dataclass(frozen=True)
class _NamedFeeds:
    """A shard of data that a worker finds by itself."""

    spec: DataFiles
    inputs: tuple[InputInfo, ...]
    share: Share

    def numbered(self) -> Iterator[tuple[int, Feed]]:
        return load_data(self.spec, self.inputs).shard(*self.share).numbered()


@dataclass(frozen=True)
class _SentFeeds:
    """A shard of data that is sent to the worker."""

    feeds: list[tuple[int, Feed]]

    def numbered(self) -> Iterator[tuple[int, Feed]]:
        return iter(self.feeds)


def _shards(data: Data, count: int) -> Sequence[_NamedFeeds | _SentFeeds]:
    spec = data.source.spec
    if spec is not None:
        return [_NamedFeeds(spec, data.inputs, data.shard(index, count).share) for index in range(count)]
    feeds = list(data.numbered())
    return [_SentFeeds(feeds[index::count]) for index in range(count)]


def _observe_shard(
    executor: OrtExecutor,
    model: ModelParts,
    requests: Sequence[Request],
    shard: _NamedFeeds | _SentFeeds,
) -> _ShardResult:
    """The work of one worker."""
    notes: list[str] = []
    done: list[int] = []
    executor = replace(executor, on_note=notes.append)
    statistics = executor.observe_parts(model, requests, shard, done.append)
    return _ShardResult(statistics, sum(done), notes)


def _submit(pool: Pool, task: Callable[[], _ShardResult]) -> Future[_ShardResult]:
    """A future also where the pool is broken already."""
    try:
        return pool.submit(task)
    except BrokenExecutor as error:
        future: Future[_ShardResult] = Future()
        future.set_exception(error)
        return future
