"""The same model and configuration give the same result every time."""

from __future__ import annotations

import pytest
from support.graph_text import build_model
from support.models import random_feeds
from support.pipelines import apply

from qc.ir.text import print_model
from qc.passes.quantize.quantsim.reading import config_names

from .test_placement_table import AFFINE, CONV, IMAGE, NORM

JOINS = """a = Conv<pads=[1,1,1,1]>(x, W); b = Relu(a); c = Sigmoid(x); d = Concat<axis=1>(b, c, x)
e = MaxPool<kernel_shape=[2,2]>(d); y = Relu(e)"""


@pytest.mark.parametrize("config", config_names())
@pytest.mark.parametrize(
    "body, inputs, constants", [(JOINS, IMAGE, CONV), (AFFINE, "float[2,4,8] x", NORM)], ids=["joins", "norm"]
)
def test_results_are_the_same_every_time(
    config: str, body: str, inputs: str, constants: dict[str, object]
) -> None:
    model = build_model(body, inputs=inputs, constants=constants)
    pipeline = f"configure-quantizers{{config={config}}},calibrate{{rounded_parameters=true}},to-encodings"
    first, second = (apply(pipeline, model, feeds=random_feeds(model)) for _ in range(2))
    assert print_model(first[0]) == print_model(second[0])
    assert list(map(str, first[0].journal.remarks)) == list(map(str, second[0].journal.remarks))
    assert first[1].artifacts["encodings"].payload == second[1].artifacts["encodings"].payload


@pytest.mark.parametrize("config", ["default", "htp_v73"])
def test_a_second_run_places_nothing(config: str) -> None:
    model = build_model(JOINS, inputs=IMAGE, constants=CONV)
    once = f"configure-quantizers{{config={config}}}"
    assert print_model(apply(once, model)[0]) == print_model(apply(f"{once},{once}", model)[0])
