"""``QuantAnalyzer``: which layers a quantized model loses by, as files that AIMET-ONNX writes too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir.base.files import atomic_write
from qc.ir.quant.arithmetic import spread
from qc.passes.quantize.aimet.arithmetic import Histogram
from qc.runtime import OpenModel, OrtExecutor, open_session
from qc.runtime.evaluation.judge import judge
from qc.runtime.metrics.metric import Sample
from qc.runtime.metrics.sums import Sums

from .batch_norm_fold import fold_all_batch_norms_to_weight
from .charts import write_histogram, write_line, write_ranges
from .defs import QuantScheme, qtype
from .errors import ArgumentError
from .feeds import feeds_of
from .layer_output_utils import computed_tensors
from .qc_quantize_op import QcQuantizeOp
from .quantsim import QuantizationSimModel
from .simulation.quantized_model import OpQuantizers
from .simulation.session import recorded_feeds

Callback = Callable[[Any], Any]
Ends = tuple[float, float]
Ranges = dict[str, Ends | dict[str, Ends]]


class QuantAnalyzer:
    """Tells which layers a model loses accuracy by when it is quantized.

    Args:
        model: the float model; its batch normalizations are folded in place.
        dummy_input: not needed.
        forward_pass_callback: is given a session and runs it on data for calibration.
        eval_callback: is given a session and returns a score.

    Raises:
        UsageError: a callback cannot be called.
    """

    def __init__(
        self,
        model: ModelProto | ONNXModel,
        dummy_input: Mapping[str, np.ndarray] | None,
        forward_pass_callback: Callback,
        eval_callback: Callable[[Any], float],
    ) -> None:
        given = {"forward_pass_callback": forward_pass_callback, "eval_callback": eval_callback}
        for name, callback in given.items():
            if not callable(callback):
                raise ArgumentError(f"{name} must be callable, not {type(callback).__name__}")
        self._model = model.model if isinstance(model, ONNXModel) else model
        self._run = forward_pass_callback
        self._score = eval_callback
        self._dataset: tuple[Collection[Any], int] | None = None

    def analyze(
        self,
        quant_scheme: QuantScheme = QuantScheme.post_training_tf_enhanced,
        default_param_bw: int = 8,
        default_activation_bw: int = 8,
        config_file: str | None = None,
        results_dir: str | Path = "./tmp/",
    ) -> None:
        """Does all of the following, with a simulation of its own.

        Histograms are written with ``tf_enhanced`` only, losses after :meth:`enable_per_layer_mse_loss`.

        Args:
            quant_scheme, default_param_bw, default_activation_bw, config_file: of the simulation.
            results_dir: the folder that everything is written to; it is made if it is not there.
        """
        folder = Path(results_dir)
        sim = self.create_quantsim_and_encodings(
            quant_scheme, default_param_bw, default_activation_bw, config_file
        )
        scores = self.check_model_sensitivity_to_quantization(sim)
        names = ("float", "weights_quantized", "activations_quantized")
        _write_json(folder / "model_sensitivity.json", dict(zip(names, scores, strict=True)))
        enabled = self.perform_per_layer_analysis_by_enabling_quantizers(sim, folder)
        _write_json(folder / "per_layer_quant_enabled.json", enabled)
        disabled = self.perform_per_layer_analysis_by_disabling_quantizers(sim, folder)
        _write_json(folder / "per_layer_quant_disabled.json", disabled)
        self.export_per_layer_encoding_min_max_range(sim, folder)
        if QuantScheme.from_str(quant_scheme) is QuantScheme.post_training_tf_enhanced:
            self.export_per_layer_stats_histogram(sim, folder)
        if self._dataset is not None:
            self.export_per_layer_mse_loss(sim, folder)

    def create_quantsim_and_encodings(
        self,
        quant_scheme: QuantScheme,
        default_param_bw: int,
        default_activation_bw: int,
        config_file: str | None,
    ) -> QuantizationSimModel:
        """Folds batch normalizations and makes a simulation, calibrated by the callback."""
        fold_all_batch_norms_to_weight(self._model)
        sim = QuantizationSimModel(
            self._model,
            quant_scheme=quant_scheme,
            param_type=qtype.int(default_param_bw),
            activation_type=qtype.int(default_activation_bw),
            config_file=config_file,
        )
        sim.compute_encodings(self._run)
        return sim

    def check_model_sensitivity_to_quantization(
        self, sim: QuantizationSimModel
    ) -> tuple[float, float, float]:
        """The scores of the float model, with weights quantized alone, and with activations alone."""
        parameters, activations = sim.get_all_quantizers()
        exact = self._score(open_session(self._model, provider=sim._device))
        return exact, self._score_without(sim, activations), self._score_without(sim, parameters)

    def perform_per_layer_analysis_by_enabling_quantizers(
        self, sim: QuantizationSimModel, results_dir: str | Path | None = None, filename: str | None = None
    ) -> dict[str, float]:
        """The score with the quantizers of one layer alone, by the name of the layer.

        Args:
            results_dir: the folder that the chart is written to, if it is given.
            filename: of the chart; default: ``per_layer_quant_enabled``.
        """
        every = {op for ops in _by_layer(sim).values() for op in ops}
        scores = {name: self._score_without(sim, every - ops) for name, ops in _by_layer(sim).items()}
        return _charted(scores, results_dir, "per_layer_quant_enabled", filename)

    def perform_per_layer_analysis_by_disabling_quantizers(
        self, sim: QuantizationSimModel, results_dir: str | Path | None = None, filename: str | None = None
    ) -> dict[str, float]:
        """The score without the quantizers of one layer; see the method before."""
        scores = {name: self._score_without(sim, ops) for name, ops in _by_layer(sim).items()}
        return _charted(scores, results_dir, "per_layer_quant_disabled", filename)

    def export_per_layer_encoding_min_max_range(
        self, sim: QuantizationSimModel, results_dir: str | Path
    ) -> tuple[Ranges, Ranges]:
        """Writes the ranges of grids to the folder ``min_max_ranges``, as JSON and charts.

        A weight with several scales has a chart of its own, and a range for each in the JSON file. Grids
        without a range, those of 16-bit floats, are left out.

        Returns:
            The ranges of weights, and those of activations.
        """
        weights: Ranges = {}
        activations: Ranges = {}
        for name, (read, made, parameters) in _layers(sim):
            for kind, ops in (("input", read), ("output", made)):
                found = {f"{name}_{kind}_{index}": _ranges(op) for index, op in enumerate(ops)}
                activations |= {tensor: ends[0] for tensor, ends in found.items() if ends}
            for kind, op in parameters.items():
                ends, tensor = _ranges(op), _plain(f"{name}_{kind}")
                if len(ends) > 1:
                    weights[tensor] = {f"{tensor}_{index}": pair for index, pair in enumerate(ends)}
                elif ends:
                    weights[tensor] = ends[0]
        folder = Path(results_dir) / "min_max_ranges"
        for title, ranges in (("weights", weights), ("activations", activations)):
            _write_json(folder / f"{title}.json", ranges)
            whole = {tensor: ends for tensor, ends in ranges.items() if isinstance(ends, tuple)}
            parts = {tensor: ends for tensor, ends in ranges.items() if isinstance(ends, dict)}
            for tensor, several in (parts | ({title: whole} if whole else {})).items():
                write_ranges(folder / f"{tensor}.html", tensor, several)
        return weights, activations

    def export_per_layer_stats_histogram(self, sim: QuantizationSimModel, results_dir: str | Path) -> None:
        """Writes the histogram of every quantized tensor, with the ends of its grid.

        They are those that AIMET searches for the best grid with; see ``calibrate-as-aimet``. Activations
        are in the folder ``activations_pdf``, weights in ``weights_pdf/LAYER``.
        """
        folder, seen = Path(results_dir), self._histograms(sim)
        constants = {sim.qc_quantize_op_dict[name]: name for name in sim.param_names}
        for name, (read, made, parameters) in _layers(sim):
            for kind, ops in (("input", read), ("output", made)):
                for index, op in enumerate(ops):
                    title = f"{name}_{kind}_q{index}"
                    _write_histograms(folder / "activations_pdf", title, op, [seen[op]])
            for kind, op in parameters.items():
                title = f"{name}_{_plain(kind)}"
                const = sim._placement.sites[constants[op]].value.const
                assert const is not None
                _write_histograms(folder / "weights_pdf" / name, title, op, _of_scales(op, const.numpy()))

    def enable_per_layer_mse_loss(
        self, unlabeled_dataset_iterable: Collection[Any], num_batches: int
    ) -> None:
        """Lets :meth:`analyze` write the loss of each layer.

        Args:
            unlabeled_dataset_iterable: feeds, or arrays for a model with one input.
            num_batches: how many of them to look at.

        Raises:
            UsageError: there are fewer.
        """
        if len(unlabeled_dataset_iterable) < num_batches:
            raise ArgumentError(
                f"there are {len(unlabeled_dataset_iterable)} batches, fewer than {num_batches}"
            )
        self._dataset = unlabeled_dataset_iterable, num_batches

    def export_per_layer_mse_loss(
        self, sim: QuantizationSimModel, results_dir: str | Path
    ) -> dict[str, float]:
        """Writes and returns the mean squared error of what each layer makes, against the float model.

        Where a Relu behind limits the grid of a layer, what it takes away anyway is no error of the layer.

        Raises:
            UsageError: :meth:`enable_per_layer_mse_loss` was not called.
        """
        if self._dataset is None:
            raise ArgumentError("there is no data for losses; call enable_per_layer_mse_loss before")
        data = feeds_of(self._model, *self._dataset)
        nodes = [node for node in self._model.graph.node if node.op_type != "Constant"]
        made = {node.name: node.output[0] for node in nodes if node.output[0] in sim.qc_quantize_op_dict}
        simulation = sim.model.model
        holders = computed_tensors(simulation)
        grids = {tensor: sim._placement.effective(tensor) for tensor in made.values()}
        ranges = {tensor: op.spec.fixed_range if op is not None else None for tensor, op in grids.items()}
        losses = _Losses({name: (tensor, holders[tensor], ranges[tensor]) for name, tensor in made.items()})
        exact = OpenModel(self._model, outputs=list(dict.fromkeys(made.values())), provider=sim._device)
        simulated = OpenModel(
            simulation,
            outputs=list(dict.fromkeys(holders[tensor] for tensor in made.values())),
            provider=sim._device,
        )
        judge(exact, [(simulated, [losses])], data)
        _write_json(Path(results_dir) / "per_layer_mse_loss.json", losses.value())
        title = "per_layer_mse_loss"
        write_line(Path(results_dir) / f"{title}.html", title, losses.value(), "MSE loss")
        return losses.value()

    def _score_without(self, sim: QuantizationSimModel, ops: Collection[QcQuantizeOp]) -> float:
        """The score while some quantizers are off."""
        with sim._ir.transaction.trial():
            for op in ops:
                op.enabled = False
            return self._score(sim.session)

    def _histograms(self, sim: QuantizationSimModel) -> dict[QcQuantizeOp, Histogram]:
        """Those of activations, while parameters are rounded."""
        with recorded_feeds(sim) as feeds:
            self._run(sim.session)
        ops = {name: sim.qc_quantize_op_dict[name] for name in sim.activation_names}
        tensors: dict[QcQuantizeOp, list[str]] = {}
        for name, op in ops.items():
            if op.enabled:
                tensors.setdefault(op, []).append(name)
        with sim._ir.transaction.trial():
            for op in tensors:
                op.enabled = False
            model = sim.model.model
        found = {op: Histogram() for op in tensors}
        names = [name for group in tensors.values() for name in group]
        for arrays in OrtExecutor(provider=sim._device).run(model, feeds, names):
            for op, group in tensors.items():
                found[op].add(*(arrays[name] for name in group))
        return found


def analyze_per_layer_sensitivity(
    sim: QuantizationSimModel, eval_fn: Callable[[Any], float], filename: str | None = None
) -> dict[str, float]:
    """The score of a calibrated simulation with the quantizers of one layer alone, by the name of the layer.

    Args:
        eval_fn: is given a session and returns a score.
        filename: the page to write a chart to, if it is given.
    """
    analyzer = QuantAnalyzer(ModelProto(), None, lambda _: None, eval_fn)
    path = Path(filename).resolve() if filename else None
    return analyzer.perform_per_layer_analysis_by_enabling_quantizers(
        sim, path.parent if path else None, path.name if path else None
    )


class _Losses:
    """The mean squared errors of layers, as a tally.

    Args:
        tensors: what each layer makes, in the float model and in the simulation, and the range that its grid
            is fixed to.
    """

    def __init__(self, tensors: Mapping[str, tuple[str, str, Ends | None]]) -> None:
        self._tensors = tensors
        self._sums = {name: Sums() for name in tensors}

    def add(self, sample: Sample) -> None:
        for name, (exact, simulated, ends) in self._tensors.items():
            whole = sample.reference[exact]
            within = np.clip(whole, *ends) if ends is not None else whole
            self._sums[name].add(within, sample.outputs[simulated], f"'{exact}'")

    def value(self) -> dict[str, float]:
        return {name: sums.noise / max(sums.elements, 1) for name, sums in self._sums.items()}


def _layers(sim: QuantizationSimModel) -> Iterator[tuple[str, OpQuantizers]]:
    """The quantizers that are on by the name of the layer, as file names have it."""
    for op in sim.connected_graph.ordered_ops:
        read, made, parameters = sim.get_op_quantizers(op)
        on = {kind: quantizer for kind, quantizer in parameters.items() if quantizer.enabled}
        enabled = [[quantizer for quantizer in group if quantizer.enabled] for group in (read, made)]
        yield _plain(op.name), (enabled[0], enabled[1], on)


def _by_layer(sim: QuantizationSimModel) -> dict[str, set[QcQuantizeOp]]:
    """The quantizers that are on by the name of the layer, of layers that have any."""
    layers = {}
    for op in sim.connected_graph.ordered_ops:
        read, made, parameters = sim.get_op_quantizers(op)
        layers[op.name] = {
            quantizer for quantizer in (*read, *made, *parameters.values()) if quantizer.enabled
        }
    return {name: quantizers for name, quantizers in layers.items() if quantizers}


def _charted(
    scores: dict[str, float], folder: str | Path | None, title: str, filename: str | None
) -> dict[str, float]:
    if folder:
        path = Path(folder) / (filename or title)
        write_line(path if path.suffix == ".html" else Path(f"{path}.html"), title, scores, "score")
    return scores


def _ranges(op: QcQuantizeOp) -> list[Ends]:
    """The ends of each grid of a quantizer."""
    return [(encoding.min, encoding.max) for encoding in op.get_encodings() or ()]


def _of_scales(op: QcQuantizeOp, array: np.ndarray) -> list[Histogram]:
    """The histograms of the parts of a parameter that have one scale."""
    assert op.encoding is not None
    scale = op.encoding.scale
    numbers = np.arange(scale.size, dtype=np.float64).reshape(scale.shape)
    owner = np.broadcast_to(spread(numbers, op.encoding, array.shape), array.shape).ravel()
    order = np.argsort(owner, kind="stable")
    parts = np.split(array.ravel()[order], np.searchsorted(owner[order], np.arange(1, scale.size)))
    return [Histogram([part]) for part in parts]


def _write_histograms(folder: Path, title: str, op: QcQuantizeOp, histograms: Sequence[Histogram]) -> None:
    for index, (histogram, ends) in enumerate(zip(histograms, _ranges(op), strict=False)):
        bins = list(zip(histogram.edges.tolist(), histogram.shares.tolist(), strict=True))
        write_histogram(folder / f"{title}_{index}.html", f"{title}_{index}", bins, *ends)


def _plain(name: str) -> str:
    """A name with nothing but letters, digits and underscores, for a file."""
    return re.sub(r"\W+", "_", name)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=4).encode())
