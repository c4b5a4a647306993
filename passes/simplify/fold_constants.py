"""Computes what depends on constants alone, once, with the runtime that would compute it at every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge
from onnx import ModelProto

from qc.ir.analysis import CONSTANTS, STRUCTURE, analysis
from qc.ir.body_rewriter import BodyRewriter
from qc.ir.facts.constants import initializer, is_default
from qc.ir.facts.op_traits import is_random, reads_shape_only
from qc.ir.facts.qdq import narrows_codes
from qc.ir.graph import Graph, Op, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.onnx.lower import lower, lower_ops
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .constants.initializers import initializer_data, make_initializer
from .constants.reshapes import shape_without_computed
from .constants.shapes import take_inferred_shapes
from .constants.size import is_parameter, is_table, original_size, sources_of, stored_size
from .constants.told import tells_of_shape, told_of_shape
from .eliminate_identity import EliminateIdentity

_SMALL = 4096  # bytes by which any model may grow
_KEPT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces ops whose inputs are all constant by their result, and Constant ops by initializers.

    What a Shape or a Size tells of a tensor whose lengths are all known is constant, too, and so is what a
    Gather or a Slice takes of a Shape where those lengths are. Shapes that are not known are inferred anew
    from what was folded, where an op asks for them or those of all inputs are fixed. Where one length that a
    Reshape asks for is computed, as a free batch is, the Reshape finds it from the others.
    A CastLike, which functions have, is a Cast to the type that the other tensor has.

    The bodies of If, Loop and Scan are folded too, also where they read a constant of a graph around them.
    An If whose condition is constant gives way to its branch.

    Quantize and dequantize ops with Clips of codes, random ops, and other ops with subgraphs stay. The
    executor computes the results, so they are those of the runtime. An input with a default, which a caller
    could override, is taken as a constant and stops being an input.

    An op also stays if its results would make the model larger than ``max_growth`` allows: they are weighed
    against the constants and ops that nothing needs any more behind them. A trained parameter, which is going
    to be quantized, is weighed with a byte for each element, against all that it is computed from; so is a
    table that rows are looked up in, of any size, as no runtime looks up what it would have to transpose.
    """

    name = "fold-constants"
    stage = Stage.FLOAT
    needs = frozenset({"executor"})
    tolerance = 1e-6  # the runtime may compute a part in another order than the whole

    max_megabytes: Annotated[float, Ge(0)] = option(
        64.0, "leave an op alone whose results are larger than this together, but for tables unless it is 0"
    )
    max_growth: Annotated[float, Ge(0)] = option(
        0.01, "how much larger all constants may become, as a share of those that the model came with"
    )

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = BodyRewriter(model)
        _fix_defaults(rewriter, model)
        for op in _ops(model):
            if op.is_type("Constant"):
                _lift_constant(rewriter, op)
        size = original_size(model)
        limit = size + max(self.max_growth * size, _SMALL if self.max_growth else 0)
        narrow = _narrow_storage(model)
        while True:
            for op in _ops(model):
                if op.is_type("CastLike"):
                    _name_type(rewriter, op)
                elif tells_of_shape(op):
                    _lift_shape(rewriter, op)
            before = [graph.epoch for graph in model.graph.walk()]
            for graph in model.graph.walk():  # outer before inner, which reads what was folded there
                self._fold(rewriter, graph, context, narrow, limit)
            is_same = before == [graph.epoch for graph in model.graph.walk()]
            has_branches = _take_branches(rewriter, model)
            if has_branches:  # which give back what they capture by an Identity
                EliminateIdentity().run(model, context)
            has_shapes = (has_branches or not is_same) and _infer_shapes(rewriter, model)
            if not (has_branches or has_shapes):
                break
        for op in _ops(model):
            _leave_out_length(rewriter, op)

    def _fold(
        self, rewriter: Rewriter, graph: Graph, context: PassContext, narrow: int, limit: float
    ) -> None:
        foldable = constant_ops(graph)
        frontier = [
            value
            for op in foldable
            for value in op.outputs
            if value is not None and (value.is_output or any(u.op not in foldable for u in value.uses))
        ]
        if not frontier:
            return
        proto = lower_ops(graph, list(foldable), frontier)
        results = _compute(context, proto, graph.model.base_dir)
        order = {op: place for place, op in enumerate(foldable)}
        folding = _Folding(self, rewriter, graph, results, order, narrow, limit)
        while folding.advance():  # what goes may make room for others
            pass
        folding.tell()


