"""Cross-layer equalization, in place as AIMET-ONNX does it: as a whole, or step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel

import qc

from .batch_norm_fold import BNLayer, fold_all_batch_norms_to_weight
from .common.cross_layer_equalization import ClsSet, ClsSetInfo, GraphSearchUtils
from .errors import ArgumentError
from .meta.connectedgraph import ConnectedGraph, get_ordered_ops
from .meta.operations import Op
from .utils import ParamUtils, find_shared_param_names, get_node_attribute, proto_of

cls_supported_layer_types = ["Conv", "ConvTranspose"]
cls_supported_activation_types = ["Relu", "PRelu"]
ScaleFactor = np.ndarray | tuple[np.ndarray, ...]
_DEVIATIONS = 3  # of a normalized channel, which it is hardly ever further from its mean than


def equalize_model(model: ModelProto | ONNXModel) -> None:
    """Folds batch normalizations and balances the ranges of channels between layers; the model is changed.

    What it computes stays the same. See the pass ``equalize``, which balances more than the steps below:
    residuals, several readers, and layers with Resize, Concat and the like between them.
    """
    proto = proto_of(model)
    fold_all_batch_norms_to_weight(proto)
    proto.CopyFrom(qc.compile(proto, "equalize").float_model)


def get_ordered_list_of_conv_modules(list_of_starting_ops: list[Op]) -> list[list[str | Op]]:
    """The convolutions behind some ops in order, each with its name in front."""
    ordered = get_ordered_ops(list_of_starting_ops)
    return [[op.dotted_name, op] for op in ordered if op.type in cls_supported_layer_types]


class CrossLayerScaling:
    """Balances the ranges of channels within pairs and triples of layers, one after the other, in place.

    Between two layers with ranges ``r1`` and ``r2`` of a channel, the scale is ``sqrt(r1 / r2)`` (M. Nagel et
    al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.1).

    Args:
        model: the float model; batch normalizations should be folded.
    """

    def __init__(self, model: ModelProto | ONNXModel) -> None:
        self._model = proto_of(model)

    def scale_model(self) -> list[ClsSetInfo]:
        """Scales all layers that can be; those that share a weight with others stay as they are."""
        graph = ConnectedGraph(self._model)
        search = GraphSearchUtils(
            graph,
            get_ordered_list_of_conv_modules(graph.starting_ops),
            cls_supported_layer_types,
            cls_supported_activation_types,
        )
        groups = search.find_layer_groups_to_scale()
        shared = find_shared_param_names(graph)
        found = (one for group in groups for one in search.convert_layer_group_to_cls_sets(group))
        sets = [one for one in found if not any(shared & op.parameters.keys() for op in one)]
        flags = search.is_relu_activation_present_in_cls_sets(sets)
        return self.create_cls_set_info_list(sets, self.scale_cls_sets(sets), flags)

    def scale_cls_sets(self, cls_sets: Iterable[ClsSet]) -> list[ScaleFactor]:
        """Scales sets in order; returns the scales of each."""
        return [self.scale_cls_set(one) for one in cls_sets]

    def scale_cls_set(self, cls_set: ClsSet) -> ScaleFactor:
        """Scales two layers, or three of which the second is a depthwise convolution.

        Returns:
            What the results of the first layer are divided by; for three also those of the second.

        Raises:
            UsageError: the second of three is no depthwise convolution.
        """
        if any(layer.groups in (None, 1) for layer in cls_set[1:-1]):
            raise ArgumentError(f"'{cls_set[1].name}' between two layers is no depthwise convolution")
        weights = [_rows_first(layer, _array(_parameter(self._model, layer, "weight"))) for layer in cls_set]
        read = np.swapaxes(weights[-1], 0, 1)
        ranges = [np.abs(one).reshape(len(one), -1).max(axis=1) for one in (*weights[:-1], read)]
        mean = np.prod(ranges, axis=0) ** (1 / len(ranges))
        ratios = [np.divide(one, mean, out=np.ones_like(one), where=mean > 0) for one in ranges]
        factors = list(np.cumprod(ratios[:-1], axis=0))
        for layer, before, behind in zip(cls_set, (None, *factors), (*factors, None), strict=True):
            self._scale(layer, before, behind)
        return tuple(factors) if len(factors) > 1 else factors[0]

    scale_cls_set_with_conv_layers = scale_cls_set_with_depthwise_layers = scale_cls_set

    @staticmethod
    def create_cls_set_info_list(
        cls_sets: Sequence[ClsSet],
        scale_factors: Sequence[ScaleFactor],
        is_relu_activation_in_cls_sets: Sequence[bool | tuple[bool, ...]],
    ) -> list[ClsSetInfo]:
        """What became of each set, of its layers, their scales, and whether there are Relus between."""
        found = []
        for layers, scales, flags in zip(
            cls_sets, scale_factors, is_relu_activation_in_cls_sets, strict=True
        ):
            several = scales if isinstance(scales, tuple) else (scales,)
            relus = flags if isinstance(flags, tuple) else (flags,)
            pairs = zip(layers, layers[1:], several, relus, strict=False)
            found.append(ClsSetInfo(*(ClsSetInfo.ClsSetLayerPairInfo(*pair) for pair in pairs)))
        return found

    def _scale(self, layer: Op, before: np.ndarray | None, behind: np.ndarray | None) -> None:
        """Multiplies what a layer reads by ``before``, and divides what it makes by ``behind``."""
        tensor = _parameter(self._model, layer, "weight")
        weight = _rows_first(layer, _array(tensor))
        ones = (1,) * (weight.ndim - 2)
        if before is not None:
            weight = weight * before.reshape((1, -1, *ones) if layer.groups in (None, 1) else (-1, 1, *ones))
        if behind is not None:
            weight = weight / behind.reshape(-1, 1, *ones)
            bias = _parameter(self._model, layer, "bias")
            if bias is not None:
                _set(bias, _array(bias) / behind)
        _set(tensor, _rows_first(layer, weight))


class HighBiasFold:
    """Moves what channels are far above zero by into the biases behind, in place.

    Args:
        model: the float model, scaled by :class:`CrossLayerScaling`.
    """

    def __init__(self, model: ModelProto | ONNXModel) -> None:
        self._model = proto_of(model)

    def bias_fold(self, cls_set_info_list: Iterable[ClsSetInfo], bn_layers: Mapping[str, BNLayer]) -> None:
        """Absorbs the biases of layers whose batch normalization was folded, as far as Relu lets them.

        Second layers that pad stay as they are: their zeros would have to become other numbers.

        Args:
            cls_set_info_list: what was scaled.
            bn_layers: the folded batch normalizations, by the name of the op that they were folded into.
        """
        for info in cls_set_info_list:
            for pair in info.cls_pair_info_list:
                if pair.layer1.name in bn_layers:
                    self._absorb(pair, bn_layers[pair.layer1.name])

    def _absorb(self, pair: ClsSetInfo.ClsSetLayerPairInfo, norm: BNLayer) -> None:
        first, second = (_parameter(self._model, op, "bias") for op in (pair.layer1, pair.layer2))
        if first is None or second is None or _pads(pair.layer2):
            return
        beta, gamma = norm.beta / pair.scale_factor, norm.gamma / pair.scale_factor
        absorbed = (
            np.maximum(0, beta - _DEVIATIONS * np.abs(gamma)) if pair.relu_activation_between_layers else beta
        )
        weight = _rows_first(pair.layer2, _array(_parameter(self._model, pair.layer2, "weight")))
        products = weight.sum(axis=tuple(range(2, weight.ndim)))
        moved = products @ absorbed if pair.layer2.groups in (None, 1) else products[:, 0] * absorbed
        _set(first, _array(first) - absorbed)
        _set(second, _array(second) + moved)


def _parameter(model: ModelProto, layer: Op, kind: str) -> TensorProto | None:
    """The weight or the bias of a layer, as it is in the model."""
    names = (product.name for product, slot in layer.parameters.values() if slot == kind)
    name = next(names, None)
    return ParamUtils.get_param_by_name(model, name) if name is not None else None


def _array(tensor: TensorProto | None) -> np.ndarray:
    assert tensor is not None
    return numpy_helper.to_array(tensor).astype(np.float64)


def _set(tensor: TensorProto | None, array: np.ndarray) -> None:
    """Gives a tensor other numbers."""
    assert tensor is not None
    dtype = numpy_helper.to_array(tensor).dtype
    tensor.CopyFrom(numpy_helper.from_array(array.astype(dtype), tensor.name))


def _rows_first(layer: Op, weight: np.ndarray) -> np.ndarray:
    """A weight with its output channels first, or from there back again; depthwise ones have them so."""
    is_swapped = layer.type == "ConvTranspose" and layer.groups in (None, 1)
    return np.swapaxes(weight, 0, 1) if is_swapped else weight


def _pads(layer: Op) -> bool:
    """Whether a layer reads zeros beside its input, as every ConvTranspose does."""
    node = layer.get_module()
    assert node is not None
    automatic = get_node_attribute(node, "auto_pad") not in (None, b"NOTSET", b"VALID")
    return layer.type == "ConvTranspose" or automatic or any(get_node_attribute(node, "pads") or ())
