"""Which layers can be scaled against each other, as ``aimet_common.cross_layer_equalization`` tells it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir.onnx.protos import walk_graphs

from ...missing import PartlyProvided
from ..meta.connectedgraph import ConnectedGraph
from ..meta.operations import Op

ClsSet: TypeAlias = tuple[Op, ...]  # two layers, or three of which the second is depthwise


class ClsLayerType(Enum):
    """What a layer is to equalization."""

    Unsupported = 0
    Conv = 1
    DepthwiseConv = 2


class ClsSetInfo:
    """What became of a set of layers.

    Attributes:
        cls_pair_info_list: its neighbours, one pair or two.
    """

    @dataclass(eq=False)
    class ClsSetLayerPairInfo:
        """Two layers that were scaled.

        Attributes:
            layer1, layer2: the layers.
            scale_factor: what the results of the first were divided by; shape ``(channels,)``.
            relu_activation_between_layers: whether there is a Relu or a PRelu between them.
        """

        layer1: Op
        layer2: Op
        scale_factor: np.ndarray
        relu_activation_between_layers: bool

    def __init__(
        self, cls_pair_1: ClsSetLayerPairInfo, cls_pair_2: ClsSetLayerPairInfo | None = None
    ) -> None:
        self.cls_pair_info_list = [pair for pair in (cls_pair_1, cls_pair_2) if pair is not None]


class GraphSearchUtils(PartlyProvided):
    """Finds layers that nothing but scalable ops lies between.

    Args:
        connected_graph: of a model.
        ordered_modules_list: its layers in order, each with its name in front.
        cls_supported_layer_types, cls_supported_activation_types: what is scaled, and what may lie between.
    """

    def __init__(
        self,
        connected_graph: ConnectedGraph,
        ordered_modules_list: Sequence[Sequence[str | Op]],
        cls_supported_layer_types: Collection[str],
        cls_supported_activation_types: Collection[str],
    ) -> None:
        self._layers = [layer for _, layer in ordered_modules_list if isinstance(layer, Op)]
        self._layer_types = cls_supported_layer_types
        self._activations = cls_supported_activation_types
        given = connected_graph.model
        proto = given.model if isinstance(given, ONNXModel) else given
        graphs = walk_graphs(proto.graph) if proto is not None else ()
        self._outputs = {info.name for graph in graphs for info in graph.output}

    def find_layer_groups_to_scale(self) -> list[list[Op]]:
        """Chains of two layers or more, in the order of their first.

        A chain ends where several read a result, or the model gives it out, which must stay as it is.
        """
        groups: list[list[Op]] = []
        seen: set[Op] = set()
        for layer in self._layers:
            if layer not in seen:
                group = [op for op in self._chain(layer) if op.type in self._layer_types]
                seen.update(group)
                groups.append(group)
        return [group for group in groups if len(group) > 1]

    @staticmethod
    def convert_layer_group_to_cls_sets(layer_group: Sequence[Op]) -> list[ClsSet]:
        """Pairs of neighbours, or triples where the second is a depthwise convolution between two others."""
        kinds = [_kind(layer) for layer in layer_group]
        conv, depthwise = ClsLayerType.Conv, ClsLayerType.DepthwiseConv
        sets, first = [], 0
        while first + 1 < len(kinds):
            length = 1
            if kinds[first] in (conv, depthwise) and kinds[first + 1] is conv:
                length = 2
            elif kinds[first : first + 3] == [conv, depthwise, conv]:
                length = 3
            if length > 1:
                sets.append(tuple(layer_group[first : first + length]))
            first += max(length - 1, 1)  # the last of a set may be the first of the next
        return sets

    def does_module_have_relu_activation(self, module: Op) -> bool:
        """Whether one op reads what a layer makes, and that is a Relu or a PRelu."""
        readers = module.output_ops
        return len(readers) == 1 and readers[0].type in self._activations

    def is_relu_activation_present_in_cls_sets(
        self, cls_sets: Sequence[ClsSet]
    ) -> list[bool | tuple[bool, ...]]:
        """The same for the layers of each set but its last: a tuple for sets of three."""
        found = [tuple(map(self.does_module_have_relu_activation, layers[:-1])) for layers in cls_sets]
        return [flags if len(flags) > 1 else flags[0] for flags in found]

    def _chain(self, op: Op | None) -> Iterator[Op]:
        """An op and those behind it that scales pass on to."""
        while op is not None:
            yield op
            readers = op.output_ops
            made = op.outputs[0] if op.outputs else None
            if made is None or made.name in self._outputs or len(readers) != 1:
                return
            passes = readers[0].type in {*self._layer_types, *self._activations}
            op = readers[0] if passes and readers[0].inputs[0] is made else None


def _kind(layer: Op) -> ClsLayerType:
    """A convolution of one group, one with a group for each channel, or something else."""
    shape = next((product.shape for product, kind in layer.parameters.values() if kind == "weight"), None)
    groups = 1 if layer.groups is None else layer.groups
    if shape is None:
        return ClsLayerType.Unsupported
    if groups == 1:
        return ClsLayerType.Conv
    is_depthwise = groups == shape[0] and shape[1] == 1
    return ClsLayerType.DepthwiseConv if is_depthwise else ClsLayerType.Unsupported