@dataclass(eq=False)
class _Folding:
    """The folding of one graph whose results are known.

    Attributes:
        results: what the ops make that others read, by name.
        order: the ops, with their places in topological order.
        narrow: the type that numbers are stored in where it holds them; 0 for their own.
        limit: the most bytes that all constants of the model may take.
        room: what is left of them; None if nobody asked yet.
        left: what was left alone.
    """

    options: FoldConstants
    rewriter: Rewriter
    graph: Graph
    results: Mapping[str, object]
    order: Mapping[Op, int]
    narrow: int
    limit: float
    room: float | None = None
    left: list[Remark] = field(default_factory=list)

    def advance(self) -> bool:
        """Puts the results in the place of all ops where that may be; whether there were any."""
        graph, before = self.graph, self.graph.epoch
        self.room = None
        self.left.clear()
        for op in reversed([op for op in self.order if op in graph]):
            wanted = [value for value in op.outputs if value is not None and value.is_read]
            arrays = [self.results.get(value.name) for value in wanted]
            # A sequence is no initializer, and what is not known is read by such an op, or by one that stays.
            data = [self._stored(array) for array in arrays if isinstance(array, np.ndarray)]
            if len(data) < len(wanted) or any(value.is_output for value in wanted):
                continue
            constants = dict(zip(wanted, data, strict=True))
            if self._fits(op, constants):
                _replace(self.rewriter, op, constants)
        return graph.epoch != before

    def tell(self) -> None:
        """Puts into the journal what was left alone because of its size."""
        for remark in self.left:
            self.rewriter.model.journal.note(remark)

    def _stored(self, array: np.ndarray) -> TensorRef:
        data = TensorRef.from_array(array)
        return data.stored_as(self.narrow) if self.narrow and array.dtype == np.float32 else data

    def _fits(self, op: Op, constants: Mapping[Value, TensorRef]) -> bool:
        size = sum(data.nbytes for data in constants.values())
        limit = self.options.max_megabytes * 1e6
        if size > limit and not (limit and all(is_table(value) for value in constants)):
            self._leave(op, f"its results take {size / 1e6:.3g} MB", "max_megabytes")
            return False
        growth = self._growth(op, constants)
        if growth > 0 and self.room is None:
            self.room = self.limit - stored_size(self.rewriter.model)
        if self.room is not None and 0 < growth > self.room:
            self._leave(op, f"its results would make the model {growth / 1e3:.3g} KB larger", "max_growth")
            return False
        if self.room is not None:
            self.room -= growth
        return True

    def _growth(self, op: Op, constants: Mapping[Value, TensorRef]) -> int:
        """By how many bytes results make the model larger; 0 for parameters that quantization makes small."""
        sources = sources_of(op, self.order)
        elements = sum(data.size for data in constants.values())
        if elements <= sources.read and all(is_parameter(value) for value in constants):
            return 0
        return sum(data.nbytes for data in constants.values()) - sources.needless

    def _leave(self, op: Op, reason: str, option: str) -> None:
        asked_by = f"option {option} of '{self.options.name}'"
        self.left.append(Remark(SKIP, op, op.label, reason, asked_by=asked_by))


def _fix_defaults(rewriter: Rewriter, model: Model) -> None:
    for value in [value for value in model.graph.inputs if value.const is not None and is_default(value)]:
        with rewriter.action("default to constant", value):
            rewriter.fix_default(value)


def _lift_constant(rewriter: Rewriter, op: Op) -> None:
    data = initializer_data(op)
    if data is not None:
        with rewriter.action("constant to initializer", op):
            make_initializer(rewriter, op, data)


def _name_type(rewriter: Rewriter, op: Op) -> None:
    """Writes a CastLike as a Cast, which does not read the other tensor, where the type of that is known."""
    like = op.inputs[1]
    elem_type = like.original.type.elem_type if like is not None else 0
    if elem_type:
        with rewriter.action("the type is known", op):
            rewriter.set_input(op, 1, None)
            rewriter.set_type_of_op(op, "Cast")
            rewriter.set_attribute(op, "to", elem_type)


