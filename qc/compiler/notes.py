"""What the user is told of a compilation, and what is refused at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from qc.ir.errors import ModelError, listed
from qc.ir.executor import Executor
from qc.ir.facts.constants import FREE_INITIALIZERS
from qc.ir.model import Model
from qc.passes import Pass, PassContext, Pipeline
from qc.passes.conformance import quantizes_weights_alone, violations
from qc.passes.framework.target import Target
from qc.passes.lower.qdq.onnx_grids import OLDEST_OPSET
from qc.passes.quantize.configure_quantizers import ConfigureQuantizers
from qc.passes.quantize.import_qdq import ImportQdq
from qc.passes.quantize.insert_quantizers import FLOAT, InsertQuantizers, refuse_quantized
from qc.passes.simplify.dequantize import Dequantize
from qc.runtime import Data, RecordedExecutor, Recorder
from qc.runtime.data.load import RANDOM_DATA
from qc.runtime.data.source import LABELS

from ..processor import saturates_here
from ..rendering.words import count
from .preprocessing import unlike_training

_NAMED = 12  # ops in a note
_NO_INTEGERS = (
    "no op runs in integers, and weights alone are stored so; 'qc why TENSOR' tells why of each, as where "
    "integers are slower"
)


def missing_samples(executor: Executor | None) -> list[str]:
    """A note on recorded statistics of one shard, or of some, of the data."""
    statistics = executor.recording if isinstance(executor, RecordedExecutor) else None
    if statistics is None or not statistics.missing_feeds:
        return []
    missing = count(statistics.missing_feeds, "sample")
    return [
        f"the statistics are of {count(len(statistics.feeds), 'sample')} and lack at least {missing} of the "
        "same data, as those of a shard do; 'qc merge-statistics' puts those of all shards together"
    ]


def of_samples(ir: Model, context: PassContext) -> list[str]:
    """Notes on samples, if they are not random: too few, or unlike what the model was trained on."""
    data, executor = context.data, context.executor
    if not isinstance(data, Data) or data.origin == RANDOM_DATA:
        return []
    usual = "100 to 500 samples are usual, and data that is not among these may lose more"
    why = context.little_data
    said = [f"there is little calibration data: {why}; {usual}"] if why else []
    shares_one_pass = isinstance(executor, Recorder) and executor.is_planned
    if isinstance(executor, RecordedExecutor) or shares_one_pass:
        return said
    return [*said, *unlike_training(ir.origin, ir.base_dir, data)]


def refuse_quantized_again(ir: Model, pipeline: Pipeline) -> None:
    """Raises ModelError, before there need be data, if a model that came quantized is to be so again."""
    steps = list(pipeline.passes())
    places = any(isinstance(step, InsertQuantizers | ConfigureQuantizers) for step in steps)
    if places and not any(isinstance(step, Dequantize | ImportQdq) for step in steps):
        refuse_quantized(ir)


@contextmanager
def naming_lengths(fixed: Sequence[str]) -> Iterator[None]:
    """Lets what a runtime says of a model begin with the lengths that were given for good."""
    try:
        yield
    except ModelError as error:
        if not fixed or not str(error).startswith("ONNX Runtime "):
            raise
        given = " ".join(f"--fix-shape {one}" for one in fixed)
        raise ModelError(f"with {given} {error}; another length may do") from error


def of_another_opset(before: int, ir: Model, target: Target) -> list[str]:
    """A note on a model that was converted."""
    if ir.opset == before:
        return []
    if ir.opset < before:
        is_read = ir.opset <= target.models.latest_opset
        why = f"the latest that {target.name} reads" if is_read else "the first that has all of its ops"
    elif ir.opset > OLDEST_OPSET:
        why = f"which has the ops that {target.name} runs"
    else:
        why = "the first with quantize ops"
    return [f"the model was converted from opset {before} to {ir.opset}, {why}"]


def of_this_processor(ir: Model, target: Target) -> list[str]:
    """A note on sums of 8-bit products that saturate on this processor, and not on the one that was named."""
    if not target.without_vnni or not saturates_here(ir, target):
        return []
    return [
        "sums of 8-bit products saturate on this processor, which has no VNNI: outputs are worse here than "
        f"on one that has it, and '--target {target.without_vnni}' is for this one"
    ]


def of_target(ir: Model, target: Target, pipeline: Pipeline) -> list[str]:
    """Notes on what a target does not run as it was asked for."""
    return [
        *of_this_processor(ir, target),
        *_weights_alone(ir, target, pipeline),
        *_broken_rules(ir, target, pipeline),
    ]


def _weights_alone(ir: Model, target: Target, pipeline: Pipeline) -> list[str]:
    """A note on weights that are quantized beside float data, where integers were asked for or have to be."""
    if not quantizes_weights_alone(ir):
        return []
    if target.models.mixes_float:
        asked = any(_places_activations(step) for step in pipeline.passes())
        return [_NO_INTEGERS] if asked and not _are_recurrent(ir) else []
    return [
        f"weights alone are quantized, and {target.name} multiplies in integers only where data is quantized "
        "as well: a pipeline such as w8a8 or w4a8 does both"
    ]


def _are_recurrent(ir: Model) -> bool:
    """Whether quantized weights are those of recurrent ops, which round their data themselves."""
    uses = [use for site in ir.quant.sites() for use in site.value.original.uses]
    return any(use.op.is_type("GRU", "LSTM", "RNN") for use in uses)


def _broken_rules(ir: Model, target: Target, pipeline: Pipeline) -> list[str]:
    """A note on what the target cannot do with formats, granularities and shapes, if there is any such."""
    if not any(_places_activations(step) for step in pipeline.passes()):
        return []
    found = [one for one in violations(ir, target) if not one.is_placement]
    if not found:
        return []
    first = found[0]
    if first.rule == "static shapes":
        return [
            f"{target.name} takes no model with free dimensions, and would refuse the result: {first.text}"
        ]
    where = f"{first.op.label}: " if first.op is not None else ""
    others = [
        label for label in dict.fromkeys(one.op.label for one in found if one.op) if f"{label}: " != where
    ]
    named = f"; nor {listed(others, _NAMED)}" if others else ""
    more = ", which 'qc check' lists" if others[_NAMED:] else ""
    return [f"{target.name} does not run in integers what was asked for: {where}{first.text}{named}{more}"]


def _places_activations(step: Pass) -> bool:
    """Whether a pass quantizes what ops compute with; beside float data, all weights are just stored."""
    return isinstance(step, InsertQuantizers) and step.activation != FLOAT


def missing_lowering(artifacts: Collection[str]) -> list[str]:
    """A note on a pipeline that quantizes and makes nothing of it."""
    if artifacts:
        return []
    return ["the pipeline has no lowering pass: the result is the float model; add 'insert-qdq'"]


def lost_inputs(ir: Model) -> list[str]:
    """A note on inputs that had a default and were compiled as constants."""
    left = {value.name for value in ir.graph.inputs}
    lost = [info.name for info in ir.origin.graph.input if info.name not in left]
    if not lost or ir.origin.ir_version < FREE_INITIALIZERS:
        return []
    return [f"inputs with a default, such as '{lost[0]}', were compiled as constants ({len(lost)} in all)"]


def unused_data(data: object) -> list[str]:
    """Notes on what was given with data and counts for nothing: arrays that are no inputs, a layout."""
    if not isinstance(data, Data):
        return []
    said = []
    if names := [f"'{name}'" for name in data.unused if name not in LABELS]:
        said.append(f"the model has no input for {', '.join(names)} of the data, left out")
    if data.idle_layout is not None:
        said.append(f"layout {data.idle_layout} changed nothing: the arrays fit the model as they are")
    return said
