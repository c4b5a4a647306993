"""Takes grids from encodings files into a simulation, and tells where they do not fit its settings."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

import qc
from qc.ir.base.files import temporary_folder
from qc.ir.errors import nearest
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding
from qc.passes import PassContext, Pipeline, run_pipeline
from qc.passes.encodings import Document, TensorRecord, encoding_of, located, parse_encodings
from qc.passes.encodings.from_model import records_of
from qc.passes.lower.rounding.moved import place_moved
from qc.passes.quantize.load_encodings import LoadEncodings
from qc.passes.simplify.convert_to_float32 import ConvertToFloat32

from ..errors import ArgumentError, MissingFileError
from ..qc_quantize_op import QcQuantizeOp
from .files import qdq_lowering, with_names_of_codes
from .quantized_model import QuantizedModel

_DERIVED_BITS = 32  # biases: their grids follow from those of input and weight


@dataclass
class EncodingMismatchInfo:
    """Where a quantizer and a file differ: pairs of what each of them says, None where they agree."""

    quantizer_name: str
    enabled_mismatch: tuple | None = None
    dtype_mismatch: tuple | None = None
    bitwidth_mismatch: tuple | None = None
    is_symmetric_mismatch: tuple | None = None
    enc_type_mismatch: tuple | None = None

    def has_mismatch(self) -> bool:
        """Whether they differ at all."""
        return next(self._differences(), None) is not None

    def _differences(self) -> Iterator[str]:
        for field in fields(self)[1:]:
            pair = getattr(self, field.name)
            if pair is not None:
                yield f"{field.name.removesuffix('_mismatch')} is {pair[0]} there and {pair[1]} in the file"

    def __str__(self) -> str:
        return f"'{self.quantizer_name}': {', '.join(self._differences())}"


def load_encodings_to_sim(
    quant_sim_model: QuantizedModel,
    onnx_encoding_path: str | Path | Mapping[str, Any],
    strict: bool = True,
    *,
    allow_overwrite: bool = True,
    disable_missing_quantizers: bool = True,
) -> list[EncodingMismatchInfo]:
    """Takes the grids of an encodings file, so that the simulation needs no calibration.

    Args:
        quant_sim_model: the simulation.
        onnx_encoding_path: the file, or what it holds.
        strict: raise if the settings of a quantizer differ from the file; else those of the file hold.
        allow_overwrite: let later calibrations change the loaded numbers.
        disable_missing_quantizers: turn quantizers off that the file does not list.

    Returns:
        Where settings and file differ.

    Raises:
        UsageError: strict and they differ, the file is wrong, or the model has no such tensor.
    """
    return load_document(
        quant_sim_model,
        parse_encodings(*_text_of(onnx_encoding_path)),
        strict=strict,
        allow_overwrite=allow_overwrite,
        disable_missing=disable_missing_quantizers,
    )


def encodings_to_onnx_qdq(
    model: ModelProto | ONNXModel | str | Path,
    encodings: str | Path | Mapping[str, Any],
    *,
    prequantize_constants: bool = False,
    force_activation_as: str | None = "unsigned",
) -> ModelProto:
    """The QDQ model of a float model and an encodings file, without a simulation.

    Args:
        prequantize_constants: whether weights are stored as codes, or in float to be quantized.
        force_activation_as: whether activations have ``unsigned`` or ``signed`` codes; None for signed ones
            of symmetric grids alone.

    Raises:
        UsageError: the file is wrong, or the model has no such tensor.
    """
    lowering = qdq_lowering(prequantize_constants, force_activation_as)
    text, _ = _text_of(encodings)
    with temporary_folder() as folder:
        file = folder / "given.encodings"
        file.write_text(text, encoding="utf-8")
        source = model.model if isinstance(model, ONNXModel) else model
        loaded = qc.compile(source, Pipeline([ConvertToFloat32(), LoadEncodings(file=str(file))]))
    with loaded.ir.transaction.atomic():
        place_moved(loaded.ir)
    context = PassContext()
    run_pipeline(Pipeline([lowering]), loaded.ir, context)
    found = context.artifacts["qdq"].payload
    assert isinstance(found, ModelProto)
    return with_names_of_codes(found)


def load_document(
    simulation: QuantizedModel,
    document: Document,
    *,
    strict: bool,
    allow_overwrite: bool = True,
    disable_missing: bool = True,
) -> list[EncodingMismatchInfo]:
    """Takes grids; see :func:`load_encodings_to_sim`."""
    ops, ir = simulation.qc_quantize_op_dict, simulation._ir
    values = tensors_by_name(ir)
    document = located(document, ir)
    found: dict[str, Encoding] = {}
    for record in document.records:
        if record.name not in values:
            hint = nearest(record.name, list(values))
            raise ArgumentError(f"{document.source}: the model has no tensor '{record.name}'{hint}")
        if record.name in ops and not _follows(simulation, record, document):
            const = values[record.name].const
            found[record.name] = encoding_of(record, const.shape if const else (), document.source)
    listed = {ops[name] for name in found}
    missing = [name for name, op in ops.items() if op.enabled and op not in listed]
    mismatches = [_compared(name, ops[name], encoding, document) for name, encoding in found.items()]
    mismatches += [EncodingMismatchInfo(name, enabled_mismatch=(True, False)) for name in missing]
    mismatches = [mismatch for mismatch in mismatches if mismatch.has_mismatch()]
    if strict and mismatches:
        raise ArgumentError(
            f"{document.source} does not fit the simulation in {len(mismatches)} places, first "
            f"{mismatches[0]}; give strict=False to take over what the file says"
        )
    for name in missing if disable_missing else ():
        ops[name].enabled = False
    _untie_different(simulation, found)
    for name, encoding in found.items():
        op = ops[name]
        op.enabled = True
        op.load(encoding)
        if not allow_overwrite:
            op.freeze_encodings()
    return mismatches


def _untie_different(simulation: QuantizedModel, grids: Mapping[str, Encoding]) -> None:
    """Gives tied tensors whose grids differ, as after a change of precision, a quantizer each."""
    first: dict[QcQuantizeOp, Encoding] = {}
    for name, encoding in grids.items():
        if not encoding.equals(first.setdefault(simulation.qc_quantize_op_dict[name], encoding)):
            simulation.untie(name)


def read_qdq(model: ModelProto | str | Path) -> tuple[ModelProto, Document]:
    """The float model of a QDQ model, and its grids."""
    imported = qc.compile(model, "import-qdq", allow_unquantized=True)
    records = records_of(imported.ir, warn, biases=False)
    return imported.float_model, Document("1.0.0", records, "the QDQ model")


def freeze_grids(simulation: QuantizedModel, document: Document, strict: bool) -> None:
    """Takes grids of the tensors that the simulation quantizes; calibration leaves them as they are.

    Each of these tensors has a quantizer of its own from then on. The grid of one that only holds the values
    of another is that of the other, unless that has one itself or others read it, too.

    Args:
        strict: raise if a tensor has a grid that the simulation does not quantize; else warn.
    """
    placement = simulation._placement
    given = {record.name: record for record in document.records if record.format.bits != _DERIVED_BITS}
    decisive = {name: placement.decisive(name) for name in given}
    taken = {name: record for name, record in given.items() if decisive[name] == name}
    for name, source in decisive.items():
        if source is not None and placement.is_read_once(source):
            taken.setdefault(source, replace(given[name], name=source))
    for name in taken:
        simulation.untie(name)
    grids = replace(document, records=list(taken.values()))
    load_document(simulation, grids, strict=False, allow_overwrite=False, disable_missing=False)
    left_out = [
        name
        for name, source in decisive.items()
        if source not in taken or not _is_same_grid(given[name], taken[source])
    ]
    if left_out:
        names = ", ".join(f"'{name}'" for name in left_out)
        said = f"the QDQ model has grids of tensors that the simulation does not quantize: {names}"
        if strict:
            raise ArgumentError(f"{said}; give strict=False to leave them out")
        warn(said)


def warn(note: str) -> None:
    """Warns where the script calls the layer."""
    warnings.warn(note, stacklevel=5)


def _is_same_grid(one: TensorRecord, other: TensorRecord) -> bool:
    pairs = ((one.scale, other.scale), (one.zero_point, other.zero_point))
    return one.format == other.format and all(np.array_equal(a, b) for a, b in pairs)


def param_document(path: str | Path, names: Collection[str]) -> Document:
    """The grids of some tensors in a file, which may hold no more than its part about parameters.

    Raises:
        UsageError: it is no such file, or lists none of them.
    """
    text, source = _text_of(path)
    document = parse_encodings(_completed(text, source), source)
    records = [record for record in document.records if record.name in names]
    if not records:
        raise ArgumentError(f"{source} has no grid for a parameter of the model")
    return replace(document, records=records)


def _completed(text: str, source: str) -> str:
    """The text of a whole file: bare parts are an object in version 0.6.1, a list in the others."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # whoever parses it says what is wrong
        return text
    if isinstance(content, dict) and "version" in content:
        return text
    if isinstance(content, list):
        if any(isinstance(entry, dict) and "output_dtype" in entry for entry in content):
            return json.dumps({"version": "2.0.0", "encodings": content})
        return json.dumps({"version": "1.0.0", "activation_encodings": [], "param_encodings": content})
    return json.dumps({"version": "0.6.1", "activation_encodings": {}, "param_encodings": content})


