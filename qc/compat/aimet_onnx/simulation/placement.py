"""The quantizers of a simulation: one object for each tensor that may have one, whether it is on or off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.model import Model
from qc.ir.quant.arithmetic import Rounding, rounded
from qc.ir.quant.formats import parse_format
from qc.ir.quant.spec import Encoding, Quantizer
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.passes.quantize.configure_quantizers import ConfigureQuantizers
from qc.passes.quantize.quantsim.config import QuantsimConfig
from qc.passes.quantize.quantsim.configuration import Configuration
from qc.passes.quantize.quantsim.drafts import hands_on
from qc.passes.quantize.quantsim.exceptions import apply_exceptions
from qc.passes.quantize.quantsim.fusions import find_fusions, fused_node
from qc.passes.quantize.quantsim.nodes import Node, NodeGraph, Parameter, channel_axis
from qc.passes.quantize.quantsim.reading import load_config

from ..qc_quantize_op import QcQuantizeOp
from .weight_axes import WeightAxes


@dataclass
class Placement:
    """What ``configure-quantizers`` placed, and what it considered.

    Attributes:
        model: the model.
        nodes: its graph as the rules see it.
        config: the configuration that it follows.
        ops: the quantizers by the name of the tensor; tied tensors have the same object.
        sites: the places of these tensors.
        parameters, activations: the names, in order.
    """

    model: Model
    nodes: NodeGraph
    config: QuantsimConfig
    ops: dict[str, QcQuantizeOp] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    activations: list[str] = field(default_factory=list)

    def parameters_of(self, node: Node) -> Iterator[tuple[str, str]]:
        """The slots and the names of the parameters of a node that may have a quantizer."""
        for parameter in self.nodes.parameters(node):
            if parameter.value.name in self.ops:
                yield parameter.slot, parameter.value.name

    def fill_unscaled(self) -> None:
        """Gives quantizers of floats that have no scale the numbers that calibration would give them."""
        for op in set(self.ops.values()):
            if op.rounds and op.encoding is None and op.is_initialized():
                op.load(Encoding(op.spec, np.ones(()), np.zeros(())))

    def decisive(self, name: str) -> str | None:
        """The tensor whose quantizer decides about a tensor: itself, or the one that it holds the values of.

        None if there is no such quantizer.
        """
        value = tensors_by_name(self.model).get(name)
        while value is not None:
            found = self.ops.get(value.name)
            if found is not None and found.enabled:
                return value.name
            producer = self.nodes.producer(value)
            value = producer.input(0) if producer is not None and hands_on(producer) else None
        return None

    def is_read_once(self, name: str) -> bool:
        """Whether one op reads a tensor, and it is no output of the model."""
        value = self.sites[name].value
        return len(self.nodes.readers(value)) == 1 and not value.is_output

    def effective(self, name: str) -> QcQuantizeOp | None:
        """The quantizer that decides about a tensor."""
        found = self.decisive(name)
        return self.ops[found] if found is not None else None


def placement_of(model: Model, asked: ConfigureQuantizers) -> Placement:
    """Makes the objects for a model on which ``configure-quantizers`` ran.

    Args:
        asked: the pass with the options that it ran with.
    """
    file = load_config(asked.config)
    fused = [fused_node(match) for match in find_fusions(model.graph, file.config.supergroup_pass_list, ())]
    nodes = NodeGraph(model.graph, fused)
    formats = parse_format(asked.activation), parse_format(asked.weight)
    configuration = Configuration(nodes, file, *formats)
    drafts = configuration.apply()
    apply_exceptions(configuration)
    axes = {
        parameter.value.name: _axes(node, parameter)
        for node in nodes.nodes
        for parameter in nodes.parameters(node)
    }
    placement = Placement(model, nodes, file.config)
    made: dict[Quantizer, QcQuantizeOp] = {}
    for value, draft in drafts.items():
        names = placement.parameters if draft.is_parameter else placement.activations
        names.append(value.name)
        placement.sites[value.name] = Site(value)
        held = model.quant.get(Site(value))
        op = made.get(held) if held is not None else None
        if op is None:
            sites = model.quant.sites_of(held) if held is not None else [Site(value)]
            spec, weight_axes = held or draft.spec, axes.get(value.name)
            settings = draft.is_parameter, weight_axes, draft.integer_spec, draft.strict, draft.unsigned
            op = QcQuantizeOp.placed(model.quant, sites, spec, *settings)
            if held is not None:
                made[held] = op
        placement.ops[value.name] = op
    return placement


def fold_parameters(model: Model, placement: Placement) -> None:
    """Rounds the parameters of a model to their grids, and freezes these."""
    rewriter = Rewriter(model)
    for name in placement.parameters:
        op, value = placement.ops[name], placement.sites[name].value
        if op.enabled and op.encoding is not None and value.const is not None:
            with rewriter.action("fold the quantizer of a parameter", value):
                rewriter.set_constant(value, rounded(value.const.numpy(), op.quantizer, Rounding.HALF_UP))
            op.freeze_encodings()


def _axes(node: Node, parameter: Parameter) -> WeightAxes:
    """The axes of channels and of blocks: of two axes that a product has, the one and the other."""
    data = constant_data(parameter.value)
    shape = tuple(data.shape) if data is not None else ()
    channel = channel_axis(node, parameter)
    if channel is None or len(shape) < 2:
        return WeightAxes(channel, None, shape)
    pair = (len(shape) - 2, len(shape) - 1) if node.is_type("MatMul") else (0, 1)
    return WeightAxes(channel, pair[0] + pair[1] - channel, shape)
