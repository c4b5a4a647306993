"""How the regions of two models differ."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.graph import Region

from .pairs import ModelPair
from .result import ADDED, CHANGED, REGIONS, REMOVED, Difference


def region_differences(comparison: ModelPair) -> Iterator[Difference]:
    """Regions that were added, removed, or hold other ops; a region is known by the op of its result."""
    partners = comparison.alignment.ops
    found = {region.root: region for region in comparison.b.model.regions}
    for region in comparison.a.model.regions:
        root = partners.get(region.root)
        other = found.pop(root, None) if root is not None else None
        if other is None:
            yield Difference(REMOVED, REGIONS, *_told(region))
        elif other.name != region.name:
            yield Difference(CHANGED, REGIONS, _told(region)[0], f"is {other.name}")
        elif {partners.get(op) for op in region.ops} != set(other.ops):
            detail = f"holds {len(other.ops)} ops, held {len(region.ops)}"
            yield Difference(CHANGED, REGIONS, _told(region)[0], detail)
    for region in found.values():
        yield Difference(ADDED, REGIONS, *_told(region))


def _told(region: Region) -> tuple[str, str]:
    return f"{region.name} at {region.root.label}", f"{len(region.ops)} op{'s' * (len(region.ops) > 1)}"
