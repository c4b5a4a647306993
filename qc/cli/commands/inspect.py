"""Show what is in a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import TensorProto, helper
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.text import Text

import qc
from qc.ir.facts.quantized_form import form_of_op, quantized_form
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.tensor_ref import TensorRef
from qc.options import argument
from qc.patterns import blocks, find_all, supergroups
from qc.rendering.terminal import Fact, facts_grid
from qc.rendering.words import count, file_size, printable

from ..command import Command
from ..output import model_bytes, print_note, standard_output

_LISTED_DEFAULTS = 8


@dataclass(frozen=True, kw_only=True)
class Inspect(Command):
    """Shows the interface, ops and weights of MODEL.onnx, its supergroups, and what is quantized.

    Examples:
        qc inspect model.onnx
    """

    model: str = argument("MODEL.onnx")

    def run(self) -> None:
        model = qc.read_model(self.model)
        standard_output().show(facts_grid(_facts(Path(self.model), model)))
        for note in model.repairs:
            print_note(note)


def _facts(path: Path, model: Model) -> Iterator[Fact]:
    ops = model.ops()
    yield "model", _header(path, model)
    yield "inputs", _interface(value for value in model.graph.inputs if value.const is None)
    defaults = [value for value in model.graph.inputs if value.const is not None]
    if len(defaults) > _LISTED_DEFAULTS:
        yield "defaults", f"{len(defaults):,} inputs with defaults"
    elif defaults:
        yield "defaults", _interface(defaults)
    yield "outputs", _interface(value for value in model.graph.outputs if value is not None)
    yield "ops", Group(count(len(ops), "op"), _counts(Counter(_kind(op) for op in ops)))
    yield "parameters", _parameters(model)
    nested = [op for op in ops if op.subgraphs]
    if nested:
        yield "subgraphs", _counts(Counter(_kind(op) for op in nested))
    if model.functions:
        yield "functions", ", ".join(f"{domain}::{name}" for domain, name, _ in model.functions)
    done = Counter(_kind(op) for op in ops if form_of_op(op.domain, op.op_type) is not None)
    found = quantized_form(model.graphs())
    yield "quantized", Group(found.form.value, _counts(done)) if found is not None else "none"
    yield from _supergroup_facts(model)
    values = [value for graph in model.graphs() for value in graph.values() if value.captured is None]
    unknown = [value.name for value in values if not value.type.elem_type]
    if unknown:
        yield "unknown", f"{count(len(unknown), 'tensor')} whose type ONNX cannot tell"


def _header(path: Path, model: Model) -> str:
    origin = model.origin
    imports = sorted(model.opset_imports.items())
    opsets = ", ".join(f"{domain or 'opset'} {version}" for domain, version in imports)
    maker = " ".join(word for word in (origin.producer_name, origin.producer_version) if word)
    words = [path.name, file_size(model_bytes(path, origin)), f"IR {origin.ir_version}", opsets]
    return ", ".join([*words, f"made by {maker}"] if maker else words)


def _interface(values: Iterable[Value]) -> RenderableType:
    lines = [f"{value.name}  {_type(value)}" for value in values]
    return Group(*(Text(printable(line)) for line in lines)) if lines else "none"


def _type(value: Value) -> str:
    elem_type, shape = value.type
    name = _element(elem_type)
    if shape is None:
        return f"{name} of unknown rank" if elem_type else name
    return f"{name} ({', '.join('?' if size is None else str(size) for size in shape)})"


def _element(elem_type: int) -> str:
    """The name that numpy has for an element type, as data must have it."""
    if not elem_type:
        return "unknown type"
    if elem_type == TensorProto.STRING:
        return "string"
    return str(helper.tensor_dtype_to_np_dtype(elem_type))


def _kind(op: Op) -> str:
    return f"{op.domain}::{op.op_type}" if op.domain else op.op_type


def _counts(counter: Counter[str]) -> RenderableType:
    """``Conv 52  Relu 49 ...``, the most frequent first."""
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return Columns([Text(printable(f"{name} {number}")) for name, number in ordered], padding=(0, 2))


def _parameters(model: Model) -> str:
    constants = list(_constants(model))
    elements: Counter[str] = Counter()
    for const in constants:
        elements[_element(const.data_type)] += math.prod(const.shape)
    if not constants:
        return "none"
    kinds = ", ".join(f"{number:,} {name}" for name, number in elements.most_common())
    total = file_size(sum(const.nbytes for const in constants))
    return f"{kinds} in {count(len(constants), 'constant')}, {total}"


def _constants(model: Model) -> Iterator[TensorRef]:
    """The data of initializers and of Constant ops."""
    for graph in model.graphs():
        yield from (value.const for value in graph.values() if value.const is not None)
        for op in graph.ops():
            tensor = op.attribute("value") if op.is_type("Constant") else None
            if isinstance(tensor, TensorProto):
                yield TensorRef(tensor, model.base_dir)


def _supergroup_facts(model: Model) -> Iterator[Fact]:
    """The supergroups, the blocks around them, and the ops outside of both that read float data."""
    matches = [match for graph in model.graphs() for match in find_all(graph, supergroups())]
    yield "supergroups", _counts(Counter(match.name for match in matches)) if matches else "none found"
    larger = [match for graph in model.graphs() for match in find_all(graph, blocks())]
    if larger:
        yield "blocks", _counts(Counter(match.name for match in larger))
    claimed = {op for match in (*matches, *larger) for op in match.ops}
    alone = Counter(
        _kind(op)
        for op in model.ops()
        if op not in claimed and any(value is not None and value.is_float for value in op.inputs)
    )
    if alone:
        yield "outside", _counts(alone)
