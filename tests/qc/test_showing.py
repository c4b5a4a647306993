"""What ``print`` and notebooks show of results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qc as package
from qc.ir.quant.formats import IntFormat
from qc.layers import layer_errors
from qc.runtime import load_data, model_inputs

MODEL, DATA = "model.onnx", "calibration.npz"


@pytest.fixture
def compiled(qc) -> package.Compiled:
    """The small model of the tests, compiled."""
    return package.compile(MODEL, data=DATA)


def test_weights(compiled: package.Compiled) -> None:
    told = str(compiled.weights).splitlines()
    assert told[0].startswith(f"{len(compiled.weights)} weights, ")
    (row,) = (line.split() for line in told if line.startswith("conv_1.weight "))
    weight = compiled.weights["conv_1.weight"]
    assert row[2:4] == ["int8", "channel"]
    assert row[1] == "\u00d7".join(map(str, weight.shape))
    assert "conv_1.weight" in compiled.weights._repr_html_()


def test_a_weight(compiled: package.Compiled) -> None:
    weight = compiled.weights["conv_1.weight"]
    assert "int8 symmetric narrow channel(0)" in str(weight) and f"{weight.scale[0]:.6g}" in str(weight)
    assert str(weight) != repr(weight)
    assert weight._repr_html_().startswith("<pre")


def test_errors_of_layers(compiled: package.Compiled) -> None:
    errors = layer_errors(compiled, load_data(DATA, model_inputs(compiled.ir.origin)))
    first, *_, last = str(errors).splitlines()
    assert first.startswith(f"{len(errors.layers)} tensors on {errors.feeds} samples")
    assert errors.worst_first()[0].tensor in errors._repr_html_() and "dB" in last


def test_how_grids_are_found(compiled: package.Compiled) -> None:
    quantizers = {one.id: one for one in compiled.ir.quant.quantizers()}
    quantizer = quantizers[next(iter(compiled.grids))]
    said = f"grids[{quantizer.id}](spec) is the Encoding of a spec"
    assert str(compiled.grids) == f"<how {len(compiled.grids)} quantizers find their grids, by id: {said}>"
    assert quantizer.encoding is not None
    same = compiled.grids[quantizer.id](quantizer.spec)
    assert np.array_equal(same.scale, quantizer.encoding.scale)
    wider = compiled.grids[quantizer.id](replace(quantizer.spec, format=IntFormat(16, signed=False)))
    assert (wider.scale < quantizer.encoding.scale / 200).all()
