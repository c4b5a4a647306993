"""A simulation in one session, under any settings of its quantizers: another one costs no new session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto

from qc.ir.errors import DataError, ModelError, UsageError, a_type, nearest
from qc.ir.executor import Feed
from qc.ir.facts.qdq import simulated_encoding
from qc.ir.model import Model
from qc.ir.onnx.load import load_model, model_folder
from qc.ir.onnx.protos import attributes_of, walk_nodes
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat, parse_format
from qc.ir.quant.ranges import GridOf, encoding_of_range
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, set_by
from qc.ir.tensor_ref import TensorRef

from ..native.library import QC_DOMAIN
from ..sessions.runnable import OpenModel

OFF = "off"
ON = "on"
_WIDTHS = range(2, 17)

# What a quantizer is to do: a grid, a width in bits, the name of a format, OFF, or ON for what the model has.
Setting = Encoding | int | str


@dataclass(frozen=True)
class SimulatedQuantizer:
    """One quantizer of a simulation.

    Attributes:
        name: ``q`` and the number that remarks, ``qc print`` and ``qc why`` give it.
        tensors: the tensors that are rounded to its grid; several if they are tied.
        encoding: the grid; None while it is off.
    """

    name: str
    tensors: tuple[str, ...]
    encoding: Encoding | None


class Simulation(OpenModel):
    """A simulation model that is opened once and runs under any settings of its quantizers.

    :meth:`with_encodings` gives the same session with other settings, at no cost. A simulation never changes,
    so threads can share it, and run it and its relatives at the same time.

    Args:
        model: what the pass ``to-simulation`` makes, or the path of one. Weights that it holds rounded stay
            as they are; those of ``to-simulation{weights=settable}`` can be set like activations.
        base_dir: the folder that external data is relative to; for a path, the folder of the file.
        threads: threads within an op; None for one per physical core.
        device: where it runs, as for :func:`qc.compile`.
        origin: the model that it was made of, which names tied tensors and tells symmetric grids from others.
            Without it, a tensor that is on its grid already has no name here, and grids that have zero in the
            middle count as symmetric.
        grids: how calibration finds the grids of quantizers of ``origin``, by their ids; see
            :attr:`qc.passes.PassContext.grids`.

    Raises:
        ModelError: the model cannot be read, is no simulation, or ONNX Runtime does not accept it.
        UsageError: there is no such device.
        QcError: CUDA is asked for but cannot be used.
    """

    def __init__(
        self,
        model: ModelProto | str | Path,
        *,
        base_dir: Path | None = None,
        threads: int | None = None,
        device: str = "auto",
        origin: Model | None = None,
        grids: Mapping[int, GridOf] = MappingProxyType({}),
    ) -> None:
        if not isinstance(model, ModelProto):
            model, base_dir = load_model(model), model_folder(model)
        self._slots = _slots(model.graph, origin, base_dir, grids)
        self._by_tensor: dict[str, list[str]] = {}
        for name, slot in self._slots.items():
            for tensor in slot.tensors:
                self._by_tensor.setdefault(tensor, []).append(name)
        super().__init__(model, base_dir=base_dir, threads=threads, provider=device)
        self._settings: dict[str, Encoding | None] = {name: slot.own for name, slot in self._slots.items()}
        self._overrides: dict[str, np.ndarray] = {}

    @property
    def quantizers(self) -> dict[str, SimulatedQuantizer]:
        """The quantizers by name, as they are set here, in the order in which the model runs them."""
        return {
            name: SimulatedQuantizer(name, slot.tensors, self._settings[name])
            for name, slot in self._slots.items()
        }

    def with_encodings(self, changes: Mapping[str, Setting]) -> Simulation:
        """The same session under other settings; all that is not named stays as it is here.

        Args:
            changes: what a quantizer is to do, by its name (``q3``) or by a tensor that it rounds. An
                :class:`~qc.ir.quant.Encoding` is taken as it is; for a number of bits or the name of a format
                the grid is calibrated anew, from what was observed, or else it covers the range of the
                model's own grid; ``"off"`` leaves the tensor in float, ``"on"``
                gives back the model's own grid. Quantizers that are tied change together.

        Raises:
            UsageError: there is no such quantizer or tensor, the tensor has several quantizers, the setting
                is none of these, or the session cannot run it: its granularity and its kind of format are
                fixed.
        """
        if not isinstance(changes, Mapping):
            raise UsageError(f"settings are a dictionary such as {{'q3': 4}}, not {a_type(changes)}")
        other = object.__new__(Simulation)
        vars(other).update(vars(self))
        other._settings, other._overrides = dict(self._settings), dict(self._overrides)
        for key, setting in changes.items():
            name = self.quantizer_name(key)
            slot = self._slots[name]
            encoding = slot.encoding(setting, key)
            other._settings[name] = encoding
            for parameter in slot.parameters:
                other._overrides.pop(parameter, None)
            if encoding is not slot.own:
                other._overrides.update(slot.overrides(encoding))
        return other

    def run(self, feed: Feed, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Runs the model once under these settings; see :meth:`OpenModel.run`."""
        if not isinstance(feed, Mapping):
            raise DataError(f"the feed: expected a dictionary of arrays by input name, got {a_type(feed)}")
        return super().run({**self._overrides, **feed}, outputs)

    def quantizer_name(self, key: str) -> str:
        """The name of the quantizer of that name or tensor; raises UsageError if it is none, or several."""
        if not isinstance(key, str):
            raise UsageError(f"a quantizer or tensor is named by text, not by {key!r}")
        names = self._by_tensor.get(key) or ([key] if key in self._slots else [])
        if len(names) > 1:
            raise UsageError(f"tensor '{key}' has several quantizers; name one of {', '.join(names)}")
        if names:
            return names[0]
        raise UsageError(
            f"the simulation has no quantizer or rounded tensor '{key}'"
            f"{nearest(key, [*self._by_tensor, *self._slots])}; stored weights cannot be set (only those of "
            "to-simulation{weights=settable})"
        )


