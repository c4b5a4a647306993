"""Sets widths and formats of chosen tensors by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qc.ir.errors import UsageError
from qc.ir.facts.dataflow import huge_values, is_plain_float
from qc.ir.facts.op_traits import bias_port, is_parameter, is_trained, traits, weight_port
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Op, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model, check_lifted
from qc.ir.quant.formats import IntFormat, has_limits, holds
from qc.ir.quant.spec import Quantizer, QuantSpec
from qc.ir.quant_table import Site

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..framework.pipeline import Pipeline
from ..framework.target import Target, load_target
from .calibration.calibration import CalibrationPass
from .placement.selection import select
from .precision.one_format import unify_formats
from .precision.rules import Rule, Setting, parse_rule, rules_of

SET_TO_FLOAT = "set to float by hand"  # why a tensor stays float that a rule turns off


@dataclass(frozen=True)
class SetPrecision(Pass):
    """Sets the precision of chosen tensors: another width, another format, or float.

    A rule is what it is for, ``=``, and what that gets: ``Conv=w4a8`` (widths of weights and activations of
    every Conv), ``BatchNormalization=float16``, ``op:conv1=off``, ``region:layer_norm=a16``,
    ``op~/layer4/.*=weight:int4,activation:uint16`` (a regular expression), ``tensor:logits=off``. What is
    left of ``=`` is an op type, an op, a region or a tensor; where a name may be two of these, ``type:``,
    ``op:``, ``region:`` or ``tensor:`` tells which. An op without a name is ``op:`` and the name of its first
    result. One that fits nothing is an error. Later rules win.

    The weights of an op are the constants that were trained, bias and statistics included; its activations
    are all other tensors that it reads or makes. A width changes what is quantized already; a format gives a
    quantizer to what has none. Tensors that are tied change together. Biases in 32 bits follow from input and
    weight.

    A tensor has one grid for all, with one exception: where a rule for an op makes a tensor float or a small
    float, a Conv, ConvTranspose, Gemm or MatMul beside it that the rule is not for still runs in integers.
    What it makes is rounded again for the op; what it reads is rounded again for it.

    Where the target computes an op in one width only, what an op reads in another width than its result has
    is rounded again for it.

    A frozen quantizer is not changed: that is an error, unless the rule ends in ``!``. In TOML files the
    rules can stand in ``[[precision]]`` tables instead, on the command line in ``--set``.
    """

    name = "set-precision"
    stage = Stage.ANNOTATE
    uses = frozenset({"target"})

    rules: tuple[str, ...] = option((), "what gets which precision, such as 'Conv=w4a8'; later ones win")
    asked_by: tuple[str, ...] = field(default=(), compare=False, metadata={"option": False})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parsed()

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> SetPrecision:
        """The pass with rules that know where they stand."""
        return cls(tuple(rule.text for rule in rules), tuple(rule.asked_by for rule in rules))

    def run(self, model: Model, context: PassContext) -> None:
        if not self.rules:
            raise UsageError(f"pass '{self.name}' needs rules: write {self.name}{{rules=['Conv=w4a8']}}")
        set_precision(model, self._parsed(), context.target)
        if context.target is not None:
            unify_formats(model, context.target)

    def _parsed(self) -> list[Rule]:
        places = self.asked_by or [f"rule '{text}' of '{self.name}'" for text in self.rules]
        return [parse_rule(text, place) for text, place in zip(self.rules, places, strict=True)]


def set_precision(
    model: Model,
    rules: str | Path | Rule | Iterable[str | Rule] | Mapping[str, str],
    target: str | Path | Target | None = None,
) -> None:
    """Applies rules to the table of quantizers of a model, one after the other; see :class:`SetPrecision`.

    Args:
        rules: text such as ``Conv=w4a8``, one or several, or the path of a ``.toml`` file with them.
        target: says whether weights of 8 bits leave out their lowest code, if they had fewer before; a name,
            a path or an object.

    Raises:
        UsageError: ``model`` is none, there is no such target, or a rule selects nothing, has nothing to
            change, or would change a frozen quantizer.
    """
    check_lifted(model)
    is_narrow = target is not None and load_target(target).weight.narrow
    for rule in rules_of(rules):
        _Application(model, rule, is_narrow).run()


def with_precision(pipeline: Pipeline, rules: Sequence[Rule]) -> Pipeline:
    """The pipeline with a ``set-precision`` of these rules right before it calibrates, or else lowers."""
    if not rules:
        return pipeline
    steps = list(pipeline.steps)
    index = 0
    while index < len(steps) and not any(map(_needs_precision, Pipeline([steps[index]]).passes())):
        index += 1
    steps.insert(index, SetPrecision.of(rules))
    return Pipeline(steps)


def _needs_precision(step: Pass) -> bool:
    """Whether a pass works with what ``set-precision`` decides."""
    return isinstance(step, CalibrationPass) or step.stage is Stage.LOWER


class _Application:
    """One rule at work."""

    def __init__(self, model: Model, rule: Rule, narrow: bool) -> None:
        self.narrow = narrow
        self.quant = model.quant
        self.model = model
        self.rule = rule
        self.scopes = scopes_of(model.graph)
        self.huge = huge_values(model.graph)
        self.selected: set[Op] = set()
        self.reached = False

    def run(self) -> None:
        selection = select(self.model, self.rule)
        self.selected = set(selection.ops)
        for op in selection.ops:
            self._set_op(op)
        for value in selection.tensors:
            self._set_tensor(value)
        if not self.reached:
            count = len(selection.ops) + len(selection.tensors)
            raise UsageError(
                f"{self.rule.asked_by}: nothing of what it is for ({count} in all) has a quantizer; a "
                "format, such as float16, would give it one"
            )

    # -- what a rule is for ---------------------------------------------------------------------------

    def _set_op(self, op: Op) -> None:
        for port, value in enumerate(op.inputs):
            if value is None or not is_plain_float(value) or self._is_inner(value):
                continue
            is_weight = value.original.const is not None and _is_trained_input(op, port, value.original)
            setting = self.rule.setting(is_weight)
            if setting is not None and (is_weight or not is_parameter(op, port)):
                self._set_reading(Site(value, op, port), setting, is_weight)
        if self.rule.activation is not None:
            for value in self._results(op):
                self._set_sites(self._sites_of_result(value), self.rule.activation, is_weight=False)

    def _results(self, op: Op) -> Iterator[Value]:
        """What an op makes; if that is inside of a region, what the region makes."""
        region = op.region
        made = [value for value in op.outputs if value is not None and is_plain_float(value)]
        if region is not None and any(map(self._is_inner, made)):
            made = [value for value in region.root.outputs if value is not None]
        return filter(is_plain_float, made)

    def _sites_of_result(self, value: Value) -> list[Site]:
        """Where a result is quantized; a reader that has a grid of its own keeps it beside floats."""
        setting = self.rule.activation
        if setting is not None and (setting.bits is not None or isinstance(setting.format, IntFormat)):
            sites = [site for alias in self.scopes.aliases(value) for site in self.quant.sites_on(alias)]
            return sites or [Site(value)]
        return [Site(value)]

    def _set_reading(self, site: Site, setting: Setting, is_weight: bool) -> None:
        """Sets how an op reads one of its inputs."""
        op, port = site.op, site.port
        assert op is not None and port is not None
        held = self.quant.of_use(site.value, op, port)
        is_bias = port == bias_port(op) or (held is not None and held.spec.derived)
        if is_bias and isinstance(setting.format, IntFormat | None) and not setting.is_off:
            return  # follows from the scales of input and weight
        if held is None or self.quant.get(site) is held:
            self._set_sites([site], setting, is_weight)
        elif self._is_kept_by_producer(held, setting):
            self._set_sites([site], setting, is_weight, behind=held)
        else:
            self._set_quantizer(held, setting, is_weight)

    def _set_tensor(self, value: Value) -> None:
        is_weight = is_trained(value)
        setting = self.rule.setting(is_weight)
        if setting is not None and is_plain_float(value):
            sites = [site for alias in self.scopes.aliases(value) for site in self.quant.sites_on(alias)]
            self._set_sites(sites or [Site(value)], setting, is_weight)

    def _is_inner(self, value: Value) -> bool:
        """Whether nothing outside of a region can see the tensor, which runs as one operator."""
        producer = value.producer
        region = producer.region if producer is not None else None
        return region is not None and region.is_inner(value) and not self.quant.touches(value)

    # -- changes ----------------------------------------------------------------------------------------

    def _set_sites(
        self, sites: Sequence[Site], setting: Setting, is_weight: bool, behind: Quantizer | None = None
    ) -> None:
        """Sets some sites, and all that are tied to them; ``behind`` rounds before what is placed here."""
        held = dict.fromkeys(q for site in sites if (q := self.quant.get(site)) is not None)
        for quantizer in held:
            self._set_quantizer(quantizer, setting, is_weight)
        if held or not setting.places:
            self.reached |= setting.is_off
            return
        spec = setting.spec(None, is_weight)
        if behind is not None and behind.spec.format == spec.format:
            return
        reason = "set by hand" if behind is None else f"set by hand, behind {behind.spec}"
        self.reached = True
        if self._fits(sites[0], spec):
            self.quant.place(sites[0], spec, reason, self.rule.asked_by)

    def _set_quantizer(self, quantizer: Quantizer, setting: Setting, is_weight: bool) -> None:
        """Gives a quantizer another spec or takes it away, at all its sites."""
        self.reached = True
        spec = None if setting.is_off else setting.spec(quantizer.spec, is_weight, self.narrow)
        follows = quantizer.spec.derived and setting.bits is not None
        sites = self.quant.sites_of(quantizer)
        if spec == quantizer.spec or follows or not all(self._fits(site, spec) for site in sites):
            return
        self._thaw(quantizer, sites)
        if spec is None or not isinstance(spec.format, IntFormat):
            self._keep_integer_readers(quantizer, sites)
        if spec is not None:
            others = f", together with {len(sites) - 1} tied sites" if len(sites) > 1 else ""
            self.quant.respec(quantizer, spec, f"set by hand{others}", self.rule.asked_by)
            return
        for site in sites:
            self.quant.remove(site, SET_TO_FLOAT, self.rule.asked_by)
            if not self.quant.touches(site.value):
                self.quant.skip(site.value.original, SET_TO_FLOAT, self.rule.asked_by)

    def _fits(self, site: Site, spec: QuantSpec | None) -> bool:
        """Whether a tensor can have a format; says so of one that would become infinite in it."""
        if spec is None or has_limits(spec.format):
            return True
        const = site.value.original.const
        ends = const.extremes() if const is not None else (0.0, 0.0)
        if holds(spec.format, *ends) and site.value.original not in self.huge:
            return True
        reason = f"stays as it is: it holds numbers that {spec.format} does not have"
        about, asked_by = site.value.original, self.rule.asked_by
        self.model.journal.note(Remark(SKIP, about, str(site), reason, asked_by=asked_by))
        return False

    def _thaw(self, quantizer: Quantizer, sites: Sequence[Site]) -> None:
        if not quantizer.frozen:
            return
        if not self.rule.override:
            raise UsageError(
                f"{self.rule.asked_by}: {sites[0]} is frozen at {quantizer.spec}; a rule that ends in '!' "
                "(override = true) changes it all the same"
            )
        self.quant.thaw(quantizer, "a rule overrides it", self.rule.asked_by)

    # -- neighbours that stay in integers -----------------------------------------------------------------

    def _is_kept_by_producer(self, quantizer: Quantizer, setting: Setting) -> bool:
        """Whether a tensor keeps its grid because an op that stays in integers makes it on that grid."""
        if setting.bits is not None or isinstance(setting.format, IntFormat):
            return False
        values = [site.value for site in self.quant.sites_of(quantizer) if site.op is None]
        producers = (value.producer for value in values)
        return any(self._stays_integer(op) for op in producers if op is not None)

    def _keep_integer_readers(self, quantizer: Quantizer, sites: Sequence[Site]) -> None:
        """Lets ops that stay in integers read on the grid that their inputs had so far."""
        if not self.selected or not isinstance(quantizer.spec.format, IntFormat):
            return
        kept: Quantizer | QuantSpec = quantizer.spec
        for op, site in list(self._readings(sites)):
            reason = f"{op.label} still runs in integers"
            kept = self.quant.place(site, kept, reason, self.rule.asked_by)

    def _readings(self, sites: Sequence[Site]) -> Iterator[tuple[Op, Site]]:
        """The free places where ops that stay in integers read what is quantized at some sites."""
        for value in [site.value for site in sites if site.op is None]:
            for alias in self.scopes.aliases(value):
                for use in alias.uses:
                    if not isinstance(use.port, int) or not self._stays_integer(use.op):
                        continue
                    site = Site(alias, use.op, use.port)
                    if self.quant.get(site) is None:
                        yield use.op, site

    def _stays_integer(self, op: Op) -> bool:
        """Whether the rule is not for ``op``, or for the region it is in, and that multiplies integers."""
        region = op.region
        ops = region.ops if region is not None else (op,)
        return self.selected.isdisjoint(ops) and any(map(self._multiplies_integers, ops))

    def _multiplies_integers(self, op: Op) -> bool:
        if weight_port(op) is None:
            return False
        read = [value for value in op.inputs[:2] if value is not None]
        held = [self.quant.of_use(value, op, port) for port, value in enumerate(read)]
        return all(q is not None and isinstance(q.spec.format, IntFormat) for q in held)


def _is_trained_input(op: Op, port: int, constant: Value) -> bool:
    return port in traits(op).trained.values() or is_trained(constant)
