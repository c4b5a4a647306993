"""Tables of target files about models as a whole: what they and grids have to be, how to write them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .target_rules import Strict

Products = Literal["standard", "exact", "fast", "dynamic"]

# The last opset whose quantize ops ONNX Runtime has, as of 1.32, although it runs float ops of newer ones.
_LAST_WITH_KERNELS = 25


class Models(Strict):
    """What a model has to be for a target.

    Attributes:
        static_shapes: the lengths of all dimensions must be known.
        opset: models of an older one are converted to it, where ONNX can do that; 0 if any will do.
        latest_opset: models of a newer one are not read, and converted to it where ONNX can do that.
        most_dimensions: of a tensor; 0 for any number.
        widest_window: how many places a window of a convolution along one axis may reach over, dilated, for
            every 32 channels; 0 for any number.
        mask_limit: what a mask holds at most, with either sign, so that integers reach there; 0 for no limit.
        split_projections: one product that makes queries, keys and values is written as one for each, behind
            which the device transposes heads within its kernel of attention.
        mixes_float: parts of a model may be float beside others in integers.
        one_kind: a model has either integers or small floats, and not both.
        one_format: an op reads and makes data of one format; where that differs, it is rounded in between.
    """

    static_shapes: bool = False
    opset: int = Field(default=0, ge=0)
    latest_opset: int = Field(default=_LAST_WITH_KERNELS, ge=1)
    most_dimensions: int = Field(default=0, ge=0)
    widest_window: int = Field(default=0, ge=0)
    mask_limit: float = Field(default=0.0, ge=0)
    split_projections: bool = False
    mixes_float: bool = True
    one_kind: bool = False
    one_format: bool = False


class Grids(Strict):
    """What grids a device computes with rightly.

    Attributes:
        scale_span: how many times the smallest scale of a weight its largest may be; 0 for any number.
        most_pair_sum: the largest sum of two neighbouring codes of a weight, with either sign; 0 for any.
        multiplier_bits: of the factor that rescales a sum of products; 0 for enough of them.
        least_multiplier: the smallest such factor with which the device adds biases rightly.
        minimum_range: the least distance between the ends of the range of an activation.
        zero_range: that distance for an activation that is always 0.
    """

    scale_span: float = Field(default=0.0, ge=0)
    most_pair_sum: int = Field(default=0, ge=0)
    multiplier_bits: int = Field(default=0, ge=0)
    least_multiplier: float = Field(default=0.0, ge=0)
    minimum_range: float = Field(default=0.0, ge=0)
    zero_range: float = Field(default=0.0, ge=0)


class Lowering(Strict):
    """In which form a device runs a quantized model, or runs it quickly.

    Attributes:
        rounds_moved: there are quantize ops behind what only moves data on a grid, too; without, the device
            sees through to those before.
        one_grid: codes that several grids read are taken for codes of one of them, so each needs its own.
        extension_domain: domain of quantize ops for types that the model's opset lacks.
        least_channels: an 8-bit convolution on fewer input channels, by a quarter at most, gets so many.
        shift_weights_from: an 8-bit convolution whose results are sums of so many products or more has its
            weights stored one step lower, with zero points of -1; 0 for none.
        dynamic_lstm_from: an LSTM with so many weights or more in a direction is written as ONNX Runtime's
            DynamicQuantizeLSTM; 0 for none.
        scanned_gru_from: a GRU with so many weights or more for its state in a direction is written as a Scan
            of ONNX Runtime's DynamicQuantizeMatMul; 0 for none.
        fold_weights: the weights of other recurrent ops are dequantized by Cast and Mul, which ONNX Runtime
            computes once, when it loads the model; a DequantizeLinear runs in every run.
        products: how products of float data by stored weights, and lookups are written: as in ``insert-qdq``.
        stored_products_from: a matrix of fewer numbers, without blocks, is dequantized when the model is
            loaded, and the product is a float one.
        stored_tables_from: a table of so many numbers is in codes, though what reads it is float; 0 for none.
    """

    rounds_moved: bool = True
    one_grid: bool = False
    extension_domain: str = ""
    least_channels: int = Field(default=1, ge=1)
    shift_weights_from: int = Field(default=0, ge=0)
    dynamic_lstm_from: int = Field(default=0, ge=0)
    scanned_gru_from: int = Field(default=0, ge=0)
    fold_weights: bool = False
    products: Products = "standard"
    stored_products_from: int = Field(default=0, ge=0)
    stored_tables_from: int = Field(default=0, ge=0)
