"""What is wrong in a script is of the types that it catches, and one sentence about what it gave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qc.compat.aimet_onnx import QuantizationSimModel, analyze_per_layer_sensitivity
from qc.compat.aimet_onnx.quantsim import set_lpbq_for_params, set_param_type

from .networks import feeds, network

Wrong = Callable[[QuantizationSimModel], object]
WRONG: dict[str, Wrong] = {
    "encoding_version is '9'; it must be one of 0.6.1": lambda sim: sim.export(
        ".", "m", encoding_version="9"
    ),
    "encoding_version is '9'; use one of 0.6.1": lambda sim: sim.qc_quantize_op_dict["x"].export_encodings(
        "9"
    ),
    "there is no folder for save_model_graph; give path": lambda sim: sim.save_model_graph("g"),
    "unknown number format 'foo'": lambda sim: sim.set_tensor_precision("y", "foo"),
    "unknown number format 'bar'": lambda sim: sim.qc_quantize_op_dict["x"].set_precision("bar"),
    "unknown number format 'baz'": lambda sim: set_param_type(sim, "baz"),
    "integer formats have 2 to 16 bits": lambda sim: QuantizationSimModel(network(), default_param_bw=0),
    "the model has no input 'q'": lambda sim: sim.session.run(None, {"q": feeds()[0]["x"]}),
    "eval_callback must be callable, not int": lambda sim: analyze_per_layer_sensitivity(sim, 5),  # type: ignore[arg-type]
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_argument_is_a_value_error(
    sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = QuantizationSimModel(network())
    sim.compute_encodings(feeds())
    with pytest.raises(ValueError, match=sentence):
        WRONG[sentence](sim)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_version_cannot_say_is_a_value_error(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network())
    set_lpbq_for_params(sim, 4, 3, op_types=["Conv"])
    sim.compute_encodings(feeds())
    with pytest.raises(
        ValueError, match=r"version 0.6.1 has no two-level blocks \(LPBQ\); use 1.0.0 or 2.0.0"
    ):
        sim.export(tmp_path, "model", encoding_version="0.6.1")


def test_histograms_of_one_quantizer_are_told_where_to_find() -> None:
    op = QuantizationSimModel(network()).qc_quantize_op_dict["x"]
    with pytest.raises(
        AttributeError, match=r"not part of .*; QuantAnalyzer\.export_per_layer_stats_histogram"
    ):
        op.get_stats_histogram()
