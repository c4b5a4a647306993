"""AdaRound: codes of weights that are learned; ``round-weights`` by AIMET-ONNX's names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.passes.optimize.layers.layer import layers_of
from qc.passes.optimize.round_weights import RoundWeights

from ..defs import QuantScheme, qtype
from ..errors import ArgumentError
from ..feeds import feeds_of
from ..quantsim import QuantizationSimModel
from .utils import AdaroundSupportedModules

__all__ = ["Adaround", "AdaroundParameters", "AdaroundSupportedModules", "apply_adaround"]

# Steps that see all the data; three times as many change the error of a layer by 2 %.
_ENOUGH = 1000


def apply_adaround(
    sim: QuantizationSimModel,
    inputs: Iterable[Any],
    num_iterations: int = 10000,
    nodes_to_include: Collection[str] | None = None,
    *,
    node_names_to_optimize: Collection[str] | None = None,
) -> None:
    """Learns for each number of a weight whether it is rounded up or down; grids and codes are frozen.

    Quantizers without numbers get some from the same data; those of activations give them up again. Precision
    may be set before or after: what is set for other tensors changes nothing about the codes.

    Args:
        inputs: feeds, or arrays for a model with one input.
        num_iterations: how many steps to learn for; each sees all data, and 1,000 are taken at most.
        nodes_to_include: names of the nodes whose weights are learned; default: all. Products of
            two tensors are left out.
        node_names_to_optimize: the older name of that.

    Raises:
        UsageError: there is no layer of such a name, or both names are given.
        DataError: there is no data, or it does not fit the model.
    """
    if nodes_to_include is not None and node_names_to_optimize is not None:
        raise ArgumentError("nodes_to_include and node_names_to_optimize are one; give the first alone")
    named = nodes_to_include if nodes_to_include is not None else node_names_to_optimize
    if named is None:
        _learn(sim, inputs, num_iterations, ())
    elif names := _with_weights(sim, named):
        _learn(sim, inputs, num_iterations, names)


def _with_weights(sim: QuantizationSimModel, names: Collection[str]) -> tuple[str, ...]:
    """The given names but those of products of two tensors, and the like, which have no weight to learn."""
    layers = {layer.op.name for layer in layers_of(sim._ir)}
    products = (op.name for op in sim.connected_graph.ordered_ops if op.type in AdaroundSupportedModules)
    return tuple(sorted(set(names) - {name for name in products if name not in layers}))


def _learn(
    sim: QuantizationSimModel,
    inputs: Iterable[Any],
    iterations: int,
    names: tuple[str, ...],
    **regularization: Any,
) -> None:
    feeds = feeds_of(sim.model.model, inputs)
    step = RoundWeights(
        method="adaround",
        scales=False,  # AdaRound rounds on the grid that there is
        iterations=min(iterations, _ENOUGH),
        samples=max(feeds.length or 0, 1),
        only=names,
        **regularization,
    )
    sim._settle_weights(step, feeds, names)


@dataclass(frozen=True)
class AdaroundParameters:
    """What :class:`Adaround` took before there were simulations to give it.

    Attributes:
        data_loader: feeds, or arrays for a model with one input.
        num_batches: how many of them to look at.
        default_num_iterations: how many steps to learn for; default: 10,000, or 15,000 below 8 bits.
        default_reg_param, default_beta_range, default_warm_start: of AdaRound's regularization.
        forward_fn, forward_pass_callback_args: not needed.
    """

    data_loader: Collection[Any]
    num_batches: int
    default_num_iterations: int | None = None
    default_reg_param: float = 0.01
    default_beta_range: tuple[float, float] = (20, 2)
    default_warm_start: float = 0.2
    forward_fn: Callable[..., Any] | None = None
    forward_pass_callback_args: Any = None

    def __post_init__(self) -> None:
        if len(self.data_loader) < self.num_batches:
            raise ArgumentError(f"there are {len(self.data_loader)} batches, fewer than {self.num_batches}")


class Adaround:
    """AdaRound as a class; what it does is :func:`apply_adaround`."""

    @classmethod
    def apply_adaround(cls, *args: Any, **settings: Any) -> ONNXModel | None:
        """:func:`apply_adaround`, or, with :class:`AdaroundParameters`, the form of older scripts.

        That is ``(model, params, path, filename_prefix, default_param_bw=4, param_bw_override_list=None,
        ignore_quant_ops_list=None, default_quant_scheme=..., default_config_file=None)``, which gives the
        model with rounded weights, and writes the grids of its parameters to ``PREFIX.encodings``.
        """
        if isinstance(settings.get("params", args[1] if len(args) > 1 else None), AdaroundParameters):
            return _of_model(*args, **settings)
        apply_adaround(*args, **settings)
        return None


def _of_model(
    model: ModelProto | ONNXModel,
    params: AdaroundParameters,
    path: str | Path,
    filename_prefix: str,
    default_param_bw: int = 4,
    param_bw_override_list: Sequence[tuple[str, int]] | None = None,
    ignore_quant_ops_list: Sequence[str] | None = None,
    default_quant_scheme: QuantScheme = QuantScheme.post_training_tf_enhanced,
    default_config_file: str | None = None,
    use_cuda: bool = True,
    device: int = 0,
    user_onnx_libs: Sequence[str] | None = None,
) -> ONNXModel:
    """A model with weights that are rounded, in float; the other tensors are not quantized meanwhile."""
    sim = QuantizationSimModel(
        model,
        param_type=qtype.int(default_param_bw),
        quant_scheme=default_quant_scheme,
        config_file=default_config_file,
        user_onnx_libs=user_onnx_libs,
    )
    for name, bits in param_bw_override_list or ():
        sim._known(name).set_bitwidth(bits)
    for name in (*sim.activation_names, *(ignore_quant_ops_list or ())):
        sim._known(name).enabled = False
    batches = list(params.data_loader)[: params.num_batches]
    parameters = [op for op in sim.get_all_quantizers()[0] if op.enabled]
    lowest = min((op.bitwidth for op in parameters), default=8)
    _learn(
        sim,
        batches,
        params.default_num_iterations or (15000 if lowest < 8 else 10000),
        (),
        regularization=params.default_reg_param,
        beta=params.default_beta_range,
        warm_start=params.default_warm_start,
    )
    with warnings.catch_warnings():  # what these scripts read has always been of this version
        warnings.simplefilter("ignore", DeprecationWarning)
        sim.export(path, filename_prefix, export_model=False, encoding_version="0.6.1")
    return ONNXModel(sim._float_model())
