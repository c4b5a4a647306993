"""Takes grids from an encodings file instead of calibrating them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from qc.ir.errors import UsageError, listed, nearest
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.scopes import captured_values, tensors_by_name
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site

from ..encodings import TensorRecord, encoding_of, located, read_encodings
from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .calibration.bias import place_biases

_NAMED = 5  # tensors that a note names


@dataclass(frozen=True)
class LoadEncodings(Pass):
    """Gives tensors the grids that an encodings file has for them.

    A tensor without a quantizer gets one for all its readers, so that this pass also works alone. Quantizers
    of tensors that the file does not list stay open for ``calibrate``, or are taken away; what an op only
    moves, as Reshape does, has the grid of the listed tensor it comes from. A loaded grid is frozen: no later
    pass changes it. Files of all versions are read.
    """

    name = "load-encodings"
    stage = Stage.ANNOTATE
    idempotent = False  # what it loads takes the place of what is there, whatever that is

    file: str = option("", "path of the encodings file", path=("",))
    only: Literal["all", "parameters", "activations"] = option("all", "which tensors to take grids for")
    others: Literal["calibrate", "remove"] = option(
        "calibrate", "what becomes of quantizers of tensors that the file does not list"
    )
    unknown: Literal["error", "ignore"] = option("error", "what to do if the model lacks a listed tensor")
    formats: Literal["take", "error"] = option(
        "take", "what to do if a listed grid has other bits or axes than the quantizer that is there"
    )
    bias: Literal["float", "int32"] = option(
        "float",
        "biases that the file does not list: as they are, or 32-bit integers, whose grids calibrate finds",
    )
    freeze: bool = option(True, "keep later passes from changing the loaded grids")

    def run(self, model: Model, context: PassContext) -> None:
        if not self.file:
            raise UsageError(f"pass '{self.name}' needs a file: write {self.name}{{file=NAME}}")
        document = located(read_encodings(self.file), model)
        model.quant.scheme = str(document.arguments.get("quant_scheme", model.quant.scheme))
        values = tensors_by_name(model)
        inside = captured_values(list(model.graphs()))
        loaded: dict[Value, None] = {}  # in the order of the file
        unknown = [record.name for record in document.records if record.name not in values]
        if unknown:
            self._pass_over(unknown, values, context)
        for record in document.records:
            value = values.get(record.name)
            if value is not None and self._is_wanted(value):
                self._load(model, [value, *inside.get(value, ())], record)
                loaded[value] = None
        if self.others == "remove":
            self._remove_others(model, loaded)
        else:
            for value in tuple(loaded):
                self._pass_on(model, value, loaded)
            context.notes += self._missing(model, loaded)
        if self.bias == "int32":
            place_biases(model, f"option bias of '{self.name}'")

    def _pass_over(self, unknown: Sequence[str], known: Iterable[str], context: PassContext) -> None:
        """Refuses tensors that the model lacks, or tells about them."""
        name, similar = unknown[0], nearest(unknown[0], list(known))
        lacks = f"'{self.file}' has a grid for '{name}', which the model lacks{similar}"
        if self.unknown == "error":
            raise UsageError(f"{lacks}; with unknown=ignore such tensors are passed over")
        context.notes.append(f"{lacks}: passed over ({len(unknown)} in all)")

    def _is_wanted(self, value: Value) -> bool:
        return self.only == "all" or (self.only == "parameters") == (value.const is not None)

    def _load(self, model: Model, aliases: list[Value], record: TensorRecord) -> None:
        """Gives the grid of a record to a tensor, captured or not: for all, or for readers that had one."""
        value = aliases[0]
        if value.type.elem_type and not value.is_float:
            raise UsageError(f"'{self.file}' has a grid for '{value.name}', which is {value.type}, not float")
        encoding = encoding_of(record, value.const.shape if value.const is not None else (), f"'{self.file}'")
        sites = [site for alias in aliases for site in model.quant.sites_on(alias)] or [Site(aliases[0])]
        for site in sites:
            placed = model.quant.get(site)
            if placed is not None:
                self._check_format(site, placed.spec, encoding.spec)
                model.quant.remove(site, f"a grid from '{self.file}' takes its place")
        # Readers of other widths had grids of their own; on that of the tensor nothing is rounded again.
        first, *others = [site for site in sites if site.op is None] or sites
        quantizer = model.quant.place(first, encoding.spec, f"listed in '{self.file}'")
        for site in others:
            model.quant.place(site, quantizer, f"listed in '{self.file}'")
        model.quant.calibrate(quantizer, encoding, f"from '{self.file}'")
        if self.freeze:
            model.quant.freeze(quantizer)

    def _check_format(self, site: Site, placed: QuantSpec, listed: QuantSpec) -> None:
        """Refuses a grid that is not of the kind that was placed. The sign of codes is mere notation."""
        bits = placed.format.bits == listed.format.bits and type(placed.format) is type(listed.format)
        scales = placed.derived or placed.granularity == listed.granularity
        if self.formats == "error" and not (bits and scales):
            raise UsageError(
                f"'{self.file}' has {listed} for {site}, where {placed} was placed; with formats=take the "
                "file is right"
            )

    def _pass_on(self, model: Model, value: Value, loaded: dict[Value, None]) -> None:
        """Gives what is only moved from a listed tensor its grid, where a quantizer stands."""
        quantizer = model.quant.of_value(value)
        if quantizer is None:
            return
        moving = [(value, use) for use in value.uses]
        for source, (op, port) in moving:
            for result in op.outputs if is_grid_preserving(op) and port == 0 else ():
                if result is None or result in loaded or model.quant.get(Site(result)) is None:
                    continue
                reason = f"{op.label} moves '{source.name}', which '{self.file}' lists"
                model.quant.remove(Site(result), reason)
                model.quant.place(Site(result), quantizer, reason)
                loaded[result] = None
                moving += [(result, use) for use in result.uses]

    def _missing(self, model: Model, loaded: dict[Value, None]) -> Iterator[str]:
        """A note on the tensors that have quantizers and no grids in the file; those of biases follow."""
        sites = (site for site in model.quant.sites() if self._is_wanted(site.value.original))
        held = ((site.value.original, model.quant.get(site)) for site in sites)
        missing = (value for value, one in held if one is not None and not one.spec.derived)
        names = list(dict.fromkeys(f"'{value.name}'" for value in missing if value not in loaded))
        if names:
            count = "a quantized tensor" if len(names) == 1 else f"{len(names)} quantized tensors"
            yield f"'{self.file}' has no grid for {count}, which 'calibrate' finds: {listed(names, _NAMED)}"

    def _remove_others(self, model: Model, loaded: dict[Value, None]) -> None:
        for site in model.quant.sites():
            value = site.value.original
            if value not in loaded and self._is_wanted(value):
                model.quant.remove(site, f"not listed in '{self.file}'")
                model.quant.skip(value, f"not listed in '{self.file}'")
