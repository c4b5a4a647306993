"""The rules that target files are made of: number formats, and how an op or a region runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from qc.ir.errors import UsageError, nearest
from qc.ir.facts.op_traits import weight_ports
from qc.ir.graph import Op
from qc.ir.quant.formats import Format, IntFormat, parse_format
from qc.ir.quant.spec import QuantSpec
from qc.patterns import supergroup_names
from qc.patterns.attributes import attribute_of, known_attributes, nearest_op_type

Runs = Literal["integer", "between", "carry", "weights", "float"]
Storage = Literal["packed", "int8"]


class Strict(BaseModel):
    """A table of a target file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FormatRule(Strict):
    """The number format of one kind of tensor.

    Attributes:
        dtype: the format that passes choose.
        also: other formats that the target runs, which an option of a pass may ask for.
        symmetric: the zero point must be 0 (the middle of the codes, for unsigned ones).
        weight_only: formats that the target multiplies with float data, and with no other.
        narrow: symmetric codes of 8 bits and more leave out the lowest one, which fewer bits need.
        blocks: there may be a scale for every block of a channel.
        storage: how codes of fewer than 8 bits are stored: ``packed``, several in a byte, or ``int8``, one in
            each, for a device that would unpack them in every run. Formats that fit run like 8 bits then.
    """

    dtype: str
    also: tuple[str, ...] = ()
    weight_only: tuple[str, ...] = ()
    symmetric: bool = False
    narrow: bool = False
    blocks: bool = False
    storage: Storage = "packed"

    @field_validator("dtype")
    @classmethod
    def _is_known(cls, dtype: str) -> str:
        _require_format(dtype)
        return dtype

    @field_validator("also", "weight_only")
    @classmethod
    def _are_known(cls, formats: tuple[str, ...]) -> tuple[str, ...]:
        for dtype in formats:
            _require_format(dtype)
        return formats

    def spec(self, asked: str | None = None) -> QuantSpec:
        """The per-tensor spec of this rule, in its own format or in one that an option asks for.

        An unsigned option makes a symmetric rule asymmetric, since the grid would waste half of its codes.
        """
        format = parse_format(asked if asked is not None else self.dtype)
        if not isinstance(format, IntFormat):
            return QuantSpec(format)
        symmetric = self.symmetric and (format.signed or asked is None)
        return QuantSpec(format, symmetric).resized(format, self.narrow)

    def allows(self, format: Format) -> bool:
        """Whether the target runs numbers of that format, be it in a wider one that they are stored in."""
        return self.has_kernels_for(format) or self._widens(format)

    def has_kernels_for(self, format: Format) -> bool:
        """Whether the target computes with that format; one of fewer bits in the same storage is such."""
        known = [parse_format(dtype) for dtype in (self.dtype, *self.also)]
        return format in known or any(_holds(one, format) for one in known)

    def _widens(self, format: Format) -> bool:
        """Whether codes of that format are stored as bytes, which are multiplied."""
        return self.storage == "int8" and isinstance(format, IntFormat) and format.storage_bits < 8

    @property
    def wider(self) -> str | None:
        """A format of 16 bits that it allows beside one of fewer that passes choose; None without such."""
        chosen = parse_format(self.dtype)
        known = ((dtype, parse_format(dtype)) for dtype in self.also)
        wide = [dtype for dtype, one in known if isinstance(one, IntFormat) and one.bits == 16]
        narrow = isinstance(chosen, IntFormat) and chosen.bits < 16
        return wide[0] if narrow and wide else None

    def is_weight_only(self, format: Format) -> bool:
        """Whether the target runs numbers of that format next to float data alone."""
        return str(format) in self.weight_only

    @property
    def known(self) -> str:
        """The formats that it allows, as messages name them."""
        return " or ".join((self.dtype, *self.also))


def _require_format(dtype: str) -> None:
    try:
        parse_format(dtype)
    except UsageError as error:
        raise ValueError(str(error)) from error


_ARITHMETIC = ("Add", "Div", "Mul", "Sub")
_ACTIVATIONS = ("Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh")


def is_weighed_by_data(op: Op) -> bool:
    read = op.inputs
    weights = [read[port] for port in weight_ports(op) if port < len(read)]
    return any(value is not None and value.original.const is None for value in weights)


def _is_scaled_by_vector(op: Op) -> bool:
    """Whether several constant numbers multiply the result of an op, or are added right behind an activation.

    That may be behind arithmetic with other constants, and factors behind an activation.
    """
    waiting = [(value, False) for value in op.outputs[:1]]
    for value, is_activated in waiting:
        kinds = _ARITHMETIC if is_activated else ("Div", "Mul")
        for reader in dict.fromkeys(use.op for use in value.uses) if value is not None else ():
            inputs = [one for one in reader.inputs[:2] if one is not None]
            constants = [one.original.const for one in inputs if one is not value]
            is_of_vector = any(constant is not None and constant.size > 1 for constant in constants)
            if is_of_vector and reader.is_type("BatchNormalization", *kinds):
                return True
            is_arithmetic = reader.is_type(*_ARITHMETIC) and bool(constants) and None not in constants
            is_activation = reader.is_type(*_ACTIVATIONS)
            made = (reader.outputs[0], is_activation)
            if (is_arithmetic or is_activation) and made not in waiting:
                waiting.append(made)
    return False


