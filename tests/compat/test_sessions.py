"""``sim.session`` is an ONNX Runtime session for scripts, with the settings of the moment."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from qc.compat.aimet_onnx import QuantizationSimModel
from qc.compat.aimet_onnx.utils import OrtInferenceSession

from .networks import feeds, network


@pytest.fixture
def sim() -> QuantizationSimModel:
    made = QuantizationSimModel(network(), session_options_kwargs={"intra_op_num_threads": 1})
    made.compute_encodings(feeds())
    return made


def test_a_session_is_one_of_onnxruntime(sim: QuantizationSimModel) -> None:
    session = sim.session
    assert isinstance(session, ort.InferenceSession)
    assert session.get_session_options().intra_op_num_threads == 1
    assert [one.name for one in session.get_outputs()] == ["y"]
    assert session.get_modelmeta().graph_name
    assert list(session.get_provider_options()) == session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(AttributeError, match="a session has no 'runs'"):
        session.runs  # noqa: B018


def test_values_and_bindings_give_the_same(sim: QuantizationSimModel) -> None:
    feed = feeds()[0]
    expected = sim.session.run(None, feed)[0]
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
    np.testing.assert_array_equal(sim.session.run_with_ort_values(None, values)[0].numpy(), expected)
    session = sim.session
    binding = session.io_binding()
    binding.bind_cpu_input("x", feed["x"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)


def test_calibration_sees_values_and_refuses_bindings(sim: QuantizationSimModel) -> None:
    again = QuantizationSimModel(network())

    def run(session: ort.InferenceSession) -> None:
        for feed in feeds():
            session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(feed["x"])})

    again.compute_encodings(run)
    assert again.qc_quantize_op_dict["y"].get_encodings() == sim.qc_quantize_op_dict["y"].get_encodings()
    with pytest.raises(ValueError, match="calibration does not see what is bound"):
        again.compute_encodings(lambda session: session.run_with_iobinding(session.io_binding()))


def test_a_session_of_ones_own_holds_until_a_setting_changes(sim: QuantizationSimModel) -> None:
    own = OrtInferenceSession(network())
    sim.session = own
    assert sim.session is own
    sim.qc_quantize_op_dict["x"].enabled = False
    assert sim.session is not own
    for let_go in (lambda: setattr(sim, "session", None), sim._rebuild_session):
        sim.session = own
        let_go()
        assert sim.session is not own
        assert sim.session.run(None, feeds()[0])


def test_options_of_a_session_hold() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = OrtInferenceSession(network(), ["CPUExecutionProvider"], session_options=options)
    assert session.get_session_options().intra_op_num_threads == 1
    usual = OrtInferenceSession(network()).get_session_options()
    assert session.get_session_options().log_severity_level == usual.log_severity_level


def test_a_wrong_feed(sim: QuantizationSimModel) -> None:
    with pytest.raises(ValueError, match="the model has no input 'q'"):
        sim.session.run(None, {"q": feeds()[0]["x"]})


def test_quantizers_are_copied_and_joined_as_dictionaries(sim: QuantizationSimModel) -> None:
    quantizers = sim.qc_quantize_op_dict
    copied = quantizers.copy()
    assert isinstance(copied, dict) and copied == quantizers
    assert quantizers | {} == {} | quantizers == copied
    quantizers |= {"y": quantizers["x"]}
    assert sim.qc_quantize_op_dict["y"] is sim.qc_quantize_op_dict["x"]
    with pytest.raises(AttributeError, match=r"is not part of qc's compatibility layer"):
        quantizers.fromkeys  # noqa: B018