@dataclass(frozen=True)
class _Slot:
    """A quantizer as the model has it: the tensors it rounds, its own grid, and its inputs of the model.

    ``parameters`` are the names of scale, zero point and limits; ``grid_of`` is how its grid was calibrated.
    """

    tensors: tuple[str, ...]
    own: Encoding
    parameters: tuple[str, ...]
    grid_of: GridOf | None = None

    def encoding(self, setting: Setting, key: str) -> Encoding | None:
        """The grid that a setting means; None for none."""
        if isinstance(setting, Encoding):
            self._check(setting, key)
            return setting
        if setting == OFF:
            return None
        if setting == ON:
            return self.own
        if not isinstance(setting, (int, np.integer, str)):
            raise UsageError(
                f"'{key}' cannot be set to {setting!r}: it takes '{OFF}', '{ON}', a number of bits, the name "
                "of a format such as 'int8', or an Encoding"
            )
        format, spec = self._format(setting, key), self.own.spec
        if isinstance(format, IntFormat) and format != spec.format:
            spec = spec.resized(format, spec.narrow)
        # What changed the grid after its calibration, such as a large bias, knows no other widths.
        if self.grid_of is not None and self.grid_of(self.own.spec).equals(self.own):
            return self.grid_of(spec)
        return encoding_of_range(spec, self.own.minimum, self.own.maximum)

    def _format(self, setting: int | str, key: str) -> Any:
        own = self.own.spec.format
        if isinstance(setting, str):
            format = parse_format(setting)
        elif isinstance(own, IntFormat):
            if isinstance(setting, bool) or setting not in _WIDTHS:
                raise UsageError(f"'{key}' can be set to 2 to 16 bits, not to {setting}")
            format = IntFormat(setting, own.signed)
        else:
            raise UsageError(f"'{key}' has the format {own}; a number of bits is for integers")
        self._check_format(format, key)
        return format

    def _check(self, encoding: Encoding, key: str) -> None:
        self._check_format(encoding.spec.format, key)
        if encoding.spec.shifted:
            raise UsageError(f"'{key}' cannot be rounded to a shifted grid in a session: {encoding.spec}")
        own, asked = self.own.spec.granularity, encoding.spec.granularity
        if _as_run(own) != _as_run(asked):
            raise UsageError(f"'{key}' has scales per {own} in this session, not per {asked}")
        shape, given = self.own.scale.shape, encoding.scale.shape
        if shape != given:
            raise UsageError(f"'{key}' has scales of shape {shape}, not of {given}")

    def _check_format(self, format: Any, key: str) -> None:
        own = self.own.spec.format
        integers = isinstance(own, IntFormat) and isinstance(format, IntFormat)
        if format != own and not (integers and format.bits in _WIDTHS):
            kind = "integers of 2 to 16 bits" if isinstance(own, IntFormat) else str(own)
            raise UsageError(f"'{key}' is rounded to {kind} in this session, which cannot run {format}")

    def overrides(self, encoding: Encoding | None) -> dict[str, np.ndarray]:
        """What to feed for a grid, or for none."""
        scale, zero_point, limits = self.parameters
        if encoding is None:
            return {scale: np.zeros_like(self.own.scale)}
        fed = {scale: encoding.scale, zero_point: encoding.zero_point}
        if isinstance(encoding.spec.format, IntFormat):
            fed[limits] = np.asarray(encoding.spec.code_range, np.int32)
        return fed


