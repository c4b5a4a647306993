"""Operators by settings by configurations, in every form: what differs from AIMET, and what that costs.

Compared are encodings files of all versions (entries, and the arguments beside them), the grids of QDQ
models, and what is left of the signal at every output of the simulation.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
import numpy as np
import onnx

from qc.ir.model import Model
from qc.runtime import open_session

from .aimet_operators import feeds_of, operators
from .aimet_process import Aimet, Feed, Forms, read_forms
from .aimet_settings import QDQ, SETTINGS, VERSIONS, simulate
from .aimet_ties import defects_of, ties_of

_QC = "qc.compat.aimet_onnx"
# Scales of one calibration, computed in float32 here and in float64 there.
_TOLERANCE = 2e-5
# Chance alone moves a few feeds by that, and some by more: those are measured on other weights as well.
_DECIBELS = 0.3
_OTHER_DRAWS = 10
Grid = Mapping[str, np.ndarray | str]


class Finding(NamedTuple):
    """One difference.

    Attributes:
        form: the file, QDQ model or output.
        what: the tensor and what differs.
        documented: the entry of docs/aimet-differences.md, or that other weights show nothing of it; empty
            if there is none.
    """

    form: str
    what: str
    documented: str


class _Documented:
    """Which entry of docs/aimet-differences.md explains a difference, from what qc remarks about tensors."""

    def __init__(self, setting: str, model: Model) -> None:
        self._setting = setting
        self._defects = defects_of(model)
        self._tied = {name for names in ties_of(model) for name in names}

    def of(self, name: str, what: str) -> str:
        """The entry about a tensor; of a model in which one is placed otherwise, also for those beside it."""
        if "uint32" in what:
            return "32-bit biases"
        if self._setting == "strict":
            return "B9"
        if self._setting == "tf_enhanced" and name in self._tied:
            return "tied histograms"
        placed = (defect for defect in self._defects.values() if defect != "unread")
        return self._defects.get(name) or next(placed, "")

    def of_loss(self) -> str:
        """The entries by which qc leaves less of one output, to leave more of another or to give it a grid.

        An output in the middle of a model has a grid (5.1) that holds all of it (B1), which others read too.
        """
        return next((entry for entry in ("5.1", "B1") if entry in self._defects.values()), "")


def compared(aimet: Aimet, model: onnx.ModelProto, config: str, setting: str) -> tuple[str, list[Finding]]:
    """What AIMET failed with, if it did, and all that differs."""
    feeds = feeds_of(model)
    theirs = aimet.forms(model, feeds, config, setting)
    if theirs.error:
        return theirs.error, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            simulation = simulate(_QC, model, feeds, config, setting, folder)
        except Exception as error:  # also a finding
            return "", [Finding("failure", f"qc fails: {type(error).__name__}: {error}", "")]
        ours, documented = read_forms(folder), _Documented(setting, simulation._ir)
    found = [finding for version in VERSIONS for finding in _files(version, ours, theirs, documented)]
    found += [finding for form in QDQ for finding in _models(form, ours, theirs, documented)]
    return "", [*found, *_outputs(model, feeds, ours, theirs, documented)]


# -- encodings files ---------------------------------------------------------------------------------


def _files(version: str, ours: Forms, theirs: Forms, documented: _Documented) -> Iterator[Finding]:
    mine, given = ours.files[version], theirs.files[version]
    if isinstance(mine, str) or isinstance(given, str):
        if isinstance(mine, str) != isinstance(given, str):
            what = f"fails in {'qc' if isinstance(mine, str) else 'AIMET'} only: {_text(mine)}{_text(given)}"
            yield Finding(version, what, "" if isinstance(mine, str) else "AIMET fails")
        return
    for what in _differences(given.get("quantizer_args"), mine.get("quantizer_args")):
        yield Finding(version, f"quantizer_args {what}", "")
    entries, expected = _by_name(mine), _by_name(given)
    for name in sorted({*entries, *expected}):
        what = next(_differences(expected.get(name), entries.get(name)), "")
        if what:
            yield Finding(version, f"{name}: {what}", documented.of(name, what))


def _text(content: object) -> str:
    return content if isinstance(content, str) else ""


def _by_name(content: Mapping[str, Any]) -> dict[str, Any]:
    """The entries, each with the section that it is in."""
    if "encodings" in content:
        return {entry["name"]: entry for entry in content["encodings"]}
    found = {}
    for section in ("activation_encodings", "param_encodings"):
        entries = content[section]
        listed = entries.items() if isinstance(entries, dict) else ((e["name"], e) for e in entries)
        found |= {name: (section, entry) for name, entry in listed}
    return found


def _differences(expected: Any, given: Any, place: str = "") -> Iterator[str]:
    """What differs in two JSON values; numbers may by rounding, zero points by a step at a tie."""
    if isinstance(expected, dict) and isinstance(given, dict):
        for key in sorted({*expected, *given}):
            yield from _differences(expected.get(key), given.get(key), f"{place} {key}")
    elif isinstance(expected, (list, tuple)) and isinstance(given, (list, tuple)):
        if len(expected) != len(given):
            yield f"{place} has {len(given)} numbers, AIMET {len(expected)}".strip()
        for one, other in zip(expected, given, strict=False):
            yield from _differences(one, other, place)
    elif _is_number(expected) and _is_number(given):
        allowed = 1.0 if place.endswith(("offset", "zero_point")) else _TOLERANCE * max(1e-6, abs(expected))
        if type(expected) is not type(given) or abs(expected - given) > allowed:
            yield f"{place} is {given!r}, AIMET {expected!r}".strip()
    elif expected != given:
        yield f"{place} is {given!r}, AIMET {expected!r}".strip()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- QDQ models --------------------------------------------------------------------------------------


def _models(form: str, ours: Forms, theirs: Forms, documented: _Documented) -> Iterator[Finding]:
    mine, given = ours.models[form], theirs.models[form]
    if isinstance(given, str):
        return  # what AIMET cannot make is not compared
    if isinstance(mine, str):
        yield Finding(form, f"fails in qc only: {mine}", "")
        return
    if _opsets(mine) != _opsets(given):
        yield Finding(form, f"has opsets {_opsets(mine)}, AIMET {_opsets(given)}", documented.of("", ""))
    grids, expected = grids_of(mine), grids_of(given)
    for name in sorted({*grids, *expected}):
        if name not in grids or name not in expected:
            what = f"a grid only in {'qc' if name in grids else 'AIMET'}"
        else:
            what = next(_unlike(grids[name], expected[name]), "")
        if what:
            yield Finding(form, f"{name}: {what}", documented.of(name, what))


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}


def grids_of(model: onnx.ModelProto) -> dict[str, Grid]:
    """The scale, zero point, and type of codes of each tensor that a DequantizeLinear makes."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    made = {node.output[0]: node for node in model.graph.node}
    found: dict[str, Grid] = {}
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[1] not in constants:  # of scales in two levels
            continue
        quantizing = made.get(node.input[0])
        stored = constants.get(node.input[0])
        if stored is None and quantizing is None:
            continue
        # Equal codes may be stored once, so that constants are told apart by what is made of them.
        name = quantizing.input[0] if quantizing is not None else node.output[0]
        point = constants.get(node.input[2]) if len(node.input) > 2 else None
        coded = stored if stored is not None else point
        scale = _array(constants[node.input[1]])
        found[_plain(name)] = {
            "domain": node.domain,
            "codes": "stored" if stored is not None else "computed",
            "type": onnx.TensorProto.DataType.Name(coded.data_type) if coded is not None else "",
            "scale": scale,
            "zero point": _array(point) if point is not None else np.zeros_like(scale),
        }
    return found


