"""Data that is scaled and shifted by constants, which OpenVINO does in the kernel that computes it."""

from __future__ import annotations

import pytest
from support.models import parse
from support.pipelines import PLACE, apply

import qc.ir.model
from qc.passes.framework.target import load_target
from qc.passes.quantize.placement.units import UnitMap

SCALED = """g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
<float[4, 4, 1, 1] w, float[4, 4, 1, 1] v, float by = {2}, float[4, 1, 1] more, float[1, 4, 8, 8] map> {
    c = Conv(x, w)
    BETWEEN
    y = Conv(b, v)
}"""


def placed(between: str, target: str = "openvino") -> qc.ir.model.Model:
    ir, _, _ = apply(PLACE, parse(SCALED.replace("BETWEEN", between)), target)
    return ir


def with_grids(between: str, target: str = "openvino") -> set[str]:
    """The tensors of data that have a grid."""
    ir = placed(between, target)
    return {v.name for v in ir.graph.values() if v.const is None and ir.quant.touches(v)}


@pytest.mark.parametrize("between", ["a = Mul(r, by)  b = Add(a, more)", "a = Mul(more, r)  b = Add(by, a)"])
def test_there_are_no_grids_between_a_convolution_and_what_scales_its_result(between: str) -> None:
    behind_relu = f"r = Relu(c)  {between}"  # which is one with the convolution already
    assert with_grids(behind_relu) == {"x", "b"}
    assert with_grids(behind_relu, "ort-cpu") == {"x", "r", "a", "b", "y"}
    ir = placed(behind_relu)
    value = ir.graph.value_named("a")
    assert value is not None and "runs as one with what makes its data" in str(ir.quant.why_not(value))


def test_a_sum_of_data_keeps_integers_behind_what_scales_them() -> None:
    assert with_grids("a = Mul(c, by)  d = Conv(c, v)  b = Add(a, d)") >= {"c", "a", "d", "b"}
    assert with_grids("e = Conv(x, v)  a = Mul(e, by)  b = Add(a, c)") == {"x", "c", "a", "b"}


@pytest.mark.parametrize(
    "between",
    [
        "b = Add(c, map)",  # a number for each element is read by a kernel of its own
        "a = MaxPool<kernel_shape = [1, 1]>(c)  b = Mul(a, by)",  # moved in one byte rather than in four
        "a = Mul(c, by)  b = Concat<axis = 0>(c, a)",  # the codes are there, as something else reads them
    ],
)
def test_what_is_not_fused_has_a_grid_in_front(between: str) -> None:
    assert "c" in with_grids(between)


def test_a_rule_for_constants_leaves_ops_of_two_tensors_alone() -> None:
    ir = placed("d = Conv(x, v)  b = Add(c, d)")
    units = UnitMap(ir, load_target("openvino"))
    assert not any(map(units.runs_with_maker, units.units))
