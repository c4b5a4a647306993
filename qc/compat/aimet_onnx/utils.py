"""What scripts take from ``aimet_onnx.utils``: reading and editing nodes, feeds, and sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir.facts.op_table import TABLE
from qc.ir.onnx.protos import walk_graphs

from .errors import ArgumentError
from .feeds import feed_of
from .meta.connectedgraph import ConnectedGraph
from .simulation.quantized_model import QuantizedModel
from .simulation.session import OrtInferenceSession, build_session

__all__ = ["OrtInferenceSession", "build_session"]

AnyModel: TypeAlias = ModelProto | ONNXModel
_LONE = "batch"  # the name in the file of a batch that is one array
OP_TYPES_WITH_PARAMS = [op_type for op_type, traits in TABLE.items() if traits.trained]


# -- reading ----------------------------------------------------------------------------------------


class ParamUtils:
    """The constants that nodes of a model read, be they initializers or made by Constant nodes."""

    @staticmethod
    def get_shape(model: AnyModel, node: NodeProto, param_index: int) -> list[int] | None:
        """The sizes of the constant at an input; None if there is none."""
        found = ParamUtils.get_param(model, node, param_index)
        return list(found.dims) if found is not None else None

    @staticmethod
    def get_param(model: AnyModel, node: NodeProto, param_index: int) -> TensorProto | None:
        """The constant at an input; None if there is none."""
        if param_index >= len(node.input):
            return None
        return ParamUtils.get_param_by_name(model, node.input[param_index])

    @staticmethod
    def get_param_by_name(model: AnyModel, param_name: str) -> TensorProto | None:
        """The constant of a name; None if there is none. What an Identity hands on is that of its input."""
        for graph in walk_graphs(proto_of(model).graph):
            for tensor in graph.initializer:
                if tensor.name == param_name:
                    return tensor
            for node in graph.node:
                if param_name not in node.output:
                    continue
                if node.op_type == "Identity":
                    return ParamUtils.get_param_by_name(model, node.input[0])
                if node.op_type == "Constant":
                    return _constant(node)
        return None


def _constant(node: NodeProto) -> TensorProto | None:
    tensor = get_node_attribute(node, "value")
    if tensor is not None:
        tensor.name = node.output[0]
    return tensor


def get_node_attribute(node: NodeProto, name: str) -> Any:
    """The value of an attribute of a node; None if it has none of that name."""
    found = next((one for one in node.attribute if one.name == name), None)
    return helper.get_attribute_value(found) if found is not None else None


def get_weights(name: str, onnx_graph: GraphProto) -> bytes | None:
    """The raw bytes of an initializer; None if there is none of that name."""
    return next((tensor.raw_data for tensor in onnx_graph.initializer if tensor.name == name), None)


def get_ordered_dict_of_nodes(onnx_graph: GraphProto) -> dict[str, NodeProto]:
    """The nodes of a graph by name, in order."""
    return {node.name: node for node in onnx_graph.node}


def get_graph_intermediate_activations(graph: GraphProto) -> list[str]:
    """The tensors that nodes of a graph read and that are no initializers, each once."""
    constants = {tensor.name for tensor in graph.initializer}
    read = dict.fromkeys(name for node in graph.node for name in node.input if name)
    return [name for name in read if name not in constants]


def contains_tensor_type(model: AnyModel, data_type: int) -> bool:
    """Whether a model has inputs, outputs, constants, or casts of a type of ``TensorProto``."""
    for graph in walk_graphs(proto_of(model).graph):
        declared = (*graph.input, *graph.output, *graph.value_info)
        if any(info.type.tensor_type.elem_type == data_type for info in declared):
            return True
        if any(tensor.data_type == data_type for tensor in graph.initializer):
            return True
        for node in graph.node:
            made = get_node_attribute(node, "value") if node.op_type == "Constant" else None
            if getattr(made, "data_type", None) == data_type:
                return True
            if node.op_type == "Cast" and get_node_attribute(node, "to") == data_type:
                return True
    return False


def find_shared_param_names(
    connected_graph: ConnectedGraph, param_types: tuple[str, ...] | None = None
) -> set[str]:
    """The parameters that several ops have, of some kinds if asked."""
    held = [
        product.name
        for op in connected_graph.ordered_ops
        for product, kind in op.parameters.values()
        if param_types is None or kind in param_types
    ]
    return {name for name in held if held.count(name) > 1}


def retrieve_constant_input(node: NodeProto, model: AnyModel, index: int) -> tuple[TensorProto | None, bool]:
    """The constant at an input, and whether a Transpose lies between."""
    found = ParamUtils.get_param(model, node, index)
    if found is not None:
        return found, False
    makers = (one for one in proto_of(model).graph.node if node.input[index] in one.output)
    transpose = next((one for one in makers if one.op_type == "Transpose"), None)
    if transpose is None:
        return None, False
    return ParamUtils.get_param(model, transpose, 0), True


# -- feeds and sessions -----------------------------------------------------------------------------


def make_dummy_input(model: AnyModel, dynamic_size: int = 1) -> dict[str, np.ndarray]:
    """Normal random numbers for each input of a model; axes that are not fixed have ``dynamic_size``."""
    feed = {}
    for info in proto_of(model).graph.input:
        tensor = info.type.tensor_type
        shape = [dynamic_size if size.dim_param else size.dim_value for size in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feed[info.name] = np.asarray(np.random.randn(*shape)).astype(dtype)
    return feed


def create_input_dict(model: AnyModel, input_batch: Any) -> dict[str, np.ndarray]:
    """A feed of an array, of one for each input, or of a feed."""
    return dict(feed_of(proto_of(model), input_batch))


class CachedDataset:
    """The first batches of an iterable, each in a file.

    Args:
        data_loader: batches, each an array, several, or a dictionary of them; it must know its length.
        num_batches: how many to keep.
        path: the folder to keep them in.

    Raises:
        UsageError: there are fewer batches.
    """

    def __init__(self, data_loader: Collection[Any], num_batches: int, path: str) -> None:
        if len(data_loader) < num_batches:
            raise ArgumentError(f"there are {len(data_loader)} batches, fewer than {num_batches}")
        self._folder, self._count = Path(path), num_batches
        self._folder.mkdir(parents=True, exist_ok=True)
        for index, batch in enumerate(islice(data_loader, num_batches)):
            with self._file(index).open("wb") as file:
                np.savez(file, **_by_name(batch))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        with np.load(self._file(index), allow_pickle=False) as file:
            arrays = dict(file)
        if _LONE in arrays:
            return arrays[_LONE]
        return list(arrays.values()) if "0" in arrays else arrays

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self._count))

    def _file(self, index: int) -> Path:
        return self._folder / f"model_inputs_{index}"


def _by_name(batch: Any) -> dict[str, Any]:
    """The arrays of a batch."""
    if isinstance(batch, Mapping):
        return dict(batch)
    if isinstance(batch, list | tuple):
        return {str(number): np.asarray(array) for number, array in enumerate(batch)}
    return {_LONE: np.asarray(batch)}


def make_psnr_eval_fn(
    fp_session: Any,
    inputs: Iterable[Mapping[str, np.ndarray]],
    output_indices: int | Sequence[int] | None = None,
) -> Callable[[Any], float]:
    """A score of a session: how far its outputs are from those of a float model, at the worst output, in dB.

    Args:
        fp_session: of the float model.
        inputs: feeds.
        output_indices: the outputs to compare; default: all that are floats.
    """
    feeds = list(inputs)
    kinds = [info.type for info in fp_session.get_outputs()]
    floats = [index for index, kind in enumerate(kinds) if kind in ("tensor(float)", "tensor(float16)")]
    chosen = floats if output_indices is None else np.atleast_1d(output_indices).tolist()
    if not chosen:
        raise ArgumentError("the model has no outputs of floats; give output_indices")
    exact = [fp_session.run(None, feed) for feed in feeds]

    def score(session: Any) -> float:
        found = [session.run(None, feed) for feed in feeds]
        outputs = [[np.array([run[index] for run in runs]) for runs in (exact, found)] for index in chosen]
        return min(compute_psnr(before, after) for before, after in outputs)

    return score


def compute_psnr(expected: np.ndarray, actual: np.ndarray, max_psnr: float = 100.0) -> float:
    """The span of the expected numbers, zero included, over the root of the mean squared error, in dB.

    Args:
        max_psnr: what equal arrays have, and its negative the least.
    """
    exact, found = (np.asarray(array, np.float64) for array in (expected, actual))
    span = max(float(np.ptp(exact)), float(np.abs(exact).max()))
    noise = float(np.sqrt(np.mean(np.square(exact - found))))
    if not noise:
        return max_psnr
    return float(np.clip(20 * np.log10(max(span, 1e-10) / noise), -max_psnr, max_psnr))


@contextmanager
def disable_quantizers(sim: QuantizedModel, quantizer_names: Collection[str]) -> Iterator[None]:
    """Turns quantizers off inside of it.

    Raises:
        UsageError: the simulation has no quantizer of that name.
    """
    unknown = set(quantizer_names) - set(sim.qc_quantize_op_dict)
    if unknown:
        raise ArgumentError(f"no tensor '{min(unknown)}' of the model can have a quantizer")
    on = [op for name, op in sim.qc_quantize_op_dict.items() if name in quantizer_names and op.enabled]
    for op in on:
        op.enabled = False
    try:
        yield
    finally:
        for op in on:
            op.enabled = True


def proto_of(model: AnyModel) -> ModelProto:
    """The proto of a model."""
    return model.model if isinstance(model, ONNXModel) else model
