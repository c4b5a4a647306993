"""The result of a compilation: the model with its quantizers, and what can be made of it."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from qc.ir.base.files import atomic_write
from qc.ir.base.shown import Shown
from qc.ir.errors import UsageError, a_type
from qc.ir.facts.weights import Weights, weights_of
from qc.ir.model import Model
from qc.ir.onnx.float_model import lower_float
from qc.ir.onnx.save import external_files, stage_model
from qc.ir.quant.ranges import GridsById
from qc.ir.rewriter import Rewriter
from qc.passes import Artifact, PassContext, PipelineReport
from qc.passes.framework.target import Target, target_names
from qc.passes.lower.rounding.simulation import WeightRounding
from qc.passes.lower.to_simulation import ToSimulation
from qc.runtime import InputInfo, Simulation
from qc.runtime.evaluation.simulation import rounding_of

from ..coverage import Coverage
from ..view import Crop, html_page


@dataclass(repr=False)
class Compiled(Shown):
    """What a pipeline made of a model.

    Attributes:
        ir: the model after all passes, quantizers included.
        artifacts: what the lowering passes made, by name (``qdq``, ``simulation``, ``encodings``).
        report: steps, times and numbers of actions.
        coverage: what is quantized and what is not, and why.
        target: the target that was compiled for.
        inputs: what data is to hold: the inputs of the model, with the lengths and values they have for good.
        source: the file that the model was read from, if any.
        notes: sentences for the user.
        warnings: sentences of what makes a result worthless, such as data that is zero throughout.
        grids: how the calibration finds the grid of each quantizer for any spec, by the id of it; see
            :class:`~qc.ir.quant.ranges.GridsById`. The grids themselves are those of ``ir.quant``.
    """

    ir: Model
    artifacts: dict[str, Artifact]
    report: PipelineReport
    coverage: Coverage
    target: Target
    inputs: tuple[InputInfo, ...]
    source: Path | None = None
    notes: list[str] = field(default_factory=list)
    grids: GridsById = field(default_factory=GridsById)
    warnings: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        of = f"{self.coverage.quantized} of {self.coverage.total}"
        return f"<Compiled for {self.target.name}: {of} float tensors quantized>"

    @functools.cached_property
    def float_model(self) -> ModelProto:
        """The rewritten float model without quantizers, and without what passes changed for their sake."""
        return lower_float(self.ir)

    @functools.cached_property
    def weights(self) -> Weights:
        """The quantized weights and biases by name, with their codes and grids."""
        return weights_of(self.ir)

    @property
    def model(self) -> ModelProto:
        """The main result: the QDQ model, else the simulation, else the rewritten float model."""
        for name in ("qdq", "simulation"):
            if name in self.artifacts:
                return self._proto(name)
        return self.float_model

    @functools.cached_property
    def simulation(self) -> ModelProto:
        """The simulation model, made now if the pipeline did not."""
        if "simulation" in self.artifacts:
            return self._proto("simulation")
        return self._simulated(ToSimulation())

    @functools.cached_property
    def device_simulation(self) -> ModelProto:
        """The simulation that makes the codes of the target's device, where its arithmetic is known.

        It is :attr:`simulation` elsewhere, and where the pipeline made one.
        """
        is_known = self.target.arithmetic and self.target.name in target_names()
        if "simulation" in self.artifacts or not is_known:
            return self.simulation
        return self._simulated(ToSimulation(device=self.target.name))

    def open_simulation(
        self,
        *,
        settable_weights: bool = False,
        float_biases: bool = False,
        threads: int | None = None,
        device: str = "auto",
    ) -> Simulation:
        """Opens the simulation once, to run it under any settings of its quantizers.

        Args:
            settable_weights: whether the grids of weights can be set too, not only those of activations. Then
                weights are rounded at every run, ties as in the simulation; those on shifted grids stay as
                they are.
            float_biases: whether biases are those of the float model, without what passes added to them to
                take back errors of quantizers. With all of these off it is the float model then.
            threads: threads within an op; None for one per physical core.
            device: where it runs, as for :func:`qc.compile`.
        """
        model = self.simulation
        if settable_weights or float_biases:
            weights = WeightRounding.SETTABLE if settable_weights else WeightRounding.STORED
            lowering = ToSimulation(rounding_of(model), weights)
            rewriter = Rewriter(self.ir)
            with rewriter.trial():
                if float_biases:
                    rewriter.restore_floats()
                model = self._simulated(lowering)
        base_dir = self.ir.base_dir
        return Simulation(
            model, base_dir=base_dir, threads=threads, device=device, origin=self.ir, grids=self.grids
        )

    def view(self, path: str | Path, around: str | None = None, radius: int = 6) -> None:
        """Writes a page for the browser that shows the model with its quantizers and their reasons.

        Args:
            path: the file, ``.html``.
            around: a tensor, to show only the ops that are at most ``radius`` ops away from it.

        Raises:
            UsageError: there are too many ops for a page, no such tensor, or the file cannot be written.
        """
        title = self.source.name if self.source is not None else self.ir.graph.name
        page = html_page(self.ir, title, Crop(around, radius) if around is not None else None)
        self._refuse_sources([Path(path)])
        with atomic_write(path) as file:
            file.write(page.encode())

    def save(self, path: str | Path) -> list[Path]:
        """Writes the main result to ``path`` and every other artifact beside it, with its own suffix.

        Either all files are written or none.

        Raises:
            UsageError: a path is that of the source model or of its data, or cannot be written to.
        """
        path = Path(path)
        main = self.model
        payloads: dict[Path, object] = {path: main}
        for artifact in self.artifacts.values():
            if artifact.payload is not main:
                payloads[path.with_name(path.stem + artifact.suffix)] = artifact.payload
        written = []
        with ExitStack() as stack:
            for place, payload in payloads.items():
                if isinstance(payload, ModelProto):
                    written += stage_model(stack, payload, place, self.ir.base_dir)
                else:
                    raw = payload if isinstance(payload, bytes) else str(payload).encode("utf-8")
                    stack.enter_context(atomic_write(place)).write(raw)
                    written.append(place)
            self._refuse_sources(written)
        return written

    def _simulated(self, lowering: ToSimulation) -> ModelProto:
        context = PassContext(target=self.target)
        lowering.run(self.ir, context)
        payload = context.artifacts["simulation"].payload
        assert isinstance(payload, ModelProto)
        return payload

    def _refuse_sources(self, files: list[Path]) -> None:
        """Raises UsageError if one of the files is the source model, or holds data of it."""
        if self.source is not None:
            for file in files:
                refuse_overwrite(self.source, file)
        for data in external_files(self.ir.origin, self.ir.base_dir):
            for file in files:
                if file.exists() and data.exists() and file.samefile(data):
                    raise UsageError(f"'{file}' holds data of the input model; write under another name")

    def _proto(self, name: str) -> ModelProto:
        payload = self.artifacts[name].payload
        assert isinstance(payload, ModelProto)
        return payload


def check_compiled(given: object, user: str) -> None:
    """Raises UsageError for what is no result of :func:`qc.compile`; ``user`` is who takes it."""
    if not isinstance(given, Compiled):
        raise UsageError(f"{user}() takes the result of qc.compile(), not {a_type(given)}")


def refuse_overwrite(source: str | Path, output: str | Path) -> None:
    """Raises UsageError if writing ``output`` would replace the model being read, if that is still there."""
    if Path(output).exists() and Path(source).exists() and Path(output).samefile(source):
        raise UsageError(f"'{output}' is the input model; write to another file")