def _plain(name: str) -> str:
    """The name of the tensor that a rounded one, or an output of the model before it is, stands for."""
    for suffix in ("_DequantizeLinear_Output", "_updated", "_qdq"):
        name = name.removesuffix(suffix)
    return name


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(np.float64)


def _unlike(ours: Grid, theirs: Grid) -> Iterator[str]:
    for key, expected in theirs.items():
        given = ours[key]
        if isinstance(expected, str) or isinstance(given, str):
            if given != expected:
                yield f"{key} {given}, AIMET {expected}"
            continue
        try:
            given, expected = np.broadcast_arrays(given, expected)  # one position of a kernel, or each
        except ValueError:
            yield f"{key} of shape {given.shape}, AIMET {expected.shape}"
            continue
        allowed = 1.0 if key == "zero point" else _TOLERANCE * np.abs(expected)
        if np.any(np.abs(given - expected) > allowed):
            yield f"{key} {given.ravel()[0]:.6g}, AIMET {expected.ravel()[0]:.6g}"


# -- outputs -----------------------------------------------------------------------------------------


def _outputs(
    model: onnx.ModelProto, feeds: Sequence[Feed], ours: Forms, theirs: Forms, documented: _Documented
) -> Iterator[Finding]:
    for name, (mine, given) in _left(model, feeds, ours, theirs).items():
        if mine < given - _DECIBELS:
            what = f"{name}: {mine:.1f} dB are left, in AIMET {given:.1f}"
            yield Finding("simulation", what, documented.of_loss())