def _holds(wide: Format, format: Format) -> bool:
    if not isinstance(wide, IntFormat) or not isinstance(format, IntFormat):
        return False
    stored_alike = (wide.storage_bits, wide.signed) == (format.storage_bits, format.signed)
    return stored_alike and format.bits <= wide.bits


class OpRule(Strict):
    """How the target runs an op or a region.

    If, Loop and Scan compute nothing themselves: for them ``carry`` lets their bodies run as the main graph
    does, and ``float`` keeps all that is inside in float.

    Attributes:
        runs: ``integer`` whenever its weight or inputs allow; ``between`` only between integer producers and
            integer readers (where it saves conversions); ``carry``: moves data, so it runs in whatever grid
            its input has; ``weights``: its weights are stored in integers, and its data has no grids;
            ``float``: never in integers.
        output: whether the result is quantized ``always``, or only ``when-read`` by integer readers alone, or
            also not ``when-needed`` by no more than ops that run ``between``, as floats cost nothing.
        output_range: a fixed range for the result, for functions whose range is known.
        output_ranges: the same by the format of the result, where the target fixes the scale itself.
        often_part: a result that takes less than a quarter of ``output_range`` has the range that was seen,
            unless that is below 1/256 of it, as where the result was 0 throughout.
        least_ranges: by the format of the result, the least distance between the ends of its range, where the
            target computes wrong numbers with smaller scales.
        constants: of what only moves data, a constant that it moves has a grid, which its result keeps;
            without, rows of a table of embeddings are quantized after they were looked up in float.
        wraps: what lies beyond the grid of the result gets a code of the other end, so it must hold those
            of all that is joined.
        share_grid: all that is joined, or interpolated, and the output must have one grid.
        wide: beside activations of 8 bits what it reads and makes has the wider format among ``also`` of
            them, as the target cuts its results off instead of rounding them. The result of a product, and
            of a Relu or Clip behind it, stays in 8 bits and is rounded again for it.
        signed_operands: a product of two data tensors runs in integers only if their zero points are 0: they
            have signed codes, but for a first one that is never negative.
        constant_weight: ``True``: it runs in integers only by a weight that is a constant; formats: that
            holds beside data of these alone.
        plain_products: a product of two data tensors runs in integers only if no vector of constants scales
            its result, or is added to an activation of it.
        of_probabilities: a MatMul by what Softmax made runs in ``integer``, or in ``float`` where that takes
            no longer, as most probabilities may be below a step of 8 bits.
        per_channel: the weight has one scale per output channel.
        fused_with: op types whose result, where nothing else reads it, this op takes as it is, since both
            run as one. That input has no grid, and without such an input the op runs in float.
        fuses_constants: with constants of one number, or one for each channel, beside a single tensor of data
            that nothing else reads it runs as one with the op that computes that tensor, which has no grid.
        parameters: input ports of parameters, such as the scale and the bias of a normalization, that have
            grids like weight and bias of other ops; without, parameters of normalizations stay float.
        scale: the format of the scale of a normalization among ``parameters``, if it is not that of weights.
        constant: the format of constants that are no parameters, if it is not that of activations.
        without: attributes with which, whatever their value, an op runs in float.
        without_all: sets of attributes with values; an op that has all of one so runs in float.
        only: attributes, or parameters that newer opsets hold in inputs, with the value that an op has them
            at; at any other it runs in float. Of a region they are those of its last op, and where these
            differ it counts as the ops that it is made of.
        since: the first opset whose op the target runs so; in an older one it runs in float.
        written_as: the op that the target runs it as: a region of other ops is slower in float, and none to
            a target that has it in integers.
        decompose: the pass ``decompose-ops`` writes it in other ops.
        most_dimensions: of its data, where that is less than what the target runs; 0 for what it runs.
        why: the reason shown for a tensor that stays float because of this rule.
    """

    runs: Runs = "integer"
    output: Literal["always", "when-read", "when-needed"] = "always"
    output_range: tuple[float, float] | None = None
    output_ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    often_part: bool = False
    least_ranges: dict[str, float] = Field(default_factory=dict)
    constants: bool = False
    share_grid: bool = False
    wraps: bool = False
    wide: bool = False
    signed_operands: bool = False
    constant_weight: bool | tuple[str, ...] = False
    plain_products: bool = False
    of_probabilities: Literal["integer", "float"] = "integer"
    per_channel: bool = True
    fused_with: tuple[str, ...] = ()
    fuses_constants: bool = False
    parameters: tuple[int, ...] = ()
    scale: FormatRule | None = None
    constant: FormatRule | None = None
    without: tuple[str, ...] = ()
    without_all: tuple[dict[str, str | float], ...] = ()
    only: dict[str, str | float] = Field(default_factory=dict)
    since: int = 0
    written_as: str | None = None
    decompose: bool = False
    most_dimensions: int = Field(default=0, ge=0)
    why: str | None = None
    _asked_by: str = PrivateAttr("")

    @field_validator("constant_weight", mode="before")
    @classmethod
    def _has_formats(cls, given: object) -> object:
        formats = () if isinstance(given, bool) else given
        if not isinstance(formats, list | tuple) or not all(isinstance(one, str) for one in formats):
            raise ValueError(f"it is true, false or a list of formats such as 'uint16', not {given!r}")
        for dtype in formats:
            _require_format(dtype)
        return given

    @property
    def asked_by(self) -> str:
        """Where it stands: ``ort-cpu.toml, line 25``; empty for a rule that comes from no file."""
        return self._asked_by

    def range_in(self, format: Format) -> tuple[float, float] | None:
        """The fixed range of the result in a format; None if it is not fixed."""
        return self.output_ranges.get(str(format), self.output_range)

    def leaves_room(self, spec: QuantSpec) -> bool:
        """Whether a grid has the range of the function, and the result may take a small part of it."""
        is_usual = self.output_range is not None and spec.fixed_range == self.output_range
        return self.often_part and is_usual and str(spec.format) not in self.output_ranges

    def bars_data_weight(self, op: Op, data: Format | str | None = None) -> bool:
        """Whether the weight of an op is data, and keeps it from running in integers.

        Args:
            data: a format of the other data, if it is to do so beside that in particular, not beside any.
        """
        formats = self.constant_weight
        barred = formats is True if data is None else not isinstance(formats, bool) and str(data) in formats
        return barred and is_weighed_by_data(op)

    def require_attributes(self, owner: str, known: frozenset[str]) -> None:
        """Raises ValueError for an attribute in ``without`` or ``only`` that is not a known one.

        So does what is asked of a MatMul alone.
        """
        if self.of_probabilities != "integer" and owner != "MatMul":
            raise ValueError(f"'{owner}' has no 'of_probabilities'; it is a setting of MatMul")
        for name in (*self.without, *self.only, *chain.from_iterable(self.without_all)):
            if name not in known:
                raise ValueError(f"'{owner}' has no attribute '{name}'{nearest(name, sorted(known))}")

    def barred_by(self, op: Op, parts: Iterable[Op] = ()) -> str | None:
        """What keeps the rule from holding for an op, such as ``mode = 'linear'``; None if nothing does.

        Of a region it gets the last op, and all ops as its parts.
        """
        if any(map(self.bars_data_weight, (op, *parts))):
            return "a weight that is data"
        by_data = filter(is_weighed_by_data, (op, *parts)) if self.plain_products else ()
        if any(map(_is_scaled_by_vector, by_data)):
            return "numbers for each channel behind a product of data"
        if op.graph.model.opset < self.since:
            return f"opset {op.graph.model.opset}, only from {self.since} on"
        with_any = next((f"the attribute '{name}'" for name in self.without if name in op.attributes), None)
        if with_any is not None:
            return with_any
        read = op.inputs
        for barred in self.without_all:
            if all(attribute_of(op, name, read) == value for name, value in barred.items()):
                return " and ".join(f"{name} = {value!r}" for name, value in barred.items())
        for name, wanted in self.only.items():
            found = attribute_of(op, name, read)
            if found != wanted:
                known = f"{name} = {found!r}" if isinstance(found, str | int | float) else f"such a '{name}'"
                return f"{known}, only with {wanted!r}"
        return None

    def in_float(self, why: str, asked_by: str) -> OpRule:
        """The same rule for what runs in float after all."""
        return self._changed("float", why, asked_by)

    def storing_weights(self, why: str, asked_by: str) -> OpRule:
        """The same rule for what has its weights in integers, and runs in float."""
        return self._changed("weights", why, asked_by)

    def _changed(self, runs: Runs, why: str, asked_by: str) -> OpRule:
        rule = self.model_copy(update={"runs": runs, "why": why})
        rule._asked_by = asked_by
        return rule


class OwnSupergroup(Strict):
    """A supergroup that a target file defines: ops that follow each other.

    Attributes:
        name: what its matches are called; no supergroup of qc or a plugin has the name.
        op_list: the types of the ops. Each reads the one before as its first input, or as any input if those
            may be swapped; only the last result may be used elsewhere.
    """

    name: str
    op_list: tuple[str, ...]
    _rule: OpRule = PrivateAttr(default_factory=OpRule)

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if not name.isidentifier():
            raise ValueError(f"'{name}' is not made of letters, digits and underscores")
        if name in supergroup_names():
            raise ValueError(f"there is a supergroup '{name}' already; choose another name")
        return name

    @field_validator("op_list")
    @classmethod
    def _is_chain(cls, op_list: tuple[str, ...]) -> tuple[str, ...]:
        if len(op_list) < 2:
            raise ValueError("a supergroup is made of at least two ops")
        for op_type in op_list:
            require_op(op_type)
        return op_list


def require_op(op_type: str) -> None:
    """Raises ValueError for what is no op of ONNX."""
    if known_attributes(op_type) is None:
        raise ValueError(f"ONNX has no op '{op_type}'{nearest_op_type(op_type)}")
