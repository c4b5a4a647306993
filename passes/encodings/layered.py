"""Layer-centric files (``_torch.encodings``): grids by module and number of its input or output.

Every encoding has the form of version 0.6.1, also in files that say 1.0.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from qc.ir.errors import UsageError

from .fields import Fields
from .record import Document, Port, TensorRecord
from .version_0_6 import SECTIONS, read_tensor, write_tensor

_SIDES = ("input", "output")


def is_layered(fields: Fields, version: str) -> bool:
    """Whether a file is layer-centric: activations by layer, or lists of version 1.0.0 that are objects."""
    sections = [fields.get(section) for section in SECTIONS]
    if version == "1.0.0":
        return any(isinstance(section, dict) for section in sections)
    activations = sections[0]
    return isinstance(activations, dict) and any(
        isinstance(sides, dict) and not sides.keys().isdisjoint(_SIDES) for sides in activations.values()
    )


def read(fields: Fields) -> Iterator[TensorRecord]:
    """The records of a file; those of activations have ports and are named after them."""
    layers = Fields(fields.get("activation_encodings", {}), f"{fields.place}, activation_encodings")
    for layer in layers:
        sides = Fields(layers.get(layer), f"{layers.place}, '{layer}'")
        for side in _SIDES:
            if side in sides:
                yield from _read_side(layer, side, Fields(sides.get(side), f"{sides.place}, {side}"))
        sides.finish()
    parameters = Fields(fields.get("param_encodings", {}), f"{fields.place}, param_encodings")
    for name in parameters:
        record = read_tensor(name, parameters.get(name), True, f"{parameters.place}, '{name}'")
        yield replace(record, as_stored=False)  # in the order of the module's weight: by output channel


def _read_side(layer: str, side: str, entries: Fields) -> Iterator[TensorRecord]:
    for index in entries:
        if not (index.isascii() and index.isdecimal()) or str(int(index[:9])) != index:
            raise UsageError(f"{entries.place}: '{index}' is not the number of an {side}")
        port = Port(layer, side, int(index))
        record = read_tensor(str(port), entries.get(index), False, f"{entries.place} {index}")
        yield replace(record, port=port)


def write(document: Document) -> dict[str, Any]:
    """The content of a file.

    Raises:
        UsageError: the version is not 0.6.1 or 1.0.0, or a tensor has a grid that the form cannot say.
    """
    if document.version.startswith("2"):
        raise UsageError("layer-centric encodings files have the version 0.6.1 or 1.0.0")
    activations: dict[str, dict[str, dict[str, Any]]] = {}
    parameters: dict[str, Any] = {}
    for record in document.records:
        entries = write_tensor(record, by_channel=True)
        if record.port is None:
            parameters[record.name] = entries
        elif len(entries) > 1:
            raise UsageError(
                f"'{record.name}' has several scales, which layer-centric files have for weights"
            )
        else:
            layer, side, index = record.port
            activations.setdefault(layer, {}).setdefault(side, {})[str(index)] = entries[0]
    return {
        "activation_encodings": activations,
        "param_encodings": parameters,
        "excluded_layers": [],
        "quantizer_args": dict(document.arguments),
    }
