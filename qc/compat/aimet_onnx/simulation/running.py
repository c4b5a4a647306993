"""A simulation that runs: the sessions and the models that it is lowered to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import onnxruntime as ort
from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import Rounding
from qc.passes import Pass, PassContext, Pipeline, run_pipeline
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.lower.rounding.moved import place_moved
from qc.passes.lower.rounding.simulation import WeightRounding
from qc.passes.lower.to_encodings import ToEncodings
from qc.passes.lower.to_simulation import ToSimulation
from qc.runtime import OrtExecutor, load_data, model_inputs, open_session

from .bias import integer_biases
from .internals import Internals
from .loading import warn
from .model_names import rename_constants, without_settings
from .placement import Placement
from .quantized_model import Feed
from .session import LenientExecutor, SimulationSession, checked_settings


class RunnableModel(Internals):
    """A model with quantizers that is lowered to what is asked for, again when a setting has changed.

    Args:
        ir, placement: the model, and the quantizers of its tensors.
        settings: attributes of ONNX Runtime's session options.
        device: where models run, "cpu" or "cuda".
    """

    def __init__(
        self, ir: Model, placement: Placement, settings: Mapping[str, Any] | None = None, device: str = "cpu"
    ) -> None:
        super().__init__(ir, placement)
        self._device = device
        self._settings = checked_settings(settings)
        self._given: tuple[object, Any] | None = None  # a session that a script has set, and when
        self._sessions: dict[str, tuple[object, ort.InferenceSession]] = {}
        self._model: tuple[object, ONNXModel] | None = None
        self._is_folded = False

    @property
    def session(self) -> Any:
        """Runs the simulation with the quantizers as they are at that moment.

        Parameters without numbers are rounded by those that they would get; activations without numbers stay
        float. Inside of ``compute_encodings`` it runs the float model. Another one that is set holds until a
        setting changes; None lets go of those that are open.
        """
        if self._feeds is not None:
            return SimulationSession(lambda: self._open("float", lambda: lower(self._ir)), self._feeds.append)
        if self._given is not None and self._given[0] == self._state():
            return self._given[1]
        is_observed = any(op.is_observing for op in self._placement.ops.values())
        open_current = partial(self._open, "simulation", self._simulation)
        return SimulationSession(open_current, self._observe if is_observed else None)

    @session.setter
    def session(self, session: Any) -> None:
        self._sessions.clear()
        self._given = (self._state(), session) if session is not None else None

    def _rebuild_session(self) -> None:
        """Lets go of a session that a script has set; that of the simulation follows the settings."""
        self.session = None

    def _observe(self, feed: Feed) -> None:
        """Shows tensors, which pass unrounded, to the quantizers that scripts calibrate by themselves."""
        observing = {name: op for name, op in self._placement.ops.items() if op.is_observing}
        values = {name: self._placement.sites[name].value for name in observing}
        arrays = {name: value.const.numpy() for name, value in values.items() if value.const is not None}
        with self._ir.transaction.trial():
            for quantizer in {op.quantizer for op in observing.values() if op.rounds}:
                self._ir.quant.reopen(quantizer, "seen as it is")
            self._ir.quant.drop_open()
            model = self._simulation()
        executor = OrtExecutor(provider=self._device)
        arrays |= next(executor.run(model, [feed], [name for name in observing if name not in arrays]))
        for name, op in observing.items():
            op.update_encoding_stats(arrays[name])

    @property
    def model(self) -> ONNXModel:
        """The simulation as a model, where weights have their names; to change it changes no session.

        It is made anew when a setting has changed.
        """
        if self._model is None or self._model[0] != self._state():
            made = rename_constants(self._simulation(WeightRounding.SETTABLE), "_simulated")
            self._model = self._state(), ONNXModel(without_settings(made, self._ir.origin))
        return self._model[1]

    def _open(self, kind: str, make: Callable[[], ModelProto]) -> ort.InferenceSession:
        if kind not in self._sessions or self._sessions[kind][0] != self._state():
            session = open_session(
                make(), base_dir=self._ir.base_dir, settings=self._settings, provider=self._device
            )
            self._sessions[kind] = self._state(), session  # lowering itself counts as a change
        return self._sessions[kind][1]

    def _state(self) -> tuple[int, ...]:
        epochs = self._ir.epochs
        return epochs.structure, epochs.constants, epochs.quant

    def _simulation(self, weights: WeightRounding = WeightRounding.STORED) -> ModelProto:
        with self._ir.transaction.trial():
            self._calibrate_parameters()
            found = self._lowered(ToSimulation(rounding=Rounding.HALF_UP, weights=weights), "simulation")
        assert isinstance(found, ModelProto)
        return found

    def _float_model(self) -> ModelProto:
        """The float model; one with weights in other types as it came, where they have their names.

        Where codes were chosen, weights have the numbers that these stand for, so that they are the nearest.
        """
        if any(quantizer.codes is not None for quantizer in self._ir.quant.quantizers()):
            rounded = self._lowered(ToEncodings(), "rounded")
            assert isinstance(rounded, ModelProto)
            return rounded
        constants = (value.const for value in self._ir.graph.values() if value.const is not None)
        as_it_came = not self._is_folded and any(constant.is_converted for constant in constants)
        return self._ir.origin if as_it_came else lower(self._ir)

    def _lowered(self, step: Pass, artifact: str, has_biases: bool = False) -> object:
        """What a lowering makes; quantizers without numbers are left out, biases are integers if asked."""
        table = self._ir.quant
        with self._ir.transaction.trial():
            self._placement.fill_unscaled()
            table.drop_open()
            for site in table.sites() if isinstance(step, ToEncodings) else ():
                if site.op is not None:  # a tensor has one grid in a file: that which it has for all
                    table.remove(site, "the grid of one reader")
            with integer_biases(self) if has_biases else nullcontext():
                if isinstance(step, InsertQdq):
                    place_moved(self._ir)
                return self._run(step).artifacts[artifact].payload

    def _run(self, step: Pass, data: Iterable[Feed] | None = None) -> PassContext:
        feeds = load_data(data, model_inputs(self._ir.origin)) if data is not None else None
        context = PassContext(
            data=feeds, executor=LenientExecutor(provider=self._device)
        )  # a configuration is the target
        run_pipeline(Pipeline([step]), self._ir, context)
        for note in [*context.notes, *context.warnings]:
            warn(note)
        return context
