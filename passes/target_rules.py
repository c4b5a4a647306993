"""The rules that target files are made of: number formats, and how an op or a region runs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from qc.ir.errors import UsageError
from qc.ir.formats import Format, IntFormat, parse_format
from qc.ir.quant import QuantSpec
from qc.patterns import supergroup_names
from qc.patterns.attributes import known_attributes, nearest_op_type

Runs = Literal["integer", "between", "carry", "float"]


class Strict(BaseModel):
    """A table of a target file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FormatRule(Strict):
    """The number format of one kind of tensor.

    Attributes:
        dtype: the format that passes choose.
        also: other formats that the target runs, which an option of a pass may ask for.
        symmetric: the zero point must be 0 (the middle of the codes, for unsigned ones).
        narrow: symmetric codes leave out the lowest one.
        blocks: there may be a scale for every block of a channel.
    """

    dtype: str
    also: tuple[str, ...] = ()
    symmetric: bool = False
    narrow: bool = False
    blocks: bool = False

    @field_validator("dtype")
    @classmethod
    def _is_known(cls, dtype: str) -> str:
        _require_format(dtype)
        return dtype

    @field_validator("also")
    @classmethod
    def _are_known(cls, also: tuple[str, ...]) -> tuple[str, ...]:
        for dtype in also:
            _require_format(dtype)
        return also

    def spec(self) -> QuantSpec:
        """The per-tensor spec of this rule."""
        return QuantSpec(parse_format(self.dtype), self.symmetric, self.narrow)

    def allows(self, format: Format) -> bool:
        """Whether the target runs numbers of that format; one of fewer bits in the same storage is such."""
        known = [parse_format(dtype) for dtype in (self.dtype, *self.also)]
        return format in known or any(_holds(one, format) for one in known)


def _require_format(dtype: str) -> None:
    try:
        parse_format(dtype)
    except UsageError as error:
        raise ValueError(str(error)) from error


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
            its input has; ``float``: never in integers.
        output: whether the result is quantized ``always``, or only ``when-read`` by integer readers alone.
        output_range: a fixed range for the result, for functions whose range is known.
        output_ranges: the same by the format of the result, where the target fixes the scale itself.
        share_grid: all data inputs and the output must have one grid.
        per_channel: the weight has one scale per output channel.
        fused_with: op types whose result, where nothing else reads it, this op takes as it is, since both
            run as one. That input has no grid, and without such an input the op runs in float.
        without: attributes with which, whatever their value, an op runs in float.
        written_as: the only op that the target runs it as: a region of other ops is not one to it.
        why: the reason shown for a tensor that stays float because of this rule.
    """

    runs: Runs = "integer"
    output: Literal["always", "when-read"] = "always"
    output_range: tuple[float, float] | None = None
    output_ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    share_grid: bool = False
    per_channel: bool = True
    fused_with: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    written_as: str | None = None
    why: str | None = None
    _asked_by: str = PrivateAttr("")

    @property
    def asked_by(self) -> str:
        """Where it stands: ``ort-cpu.toml, line 25``; empty for a rule that comes from no file."""
        return self._asked_by

    def range_in(self, format: Format) -> tuple[float, float] | None:
        """The fixed range of the result in a format; None if it is not fixed."""
        return self.output_ranges.get(str(format), self.output_range)

    def in_float(self, why: str, asked_by: str) -> OpRule:
        """The same rule for what runs in float after all."""
        rule = self.model_copy(update={"runs": "float", "why": why})
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