def _text_of(file: str | Path | Mapping[str, Any]) -> tuple[str, str]:
    """The text of an encodings file, and what to call it."""
    if isinstance(file, Mapping):
        return json.dumps(file), "the given encodings"
    path = Path(file)
    if not path.is_file():
        raise MissingFileError(f"there is no encodings file '{path}'")
    return path.read_text(encoding="utf-8"), f"'{path}'"


def _follows(simulation: QuantizedModel, record: TensorRecord, document: Document) -> bool:
    """Whether a grid follows from others: a bias, or what only moves data, which version 2 lists too."""
    if record.format.bits == _DERIVED_BITS:
        return True
    own = simulation.qc_quantize_op_dict[record.name]
    moved = not own.enabled and simulation._placement.effective(record.name) is not None
    return document.version.startswith("2") and moved


def _compared(name: str, op: QcQuantizeOp, encoding: Encoding, document: Document) -> EncodingMismatchInfo:
    ours, theirs = op.spec, encoding.spec
    if not op.enabled:
        return EncodingMismatchInfo(name, enabled_mismatch=(False, True))
    if not op.rounds:
        return EncodingMismatchInfo(name, dtype_mismatch=(str(op.precision()), str(theirs.format)))
    kinds = [type(spec.format).__name__ for spec in (ours, theirs)]
    if kinds[0] != kinds[1]:
        return EncodingMismatchInfo(name, dtype_mismatch=(str(ours.format), str(theirs.format)))
    tells_symmetry = op.is_parameter or not document.version.startswith("2")
    integer = isinstance(ours.format, IntFormat) and tells_symmetry
    return EncodingMismatchInfo(
        name,
        bitwidth_mismatch=_pair(ours.format.bits, theirs.format.bits),
        is_symmetric_mismatch=_pair(ours.symmetric, theirs.symmetric) if integer else None,
        enc_type_mismatch=_pair(str(ours.granularity), str(theirs.granularity)),
    )


def _pair(ours: object, theirs: object) -> tuple | None:
    return (ours, theirs) if ours != theirs else None
