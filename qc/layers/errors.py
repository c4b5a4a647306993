"""Where the error of a quantized model comes from: the error of every quantized tensor, two ways.

All errors are signal to quantization noise ratios (SQNR, in dB) over all feeds, against the float model that
was quantized (after the passes that rewrite it, such as folding). The less, the worse.

*In isolation* is what the quantizer of one tensor does by itself, everything else in float:

* for a tensor that the network computes, or an input: the tensor, against itself rounded to its grid;
* for a constant, such as a weight: the first output of the op that reads it, against the same output with
  this one constant rounded and nothing else.

*Cumulative* is what has come together at that place with all quantizers on, in the simulation:

* for a tensor that the network computes, or an input: the tensor after it was rounded;
* for a constant: the first output of the op that reads it, before it is rounded itself.

One run of the float model gives all errors in isolation: rounding a tensor needs no run, and for each
constant the model gets one more copy of the op that reads it. Feeds are streamed, so memory does not grow
with their number.

Tensors inside the bodies of If, Loop and Scan are left out. So are those that an op made by only moving
numbers of another one that is rounded to the same grid, such as the result of a Flatten: they lose no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from qc.compiler.compiled import Compiled
from qc.ir.base.shown import Shown
from qc.ir.errors import UsageError
from qc.ir.executor import Feed
from qc.ir.quant import arithmetic
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Quantizer
from qc.rendering.words import count
from qc.runtime import Data, OpenModel
from qc.runtime.evaluation.judge import judge
from qc.runtime.metrics.metric import Sample
from qc.runtime.metrics.sums import Sums
from qc.runtime.native import kernels

from .places import Place, SimulatedTensors, find_places

_KERNEL_DTYPES = ("float32", "float16", "bfloat16")
_KERNEL_BITS = 16


@dataclass(frozen=True)
class LayerError:
    """The error of one quantized tensor; of a constant, at one op that reads it.

    Attributes:
        tensor: its name.
        is_constant: whether it is a constant, such as a weight.
        op: the op that makes it, or that reads the constant, as messages name it; None for a graph input.
        op_type: its type; None likewise.
        spec: the format it is quantized to, in words.
        quantizer: the number of the quantizer.
        isolated_db: SQNR in isolation, in dB; inf where nothing is lost.
        cumulative_db: SQNR with all quantizers on, in dB; None if the simulation has no such tensor.
    """

    tensor: str
    is_constant: bool
    op: str | None
    op_type: str | None
    spec: str
    quantizer: int
    isolated_db: float
    cumulative_db: float | None


@dataclass(frozen=True)
class LayerErrors(Shown):
    """The result of :func:`layer_errors`.

    Attributes:
        feeds: how many feeds they are from; 0 if only bodies have quantized tensors.
        layers: in the order of the graph; a constant comes before the tensors that its op makes.
        inside_bodies: how many quantized tensors are left out, as they are inside an If, Loop or Scan.
        not_computed: how many are left out as they were empty on all feeds.
    """

    feeds: int
    layers: tuple[LayerError, ...]
    inside_bodies: int
    not_computed: int

    @property
    def left_out(self) -> str:
        """What is left out, in words; empty if nothing is."""
        parts = [
            f"{count(number, 'quantized tensor')} {where}"
            for number, where in (
                (self.inside_bodies, "inside If, Loop or Scan"),
                (self.not_computed, "that no sample reached"),
            )
            if number
        ]
        return " and ".join(parts)

    def worst_first(self) -> list[LayerError]:
        """By the error in isolation, those that lose nothing last; equal ones in the order of the graph."""
        return sorted(self.layers, key=lambda layer: layer.isolated_db)


def layer_errors(
    compiled: Compiled,
    data: Data,
    *,
    threads: int | None = None,
    device: str = "auto",
    track: Callable[[Iterable[Feed]], Iterable[Feed]] = iter,
) -> LayerErrors:
    """Measures the error of every quantized tensor of the main graph; the text of this module says how.

    Args:
        compiled: the result of a compilation, with quantizers that have numbers.
        data: what to measure on; it is read once.
        threads: threads within an op; None for one per physical core.
        device: where the models run, as for :func:`qc.compile`; errors are summed up on the CPU.
        track: gives back the feeds, one after the other, to show progress.

    Raises:
        UsageError: nothing is quantized, a quantizer has no numbers, or there is no such device.
        QcError: CUDA is asked for but cannot be used.
        ModelError: a model does not run.
        DataError: the data is empty or does not fit the model.
    """
    simulation = SimulatedTensors(compiled.simulation)
    model = ModelProto()
    model.CopyFrom(compiled.float_model)
    places, inside = find_places(compiled.ir, model, simulation)
    if not places and not inside:
        raise UsageError("no tensor is quantized: there are no errors to measure")
    if not places:
        return LayerErrors(0, (), inside, 0)
    settings: dict[str, Any] = {"base_dir": compiled.ir.base_dir, "threads": threads, "provider": device}
    exact = dict.fromkeys(name for place in places for name in (place.reference, place.isolated) if name)
    rounded = dict.fromkeys(place.simulated for place in places if place.simulated is not None)
    floats = OpenModel(model, outputs=list(exact), **settings)
    simulated = OpenModel(simulation.model, outputs=list(rounded), **settings)
    tally = _PlaceErrors(places, simulation.rounding)
    feeds = judge(floats, [(simulated, [tally])], track(data))
    layers = tally.value()
    return LayerErrors(feeds, layers, inside, len(places) - len(layers))


class _PlaceErrors:
    """The errors at all places, as a tally of the simulation against the probing float model."""

    def __init__(self, places: Sequence[Place], rounding: Rounding) -> None:
        self._places, self._rounding = places, rounding
        self._alone = [Sums() for _ in places]
        # Constants that one op reads have the same error together.
        self._together = {(place.reference, place.simulated): Sums() for place in places}

    def add(self, sample: Sample) -> None:
        for place, alone in zip(self._places, self._alone, strict=True):
            x, where = sample.reference[place.reference], f"'{place.reference}' on feed {sample.index}"
            if place.isolated is not None:
                alone.add(x, sample.reference[place.isolated], where)
            else:
                alone.add_array(x, _round(x, place.quantizer, self._rounding))
        for (reference, simulated), together in self._together.items():
            if simulated is not None:
                where = f"'{reference}' on feed {sample.index}"
                together.add(sample.reference[reference], sample.outputs[simulated], where)

    def value(self) -> tuple[LayerError, ...]:
        return tuple(
            _error(place, alone, self._together[place.reference, place.simulated])
            for place, alone in zip(self._places, self._alone, strict=True)
            if alone.elements
        )


def _round(array: np.ndarray, quantizer: Quantizer, rounding: Rounding) -> np.ndarray:
    """By the kernel where it knows the numbers; both give the same."""
    format, encoding = quantizer.spec.format, quantizer.encoding
    assert encoding is not None
    is_wide = isinstance(format, IntFormat) and format.bits > _KERNEL_BITS
    if quantizer.codes is not None or is_wide or array.dtype.name not in _KERNEL_DTYPES:
        return arithmetic.rounded(array, quantizer, rounding)
    return kernels.fake_quantize(array, encoding, rounding)


def _error(place: Place, alone: Sums, together: Sums) -> LayerError:
    return LayerError(
        place.value.name,
        place.value.const is not None,
        place.op.label if place.op is not None else None,
        place.op.op_type if place.op is not None else None,
        str(place.quantizer.spec),
        place.quantizer.id,
        alone.sqnr_db,
        together.sqnr_db if together.elements else None,
    )
