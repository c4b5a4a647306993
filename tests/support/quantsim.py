"""Placing quantizers by a configuration, and asking what was placed."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.spec import PerChannel, Quantizer
from qc.ir.quant_table import Site

from .graph_text import build_model
from .models import parse
from .pipelines import apply
from .placement import value


def configured(model: str | ModelProto, config: str | Path = "htp_v73", options: str = "") -> Model:
    """The model after ``configure-quantizers``."""
    proto = parse(model) if isinstance(model, str) else model
    return apply(f"configure-quantizers{{config={str(config)!r} {options}}}", proto)[0]


def built(body: str, config: str = "htp_v73", options: str = "", **parts: object) -> Model:
    """The model of nodes, see :func:`support.graph_text.build_model`, after ``configure-quantizers``."""
    return configured(build_model(body, **parts), config, options)  # type: ignore[arg-type]


def on(model: Model) -> set[str]:
    """The names of the tensors of the main graph that have a quantizer for all their readers."""
    return {site.value.name for site in model.quant.sites() if site.op is None}


def grid(model: Model, name: str) -> Quantizer:
    """The quantizer of a tensor; it must have one."""
    found = model.quant.get(Site(value(model, name)))
    assert found is not None, f"'{name}' has no quantizer: {model.quant.why_not(value(model, name))}"
    return found


def bits(model: Model, name: str) -> int:
    """The width of the codes of a tensor."""
    return grid(model, name).spec.format.bits


def axis(model: Model, name: str) -> int | None:
    """The channel axis of a tensor's scales; None for one scale."""
    granularity = grid(model, name).spec.granularity
    return granularity.axis if isinstance(granularity, PerChannel) else None


def tied(model: Model, *names: str) -> bool:
    """Whether tensors share one quantizer."""
    return len({grid(model, name).id for name in names}) == 1


def remarks(model: Model, name: str) -> str:
    """All that the journal says about a tensor."""
    about: Value = value(model, name)
    return "\n".join(str(remark) for remark in model.journal.remarks if remark.about is about)


def as_aimet_writes(content: object) -> object:
    """A configuration with its booleans as text, as AIMET's files have them."""
    if isinstance(content, dict):
        return {key: as_aimet_writes(item) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [as_aimet_writes(item) for item in content]
    return str(content) if isinstance(content, bool) else content
