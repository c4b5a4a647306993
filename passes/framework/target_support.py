"""What the runtime of a target was seen to run: tables that ``make targets`` writes, one for each runtime."""

from __future__ import annotations

import tomllib
from importlib import resources

from pydantic import Field

from qc.ir.quant.formats import Format, IntFormat
from qc.ir.quant.spec import Granularity, PerBlock, PerChannel

from .target_rules import Strict


class OpSupport(Strict):
    """What a runtime runs of an op between quantize and dequantize ops.

    Attributes:
        data: the formats of the data; ``float16`` is for an op of such floats, without grids.
        ranks: the ranks of the data, in the target's format.
        weights: formats and granularities of the weight, such as ``int8 channel``, by the format of the data.
    """

    data: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    weights: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def takes(self, data: str, weight: str) -> bool:
        """Whether it runs with such data and such a weight."""
        return weight in self.weights.get(data, ())


class Support(Strict):
    """What a runtime runs.

    Attributes:
        runtime: its name and the version that it was seen on.
        ops: by op type; what is not listed was not offered to it.
    """

    runtime: str
    ops: dict[str, OpSupport] = Field(default_factory=dict)


def load_support(name: str) -> Support:
    """The table of a name; raises ValueError if there is none."""
    file = resources.files("qc.passes") / "targets" / "support" / f"{name}.toml"
    if not file.is_file():
        raise ValueError(f"there is no table '{name}' of what a runtime runs")
    return Support.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def weight_form(format: Format, granularity: Granularity) -> str:
    """How tables name the form of a weight: the type that its codes are stored in, and what has a scale."""
    stored = format
    if isinstance(format, IntFormat):
        stored = IntFormat(format.storage_bits, format.signed)
    kinds = {PerChannel: "channel", PerBlock: "block"}
    kind = next((name for type, name in kinds.items() if isinstance(granularity, type)), "tensor")
    return f"{stored} {kind}"
