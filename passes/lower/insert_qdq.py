"""Lowers to standard ONNX: QuantizeLinear and DequantizeLinear around everything that is quantized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnx import ModelProto

from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import Artifact, PassContext
from ..framework.made_for import mark_target
from ..framework.target_rules import Storage
from ..framework.target_tables import Products
from .qdq.dequantize_outside import dequantize_outside
from .qdq.dynamic_products import write_dynamic
from .qdq.emitter import Emitter
from .qdq.fit_kernels import fit_kernels
from .qdq.folded_weights import fold_weights
from .qdq.keep_float import keep_kernels
from .qdq.lookups import look_up_codes
from .qdq.moved_pairs import leave_out_moved
from .qdq.newer_opset import in_opset
from .qdq.onnx_grids import OLDEST_OPSET, of_short_codes, opset_needed_by
from .qdq.round_captures import round_captures
from .qdq.share_storage import share_storage
from .qdq.stored_products import StoredProducts, only_stored_in, stored_matrices
from .rounding.activation_codes import code_activations
from .rounding.rewire import rewire

_IN_BYTES = (
    "weights of fewer than 8 bits are stored with one code in each byte, which is quicker; "
    "'--opt insert-qdq.storage=packed' of 'qc MODEL.onnx', with the same options or a recipe of qc auto as "
    "--pipeline, makes a smaller file"
)


@dataclass(frozen=True)
class InsertQdq(Pass):
    """Makes an ONNX model with QuantizeLinear and DequantizeLinear (Cast pairs for 16-bit floats).

    Weights and biases are stored quantized, with a DequantizeLinear behind them; with ``weights=float``
    weights stay float with both ops behind them, limited to what their grid reaches, which gives the same
    codes. Weights of fewer than 8 bits are packed, several in a byte, or with ``storage=int8`` stored with
    one code in each byte, unless there is a scale for every block: the same numbers in twice the bytes of
    int4, for devices that would unpack them in every run, as ONNX Runtime does on CPUs. Types and
    granularities that the model's opset does not have use the operators of the target's extension domain;
    where that does not have them either, the model is converted to a newer one, with a note, unless
    ``opset=keep`` refuses that. Shifted int2 weights become int4 with the same numbers. A convolution on
    somewhat fewer input channels than the target wants (a picture has three) gets more, with codes and
    weights of zero. Where the target has a quicker kernel for weights whose zero points are not 0, codes and
    zero points of a convolution are one lower than they are in the simulation. Both change no result, and
    ``import-qdq`` undoes them. Where the target has kernels for it, a large LSTM or GRU multiplies the codes
    of its weights with its data, which is quantized as it comes, the GRU as a Scan, which ``import-qdq``
    leaves; other recurrent ops have their weights dequantized once, when ONNX Runtime loads the model.

    Products of float data by stored weights, and lookups of stored rows, are written as MatMulNBits and
    GatherBlockQuantized where the target has them, in any opset; a matrix that both read is stored once, and
    captured by bodies that read it. Rows of int8 are looked up by Gather, with their scales, and dequantized
    behind it.
    With ``products=dynamic`` products by 8-bit weights without blocks are MatMulInteger instead, of data that
    DynamicQuantizeLinear rounds in every run, which is quicker; ``import-qdq`` leaves these as they are.
    Stored weights of float convolutions, and small ones of float products, are dequantized by Cast and Mul
    there, which ONNX Runtime computes when it loads the model; below opset 21 each code takes a byte in them.
    ``import-qdq`` undoes both.

    ONNX Runtime quantizes float weights, and float biases, between quantized data by itself, which may ruin
    the result: a LeakyRelu of slope 1 behind such a convolution or product keeps it float, and ``import-qdq``
    takes it away. It computes a product of codes in float in front of a Relu or Clip whose result is not
    rounded, and one of a matrix to which data is added: the same LeakyRelu in between keeps such a product in
    integers. It makes integer ops of what the target's rules keep in float, such as a pool with dilations,
    but for that LeakyRelu, and breaks a Pad or a Resize along some axes, and a cubic one to fewer numbers,
    but for a SpaceToDepth of single places, or the like, in front of it. Around codes of 2 and 4 bits and of
    float8 it drops a Relu that is needed, makes ops that it cannot load, and computes wrong numbers of
    weights of 2 bits, but for the LeakyRelu. OpenVINO computes wrong numbers of some chains of products, and
    of products whose results are pooled or moved, but for the same LeakyRelu; and of ReduceMax and the like
    where it rounds behind them, so that what they choose from is rounded instead.

    From opset 21 on, int8 data in front of a product that ONNX Runtime fuses with its bias has the type as an
    attribute of QuantizeLinear in place of a zero point of 0, and int8 data with another zero point is
    quantized in ONNX Runtime's own domain where the target has that: it refuses any other pair there.

    What an op only moves to where a body of If, Loop or Scan captures it is rounded to its grid once more, as
    ONNX Runtime cannot open such a model otherwise. Codes and zero points that are equal within a graph are
    stored once, but for equal codes of several grids: ONNX Runtime's provider for QNN gives all that read a
    constant the grid of the first, and so computes wrong numbers; and but for zero points of int8 weights, as
    ONNX Runtime would not open such a model where it is told to turn weights into uint8. The metadata of the
    model names the target.
    """

    name = "insert-qdq"
    stage = Stage.LOWER
    makes = "qdq"
    uses = frozenset({"target"})

    weights: Literal["codes", "float"] = option(
        "codes", "store weights as codes, or in float to be quantized"
    )
    opset: Literal["keep", "raise"] = option(
        "raise", "what to do if a grid needs a newer opset: convert the model, or refuse it (keep)"
    )
    storage: Storage | None = option(
        None, "how weights of fewer than 8 bits are stored: packed, or each in a byte; default: the target's"
    )
    products: Products | None = option(
        None,
        "how products of float data by stored weights are written: standard, or in ONNX Runtime's own ops, "
        "which round data to 8 bits as it comes, block by block (fast), or do not (exact), or in ONNX's ops "
        "that round whole tensors (dynamic); default: the target's; small ones are float products there and "
        "with dynamic",
    )
    activations: Literal["placed", "unsigned", "signed", "symmetric"] = option(
        "placed", "codes of activations: as they were placed, or all of one kind, or signed where symmetric"
    )
    pad_channels: bool = option(True, "give a convolution as many input channels as the target wants")
    shift_weights: bool = option(True, "give weights zero points of -1 where the target wants it")
    fit_recurrent: bool = option(True, "write recurrent ops as the target has quick kernels for them")

    def run(self, model: Model, context: PassContext) -> None:
        with model.transaction.trial():
            if self.activations != "placed":
                code_activations(model, self.activations)
            if context.target is not None and not context.target.lowering.rounds_moved:
                leave_out_moved(model)
            written = _Writing(self, model, context).run()
        if context.target is not None:
            mark_target(written, context.target.name)
        context.add_artifact(self.makes, Artifact("onnx", written, ".onnx"))


class _Writing:
    """One model written as QDQ: what the options and the target ask for, and the steps in their order."""

    def __init__(self, options: InsertQdq, model: Model, context: PassContext) -> None:
        self.options = options
        self.context = context
        self.target = target = context.target
        self.extension = target.lowering.extension_domain if target is not None else ""
        self.sees_through = target is not None and not target.lowering.rounds_moved
        own_storage = target.weight.storage if target is not None else "packed"
        self.in_bytes = (options.storage or own_storage) == "int8"
        own_products = target.lowering.products if target is not None else "standard"
        is_stored = options.weights == "codes"
        self.products: Products = (options.products or own_products) if is_stored else "standard"
        by_size = target is not None and options.products in (None, "dynamic")
        self.least = target.lowering.stored_products_from if target is not None and by_size else 0
        self.model = self._in_opset(model) if options.opset == "raise" else model
        self.rewriter = Rewriter(self.model)

    def _in_opset(self, model: Model) -> Model:
        """The model in the oldest opset that has its grids, with a note if that is not its own."""
        if "" not in model.opset_imports:
            return model  # there is nothing to convert; ``run`` imports the opset
        needed = self._needed_opset(model)
        if needed > model.opset:
            self.context.notes.append(
                f"the model was converted from opset {model.opset} to {needed}, which its grids need"
            )
        return in_opset(model, needed)

    def _needed_opset(self, model: Model) -> int:
        stored = only_stored_in(stored_matrices(model, self.products, self.least), model)
        return opset_needed_by(model, self.extension, self.in_bytes, stored)

    def run(self) -> ModelProto:
        model, rewriter = self.model, self.rewriter
        with rewriter.trial():
            if "" not in model.opset_imports:  # as of trees alone, for which any opset will do
                rewriter.set_opset("", max(OLDEST_OPSET, self._needed_opset(model)))
            self._store_products()
            self._round()
            if self.target is not None:
                pads, shifts = self.options.pad_channels, self.options.shift_weights
                fit_kernels(model, rewriter, self.target, pads, shifts, self.options.fit_recurrent)
            if self.products != "standard":
                self.context.notes += fold_weights(model, rewriter, self.least)
                look_up_codes(model, rewriter)
            keep_kernels(model, rewriter, self.target)
            round_captures(model, rewriter)
            dequantize_outside(model, rewriter)
            share_storage(model, rewriter)
            return lower(model)

    def _store_products(self) -> None:
        """Writes products of float data by stored weights in ops that take codes."""
        matrices = stored_matrices(self.model, self.products, self.least)
        if self.products == "dynamic":
            unsigned = self.target is not None and bool(self.target.grids.most_pair_sum)
            others = write_dynamic(self.model, self.rewriter, matrices, self.context, unsigned)
            matrices = others if self.target is None or self.target.lowering.products != "standard" else []
        StoredProducts(self.model, self.rewriter, self.products).write(matrices)

    def _round(self) -> None:
        """Puts quantize and dequantize ops at everything that has a grid."""
        widened = of_short_codes(self.model) if self.in_bytes else frozenset()
        if widened:
            self.context.notes.append(_IN_BYTES)
        as_codes = self.options.weights == "codes"
        emitter = Emitter(self.model, self.rewriter, self.extension, as_codes, widened, self.sees_through)
        emitter.round_again_inside(rewire(self.model, self.rewriter, emitter.round_value))
