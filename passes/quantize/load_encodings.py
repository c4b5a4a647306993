"""Takes grids from an encodings file instead of calibrating them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qc.ir.encodings import TensorRecord, located, read_encodings
from qc.ir.errors import UsageError, nearest
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.scopes import stand_ins, tensors_by_name

from ..base import Pass, Stage, option
from ..context import PassContext


@dataclass(frozen=True)
class LoadEncodings(Pass):
    """Gives tensors the grids that an encodings file has for them.

    A tensor without a quantizer gets one for all its readers, so that this pass also works alone. Quantizers
    of tensors that the file does not list stay open for ``calibrate``, or are taken away. A loaded grid is
    frozen: no later pass changes it. Files of all versions are read; two-level blocks become blocks.
    """

    name = "load-encodings"
    stage = Stage.ANNOTATE
    idempotent = False  # what it loads takes the place of what is there, whatever that is

    file: str = option("", "path of the encodings file")
    only: Literal["all", "parameters", "activations"] = option("all", "which tensors to take grids for")
    others: Literal["calibrate", "remove"] = option(
        "calibrate", "what becomes of quantizers of tensors that the file does not list"
    )
    unknown: Literal["error", "ignore"] = option("error", "what to do if the model lacks a listed tensor")
    freeze: bool = option(True, "keep later passes from changing the loaded grids")

    def run(self, model: Model, context: PassContext) -> None:
        if not self.file:
            raise UsageError(f"pass '{self.name}' needs a file: write {self.name}{{file=NAME}}")
        document = located(read_encodings(self.file), model)
        values = tensors_by_name(model.graph)
        inside = stand_ins(list(model.graphs()))
        loaded: set[Value] = set()
        for record in document.records:
            value = values.get(record.name)
            if value is None:
                self._refuse_unknown(record.name, values)
            elif self._is_wanted(value):
                self._load(model, [value, *inside.get(value, ())], record)
                loaded.add(value)
        if self.others == "remove":
            self._remove_others(model, loaded)

    def _refuse_unknown(self, name: str, known: Iterable[str]) -> None:
        if self.unknown == "error":
            similar = nearest(name, list(known))
            raise UsageError(
                f"'{self.file}' has a grid for '{name}', which the model lacks{similar}; with "
                "unknown=ignore such tensors are passed over"
            )

    def _is_wanted(self, value: Value) -> bool:
        return self.only == "all" or (self.only == "parameters") == (value.const is not None)

    def _load(self, model: Model, aliases: list[Value], record: TensorRecord) -> None:
        """Gives the grid of a record to all sites of a tensor and its stand-ins."""
        encoding = _encoding(record, aliases[0], self.file)
        sites = [site for alias in aliases for site in model.quant.sites_on(alias)] or [Site(aliases[0])]
        for site in sites:
            if model.quant.get(site) is not None:
                model.quant.remove(site, f"a grid from '{self.file}' takes its place")
        quantizer = model.quant.place(sites[0], encoding.spec, f"listed in '{self.file}'")
        for site in sites[1:]:
            model.quant.place(site, quantizer, f"listed in '{self.file}'")
        model.quant.calibrate(quantizer, encoding, f"from '{self.file}'")
        if self.freeze:
            model.quant.freeze(quantizer)

    def _remove_others(self, model: Model, loaded: set[Value]) -> None:
        for site in model.quant.sites():
            value = site.value.original
            if value not in loaded and self._is_wanted(value):
                model.quant.remove(site, f"not listed in '{self.file}'")
                model.quant.skip(value, f"not listed in '{self.file}'")


def _encoding(record: TensorRecord, value: Value, source: str) -> Encoding:
    """The encoding that a record stands for on ``value``."""
    if not np.array_equal(record.zero_point, np.rint(record.zero_point)):
        raise UsageError(f"'{source}': '{record.name}' has a shifted zero point, which qc cannot apply yet")
    spec = QuantSpec(record.format, bool(record.symmetric) and record.is_integer)
    if record.granularity == "tensor":
        return Encoding(spec, record.scale, record.zero_point)
    if record.axis is None:
        raise UsageError(
            f"'{source}': '{record.name}' has {record.scale.size} scales, but is no weight with a known axis"
        )
    scale, zero_point = _scales(record), record.zero_point
    granularity: Granularity = PerTensor()
    if record.granularity == "channel":
        granularity = PerChannel(record.axis)
    else:
        assert record.block_size is not None
        granularity = PerBlock(record.axis, record.block_size)
        shape = value.const.shape if value.const is not None else ()
        full = tuple(-(-n // record.block_size) if i == record.axis else n for i, n in enumerate(shape))
        scale = np.broadcast_to(scale, full)
        zero_point = np.broadcast_to(zero_point if zero_point.ndim == len(full) else 0.0, full)
    return Encoding(spec.with_granularity(granularity), scale, zero_point)


def _scales(record: TensorRecord) -> np.ndarray:
    """The scales; of two-level blocks the products of both levels."""
    if record.block_scales is None:
        return record.scale
    channel = 1 if record.axis == 0 else 0
    shape = [-1 if axis == channel else 1 for axis in range(record.block_scales.ndim)]
    return np.asarray(record.block_scales * record.scale.reshape(shape))
