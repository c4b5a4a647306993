"""Places quantizers as AIMET's quantsim does, from a configuration file of AIMET or one like it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from qc.ir.errors import UsageError
from qc.ir.facts.dataflow import holds_infinity, huge_values, infinite_values
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import Format, has_limits, parse_format
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .calibration.bias import place_biases
from .insert_quantizers import refuse_quantized
from .placement.preparation import prepare
from .quantsim.config import require_op
from .quantsim.configuration import Configuration
from .quantsim.drafts import Draft, Drafts
from .quantsim.exceptions import apply_exceptions
from .quantsim.fusions import find_fusions, fused_node
from .quantsim.nodes import Node, NodeGraph
from .quantsim.reading import CONFIG_SUFFIXES, ConfigFile, load_config
from .quantsim.ties import Requantized, tie_all


@dataclass(frozen=True)
class ConfigureQuantizers(Pass):
    """Places quantizers by the rules of AIMET's quantsim and one of its configurations.

    The configuration is one that comes with qc, such as ``default`` or ``htp_v73``, or a file: AIMET's JSON
    as it is, or the same in TOML. ``qc explain-config`` says in words what it asks for. The result of nearly
    every op is quantized, constants that are data too; what ops like Reshape only move keeps its grid. Run
    ``fold-constants`` before, which makes the weights of Constant ops initializers.

    Only the main graph is treated: what is computed in the bodies of If, Loop and Scan stays float, and of
    what bodies capture, the weights in Scans alone have grids. Where AIMET has a known defect, qc does what
    is right and says so in its remarks.
    """

    name = "configure-quantizers"
    stage = Stage.ANNOTATE
    uses = frozenset({"executor"})  # types that nothing else tells

    config: str = option(
        "default", "name of a configuration, or path of a .json or .toml file", path=CONFIG_SUFFIXES
    )
    activation: str = option("uint8", "format of activations, such as uint8, uint16 or float16")
    weight: str = option("int8", "format of parameters, such as int8, int4 or float16")

    bias: Literal["float", "int32"] = option(
        "float", "biases of products that the configuration leaves in float: as they are, or 32-bit integers"
    )

    untied: tuple[str, ...] = option(
        (), "op types that do not give what they read and make one grid, such as Concat, AveragePool or Relu"
    )
    tied: tuple[str, ...] = option(
        (), "further op types whose results have the grid of their first input, such as LeakyRelu"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("activation", "weight"):
            self._format(name)

    def run(self, model: Model, context: PassContext) -> None:
        if len(model.quant):
            return  # placed already, by a run of this pass or of another one
        refuse_quantized(model)
        self._refuse_unknown(model)
        file = load_config(self.config)
        prepare(model, context)
        nodes = NodeGraph(model.graph, _fuse(model, file))
        configuration = Configuration(nodes, file, self._format("activation"), self._format("weight"))
        drafts = configuration.apply()
        apply_exceptions(configuration)
        extra = tie_all(drafts, self.untied, self.tied)
        infinite = infinite_values if has_limits(self._format("activation")) else huge_values
        _Writer(model, drafts, extra, infinite(model.graph)).write()
        if self.bias == "int32":
            place_biases(model, f"option bias of '{self.name}'")

    def _refuse_unknown(self, model: Model) -> None:
        """Raises UsageError for an op type that is none of ONNX, of AIMET, or of the model."""
        own = {op.op_type for graph in model.graph.walk() for op in graph.ops()}
        for name in ("untied", "tied"):
            for op_type in getattr(self, name):
                if op_type in own:
                    continue
                try:
                    require_op(op_type)
                except ValueError as error:
                    raise UsageError(f"option '{name}' of pass '{self.name}': {error}") from error

    def _format(self, name: str) -> Format:
        try:
            return parse_format(getattr(self, name))
        except UsageError as error:
            raise UsageError(f"option '{name}' of pass '{self.name}': {error}") from error


def _fuse(model: Model, file: ConfigFile) -> list[Node]:
    """Makes regions of what the configuration wants as one op; the nodes that stand for them."""
    taken = [op for region in model.regions for op in region.ops]
    matches = find_fusions(model.graph, file.config.supergroup_pass_list, taken)
    for match in matches:
        model.add_region(match.region(), match.name, file.key("supergroup_pass_list"))
    return [fused_node(match) for match in matches]


class _Writer:
    """Puts what was decided into the table of quantizers."""

    def __init__(
        self, model: Model, drafts: Drafts, extra: list[Requantized], infinite: frozenset[Value]
    ) -> None:
        self.model = model
        self.drafts = drafts
        self.extra = extra
        self.infinite = infinite
        self.made: dict[Draft, Quantizer] = {}

    def write(self) -> None:
        """Places quantizers; says for all other float tensors why they have none."""
        for value, draft in self.drafts.items():
            if draft.enabled and not self._is_infinite(value) and not _is_empty(value):
                self._place(Site(value), draft, *self.drafts.reason(value))
        for reading in self.extra:
            read, op = reading.node.inputs[reading.port], reading.node.ops[0]
            grid = self.drafts.get(reading.like)
            if read is not None and grid is not None and not self._is_infinite(read):
                self._place(Site(read, op, reading.port), grid, reading.reason, "")
        for graph in self.model.graph.walk():
            for value in graph.values():
                if value.is_float and value.captured is None and not self.model.quant.touches(value):
                    self.model.quant.skip(value, *self._why_float(value))

    def _place(self, site: Site, draft: Draft, reason: str, asked_by: str) -> None:
        held = self.made.get(draft)
        self.made[draft] = self.model.quant.place(site, held or draft.spec, reason, asked_by)

    def _is_infinite(self, value: Value) -> bool:
        return value in self.infinite or holds_infinity(value) or _holds_nan(value)

    def _why_float(self, value: Value) -> tuple[str, str]:
        draft = self.drafts.get(value)
        if _is_empty(value):
            return "a constant without elements", ""
        if value.graph is not self.model.graph:
            return "inside the body of an op; of those only weights from outside, in a Scan, are treated", ""
        if draft is not None and draft.enabled:
            return (
                "it can hold NaN, or infinity, or a number that stands for it, next to which a grid has "
                "nothing else; AIMET differs (B11)"
            ), ""
        if draft is not None:
            return self.drafts.reason(value)
        if self.drafts.nodes.is_inner(value):
            return "inside ops that count as one", ""
        return "it keeps the grid of what it was made from, or is no data", ""


def _holds_nan(value: Value) -> bool:
    return value.const is not None and value.is_float and math.isnan(sum(value.const.extremes()))


def _is_empty(value: Value) -> bool:
    return value.const is not None and not value.const.size
