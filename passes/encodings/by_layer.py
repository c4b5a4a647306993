"""Between tensors and layers: what a layer-centric file says about a model, and the other way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qc.ir.errors import UsageError
from qc.ir.facts.scopes import distinct_names, tensors_by_name
from qc.ir.model import Model

from .comparison import difference
from .layers import Layers, layers_of
from .record import Document, TensorRecord


def by_tensor(document: Document, model: Model) -> Document:
    """A layer-centric document by tensors; one that is by tensors stays as it is.

    Layers and parameters that the model does not have stay as they are.

    Raises:
        UsageError: two layers give one tensor different grids.
    """
    if document.layout == "tensors":
        return document
    layers, known, names = layers_of(model.graph), tensors_by_name(model), distinct_names(model)
    found: dict[str, TensorRecord] = {}
    origins: dict[str, str] = {}
    for record in document.records:
        value = layers.tensors.get(record.port) if record.port is not None else None
        if record.port is None and record.name not in known:
            value = layers.parameters.get(record.name)
        name = names.get(value, value.name) if value is not None else record.name
        named = replace(record, name=name, port=None)
        if name in found and difference(found[name], named) is not None:
            raise UsageError(
                f"{document.source}: '{origins[name]}' and '{record.name}' are both tensor '{name}', but "
                "have different grids"
            )
        found.setdefault(name, named)
        origins.setdefault(name, record.name)
    return replace(document, records=list(found.values()), layout="tensors")


def by_layer(document: Document, model: Model) -> tuple[Document, list[str]]:
    """A document by layers, and the tensors that it cannot name: those inside of layers.

    A tensor is written as the output of the layer that makes it, else as an input of each that reads it.
    Layer-centric files are written as version 0.6.1 or 1.0.0; their records must be of these conventions.
    """
    layers = layers_of(model.graph)
    records: list[TensorRecord] = []
    unnamed = []
    for record in document.records:
        found = list(_placed(record, layers, model))
        records += found
        if not found:
            unnamed.append(record.name)
    return replace(document, records=records, layout="layers"), unnamed


def _placed(record: TensorRecord, layers: Layers, model: Model) -> Iterator[TensorRecord]:
    value = tensors_by_name(model).get(record.name)
    if record.is_parameter:
        name = layers.readers.get(value.original, record.name) if value is not None else record.name
        role = name.rpartition(".")[2]  # exporters keep the names of most parameters
        yield record if record.name.endswith(f".{role}") else replace(record, name=name)
        return
    ports = layers.ports.get(value.original, []) if value is not None else []
    outputs = [port for port in ports if port.side == "output"]
    for port in outputs[:1] or ports:
        yield replace(record, name=str(port), port=port)
