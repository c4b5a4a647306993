"""What the tensors of the float model take on data."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from qc.ir.executor import Executor, Feed, Observation, Statistics
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.float_model import lower_float
from qc.ir.onnx.stored_types import computed_names

Asked = tuple[Value, Observation]


def observed_in_float(
    model: Model, asked: Collection[Asked], feeds: Iterable[Feed], executor: Executor
) -> dict[Asked, Statistics]:
    """The statistics of tensors as the graph computes them, without any quantizer, over all feeds.

    Raises:
        DataError: a tensor becomes NaN or infinite.
    """
    exact = lower_float(model)
    computed = computed_names(model, exact)
    names = {value: computed.get(value.name, value.name) for value, _ in asked}
    requests: dict[str, list[Observation]] = {}
    for value, observation in asked:
        requests.setdefault(names[value], []).append(observation)
    found = executor.observe(exact, requests, feeds, base_dir=model.base_dir)
    return {(value, observation): found[names[value], observation] for value, observation in asked}
