"""Simulations in many settings and all that is written of them, by AIMET or by qc under AIMET's names.

The library is imported by its name, so that this runs in a Python that has only one of both.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from .aimet_process import Feed, write_arrays

VERSIONS = ("0.6.1", "1.0.0", "2.0.0")
QDQ: Mapping[str, Mapping[str, Any]] = {
    "qdq": {},
    "qdq-stored": {"prequantize_constants": True},
    "qdq-signed": {"force_activation_as": "signed", "export_int32_bias": True},
}

_LINEAR = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
# Changes a simulation before calibration: the package, and the simulation.
_Change = Callable[[Any, Any], object]


def _blocks(bits: int, symmetric: bool, size: int) -> _Change:
    def change(library: Any, sim: Any) -> None:
        library.quantsim.set_blockwise_quantization_for_weights(sim, _LINEAR, bits, symmetric, size)

    return change


def _two_levels(bits: int, decompressed: int, size: int) -> _Change:
    def change(library: Any, sim: Any) -> None:
        set_blocks = library.quantsim.set_grouped_blockwise_quantization_for_weights
        set_blocks(sim, _LINEAR, bits, decompressed, size)

    return change


def _each(kind: int, attribute: str, value: object) -> _Change:
    def change(library: Any, sim: Any) -> None:
        biases = {op["bias"] for op in map(_parameters, sim.connected_graph.ordered_ops) if "bias" in op}
        names = [sim.param_names, sim.activation_names][kind]
        for name in names:
            if name not in biases:
                setattr(sim.qc_quantize_op_dict[name], attribute, value)

    return change


def _parameters(op: Any) -> dict[str, str]:
    """The parameters of an op by kind: AIMET has kinds by tensor, qc tensors by kind."""
    if all(isinstance(found, tuple) for found in op.parameters.values()):
        return {kind: product.name for product, kind in op.parameters.values()}
    return dict(op.parameters)


def _one(kind: int, number: int, precision: str) -> _Change:
    def change(library: Any, sim: Any) -> None:
        names = [sim.param_names, sim.activation_names][kind]
        enabled = [name for name in names if sim.qc_quantize_op_dict[name].enabled]
        if enabled[number:]:
            sim.set_tensor_precision([enabled[number]], getattr(library, precision))

    return change


def _shifted(library: Any, sim: Any) -> None:
    spec = library.QSpec.per_channel(library.int2, symmetric=True, shift_zero_point=True)
    library.quantsim.set_param_type(sim, spec, op_types=_LINEAR)


def _nothing(library: Any, sim: Any) -> None:
    pass


# By name: arguments of the constructor, and what is changed then.
SETTINGS: Mapping[str, tuple[Mapping[str, str], _Change]] = {
    "int8": ({}, _nothing),
    "int4": ({"param_type": "int4", "activation_type": "int4"}, _nothing),
    "int16": ({"param_type": "int16", "activation_type": "int16"}, _nothing),
    "w4a16": ({"param_type": "int4", "activation_type": "int16"}, _nothing),
    "block": ({"param_type": "int4", "activation_type": "int16"}, _blocks(4, True, 2)),
    "block8": ({}, _blocks(8, False, 4)),
    "lpbq": ({"param_type": "int4", "activation_type": "int16"}, _two_levels(4, 8, 2)),
    "lpbq-6": ({}, _two_levels(4, 6, 4)),
    "int2": ({"param_type": "int2"}, _nothing),
    "int2-shifted": ({}, _shifted),
    "asymmetric": ({}, _each(0, "use_symmetric_encodings", False)),
    "symmetric": ({}, _each(1, "use_symmetric_encodings", True)),
    "strict": ({}, _each(0, "use_strict_symmetric", True)),
    "float16": ({"param_type": "float16", "activation_type": "float16"}, _nothing),
    "float16-activations": ({"activation_type": "float16"}, _nothing),
    "fp8": ({"param_type": "float8e4m3fn", "activation_type": "float8e4m3fn"}, _nothing),
    "fp8-weights": ({"param_type": "float8e5m2"}, _nothing),
    "tf_enhanced": ({"quant_scheme": "tf_enhanced", "param_type": "int4"}, _nothing),
    "one-activation": ({}, _one(1, 1, "int16")),
    "one-activation-float": ({}, _one(1, 1, "float16")),
    "one-weight": ({}, _one(0, 0, "int4")),
}


def simulate(
    library: str, model: onnx.ModelProto, feeds: Sequence[Feed], config: str, setting: str, folder: str
) -> Any:
    """Makes a simulation and writes all of it to a folder, for :func:`.aimet_process.read_forms`.

    Args:
        library: the package: ``aimet_onnx``, or qc's.
        setting: of :data:`SETTINGS`.

    Returns:
        The simulation.
    """
    package = importlib.import_module(library)
    importlib.import_module(f"{library}.quantsim")
    arguments, change = SETTINGS[setting]
    sim = package.QuantizationSimModel(model, config_file=_config(package, config), **arguments)
    change(package, sim)
    sim.compute_encodings(feeds)
    found: dict[str, Any] = {}
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as scratch:
            found[version] = _tried(lambda: _encodings(sim, scratch, version))  # noqa: B023
    for form, options in QDQ.items():
        made = _tried(lambda: sim.to_onnx_qdq(**options))  # noqa: B023
        found[form] = made if isinstance(made, str) else None
        if not isinstance(made, str):
            onnx.save(made, str(Path(folder, f"{form}.onnx")))
    Path(folder, "forms.json").write_text(json.dumps(found), encoding="utf-8")
    names = [output.name for output in sim.session.get_outputs()]
    outputs = [sim.session.run(None, feed) for feed in feeds]
    write_arrays(folder, "outputs", [dict(zip(names, arrays, strict=True)) for arrays in outputs])
    return sim


def _config(package: Any, name: str) -> str:
    """A configuration by name, or where AIMET has one under no name, its file."""
    folder = Path(package.__file__).parent / "common" / "quantsim_config"
    file = folder / f"{name}_quantsim_config.json"
    return str(file) if file.is_file() else name


def _encodings(sim: Any, folder: str, version: str) -> Any:
    sim.export(folder, "made", export_model=False, encoding_version=version)
    return json.loads(Path(folder, "made.encodings").read_text(encoding="utf-8"))


def _tried(make: Callable[[], Any]) -> Any:
    """What a function gives, or what it failed with, as text."""
    try:
        return make()
    except Exception as error:  # whatever a library fails with is a result to compare
        return f"{type(error).__name__}: {error}"
