"""Tables of what a runtime takes, as files of targets hold them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.folders import ROOT

from qc.passes.framework.target import Target, load_target
from qc.passes.framework.target_support import OpSupport, Support
from qc.runtime.devices.known import DEVICES, Device, version_of

from .catalogue import SAMPLES
from .offers import Offer, accepted, offers

FOLDER = ROOT / "passes" / "targets" / "support"
RUNTIMES = ("openvino", "qnn-htp")
_TOGETHER = 64

_HEADER = """\
# Written by `make targets`: what {runtime} runs of models of one op between quantize and dequantize ops.
runtime = "{runtime}"
"""


def runtime_of(device: type[Device]) -> str:
    """The package of a device with its version."""
    return f"{device.package} {version_of(device)}"


def seen(target: Target, device: Device, chosen: Sequence[Offer]) -> dict[Offer, bool]:
    """What a runtime takes of some offers."""
    found: dict[Offer, bool] = {}
    for first in range(0, len(chosen), _TOGETHER):
        found |= accepted(chosen[first : first + _TOGETHER], device, target)
    return found


def table(target: Target, runtime: str, found: Mapping[Offer, bool]) -> Support:
    """The table of what was taken."""
    by_op: dict[str, list[Offer]] = defaultdict(list)
    for offer, taken in found.items():
        by_op[offer.op_type] += [offer] if taken else []
    return Support(runtime=runtime, ops={name: _of_op(target, name, by_op[name]) for name in sorted(by_op)})


def _of_op(target: Target, name: str, taken: Sequence[Offer]) -> OpSupport:
    sample = SAMPLES[name]
    usual = [offer for offer in taken if offer.rank == sample.rank]
    weights: dict[str, list[str]] = defaultdict(list)
    for offer in usual:
        if offer.weight and offer.data != "float16":
            weights[offer.data].append(offer.weight)
    return OpSupport(
        data=tuple(dict.fromkeys(offer.data for offer in usual)),
        ranks=tuple(dict.fromkeys(offer.rank for offer in taken if offer.data == target.activation.dtype)),
        weights={data: tuple(forms) for data, forms in weights.items()},
    )


def says(support: Support, offer: Offer) -> bool:
    """Whether a table says that an offer is taken."""
    op = support.ops[offer.op_type]
    if offer.rank != SAMPLES[offer.op_type].rank:
        return offer.rank in op.ranks
    if offer.weight and offer.data != "float16":
        return op.takes(offer.data, offer.weight)
    return offer.data in op.data


def text(support: Support) -> str:
    """The table as TOML."""
    lines = [_HEADER.format(runtime=support.runtime)]
    for name, op in support.ops.items():
        lines += [f"[ops.{name}]", f"data = {_list(op.data)}", f"ranks = {list(op.ranks)}"]
        lines += [f"weights.{data} = {_list(forms)}" for data, forms in op.weights.items()]
        lines.append("")
    return "\n".join(lines)


def _list(words: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def write(name: str, device: Device) -> Path:
    """Asks a runtime all, and writes the table of its target."""
    target = load_target(name)
    made = table(target, runtime_of(DEVICES[name]), seen(target, device, list(offers(target))))
    path = FOLDER / f"{name}.toml"
    path.write_text(text(made), encoding="utf-8")
    return path
