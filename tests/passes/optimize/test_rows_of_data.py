"""Passes that compare with float, on models whose numbers of rows depend on what is computed."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse
from support.pipelines import PLACE, Feeds, apply

from qc.ir.model import Model

INT4 = PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}") + ",calibrate"
UNSEEN = "keeps its nearest codes: no sample reaches it, or none with as many rows as in float"


def compiled(passes: str, feeds: Feeds, least: float = 0) -> Model:
    """Rows go on whose mean is above the least."""
    source = parse(f"""g (float[N, 16] x) => (float[M, 8] y)
        <float[16, 16] w, int64[1] last = {{1}}, float z = {{{least}}}, float[16, 8] v> {{
        a = MatMul(x, w)
        s = ReduceMean<keepdims = 0>(a, last)
        c = Greater(s, z)
        k = Compress<axis = 0>(a, c)
        y = MatMul(k, v)
    }}""")
    return apply(f"{INT4},{passes}", source, "npu", feeds)[0]


def unseen(model: Model) -> list[str]:
    return [remark.about.name for remark in model.journal.remarks if remark.reason == UNSEEN]


def rows(count: int, distinct: int, seed: int = 0) -> dict[str, np.ndarray]:
    """So many rows, of which some differ."""
    x = np.random.default_rng(seed).normal(size=(distinct, 16)).astype(np.float32)
    return {"x": np.resize(x, (count, 16))}


NEAR, FAR = rows(4000, 4000), rows(40, 1)  # rounding changes how many of the many go on


@pytest.mark.parametrize("step", ["round-weights", "choose-weight-ranges"])
def test_weights_are_chosen_by_samples_with_as_many_rows_as_in_float(step: str) -> None:
    assert unseen(compiled(step, [NEAR])) == ["v"]
    assert unseen(compiled(step, [NEAR, FAR])) == []


def test_ranges_are_chosen_by_samples_of_the_size_that_they_have_in_float() -> None:
    """A channel of large numbers is clipped for the sake of others, if a sample is left that tells so."""
    large = np.ones(16, np.float32)
    large[0] = 50
    near, far = ({"x": feed["x"] * large} for feed in (NEAR, FAR))
    for feeds, is_chosen in (([near], False), ([near, far], True)):
        reasons = [remark.reason for remark in compiled("choose-ranges", feeds).journal.remarks]
        assert any("results behind it" in reason for reason in reasons) == is_chosen


@pytest.mark.parametrize("step", ["round-weights", "choose-weight-ranges"])
def test_a_layer_that_never_gets_a_row_keeps_the_nearest_codes(step: str) -> None:
    assert unseen(compiled(step, [NEAR, FAR], least=-1000)) == []
    assert unseen(compiled(step, [NEAR, FAR], least=1000)) == ["v"]