def _left(
    model: onnx.ModelProto, feeds: Sequence[Feed], ours: Forms, theirs: Forms
) -> dict[str, tuple[float, float]]:
    """Signal over noise of each output, in dB: of qc and of AIMET."""
    session = open_session(model)
    names = [output.name for output in model.graph.output]
    exact = [dict(zip(names, session.run(None, dict(feed)), strict=True)) for feed in feeds]
    return {
        name: (_decibels(exact, ours.outputs, name), _decibels(exact, theirs.outputs, name)) for name in names
    }


def _is_loss(finding: Finding) -> bool:
    return finding.form == "simulation" and not finding.documented


def _is_chance(aimet: Aimet, operator: str, config: str, setting: str) -> bool:
    """Whether, in the mean of other weights, qc leaves as much of every output as AIMET."""
    gains = []
    for seed in range(1, 1 + _OTHER_DRAWS):
        model = operators(seed)[operator]
        feeds = feeds_of(model)
        theirs = aimet.forms(model, feeds, config, setting)
        with tempfile.TemporaryDirectory() as folder:
            simulate(_QC, model, feeds, config, setting, folder)
            left = _left(model, feeds, read_forms(folder), theirs)
        gains.append([mine - given for mine, given in left.values()])
    return bool(np.all(np.mean(gains, axis=0) >= 0))


def _decibels(exact: Sequence[Feed], given: Sequence[Feed], name: str) -> float:
    """Signal over noise of an output, over all feeds."""
    # AIMET calls an output that it rounds by another name inside of the simulation.
    signal, noise = 0.0, 0.0
    for one, other in zip(exact, given, strict=True):
        found = other[name] if name in other else other[f"{name}_updated"]
        signal += float(np.sum(np.square(one[name], dtype=np.float64)))
        noise += float(np.sum(np.square(one[name].astype(np.float64) - found)))
    return 10 * float(np.log10(signal / max(noise, 1e-30)))


def compare_all(aimet: Aimet, chosen: Sequence[str], configs: Sequence[str], verbose: bool) -> bool:
    """Prints one line for each operator and configuration; whether anything differs without an entry.

    What AIMET refuses in every setting, such as an unknown configuration, is compared with nothing.
    """
    models = {name: model for name, model in operators().items() if not chosen or name in chosen}
    failed = False
    for name, model in models.items():
        for config in configs:
            found: list[tuple[str, Finding]] = []
            refused = 0
            for setting in SETTINGS:
                error, findings = compared(aimet, model, config, setting)
                refused += bool(error)
                lost = [finding for finding in findings if _is_loss(finding)]
                if lost and _is_chance(aimet, name, config, setting):
                    findings = [f._replace(documented="chance") if f in lost else f for f in findings]
                found += [(setting, finding) for finding in findings]
            failed |= refused == len(SETTINGS) or any(not finding.documented for _, finding in found)
            click.echo(_line(name, config, found, refused))
            for setting, finding in found:
                if verbose or not finding.documented:
                    said = finding.documented or "not documented"
                    click.echo(f"    {setting}, {finding.form}, {finding.what} ({said})")
    return failed


def _line(name: str, config: str, found: Sequence[tuple[str, Finding]], refused: int) -> str:
    settings = len(SETTINGS) - refused
    reasons = Counter(finding.documented for _, finding in found if finding.documented)
    words = [f"{name:12} {config:8} {settings} settings in {len(VERSIONS) + len(QDQ)} forms"]
    words += [f"{refused} fail in AIMET"] if refused else []
    words += [f"{number} as documented ({reason})" for reason, number in sorted(reasons.items())]
    others = sum(not finding.documented for _, finding in found)
    if not settings:
        return ", ".join([*words, "nothing COMPARED"])
    words.append(f"{others} OTHERWISE" if others else "otherwise equal" if reasons else "equal")
    return ", ".join(words)
