"""Products of float data by stored weights, and lookups of stored rows, in ops of ONNX Runtime on codes.

A DequantizeLinear in front of them would run in every run, unless ONNX Runtime fuses it, which it does for
some forms. MatMulNBits and GatherBlockQuantized read packed codes in any opset.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from qc.ir.facts.constants import initializer
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.arithmetic import codes_of, spread
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.packing import pack
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, Quantizer, TwoLevelBlock
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

from ...framework.target_tables import Products

DOMAIN = "com.microsoft"
PRODUCT, LOOKUP = "MatMulNBits", "GatherBlockQuantized"
_BIAS = 5  # the input of MatMulNBits
_IN_INTEGERS = 4  # the accuracy level at which data is rounded to 8 bits as it comes
_SIZES = (128, 64, 32, 16)  # of blocks that share what is the scale of a channel


class Stored(NamedTuple):
    """A constant matrix with a grid as an op reads it.

    Attributes:
        op: the product or the lookup.
        site: where the quantizer is.
        quantizer: it has an encoding.
        by_rows: whether rows of the constant are output channels, or rows that are looked up.
        size: the length of a block along the other axis.
    """

    op: Op
    site: Site
    quantizer: Quantizer
    by_rows: bool
    size: int

    @property
    def constant(self) -> Value:
        """The matrix in float."""
        return self.site.value.original

    @property
    def shape(self) -> tuple[int, int]:
        """Channels, and the elements of each."""
        assert self.constant.const is not None
        rows, columns = self.constant.const.shape
        return (rows, columns) if self.by_rows else (columns, rows)

    @property
    def bits(self) -> int:
        """Bits of a code as they are packed."""
        return 8 if self.quantizer.spec.format.bits > 4 else 4

    @property
    def has_blocks(self) -> bool:
        """Whether there is a scale for every block."""
        return isinstance(self.quantizer.spec.granularity, PerBlock)

    @property
    def is_padded(self) -> bool:
        """Whether the last block is longer than what there is of the channel."""
        return self.shape[1] % self.size != 0


def stored_matrices(model: Model, products: Products, least: int = 0) -> list[Stored]:
    """The products of float data, and lookups, that there are ops on codes for.

    Args:
        least: the numbers of a matrix from which on a product is written so, unless there is a scale for
            every block.
    """
    if products == "standard":
        return []
    found = [stored for graph in model.graphs() for op in graph.ops() for stored in _stored(model, op)]
    found = [one for one in found if one.op.is_type("Gather") or one.has_blocks or prod(one.shape) >= least]
    shared = {one.constant for one in found if not one.op.is_type("Gather")}
    found = [one for one in found if one.constant in shared or not _is_plain_table(one)]
    return [one for one in found if products != "exact" or one.bits == 4 or one.op.is_type("Gather")]


def _is_plain_table(stored: Stored) -> bool:
    """Whether rows are looked up as int8, in ops of ONNX (:mod:`.lookups`)."""
    spec = stored.quantizer.spec
    is_plain = stored.bits == 8 and spec.symmetric and spec.code_range[0] < 0 and not stored.has_blocks
    return stored.op.is_type("Gather") and is_plain


def only_stored_in(matrices: list[Stored], model: Model) -> frozenset[Quantizer]:
    """The quantizers that nothing else has a use for."""
    sites = {one.site for one in matrices}
    quantizers = {one.quantizer for one in matrices}
    return frozenset(one for one in quantizers if sites.issuperset(model.quant.sites_of(one)))


class StoredProducts:
    """Writes them; a matrix is stored once, where it was, and captured by the bodies that read it."""

    def __init__(self, model: Model, rewriter: Rewriter, products: Products) -> None:
        self._model = model
        self._rewriter = rewriter
        self._captures = Captures(rewriter)
        self._level = _IN_INTEGERS if products != "exact" else 0
        self._packed: dict[tuple[Value, Quantizer, bool, int], tuple[Value, Value, Value | None]] = {}

    def write(self, matrices: list[Stored]) -> None:
        """Puts the ops on codes in the place of the others."""
        if matrices and DOMAIN not in self._model.opset_imports:
            self._rewriter.set_opset(DOMAIN, 1)
        # Those of tables come last, which may share with others.
        for stored in sorted(matrices, key=lambda one: one.op.is_type("Gather")):
            if stored.op.is_type("Gather"):
                self._write_lookup(stored)
            else:
                self._write_product(stored)

    def _write_product(self, stored: Stored) -> None:
        op, rewriter = stored.op, self._rewriter
        channels, length = stored.shape
        bias = (*op.inputs, None)[2]
        codes, scale, zero_point = self._constants(stored, is_table=False)
        self._let_read(stored, 1, codes)
        for port, given in ((2, scale), (3, zero_point), (_BIAS, bias)):
            if given is not None or port < op.num_inputs:
                rewriter.set_input(op, port, given)
        rewriter.set_type_of_op(op, PRODUCT, DOMAIN)
        settings = {"K": length, "N": channels, "bits": stored.bits, "block_size": stored.size}
        for name in list(op.attributes):
            rewriter.set_attribute(op, name, None)
        for name, number in {**settings, "accuracy_level": self._level or None}.items():
            rewriter.set_attribute(op, name, number)

    def _write_lookup(self, stored: Stored) -> None:
        op, rewriter = stored.op, self._rewriter
        codes, scale, zero_point = self._constants(stored, is_table=True)
        self._let_read(stored, 0, codes)
        for port, given in ((2, scale), (3, zero_point)):
            if given is not None:
                rewriter.set_input(op, port, given)
        rewriter.set_type_of_op(op, LOOKUP, DOMAIN)
        settings = {"gather_axis": 0, "quantize_axis": 1, "bits": stored.bits, "block_size": stored.size}
        for name, number in {"axis": None, **settings}.items():
            rewriter.set_attribute(op, name, number)

    def _let_read(self, stored: Stored, port: int, codes: Value) -> None:
        op, site, read = stored.op, stored.site, stored.op.inputs[port]
        if self._model.quant.get(site) is not None:  # other products may read the same transposed matrix
            self._model.quant.remove(site, "stored as codes")
        self._rewriter.set_input(op, port, codes)
        assert read is not None
        producer = read.producer
        if producer is not None and not read.is_read:
            self._rewriter.erase_op(producer)
        self._rewriter.drop_unread(read)

    def _constants(self, stored: Stored, is_table: bool) -> tuple[Value, Value, Value | None]:
        """The codes, scales and zero points; codes of a product in blocks, those of a table row by row."""
        known = stored.constant, stored.quantizer, stored.by_rows
        key, in_blocks = (*known, 2 if is_table else 3), (*known, 3)
        if key not in self._packed:
            fits = is_table and in_blocks in self._packed and not stored.is_padded
            constants = self._packed[in_blocks] if fits else self._store(stored, is_table)
            self._packed[key] = self._by_rows(stored, *constants) if fits else constants
        codes, scale, zeros = self._packed[key]
        graph, into = stored.op.graph, self._captures.into
        return into(graph, codes), into(graph, scale), into(graph, zeros) if zeros is not None else None

    def _by_rows(
        self, stored: Stored, codes: Value, scale: Value, zero_point: Value | None
    ) -> tuple[Value, Value, Value | None]:
        graph, by_rows = stored.constant.graph, np.array([stored.shape[0], -1])
        shape = self._rewriter.add_constant(graph, by_rows, f"{codes.name}_shape")
        table = self._rewriter.add_value(graph, f"{codes.name}_table")
        self._rewriter.add_op(graph, "Reshape", [codes, shape], [table])
        return table, scale, zero_point

    def _store(self, stored: Stored, is_table: bool) -> tuple[Value, Value, Value | None]:
        constant, graph = stored.constant, stored.constant.graph
        codes, scale, zero_point = packed(stored)
        rows = codes.reshape(len(codes), -1)[:, : stored.shape[1] * stored.bits // 8] if is_table else codes
        add, name = self._rewriter.add_constant, constant.name
        zeros = add(graph, zero_point, f"{name}_zero_point") if zero_point is not None else None
        return add(graph, rows, f"{name}_packed"), add(graph, scale, f"{name}_scale"), zeros


def packed(stored: Stored) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The bytes of the codes, unsigned, with their scales and, if they are not in the middle, zero points.

    Returns:
        uint8, (channels, blocks, bytes of a block); float32, (channels, blocks); uint8, (channels, bytes).
    """
    constant, quantizer, bits = stored.constant.const, stored.quantizer, stored.bits
    encoding, size = quantizer.encoding, stored.size
    assert constant is not None and encoding is not None
    shape, (channels, length) = constant.shape, stored.shape
    middle = 1 << (bits - 1)
    format = quantizer.spec.format
    offset = middle if isinstance(format, IntFormat) and format.signed else 0

    def of_blocks(parameter: np.ndarray) -> np.ndarray:
        return _oriented(spread(parameter, encoding, shape), shape, stored.by_rows)[:, ::size]

    signed = _oriented(codes_of(constant.numpy(), quantizer), shape, stored.by_rows)
    codes = (signed + offset).astype(np.uint8, order="C")
    blocks = -(-length // size)
    codes = np.pad(codes, ((0, 0), (0, blocks * size - length)), constant_values=middle)
    zeros = (of_blocks(encoding.zero_point) + offset).astype(np.uint8)
    in_bytes = _in_bytes(codes, bits).reshape(channels, blocks, size * bits // 8)
    zero_point = _in_bytes(np.pad(zeros, ((0, 0), (0, -blocks * bits // 4 % 2))), bits)
    scale = np.ascontiguousarray(of_blocks(encoding.scale), np.float32)
    return in_bytes, scale, None if (zeros == middle).all() else zero_point.reshape(channels, -1)


def _oriented(array: np.ndarray, shape: tuple[int, ...], by_rows: bool) -> np.ndarray:
    whole = np.broadcast_to(array, shape)
    return whole if by_rows else whole.T


def _in_bytes(codes: np.ndarray, bits: int) -> np.ndarray:
    return pack(codes, bits) if bits < 8 else codes


def _stored(model: Model, op: Op) -> Iterator[Stored]:
    """The matrix of an op, if it is a product of float data or a lookup that can be written so."""
    if op.is_type("Gather") and op.attribute("axis", 0) == 0:
        found = _at(model, op, 0, by_rows=True)
    elif op.is_type("MatMul", "Gemm") and _multiplies_floats(model, op):
        found = _of_product(model, op)
    else:
        return
    if found is None or (op.is_type("Gather") and found.shape[1] * found.bits % 8):
        return
    yield found


def _of_product(model: Model, op: Op) -> Stored | None:
    weight = op.inputs[1]
    producer = weight.producer if weight is not None else None
    by_rows = op.is_type("Gemm") and bool(op.attribute("transB", 0))
    if producer is None:
        return _at(model, op, 1, by_rows)
    if not producer.is_type("Transpose") or producer.attribute("perm", [1, 0]) != [1, 0] or weight is None:
        return None
    if model.quant.of_use(weight, op, 1) is not None or weight.is_output:
        return None
    return _at(model, producer, 0, not by_rows, op)


def _at(model: Model, reader: Op, port: int, by_rows: bool, op: Op | None = None) -> Stored | None:
    value = reader.inputs[port]
    const = initializer(value)
    if value is None or const is None or len(const.shape) != 2 or not const.size:
        return None
    site = Site(value, reader, port)
    quantizer = model.quant.get(site)
    if quantizer is None or quantizer.encoding is None or model.quant.of_value(value) is not None:
        return None
    size = _block_size(quantizer.encoding, const.shape, by_rows)
    return Stored(op or reader, site, quantizer, by_rows, size) if size else None


def _block_size(encoding: Encoding, shape: tuple[int, ...], by_rows: bool) -> int:
    """The length of blocks that codes can be stored in; 0 if they cannot be."""
    spec, granularity, axis = encoding.spec, encoding.spec.granularity, 1 if by_rows else 0
    if not isinstance(spec.format, IntFormat) or spec.format.storage_bits not in (4, 8) or spec.shifted:
        return 0
    if isinstance(granularity, PerBlock):
        size = granularity.size
        fits = granularity.axis == axis and size >= _SIZES[-1] and size & (size - 1) == 0
        return size if fits and not isinstance(granularity, TwoLevelBlock) else 0
    if isinstance(granularity, PerChannel) and granularity.axis == axis:
        return 0
    return next((size for size in _SIZES if shape[axis] % size == 0), _SIZES[0])


def _multiplies_floats(model: Model, op: Op) -> bool:
    """Whether the data of a product has no grid, and it does nothing that MatMulNBits cannot do."""
    data, _, bias = (*op.inputs, None)[:3]
    if data is None or model.quant.of_use(data, op, 0) is not None:
        return False
    shape = data.type.shape
    if op.is_type("MatMul"):
        return shape is not None and len(shape) > 1
    plain = op.attribute("alpha", 1.0) == op.attribute("beta", 1.0) == 1.0 and not op.attribute("transA", 0)
    if bias is None:
        return plain
    weight = op.inputs[1]
    matrix = weight.type.shape if weight is not None else None
    vector = matrix is not None and bias.type.shape == (matrix[0 if op.attribute("transB", 0) else -1],)
    return plain and vector and model.quant.of_use(bias, op, 2) is None
