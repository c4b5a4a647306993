"""Regions, quantizers and the reasons why tensors stay float, as lines behind the graphs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from ..graph import Graph, Op, Region
from ..model import Model
from ..quant.spec import Quantizer
from ..quant_table import Site
from .runs import runs_text
from .scope import Scope
from .tensors import TensorPrinter
from .value_types import tensor_type, type_text
from .words import quoted, worded

_INLINE = 4096  # scales of one quantizer


class QuantizationPrinter:
    """Prints what lies beside the graphs of a model.

    Args:
        scopes: the names in all graphs, in the order in which these were printed.
        tensors: writes the scales and zero points of quantizers that have very many.
    """

    def __init__(self, model: Model, scopes: dict[Graph, Scope], tensors: TensorPrinter) -> None:
        self._model = model
        self._scopes = scopes
        self._tensors = tensors

    def lines(self) -> Iterator[str]:
        """Regions, quantizers, and reasons."""
        table = self._model.quant
        yield from map(self._region, self._model.regions)
        quantizers = table.quantizers()
        yield from map(self._quantizer, quantizers)
        placed = [table.get(site) for site in table.sites()]
        if placed != [quantizer for quantizer in quantizers for _ in table.sites_of(quantizer)]:
            ids = [quantizer.id for quantizer in placed if quantizer is not None]
            yield f"placed {runs_text([f'q{id}' for id in ids], ids)}"
        if table.scheme:
            yield f"scheme {quoted(table.scheme)}"
        for scope in self._scopes.values():
            for value in scope.order.values():
                reason = table.why_not(value)
                if reason is not None:
                    yield f"float {scope.name(value)}{scope.path}: {quoted(reason)}"

    def _region(self, region: Region) -> str:
        scope = self._scopes[region.graph]
        present = ((key, value) for key, value in region.captures.items() if value in region.graph)
        captures = ", ".join(f"{worded(key)}={scope.name(value)}" for key, value in present)
        ops = ", ".join(self._op(op) for op in region.ops)
        return f"region {worded(region.name)}{f'({captures})' if captures else ''}{scope.path}: {ops}"

    def _op(self, op: Op) -> str:
        return self._scopes[op.graph].op(op) if op in op.graph else f"op of {quoted(op.name)}"

    def _site(self, site: Site) -> str:
        scope = self._scopes[site.value.graph]
        use = f" into {self._op(site.op)}[{site.port}]" if site.op is not None else ""
        return f"{scope.name(site.value)}{use}{scope.path}"

    def _quantizer(self, quantizer: Quantizer) -> str:
        sites = ", ".join(map(self._site, self._model.quant.sites_of(quantizer)))
        numbers = f" {self._encoding(quantizer)}" if quantizer.encoding is not None else ""
        state = quantizer.state.value
        return f"quantizer q{quantizer.id} on {sites}: {quantizer.spec} {state}{numbers}"

    def _encoding(self, quantizer: Quantizer) -> str:
        encoding = quantizer.encoding
        assert encoding is not None
        zeros = encoding.zero_point
        if zeros.size and (zeros == zeros.flat[0]).all():
            zeros = zeros.flat[0]
        scale = self._numbers(encoding.scale, f"scale of q{quantizer.id}")
        text = f"scale={scale} zero_point={self._numbers(zeros, f'zero point of q{quantizer.id}')}"
        if quantizer.codes is not None:
            text += f" codes={self._numbers(quantizer.codes, f'codes of q{quantizer.id}')}"
        return text

    def _numbers(self, array: np.ndarray, key: str) -> str:
        tensor = numpy_helper.from_array(np.asarray(array, order="C"))
        data = self._tensors.text(tensor, key, _INLINE)
        if data and array.ndim < 2:
            return data
        return f"{type_text(tensor_type(tensor))}{' ' if data else ''}{data}"