def _ops(model: Model) -> list[Op]:
    """All ops but those of function bodies, which have no initializers."""
    return [op for graph in model.graph.walk() for op in graph.ops()]


def _take_branches(rewriter: BodyRewriter, model: Model) -> bool:
    """Puts branches in the places of Ifs whose conditions are constant; whether there were any.

    An If inside such a branch is left for the next time.
    """
    before = model.epoch
    for graph in model.graph.walk():
        for op in graph.ops():
            condition = initializer(op.inputs[0]) if op.is_type("If") else None
            if condition is not None and condition.size == 1:
                branch = "then_branch" if condition.numpy().item() else "else_branch"
                with rewriter.action("take branch", op, f"the condition is constant, {branch} stays"):
                    rewriter.inline_branch(op, op.subgraphs[branch])
    return model.epoch != before


def _infer_shapes(rewriter: Rewriter, model: Model) -> bool:
    """Finds the shapes that follow from what was folded, where some are asked for; whether that helped.

    All are if those of the inputs are known, as devices with fixed shapes want them declared.
    """
    asking = [op for op in _ops(model) if reads_shape_only(op)]
    if not asking and not _should_be_known(model.graph):
        return False
    with rewriter.action("infer shapes", model.graph.values()[0]):
        take_inferred_shapes(rewriter, model.graph, lower(model))
    return any(told_of_shape(op) is not None for op in _ops(model) if tells_of_shape(op))


def _should_be_known(graph: Graph) -> bool:
    """Whether some lengths are free, and none of an input."""
    return all(map(_is_known, graph.inputs)) and not all(map(_is_known, graph.values()))


def _is_known(value: Value) -> bool:
    return all(isinstance(length, int) for length in value.type.shape or ())


def _lift_shape(rewriter: Rewriter, op: Op) -> None:
    told, (result,) = told_of_shape(op), op.outputs
    if told is not None and result is not None and not result.is_output:
        with rewriter.action("shape to initializer", op):
            make_initializer(rewriter, op, TensorRef.from_array(told))


def _leave_out_length(rewriter: Rewriter, op: Op) -> None:
    """Lets a Reshape find the only length that is computed for it."""
    shape = shape_without_computed(op)
    if shape is not None:
        with rewriter.action("the length follows from the others", op):
            (_, computed), (result, *_) = op.inputs, op.outputs
            name = f"{result.name if result is not None else op.name}_shape"
            rewriter.set_input(op, 1, rewriter.add_constant(op.graph, shape, name))
            rewriter.erase_unread(computed)


@analysis(STRUCTURE, CONSTANTS)
def constant_ops(graph: Graph) -> dict[Op, None]:
    """Ops that depend on nothing but constants, in topological order."""
    found: dict[Op, None] = {}
    for op in graph.ops():
        if op.subgraphs or op.domain or op.op_type in _KEPT or is_random(op) or not op.num_inputs:
            continue
        if narrows_codes(op):
            continue
        inputs = [value for value in op.inputs if value is not None]
        if inputs and all(_is_constant(value, found) for value in inputs):
            found[op] = None
    return found


def _is_constant(value: Value, found: dict[Op, None]) -> bool:
    if initializer(value) is not None:
        return True
    producer = value.producer
    return producer is not None and producer in found


def _compute(context: PassContext, proto: ModelProto, base_dir: Path | None) -> dict[str, np.ndarray]:
    return next(iter(context.required_executor().run(proto, [{}], base_dir=base_dir)))


def _replace(rewriter: Rewriter, op: Op, constants: Mapping[Value, TensorRef]) -> None:
    with rewriter.action("fold", op):
        for value, data in constants.items():
            const = rewriter.add_constant(op.graph, data, value.name)
            rewriter.replace_uses(value, const)
            rewriter.swap_names(value, const)
        rewriter.erase_op(op)


def _narrow_storage(model: Model) -> int:
    """The type in which constants are stored that are read as another one; 0 if none or several are."""
    constants = (value.const for graph in model.graphs() for value in graph.values())
    found = {const.stored_type for const in constants if const is not None and const.is_converted}
    return found.pop() if len(found) == 1 else 0
