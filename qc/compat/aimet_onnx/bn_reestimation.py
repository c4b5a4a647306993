"""BatchNormalization with the statistics of the quantized model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from qc.passes.optimize.reestimate_batch_norms import ReestimateBatchNorms

from .errors import ArgumentError
from .feeds import feeds_of
from .quantsim import QuantizationSimModel


def reestimate_bn_stats(
    sim: QuantizationSimModel, dataloader: Collection[Any], num_batches: int = 100
) -> None:
    """Gives every BatchNormalization of a calibrated simulation the statistics of its quantized input.

    See the pass ``reestimate-batch-norms``.

    Args:
        dataloader: feeds, or arrays for a model with one input.
        num_batches: how many of them to look at, at most.

    Raises:
        UsageError: the simulation is not calibrated.
    """
    if any(op.enabled and not op.is_initialized() for op in sim.qc_quantize_op_dict.values()):
        raise ArgumentError("this measures in a calibrated simulation; call compute_encodings before")
    feeds = feeds_of(sim.model.model, dataloader, min(num_batches, len(dataloader)))
    sim._run(ReestimateBatchNorms(samples=num_batches), data=feeds)
