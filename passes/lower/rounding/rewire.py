"""Puts a rounded version of each quantized tensor in front of its readers."""

from __future__ import annotations

from collections.abc import Callable

from qc.ir.errors import UsageError
from qc.ir.graph import Use, Value
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, Quantizer
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

DOMAIN = "qc"

# Makes a rounded version of a value on the grid of a quantizer and returns it, in the graph of that value; or
# returns the value itself, whose readers then read it as it is.
Round = Callable[[Value, Quantizer], Value]


def rewire(model: Model, rewriter: Rewriter, round_value: Round) -> dict[Value, Quantizer]:
    """Lets every reader of a quantized site read what ``round_value`` makes of the value there.

    The readers of a value site, the graph output and the bodies that capture it included, share one rounded
    value; of the remaining uses, those that hold the same quantizer in one graph share one. A use of a value
    that has a value site as well reads the value rounded twice.

    Returns:
        The rounded values of the value sites, with their quantizers.

    Raises:
        UsageError: a quantizer has no encoding yet.
    """
    by_value: dict[Value, list[Site]] = {}
    for site in model.quant.sites():
        by_value.setdefault(site.value, []).append(site)
    table = {
        site: quantizer for site in model.quant.sites() if (quantizer := model.quant.get(site)) is not None
    }
    made: dict[Value, Quantizer] = {}
    for value, sites in by_value.items():
        source = value
        if Site(value) in table:
            source = _round_for_all(rewriter, value, table[Site(value)], round_value)
            made[source] = table[Site(value)]
        uses: dict[Quantizer, list[Site]] = {}
        for site in sites:
            if site.op is not None:
                uses.setdefault(table[site], []).append(site)
        for quantizer, group in uses.items():
            rounded = round_value(source, quantizer)
            for site in group:
                assert site.op is not None and site.port is not None
                rewriter.set_input(site.op, site.port, rounded)
        rewriter.drop_unread(value)
    return made


def _round_for_all(rewriter: Rewriter, value: Value, quantizer: Quantizer, round_value: Round) -> Value:
    readers = {(use.op, use.port) for use in value.uses}

    def was_there(use: Use) -> bool:
        return (use.op, use.port) in readers

    rounded = round_value(value, quantizer)
    if rounded is not value:
        rewriter.replace_uses(value, rounded, where=was_there)
    return rounded


def numbers(quantizer: Quantizer, value: Value) -> Encoding:
    """The encoding of a quantizer.

    Raises:
        UsageError: it has none, or one that only constants can have.
    """
    if quantizer.encoding is None:
        raise UsageError(f"'{value.name}' has no encoding yet; 'calibrate' belongs behind its placement")
    if quantizer.spec.shifted and value.original.const is None:
        raise UsageError(f"'{value.name}' is computed; only a constant can have the grid {quantizer.spec}")
    return quantizer.encoding
