"""Writes ops that the target does not run, or runs slowly, in other ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from annotated_types import Ge
from onnx import TensorProto

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..framework.target import Target
from .decompositions import (
    all_axes,
    elementwise,
    fused,
    fused_attention,
    fused_norms,
    movement,
    normalization,
    places,
    sums,
)
from .decompositions.attention import attention
from .decompositions.builder import Builder, Writer, put_in_place
from .decompositions.dilation import dilated
from .decompositions.einsum import einsum
from .decompositions.factors import factors
from .decompositions.fourier import short_time, transform
from .decompositions.gemm import gemm
from .decompositions.grouped_attention import group_query_attention
from .decompositions.interpolation import resized
from .decompositions.pools import average
from .decompositions.recurrent import advice, unrolled
from .decompositions.rotary import fused_rotary_embedding, rotary_embedding
from .decompositions.scattered import scattered
from .decompositions.tangent import tangent

_BROADCASTS = 8  # the first opset whose elementwise ops all take inputs of several shapes
Known = Mapping[str, Callable[[Op], Writer | None]]
# What ONNX Runtime's optimizers make of several ops. It has no integers for that, or is no quicker than with
# what it makes of these ops when it loads a result.
_FUSED: Known = {
    "com.microsoft.Attention": fused_attention.projected_attention,
    "SimplifiedLayerNormalization": fused_norms.rms_norm,
    "com.microsoft.BiasGelu": fused.bias_gelu,
    "com.microsoft.EmbedLayerNormalization": fused_norms.embedding,
    "com.microsoft.FastGelu": fused.fast_gelu,
    "com.microsoft.FusedConv": fused.conv,
    "com.microsoft.FusedGemm": fused.gemm,
    "com.microsoft.FusedMatMul": fused.matmul,
    "com.microsoft.Gelu": fused.bias_gelu,
    "com.microsoft.GroupQueryAttention": group_query_attention,
    "com.microsoft.MultiHeadAttention": fused_attention.multi_head_attention,
    "com.microsoft.QuickGelu": fused.quick_gelu,
    "com.microsoft.SkipLayerNormalization": fused_norms.skip_layer_norm,
    "com.microsoft.SkipSimplifiedLayerNormalization": fused_norms.skip_rms_norm,
}
_IN_ALL_AXES: Known = {"Pad": all_axes.pad, "Resize": all_axes.resize}
_CPU = "CPUExecutionProvider"
_RUN_CACHES = (_CPU, "OpenVINOExecutionProvider")  # in one kernel, which puts what is new into its place
_DATA = {"com.microsoft.EmbedLayerNormalization": 2}  # the input that tells the type, if it is not the first
_OF_OTHERS = ("MatMul", "Tanh")  # which others become, so that they come last
_MOVED = {"GatherND", "Mod", "OneHot", "Pad", "ReverseSequence"}  # of any type
_WEIGHTED = {
    "Einsum",
    "MatMul",
    "com.microsoft.Attention",
    "com.microsoft.EmbedLayerNormalization",
    "com.microsoft.FusedConv",
    "com.microsoft.FusedGemm",
    "com.microsoft.FusedMatMul",
}


@dataclass(frozen=True)
class DecomposeOps(Pass):
    """Writes ops in other ops where the target asks for it (``decompose``), as it has no integers for them.

    * Products: an Attention (of opset 23 and newer) is two MatMuls and a Softmax, an Einsum of several
      tensors MatMuls and of one a Transpose, a MatMul of columns by rows a Mul, one of a constant by data one
      of data by a weight, a Gemm one without factors that adds no more than a number to each column, or by
      data a MatMul.
    * Convolutions: one along one axis whose window is wider than the target can hold (``widest_window``) is
      one of neighbours; a BatchNormalization that could not be folded is a Conv of each channel by itself.
    * Fourier transforms: a STFT is a Conv, a DFT of up to 2048 places a MatMul.
    * Recurrent ops (LSTM, GRU, RNN) are their steps.
    * Normalizations: a LayerNormalization or RMSNormalization over several axes is one over the last, a
      GroupNormalization one of instances.
    * Pools and sums: an AveragePool of whole pictures is a GlobalAveragePool, one that reaches beyond the
      picture one with a border or a Conv, a CumSum a product by ones, a ReduceSum of products one that keeps
      its axes, a ReduceMean one without axes of one number.
    * Resize: to the nearest numbers it is one that repeats them, or Gathers; one that interpolates by a scale
      which is no ratio of lengths, or with ``antialias``, is MatMuls.
    * What moves: a Gather of all there is is a Reshape, a GatherElements of whole rows a Gather, a GatherND
      one of rows, a ReverseSequence of one length a Gather, a ScatterND into what lies together a Concat with
      what is around it, a Pad of integers a Concat, a Split of a row Slices, a Trilu a Where; places that
      count from the end of an axis count from its start.
    * One by one: a Clip by limits that are data is Max and Min, a PRelu with slopes of at most 1 a Max, a Pow
      products or a root, a RotaryEmbedding products with sine and cosine, a Mod of integers what whole
      multiples leave, a Mul of reshaped data one by whole tensors, a SiLU of a low picture one of a row, a
      Tanh of 16 places one of a place.
    * By definition: Celu, Mean, Mish, ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceSumSquare,
      Selu, Softsign, Sum, and Scaler, which scikit-learn's models begin with.

    Only ops on float32 are written so, but GatherND, Mod, OneHot, Pad and ReverseSequence on any type.
    Recurrent ones must have lengths that are known, constant weights, and no clipping.

    For every target a Pad or a Resize along some axes says of all what becomes of them, where that is known.

    What ONNX Runtime's optimizers have made of several ops, in models that they saved, is taken apart for
    every target: FusedConv, FusedGemm, FusedMatMul, Gelu, BiasGelu, FastGelu and QuickGelu,
    SkipLayerNormalization, SkipSimplifiedLayerNormalization, EmbedLayerNormalization, Attention and
    MultiHeadAttention; the last two without a cache and with constant weights. On ONNX Runtime's CPU provider
    an Attention becomes its projections and a MultiHeadAttention, which is quicker in float than its products
    in integers. Its RotaryEmbedding is taken apart where that of ONNX is. A SimplifiedLayerNormalization is
    but on that provider, and a GroupQueryAttention, of one sequence of lengths that ``--fix-shape`` gives,
    but on that provider and in OpenVINO, which have kernels for it.
    """

    name = "decompose-ops"
    stage = Stage.FLOAT
    needs = frozenset({"target"})
    tolerance = 1e-5

    steps: Annotated[int, Ge(1)] = option(512, "recurrent ops of more steps stay as they are")
    weighted: bool = option(
        False, "only ops that multiply by weights where products have none, as activations in float want it"
    )

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        known = self._known(target)
        wanted = {name: plan for name, plan in known.items() if target.rule_for(*_parted(name)).decompose}
        wanted |= _fused_for(target)
        if self.weighted:
            wanted["MatMul"] = elementwise.turned_product
        late = {name: wanted.pop(name) for name in _OF_OTHERS if name in wanted}
        for plans in (_IN_ALL_AXES, wanted, late):
            self._write(model, context, target, plans)

    def _write(self, model: Model, context: PassContext, target: Target, wanted: Known) -> None:
        rewriter = Rewriter(model)
        graphs = list(model.graph.walk()) if model.opset >= _BROADCASTS else []
        found = [op for graph in graphs for op in graph.ops() if _full_name(op) in wanted]
        found = [op for op in found if not self.weighted or _has_weights(op)]
        for op in found:
            data = op.inputs[_DATA.get(_full_name(op), 0)]
            is_float = data is not None and data.type.elem_type == TensorProto.FLOAT
            write = wanted[_full_name(op)](op) if is_float or op.is_type(*_MOVED) else None
            stays = write is None and target.rule_for(op.op_type, op.domain).runs == "float"
            if stays and wanted is not _IN_ALL_AXES:
                advised = advice(op) if op.is_type("GRU", "LSTM", "RNN") else ""
                why = advised or "no other ops are known for one like this"
                reason = f"{target.name} does not run it, and {why}"
                model.journal.note(Remark(SKIP, op, op.label, reason))
                context.notes += [f"{op.label} stays float: {reason}"] if advised else []
            if write is None:
                continue
            with rewriter.action("decompose", op):
                build = Builder(rewriter, op)
                made = write(build)
                for old, new in zip(op.outputs, made, strict=True):
                    if old is not None and new is not None:
                        put_in_place(rewriter, old, new)
                read = op.inputs
                rewriter.erase_op(op)
                for value in read:
                    rewriter.erase_unread(value)
                build.drop_unread()

    def _known(self, target: Target) -> Known:
        recurrent = partial(unrolled, most_steps=self.steps)
        return {
            "Attention": attention,
            "AveragePool": average,
            "BatchNormalization": normalization.batch_norm,
            "Celu": elementwise.celu,
            "Clip": elementwise.clip,
            "CumSum": sums.cumulative,
            "Conv": partial(dilated, widest=target.models.widest_window),
            "DFT": transform,
            "Einsum": einsum,
            "GRU": recurrent,
            "Gather": movement.gather,
            "GatherElements": movement.gather_elements,
            "GatherND": movement.gather_nd,
            "Gemm": partial(gemm, by_data=target.provider == _CPU),
            "GroupNormalization": normalization.group_norm,
            "LSTM": recurrent,
            "LayerNormalization": normalization.layer_norm,
            "MatMul": elementwise.product,
            "Mean": elementwise.mean,
            "Mish": elementwise.mish,
            "Mod": places.remainder,
            "Mul": factors,
            "OneHot": places.one_hot,
            "PRelu": elementwise.prelu,
            "Pad": movement.pad,
            "Pow": elementwise.power,
            "RNN": recurrent,
            "RMSNormalization": normalization.layer_norm,
            "ReduceL1": sums.of_sum,
            "ReduceL2": elementwise.euclidean,
            "ReduceLogSum": sums.of_sum,
            "ReduceLogSumExp": sums.log_sum_exp,
            "ReduceMean": sums.mean_of_several,
            "ReduceSum": sums.sum_of_products,
            "ReduceSumSquare": sums.of_sum,
            "Resize": resized,
            "ReverseSequence": movement.reverse_sequence,
            "RotaryEmbedding": rotary_embedding,
            "STFT": short_time,
            "ScatterElements": places.from_the_start,
            "ScatterND": scattered,
            "Selu": elementwise.selu,
            "Softsign": elementwise.softsign,
            "Split": movement.split,
            "Sum": elementwise.total,
            "Tanh": tangent,
            "Trilu": movement.triangle,
            "ai.onnx.ml.Scaler": elementwise.scaler,
        }


def _fused_for(target: Target) -> Known:
    """What is taken apart of what ONNX Runtime's optimizers made."""
    found = dict(_FUSED)
    if target.provider == _CPU:  # whose products of heads are quicker in float than in integers
        del found["com.microsoft.MultiHeadAttention"], found["SimplifiedLayerNormalization"]
        found["com.microsoft.Attention"] = partial(fused_attention.projected_attention, keeps_heads=True)
    if target.provider in _RUN_CACHES:
        del found["com.microsoft.GroupQueryAttention"]
    if target.rule_for("RotaryEmbedding").decompose:
        found["com.microsoft.RotaryEmbedding"] = fused_rotary_embedding
    return found


def _has_weights(op: Op) -> bool:
    """Whether an op has weights that get a grid only in other ops."""
    is_constant = [fixed_constant(value) is not None for value in op.inputs]
    return _full_name(op) in _WEIGHTED and any(is_constant)


def _full_name(op: Op) -> str:
    """The op type, behind its domain if that is another than ONNX's main one."""
    return f"{op.domain}.{op.op_type}".removeprefix(".")


def _parted(name: str) -> tuple[str, str]:
    """The op type and the domain of a full name."""
    domain, _, op_type = name.rpartition(".")
    return op_type, domain
