"""The sections of a configuration, applied in order to the drafts of all tensors; each overrides the last."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.errors import UsageError
from qc.ir.facts.constants import constant_data
from qc.ir.graph import Value
from qc.ir.quant.formats import Format
from qc.ir.quant.spec import PerChannel

from .config import OpTypeRule, ParameterRule
from .drafts import Draft, Drafts, is_quantizable
from .fusions import find_unfused
from .nodes import Node, NodeGraph, Parameter, channel_axis
from .reading import ConfigFile

# Ops whose results never have a quantizer of their own, not even as outputs of the model.
_NEVER = frozenset(
    [
        "Flatten",
        "Gather",
        "Reshape",
        "Shape",
        "Unsqueeze",
        "Squeeze",
        "Split",
        "Compress",
        "Tile",
        "Transpose",
        "Identity",
    ]
)


class Configuration:
    """Makes the drafts of a graph as a configuration says.

    Args:
        nodes: the graph.
        file: the configuration.
        activation, weight: the formats of activations and parameters.
    """

    def __init__(self, nodes: NodeGraph, file: ConfigFile, activation: Format, weight: Format) -> None:
        self.nodes = nodes
        self.file = file
        self.config = file.config
        self.drafts = Drafts(nodes)
        self._formats = activation, weight
        self._parameters: dict[Node, list[tuple[Parameter, Draft]]] = {}
        self._constants: dict[Node, list[Draft]] = {}
        self._results: dict[Node, list[Draft]] = {}
        self._inputs: list[Draft] = []

    def apply(self) -> Drafts:
        """The drafts as all sections leave them."""
        self._add_parameters()
        self._add_activations()
        self._apply_defaults()
        self._apply_params()
        self._apply_op_types()
        self._apply_supergroups()
        self._apply_interface()
        self._apply_per_channel()
        self._apply_unfused()
        return self.drafts

    def parameters(self, node: Node) -> list[tuple[Parameter, Draft]]:
        """The parameters of a node with their drafts."""
        return self._parameters.get(node, [])

    # -- drafts -------------------------------------------------------------------------------------

    def _add_parameters(self) -> None:
        for node in (*self.nodes.nodes, *self.nodes.scanned):
            for parameter in self.nodes.parameters(node):
                if not is_quantizable(parameter.value):
                    continue
                draft = self.drafts.get(parameter.value)
                if draft is None:
                    draft = Draft(self._formats[1], is_parameter=True)
                    self.drafts.add(parameter.value, draft)
                self._parameters.setdefault(node, []).append((parameter, draft))

    def _add_activations(self) -> None:
        for value in self.nodes.graph.inputs:
            if value.const is None and self._may_have_grid(value):
                draft = self._add(value)
                if any(value in node.inputs for node in self.nodes.readers(value)):  # not inside a body only
                    self._inputs.append(draft)
        for node in self.nodes.nodes:
            for value in _data_inputs(node):
                if self.drafts.get(value) is None and self._may_have_grid(value) and _is_constant(value):
                    self._constants.setdefault(node, []).append(self._add(value))
            for value in node.made:
                if self._may_have_grid(value) and not node.is_type(*_NEVER):
                    self._results.setdefault(node, []).append(self._add(value))

    def _add(self, value: Value) -> Draft:
        draft = Draft(self._formats[0], is_parameter=False)
        self.drafts.add(value, draft)
        return draft

    def _may_have_grid(self, value: Value) -> bool:
        return is_quantizable(value) and self.drafts.get(value) is None

    def _all_results(self) -> Iterator[tuple[Node, Draft]]:
        for node, drafts in self._results.items():
            yield from ((node, draft) for draft in drafts)

    # -- sections -----------------------------------------------------------------------------------

    def _apply_defaults(self) -> None:
        defaults, key = self.config.defaults, self.file.key
        for _, draft in self.drafts.items():
            draft.strict = bool(defaults.strict_symmetric)
            draft.unsigned = bool(defaults.unsigned_symmetric)
            if not draft.is_parameter:
                draft.symmetric = bool(defaults.ops.is_symmetric)
        for node, draft in self._all_results() if defaults.ops.is_output_quantized else ():
            draft.switch(True, f"made by {node.label}", key("defaults", "ops", "is_output_quantized"))
        for node, drafts in self._parameters.items():
            for parameter, draft in drafts:
                self._set_parameter(node, parameter, draft, defaults.params, ("defaults", "params"))
        for draft in (*self._inputs, *(draft for drafts in self._constants.values() for draft in drafts)):
            draft.switch(False, "an input of the model, or a constant that is no parameter", "")

    def _apply_params(self) -> None:
        for node, drafts in self._parameters.items():
            for parameter, draft in drafts:
                if rule := self.config.params.get(parameter.slot):
                    self._set_parameter(node, parameter, draft, rule, ("params", parameter.slot))

    def _apply_op_types(self) -> None:
        asked: dict[Draft, tuple[bool, str]] = {}
        for node in (*self.nodes.nodes, *self.nodes.scanned):
            rule = self.config.op_type.get(node.op_type)
            if rule is not None:
                self._apply_op_type(node, rule, asked)
            elif node.is_grid_preserving:
                for draft in self._results.get(node, []):
                    draft.switch(False, f"{node.label} keeps the grid of its input")

    def _apply_op_type(self, node: Node, rule: OpTypeRule, asked: dict[Draft, tuple[bool, str]]) -> None:
        place = ("op_type", node.op_type)
        for draft in self._results.get(node, []):
            if rule.is_output_quantized is not None:
                said = "made by" if rule.is_output_quantized else "no quantizer is wanted after"
                key = self.file.key(*place, "is_output_quantized")
                self._switch_once(draft, rule.is_output_quantized, f"{said} {node.label}", key, asked)
            if rule.encoding_constraints is not None:
                limits = rule.encoding_constraints
                draft.limits = (limits.min, limits.max)
                draft.symmetric |= limits.max == -limits.min
                draft.notes.append(f"fixed range [{self.file.key(*place, 'encoding_constraints')}]")
        if rule.is_input_quantized:
            key = self.file.key(*place, "is_input_quantized")
            for value in node.inputs:
                read = self.drafts.get(value)
                if read is not None and not read.is_parameter:
                    self._switch_once(read, True, f"read by {node.label}", key, asked)
        if rule.is_symmetric is not None:
            for draft in (*self._results.get(node, []), *self._constants.get(node, [])):
                draft.symmetric = rule.is_symmetric
        for parameter, draft in self.parameters(node):
            if parameter.slot in rule.params:
                self._set_parameter(
                    node, parameter, draft, rule.params[parameter.slot], (*place, "params", parameter.slot)
                )

    def _switch_once(
        self, draft: Draft, enabled: bool, reason: str, key: str, asked: dict[Draft, tuple[bool, str]]
    ) -> None:
        before = asked.setdefault(draft, (enabled, key))
        if before[0] != enabled:
            name = self.drafts.holders(draft)[0].name
            raise UsageError(
                f"'{key}' and '{before[1]}' contradict each other about tensor '{name}'; remove one of them"
            )
        draft.switch(enabled, reason, key)

    def _set_parameter(
        self, node: Node, parameter: Parameter, draft: Draft, rule: ParameterRule, place: tuple[str, ...]
    ) -> None:
        if rule.is_quantized is not None:
            what = "quantized" if rule.is_quantized else "left in float"
            reason = f"{parameter.slot} of {node.label}" + ("" if rule.is_quantized else f" is {what}")
            draft.switch(rule.is_quantized, reason, self.file.key(*place, "is_quantized"))
        if rule.is_symmetric is not None:
            draft.symmetric = rule.is_symmetric

    def _apply_supergroups(self) -> None:
        """The longest chains first; no op is in two."""
        rules = sorted(enumerate(self.config.supergroups), key=lambda item: -len(item[1].op_list))
        taken: set[Node] = set()
        for index, rule in rules:
            for first in self.nodes.nodes:
                chain = self._chain(first, rule.op_list)
                if chain and taken.isdisjoint(chain):
                    taken.update(chain)
                    for node in chain[:-1]:
                        for draft in self._results.get(node, []):
                            reason = f"inside {' + '.join(rule.op_list)} that ends in {chain[-1].label}"
                            draft.switch(False, reason, self.file.key(f"supergroups[{index}]"))

    def _chain(self, first: Node, op_list: tuple[str, ...]) -> list[Node]:
        """The ops of a list that begins with a node; empty if they are not there.

        What only one op reads, and what is no output of the model, can stay inside.
        """
        if not first.is_type(op_list[0]) or _runs_alone(first):
            return []
        chain = [first]
        for op_type in op_list[1:]:
            made = list(chain[-1].made)
            readers = [reader for value in made for reader in self.nodes.readers(value)]
            if len(readers) != 1 or not readers[0].is_type(op_type):
                return []
            chain.append(readers[0])
        exposed = [value for node in chain[:-1] for value in node.made if value.is_output]
        for value in exposed:
            self.drafts.note(
                value, f"an output of the model; AIMET has it inside {' + '.join(op_list)} (5.1)"
            )
        return [] if exposed else chain

    def _apply_interface(self) -> None:
        if self.config.model_input.is_input_quantized:
            key = self.file.key("model_input", "is_input_quantized")
            for draft in self._inputs:
                draft.switch(True, "an input of the model", key)
            for node, drafts in self._constants.items():
                for draft in drafts:
                    draft.switch(True, f"a constant that is data to {node.label}", key)
        if self.config.model_output.is_output_quantized:
            key = self.file.key("model_output", "is_output_quantized")
            for node, drafts in self._results.items():
                if not any(self.nodes.readers(value) for value in node.made):
                    for draft in drafts:
                        draft.switch(True, "an output of the model", key)

    def _apply_per_channel(self) -> None:
        default = bool(self.config.defaults.per_channel_quantization)
        for node, drafts in self._parameters.items():
            rule = self.config.op_type.get(node.op_type)
            chosen = rule.per_channel_quantization if rule is not None else None
            if not (default if chosen is None else chosen):
                continue
            for parameter, draft in drafts:
                axis = channel_axis(node, parameter)
                if axis is not None:
                    draft.granularity = PerChannel(axis)
                elif chosen and not _is_number(parameter.value):  # that has one scale anyway
                    key = self.file.key("op_type", node.op_type, "per_channel_quantization")
                    raise UsageError(
                        f"'{key}' asks for scales per channel, but {parameter.slot} of {node.label} has no "
                        "channel axis; remove that key"
                    )

    def _apply_unfused(self) -> None:
        """No quantizers inside of norms and products that are not one op to the sections before."""
        fused = [op for node in self.nodes.nodes if len(node.ops) > 1 for op in node.ops]
        key = self.file.key("supergroup_pass_list")
        for match in find_unfused(self.nodes.graph, self.config.supergroup_pass_list, fused):
            bias = (match["bias"],) if "bias" in match.captures else ()
            for value in (*match.inner, *bias):
                draft = self.drafts.get(value)
                if draft is not None:
                    draft.switch(False, f"inside {match.name} that ends in {match.root.label}", key)
            scale = self.drafts.get(match.captures.get("scale"))
            if scale is not None and scale.bits == 16:
                scale.symmetric |= match.name == "LayerNormalization"


def _data_inputs(node: Node) -> Iterator[Value]:
    """What a node reads that may have a grid: not the parameters of Resize, nor what masks a Softmax."""
    for port, value in enumerate(node.inputs):
        parameter = (node.is_type("Resize") and port > 0) or (node.is_type("MaskedSoftmax") and port == 2)
        if value is not None and not parameter:
            yield value


def _is_constant(value: Value) -> bool:
    return constant_data(value) is not None


def _is_number(value: Value) -> bool:
    data = constant_data(value)
    return data is not None and not data.shape


def _runs_alone(node: Node) -> bool:
    """Whether devices run it by itself: a 3-D convolution, or one of each channel on its own."""
    read = node.input(1) if node.is_type("Conv", "ConvTranspose") else None
    weight = constant_data(read) if read is not None else None
    if read is not None and read.type.rank == 5:
        return True
    if weight is None or len(weight.shape) < 2:
        return False
    group = node.attribute("group", 1)
    return group > 1 and (group == weight.shape[0] if node.is_type("ConvTranspose") else weight.shape[1] == 1)
