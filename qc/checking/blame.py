"""The ops for which a device that takes each of them gives a model up as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto

from qc.passes import Progress
from qc.runtime.devices.device import Device
from qc.runtime.devices.refused_part import MOST_COMPILATIONS, RefusedPart
from qc.runtime.protos.wiring import Node, all_nodes

from .results import CheckedOp

_FEW = 4  # ops that are named, and refused, together


@dataclass(frozen=True)
class Blame:
    """What of a model is at fault.

    Attributes:
        labels: the ops of the smallest part that is refused alone; none if they are many, or all.
        failure: why the device gives it up, and the model, in its own words.
        sentence: both, for people.
    """

    labels: tuple[str, ...]
    failure: str
    sentence: str

    @classmethod
    def find(
        cls, model: ModelProto, failure: str, device: Device, base_dir: Path | None, progress: Progress
    ) -> Blame:
        """Offers parts of the model to the device until a small one is refused."""
        task = progress.start("looking for the op at fault", MOST_COMPILATIONS)
        try:
            part = RefusedPart(model, failure, device, base_dir=base_dir, on_step=task.advance).search()
        finally:
            task.finish()
        outputs = {name for op in part.ops for name in op.output if name}
        main = (node for node in all_nodes(model.graph) if node.graph.owner is None)
        labels = tuple(node.label for node in main if _makes(node, outputs))
        few = part.is_smaller and len(labels) <= _FEW
        fault = _fault(labels) if part.is_smaller else "no part of it is refused alone"
        return cls(labels if few else (), failure, f"{failure.rstrip('.')}; {fault}")

    def of(self, op: CheckedOp) -> CheckedOp:
        """The op, refused if it is at fault; the rule that it breaks already may be the reason."""
        if op.name not in self.labels:
            return op
        others = " and ".join(label for label in self.labels if label != op.name)
        why = f"{self.failure.rstrip('.')}, for this op {f'with {others}' if others else 'alone'}"
        if op.rule:
            return replace(op, runs="refused", why=f"{why}; {op.why}")
        return replace(op, runs="refused", rule="not compiled", why=why)


def _makes(node: Node, names: set[str]) -> bool:
    return not names.isdisjoint(node.proto.output)


def _fault(labels: tuple[str, ...]) -> str:
    """What is refused, without the rest of the model."""
    if len(labels) == 1:
        return f"at fault is {labels[0]}, which is refused alone"
    if len(labels) <= _FEW:
        return f"at fault are {', '.join(labels[:-1])} and {labels[-1]}, which are refused together"
    return f"the smallest part that was refused alone are the {len(labels)} ops {labels[0]} to {labels[-1]}"
