"""Scores of sessions made from data, and simulations of which only some quantizers are on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..defs import CallbackFunc
from ..errors import ArgumentError
from ..feeds import feed_of

if TYPE_CHECKING:
    from ..quantsim import QuantizationSimModel


class EvalCallbackFactory:
    """Makes scores of sessions from data.

    Args:
        data_loader: batches.
        forward_fn: runs a session on a batch; default: the first output.
    """

    _DEFAULT_SQNR_NUM_SAMPLES = 128

    def __init__(
        self, data_loader: Iterable[Any], forward_fn: Callable[[Any, Any], np.ndarray] | None = None
    ) -> None:
        self._data_loader, self._forward_fn = data_loader, forward_fn

    def sqnr(self, sim: QuantizationSimModel, num_samples: int = _DEFAULT_SQNR_NUM_SAMPLES) -> CallbackFunc:
        """The ratio of signal to noise beside the float model, on so many batches at most, in dB."""

        def score(session: Any, _: Any) -> float:
            batches = list(islice(self._data_loader, num_samples))
            found = [self._forward(sim, session, batch) for batch in batches]
            with only(sim, []):
                exact = [self._forward(sim, sim.session, batch) for batch in batches]
            ratios = [_compute_sqnr(*pair) for pair in zip(exact, found, strict=True)]
            return float(10 * np.log10(np.mean(ratios)))

        return CallbackFunc(score)

    def _forward(self, sim: QuantizationSimModel, session: Any, batch: Any) -> np.ndarray:
        if self._forward_fn is not None:
            return self._forward_fn(session, batch)
        return np.asarray(session.run(None, dict(feed_of(sim._ir.origin, batch)))[0])


def _compute_sqnr(orig_tensor: np.ndarray, noisy_tensor: np.ndarray) -> float:
    """The mean square of a signal over that of the noise, which counts as 0.0001 more."""
    noise = np.square(np.asarray(orig_tensor) - noisy_tensor).mean()
    return float(np.square(orig_tensor).mean() / (noise + 0.0001))


def score_of(session: Any, callback: Callable[[Any], float], of: str) -> float:
    """What a callback scores a session.

    Args:
        of: what is scored, in words.

    Raises:
        UsageError: that is no number, and cannot be compared with others.
    """
    score = float(callback(session))
    if math.isnan(score):
        raise ArgumentError(
            f"the score of {of} is NaN, which cannot be compared; let the callback return a number"
        )
    return score


@contextmanager
def only(sim: QuantizationSimModel, names: Iterable[str]) -> Iterator[None]:
    """Turns all quantizers off but those of some tensors, inside of it."""
    kept = {id(sim.qc_quantize_op_dict[name]) for name in names}
    others = {id(one): one for one in sim.qc_quantize_op_dict.values() if one.enabled and id(one) not in kept}
    for one in others.values():
        one.enabled = False
    try:
        yield
    finally:
        for one in others.values():
            one.enabled = True
