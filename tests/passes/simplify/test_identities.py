"""Identities and dropout: what goes, and what stays so that inputs and outputs keep their names."""

from __future__ import annotations

from support.models import parse
from support.pipelines import apply
from support.simplified import kinds, simplified

from qc.ir.onnx.lower import lower


def test_dropout_in_training_stays() -> None:
    text = """g (float[4] x) => (float[4] y) <float ratio = {0.5}, bool training = {1}> {
        a = Dropout(x, ratio, training)
        y = Neg(a)
    }"""
    assert kinds(lower(apply("eliminate-identity", parse(text))[0])) == ["Dropout", "Neg"]


def test_a_chain_of_identities_between_an_input_and_an_output() -> None:
    text = "g (float[4] x) => (float[4] y) { a = Identity(x) b = Identity(a) y = Identity(b) }"
    assert kinds(simplified("eliminate-identity", parse(text))) == ["Identity"]


def test_an_identity_between_two_outputs() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) z = Identity(y) }"
    assert kinds(simplified("eliminate-identity", parse(text), changed=False)) == ["Neg", "Identity"]
