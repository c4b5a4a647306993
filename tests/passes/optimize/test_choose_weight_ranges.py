"""The pass choose-weight-ranges: grids of weights for which the results of layers change least on data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.layers import DEEP, INT4, LAYERS, compiled, dependent_feeds, error_of, problem
from support.models import parse
from support.pipelines import apply

from qc.ir.model import Model
from qc.ir.quant.arithmetic import fake_quantize, reduce_groups, spread
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, Quantizer, QuantSpec, TwoLevelBlock
from qc.passes.optimize.weights.ranges import choose_grid
from qc.passes.quantize.calibration.ranges import weight_encoding

GRIDS = {
    "channels": QuantSpec.of("int4", symmetric=True, granularity=PerChannel(0)),
    "asymmetric channels": QuantSpec.of("uint4", granularity=PerChannel(0)),
    "tensor": QuantSpec.of("int4", symmetric=True),
    "blocks": QuantSpec.of("int4", symmetric=True, granularity=PerBlock(1, 4)),
    "asymmetric blocks": QuantSpec.of("uint4", granularity=PerBlock(1, 5)),
    "two levels": QuantSpec.of("int4", symmetric=True, granularity=TwoLevelBlock(1, 4, 4)),
    "channels of the data": QuantSpec.of("int4", symmetric=True, granularity=PerChannel(1)),
}


@pytest.mark.parametrize("name", list(GRIDS))
def test_chosen_grids_change_results_less_than_all_shares_of_the_range(name: str) -> None:
    given, spec = problem(np.random.default_rng(7), 6, 12), GRIDS[name]
    weight = given.weight[0].astype(np.float32)
    ids = reduce_groups(weight, spec.granularity, np.min)
    which = spread(np.arange(ids.size).reshape(ids.shape), weight_encoding(spec, weight), weight.shape)
    lowest, highest = spec.code_range
    given = replace(
        given,
        weight=weight[np.newaxis].astype(np.float64),
        shared=np.broadcast_to(which, weight.shape)[np.newaxis],
        lowest=lowest,
        highest=highest,
    )

    def error(encoding: Encoding) -> float:
        missing = given.wanted[0] - fake_quantize(weight, encoding)
        return float(np.einsum("oi,ij,oj->", missing, given.gram[0], missing))

    full = weight_encoding(spec, weight)
    chosen = choose_grid(given.on(full), full)
    ends = [reduce_groups(weight, spec.granularity, end) for end in (np.min, np.max)]
    shares = [encoding_of_range(spec, *(share * end for end in ends)) for share in np.linspace(0.3, 1, 15)]
    assert error(chosen) < min(map(error, [full, *shares]))
    assert chosen.spec == spec and (spec.symmetric <= np.array_equal(chosen.zero_point, full.zero_point))


def weights_of(model: Model) -> list[Quantizer]:
    return [one for one in model.quant.quantizers() if str(one.spec.format) in ("int4", "uint4")]


@pytest.mark.parametrize("name", list(LAYERS))
def test_results_of_every_kind_of_layer_come_nearer_to_float(name: str) -> None:
    source = parse(LAYERS[name])
    feeds = dependent_feeds(source, 4)
    plain = error_of(source, compiled(source, feeds, INT4)[1], feeds)
    model, context = compiled(source, feeds, f"{INT4},choose-weight-ranges")
    assert error_of(source, context, feeds) < plain
    (remark,) = [one for one in model.journal.remarks if "dB before" in one.reason]
    assert "at the result of" in remark.reason
    assert all(one.codes is None for one in weights_of(model))


def test_several_layers_lose_less_together() -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 6)
    plain = error_of(source, compiled(source, feeds, INT4)[1], feeds)
    _, context = compiled(source, feeds, f"{INT4},choose-weight-ranges")
    assert error_of(source, context, feeds) < 0.9 * plain


def test_frozen_grids_stay() -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 4)
    model, _, _ = apply(INT4, source, "npu", feeds)
    for quantizer in weights_of(model):
        model.quant.freeze(quantizer)
    before = [one.encoding for one in weights_of(model)]
    apply("choose-weight-ranges", model, "npu", feeds)
    assert [one.encoding for one in weights_of(model)] == before
