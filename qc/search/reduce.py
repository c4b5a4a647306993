"""Shrinks a model to a few ops that still show what is looked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper

from qc.ir.base.files import temporary_folder
from qc.ir.errors import DemandError, QcError
from qc.ir.executor import Feed
from qc.ir.onnx.lower import serialize
from qc.ir.onnx.protos import nested_graphs, reads, walk_nodes
from qc.ir.onnx.save import save_model
from qc.runtime import OrtExecutor
from qc.runtime.execution.tensor_types import tensor_types
from qc.runtime.protos.names import with_reads_renamed
from qc.runtime.protos.parts import Cutter

from .ddmin import ddmin
from .interest import Interest
from .oracle import OracleVerdict, Outcome

_MOST_RECORDED = 1 << 28


class _OutOfTests(Exception):
    """As many models were tested as may be."""


class Reduction:
    """The work of shrinking one model.

    Ops are taken out by delta debugging: what is left reads new inputs in place of what is gone, and its
    loose ends become outputs. Then single ops are bypassed, outputs are dropped, and a branch of an If is
    put in its place, until nothing helps any more. Every candidate passes the ONNX checker before it is
    looked at.

    Attributes:
        model: the smallest interesting model so far.
        tests: how many models were looked at.

    Args:
        model: the model; not changed.
        interest: what is to be kept.
        base_dir: the folder that external data of the model is relative to.
        feeds: data for the model. An input that a candidate has in place of an op is fed what that op gives.
        max_tests: how many models to look at; None for no limit.
        on_smaller: called with the number of ops whenever a smaller model was found.
    """

    def __init__(
        self,
        model: ModelProto,
        interest: Interest,
        *,
        base_dir: Path | None = None,
        feeds: Sequence[Feed] = (),
        max_tests: int | None = None,
        on_smaller: Callable[[int], object] = lambda ops: None,
    ) -> None:
        self.model = model
        self.tests = 0
        self._interest = interest
        self._base_dir = base_dir
        self._max_tests = max_tests
        self._on_smaller = on_smaller
        self._verdicts: dict[bytes, bool] = {}
        self._recording = _Recording(model, base_dir, feeds)

    def run(self) -> ModelProto:
        """Shrinks the model as far as it goes; when interrupted, ``model`` is the best so far.

        Raises:
            DemandError: the model is not interesting to begin with.
        """
        verdict = self._examine(self.model, self._recording.feeds)
        if not verdict.is_bad:
            feeds = self._recording.feeds if self._interest.reads_data else []
            on_data = f", on {len(feeds)} samples" if feeds else ""
            mend = self._interest.mend(verdict)
            raise DemandError(f"the model is not interesting to begin with: {verdict.words}{on_data}; {mend}")
        self._on_smaller(count_ops(self.model))
        try:
            while self._round():
                pass
        except _OutOfTests:
            pass
        return self.model

    def _round(self) -> bool:
        """One attempt with every means; whether the model became smaller."""
        start = self.model
        self._recording = _Recording(start, self._base_dir, self._feeds_of(start))
        feed = next(iter(self._recording.feeds), None)
        cutter = Cutter(start, tensor_types(start, self._base_dir, feed))
        ops = ddmin(cutter.ops(), lambda ops: self._try(cutter.part(ops)))
        ops = self._bypass(cutter, ops)
        self._drop_outputs(cutter, ops)
        self._inline_branches()
        return self.model is not start

    def _bypass(self, cutter: Cutter, ops: Sequence[NodeProto]) -> list[NodeProto]:
        """Takes out ops one by one by letting their readers read an input of the same type."""
        left, index = list(ops), 0
        while index < len(left):
            shorter = next((s for s in _bypassed(cutter, left, index) if self._try(cutter.part(s))), None)
            if shorter is None:
                index += 1
            else:
                left = shorter
        return left

    def _drop_outputs(self, cutter: Cutter, ops: Sequence[NodeProto]) -> None:
        hidden: set[str] = set()
        for info in list(self.model.graph.output):
            if self._try(cutter.part(ops, hidden | {info.name})):
                hidden.add(info.name)

    def _inline_branches(self) -> None:
        """Puts a branch in the place of an If as long as there is one for which that works."""
        while any(self._try(model) for model in _inlined(self.model)):
            pass

    def _try(self, candidate: ModelProto | None) -> bool:
        """Whether a candidate is valid and interesting; if so it is the best so far."""
        if candidate is None:
            return False
        key = hashlib.sha256(serialize(candidate)).digest()
        if key not in self._verdicts:
            self._verdicts[key] = self._is_interesting(candidate)
            if self._verdicts[key]:
                self._keep(candidate)
        return self._verdicts[key]

    def _keep(self, candidate: ModelProto) -> None:
        before, self.model = count_ops(self.model), candidate
        if count_ops(candidate) != before:
            self._on_smaller(count_ops(candidate))

    def _is_interesting(self, candidate: ModelProto) -> bool:
        try:
            feeds = self._recording.of(candidate) if self._interest.reads_data else []
        except QcError:
            return False
        return self._examine(candidate, feeds).is_bad

    def _feeds_of(self, model: ModelProto) -> list[Feed]:
        """Feeds for a model that was found; none if that before it cannot be run, and none are needed."""
        try:
            return self._recording.of(model)
        except QcError:
            return []

    def _examine(self, candidate: ModelProto, feeds: Sequence[Feed]) -> OracleVerdict:
        with temporary_folder() as folder:
            path = folder / "candidate.onnx"
            save_model(candidate, path, self._base_dir)
            try:
                onnx.checker.check_model(str(path))
            except Exception as error:  # its own ones, and bare ones of the C++ library
                reason = " ".join(str(error).partition("==> Context")[0].split())
                return OracleVerdict(Outcome.GOOD, f"the ONNX checker refuses it: {reason}")
            if self.tests == self._max_tests:
                raise _OutOfTests
            self.tests += 1
            return self._interest.examine(path, feeds)


class _Recording:
    """Feeds of a model, and what its tensors are on them.

    Attributes:
        feeds: those of one shape, so that a tensor has one shape as well.
    """

    def __init__(self, model: ModelProto, base_dir: Path | None, feeds: Sequence[Feed]) -> None:
        self.feeds = [feed for feed in feeds if shapes_of(feed) == shapes_of(feeds[0])]
        self._model = model
        self._base_dir = base_dir
        self._recorded: list[dict[str, np.ndarray]] = [dict(feed) for feed in self.feeds]

    def of(self, candidate: ModelProto) -> list[Feed]:
        """Feeds for a model whose inputs are tensors of this one; none if there are none for this one.

        Raises:
            QcError: the model cannot be run.
        """
        if not self.feeds:
            return []
        stored = {tensor.name for tensor in candidate.graph.initializer}
        names = [info.name for info in candidate.graph.input]
        names = [name for name in names if name not in stored or name in self.feeds[0]]
        missing = [name for name in names if name not in self._recorded[0]]
        if missing:
            self._record(missing)
        return [{name: arrays[name] for name in names} for arrays in self._recorded]

    def _record(self, names: list[str]) -> None:
        held = sum(np.asarray(array).nbytes for arrays in self._recorded for array in arrays.values())
        if held > _MOST_RECORDED:
            self._recorded = [dict(feed) for feed in self.feeds]
        executor = OrtExecutor(threads=1)
        results = executor.run(self._model, self.feeds, names, base_dir=self._base_dir)
        for arrays, found in zip(self._recorded, results, strict=True):
            arrays.update(found)


def shapes_of(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feed.items()}


def _bypassed(cutter: Cutter, ops: Sequence[NodeProto], index: int) -> Iterator[list[NodeProto]]:
    """The ops without one of them, whose readers read one of its inputs of the same type."""
    op, later = ops[index], ops[index + 1 :]
    read = {name for other in later for name in reads(other)}
    results = [name for name in op.output if name in read]
    if len(results) != 1:
        return
    kind = cutter.types.get(results[0])
    for name in dict.fromkeys(op.input):
        if op.op_type == "Identity" or (kind is not None and cutter.types.get(name) == kind):
            yield [*ops[:index], *(with_reads_renamed(other, results[0], name) for other in later)]


def _inlined(model: ModelProto) -> Iterator[ModelProto]:
    """The model with a branch of an If in its place; the results are tied to their names by Identity."""
    for index, op in enumerate(model.graph.node):
        if op.op_type != "If" or op.domain not in ("", "ai.onnx"):
            continue
        for branch in nested_graphs(op):
            copy = ModelProto()
            copy.CopyFrom(model)
            del copy.graph.node[index:]
            copy.graph.node.extend(branch.node)
            for inner, outer in zip(branch.output, op.output, strict=True):
                copy.graph.node.append(helper.make_node("Identity", [inner.name], [outer]))
            copy.graph.node.extend(model.graph.node[index + 1 :])
            copy.graph.initializer.extend(branch.initializer)
            copy.graph.sparse_initializer.extend(branch.sparse_initializer)
            yield copy


def count_ops(model: ModelProto) -> int:
    """The number of nodes, bodies included, that are no constants."""
    return sum(node.op_type != "Constant" for node in walk_nodes(model.graph.node))