def _as_run(granularity: Granularity) -> Granularity:
    """What a session knows of a granularity: scales of blocks, not how they came about."""
    return PerBlock(granularity.axis, granularity.size) if isinstance(granularity, PerBlock) else granularity


def _slots(
    graph: GraphProto, origin: Model | None, base_dir: Path | None, grids: Mapping[int, GridOf]
) -> dict[str, _Slot]:
    """The quantizers of a simulation by name, in the order in which it runs them."""
    by_grid: dict[tuple[str, ...], list[NodeProto]] = {}
    for node in _rounding_nodes(graph):
        by_grid.setdefault(tuple(node.input[1:4]), []).append(node)
    defaults = {tensor.name: TensorRef(tensor, base_dir) for tensor in graph.initializer}
    inputs = {value.name: defaults[value.name] for value in graph.input if value.name in defaults}
    outputs = {output.name for output in graph.output}
    known = {one.name: one for one in origin.quant.quantizers()} if origin else {}
    slots: dict[str, _Slot] = {}
    for parameters, nodes in by_grid.items():
        if not inputs.keys() >= set(parameters):
            place = nodes[0].input[0]
            raise ModelError(f"the grid of '{place}' is no input with a default: this is no simulation")
        own = simulated_encoding(attributes_of(nodes[0]), *(inputs[name].numpy() for name in parameters))
        tensors = [node.output[0] if node.output[0] in outputs else node.input[0] for node in nodes]
        grid_of = None
        name = set_by(parameters[0])
        if origin is not None and name in known:
            tensors = [site.value.original.name for site in origin.quant.sites_of(known[name])]
            own, grid_of = known[name].encoding or own, grids.get(known[name].id)
        slots[name] = _Slot(tuple(dict.fromkeys(tensors)), own, parameters, grid_of)
    return slots


def rounding_of(model: ModelProto) -> Rounding:
    """How ties are rounded in a simulation; to even if nothing is rounded."""
    for node in _rounding_nodes(model.graph):
        mode = attributes_of(node).get("rounding")
        if mode is not None:
            return Rounding(mode)
    return Rounding.HALF_EVEN


def _rounding_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The FakeQuantize nodes of a graph and of its bodies, in the order in which they stand."""
    for node in walk_nodes(graph.node):
        if node.domain == QC_DOMAIN and node.op_type == "FakeQuantize":
            yield node
