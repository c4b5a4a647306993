"""Writes the outputs of all layers to files, for a comparison with a device."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir import lift
from qc.passes.lower.rounding.rewire import DOMAIN
from qc.runtime import OrtExecutor, model_inputs

from ..missing import PartlyProvided
from ..providers import Providers, device_of
from .errors import ArgumentError
from .feeds import Given, feed_of
from .graph_edits import add_hook_to_get_activation

_ROUNDED = "_simulated"


class LayerOutputUtil:
    """Runs a model and writes every float tensor that it computes or reads as an input.

    Args:
        model: a float model, or a simulation: ``QuantizationSimModel.model``. Of a tensor that is rounded
            there, the rounded numbers are written.
        dir_path: the folder to write to.
        device: must be 0; the CPU is used.
    """

    def __init__(self, model: ModelProto | ONNXModel, dir_path: str | Path, device: int = 0) -> None:
        if device != 0:
            raise ArgumentError(f"device {device} is not provided; layer outputs are computed on the CPU")
        self._model = model.model if isinstance(model, ONNXModel) else model
        self._folder = Path(dir_path)
        self.layer_output = LayerOutput(model, None, dir_path)
        self._count = 0

    def generate_layer_outputs(self, input_instance: Given) -> None:
        """Writes ``outputs/layer_outputs_N/TENSOR.raw`` and ``inputs/input_N``, and the order of tensors.

        Args:
            input_instance: an array, one for each input in the order of the model, or a dictionary of them.
        """
        feed = feed_of(self._model, input_instance)
        folder = self._folder / "outputs" / f"layer_outputs_{self._count}"
        for name, array in self.layer_output.get_outputs(feed).items():
            _write(folder / f"{name}.raw", array)
        if len(feed) == 1 and not isinstance(input_instance, (list, tuple)):
            _write(self._folder / "inputs" / f"input_{self._count}.raw", *feed.values())
        else:
            for index, array in enumerate(feed.values()):
                _write(self._folder / "inputs" / f"input_{self._count}" / f"{index}.raw", array)
        self._count += 1


class LayerOutput(PartlyProvided):
    """Runs a model and gives every float tensor that it computes or reads as an input.

    Args:
        model: a float model, or a simulation.
        providers: where it runs; see :func:`~qc.compat.providers.device_of`.
        dir_path: the folder that the order of tensors is written to.

    Attributes:
        activation_names: the tensors that are given, in order.
        sanitized_activation_names: these as names of files.
    """

    def __init__(
        self, model: ModelProto | ONNXModel, providers: Providers | None, dir_path: str | Path
    ) -> None:
        self._executor = OrtExecutor(provider=device_of(providers))
        self.model = model.model if isinstance(model, ONNXModel) else model
        self._tensors = computed_tensors(self.model)
        self.activation_names = list(self._tensors.values())
        self.sanitized_activation_names = [_file_name(name) for name in self._tensors]
        order = json.dumps({"layer_output_names": self.sanitized_activation_names}, indent=4)
        Path(dir_path).mkdir(parents=True, exist_ok=True)
        (Path(dir_path) / "layer_output_name_order.json").write_text(order, encoding="utf-8")

    @staticmethod
    def get_activation_names(model: ModelProto) -> list[str]:
        """The inputs of a model, and what its nodes make but for constants."""
        made = (name for node in model.graph.node if node.op_type != "Constant" for name in node.output)
        return [info.name for info in model.graph.input] + [name for name in made if name]

    @staticmethod
    def register_activations(model: ModelProto, activation_names: Sequence[str]) -> None:
        """Makes tensors outputs of a model."""
        for name in activation_names:
            add_hook_to_get_activation(model, name)

    def get_outputs(self, input_dict: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors of a feed, by their names as files."""
        found = next(self._executor.run(self.model, [input_dict], list(dict.fromkeys(self.activation_names))))
        names = zip(self.sanitized_activation_names, self.activation_names, strict=True)
        return {file: found[name] for file, name in names}


def computed_tensors(model: ModelProto) -> dict[str, str]:
    """The float tensors that a model reads and computes, in order, each with the one that holds its numbers.

    In a simulation that is the rounded one where the tensor is rounded.
    """
    graph = lift(model).graph
    optional = {info.name for info in model_inputs(model) if info.optional}
    values = [value for value in graph.inputs if value.name not in optional]
    rounded: dict[str, str] = {}
    for op in graph.ops():
        made = [value for value in op.outputs if value is not None]
        if op.domain == DOMAIN:
            source = op.inputs[0]
            assert source is not None
            if len(source.uses) == 1:  # else it is what one of several readers sees
                rounded[source.name] = made[0].name
        else:
            values += made
    found = {}
    for value in values:
        if value.type.elem_type in (TensorProto.FLOAT, TensorProto.UNDEFINED):
            # An output of the model has its name on the rounded tensor.
            found[value.name.removesuffix(_ROUNDED)] = rounded.get(value.name, value.name)
    return found


def _file_name(name: str) -> str:
    """A tensor's name as that of a file."""
    return re.sub(r"\W+", "_", name.strip("/"))


def _write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.ascontiguousarray(array).tofile(path)
