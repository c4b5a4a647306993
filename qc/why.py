"""Why a tensor is quantized, or is not: everything that was decided about it, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qc.ir.facts.scopes import no_such_tensor, scopes_of, tensor_of_op, tensors_by_name
from qc.ir.graph import Op, Value
from qc.ir.journal import Remark
from qc.ir.model import Model
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site


@dataclass(frozen=True)
class Story:
    """What there is to tell about a tensor.

    Attributes:
        tensor: its name.
        values: the values of that name; none if a pass removed it. More than one only in different scopes.
        sites: its quantized sites with their quantizers.
        why_not: why it stays float, for each value without a quantizer.
        tied: the sites of other tensors that hold the same quantizers.
        removed_by: the action that removed it, if there is no value of that name any more.
        successor: what is read in its place then, if there is such a value.
        remarks: what was done and decided about it, and about the op and the region that make it, in order.
    """

    tensor: str
    values: tuple[Value, ...]
    sites: tuple[tuple[Site, Quantizer], ...]
    why_not: tuple[str, ...]
    tied: tuple[Site, ...]
    removed_by: Remark | None
    successor: Value | None
    remarks: tuple[Remark, ...]


def story_of(model: Model, tensor: str) -> Story:
    """Collects the story of a tensor of a compiled model.

    Args:
        tensor: its name in the compiled or, if a pass removed it, in the original model; for one inside a
            body whose name other graphs use as well, also its path, see
            :func:`~qc.ir.facts.scopes.distinct_names`. The name of an op stands for its first result, unless
            a tensor has it.

    Raises:
        UsageError: the name stands for no tensor, with the most similar one.
    """
    known = tensors_by_name(model)
    if tensor not in known and tensor not in model.journal.removed:
        tensor = tensor_of_op(model, tensor) or tensor
    values = tuple(value for value in known.values() if value.name == tensor)
    if not values and tensor in known:
        values = (known[tensor],)
    removed_by = None if values else model.journal.removed.get(tensor)
    if not values and removed_by is None:
        raise no_such_tensor(tensor, [*known, *model.journal.removed])
    scopes = scopes_of(model.graph)
    aliases = tuple(alias for value in values for alias in scopes.aliases(value))
    sites = tuple(_sites(model, aliases))
    return Story(
        tensor,
        values,
        sites,
        why_not=tuple(filter(None, (model.quant.why_not(value) for value in values))),
        tied=tuple(_tied(model, sites)),
        removed_by=removed_by,
        successor=None if removed_by is None else _successor(model, tensor),
        remarks=tuple(_remarks(model, aliases)) if values else (),
    )


def _successor(model: Model, removed: str) -> Value | None:
    """What is read in place of a removed value; it may itself have been replaced again and again."""
    seen = set()
    value = model.journal.successors.get(removed)
    while value is not None and value not in value.graph and value not in seen:
        seen.add(value)
        value = model.journal.successors.get(value.name)
    return None if value in seen else value


def _remarks(model: Model, values: tuple[Value, ...]) -> Iterator[Remark]:
    about = {part for value in values for part in _parts(value)}
    subjects = {str(Site(value)) for value in values}  # another value may have had the name before
    for remark in model.journal.remarks:
        if remark.about in about or remark.subject in subjects:
            yield remark


def _parts(value: Value) -> Iterator[Value | Op]:
    """The value, the op that makes it, and that of its region whose result it is."""
    yield value
    producer = value.producer
    if producer is not None:
        yield producer
        region = producer.region
        if region is not None:
            yield region.root


def _sites(model: Model, values: tuple[Value, ...]) -> Iterator[tuple[Site, Quantizer]]:
    for value in values:
        for site in model.quant.sites_on(value):
            quantizer = model.quant.get(site)
            if quantizer is not None:
                yield site, quantizer


def _tied(model: Model, sites: tuple[tuple[Site, Quantizer], ...]) -> Iterator[Site]:
    own = {site for site, _ in sites}
    for quantizer in dict.fromkeys(quantizer for _, quantizer in sites):
        yield from (site for site in model.quant.sites_of(quantizer) if site not in own)
