"""Which ops are at fault where a device gives a model up as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds

import qc
from qc.ir.errors import ModelError
from qc.ir.executor import Feed
from qc.runtime.devices import refused_part
from qc.runtime.devices.known import DEVICES, open_device, version_of
from qc.runtime.devices.refused_part import Parts, RefusedPart
from qc.runtime.execution.executed import Execution
from qc.runtime.sessions.runnable import OpenModel

FAILURE = "it is too much"
NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"]


def chain(ops: Sequence[str] = NAMES) -> ModelProto:
    """A quantized chain of convolutions and activations, each with a name."""
    steps, read = [], "x"
    for place, name in enumerate(ops):
        steps.append(f"{name} = Sigmoid({read})" if place % 3 == 2 else f"{name} = Conv({read}, w{place})")
        read = name
    weights = ", ".join(f"float[4, 4, 1] w{place}" for place in range(len(ops)))
    text = f"net (float[1, 4, 8] x) => (float[1, 4, 8] {read}) <{weights}> {{ {' '.join(steps)} }}"
    model = parse(text)
    for node, name in zip(model.graph.node, ops, strict=True):
        node.name = name
    return qc.compile(model, "w8a8", data=random_feeds(model, 2), target="qnn-htp").model


class Picky:
    """A device that gives up what holds some ops, all of them; it says what it was offered."""

    def __init__(self, *refused: str) -> None:
        self._refused = set(refused)
        self.offered: list[ModelProto] = []

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        onnx.checker.check_model(model)
        OpenModel(model)
        self.offered.append(model)
        held = {node.name for node in model.graph.node}
        return Execution((), (), FAILURE if self._refused <= held else "")


def found(device: Picky, model: ModelProto) -> list[str]:
    return [op.name for op in RefusedPart(model, FAILURE, device).search().ops]  # type: ignore[arg-type]


@pytest.mark.parametrize("refused", [["a"], ["d"], ["h"], ["d", "e"], ["c", "d", "e", "f"], ["a", "h"]])
def test_the_smallest_part_is_found(refused: list[str]) -> None:
    device = Picky(*refused)
    ends = NAMES.index(refused[0]), NAMES.index(refused[-1]) + 1
    assert found(device, chain()) == NAMES[slice(*ends)]
    assert len(device.offered) <= 2 * len(NAMES).bit_length()


def test_parts_have_codes_at_their_ends() -> None:
    device = Picky("d")
    found(device, chain())
    (fed,), (made,) = device.offered[-1].graph.input, device.offered[-1].graph.output
    assert fed.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert [node.op_type for node in device.offered[-1].graph.node][-1] == "QuantizeLinear"
    assert made.name != "d"


def test_nothing_smaller_is_refused() -> None:
    part = RefusedPart(chain(), FAILURE, Picky("nobody")).search()  # type: ignore[arg-type]
    assert not part.is_smaller and len(part.ops) == len(NAMES)


def test_the_number_of_compilations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_part, "MOST_COMPILATIONS", 3)
    steps: list[None] = []
    on_step: Callable[[], None] = lambda: steps.append(None)  # noqa: E731
    part = RefusedPart(chain(), FAILURE, Picky("h"), on_step=on_step).search()  # type: ignore[arg-type]
    assert part.compilations == len(steps) == 3
    assert [op.name for op in part.ops] == ["e", "f", "g", "h"]


def test_ops_with_floats_between_them_are_first_offered_together() -> None:
    model = parse("net (float[1, 8] x) => (float[1, 8] y) { a = Sigmoid(x) b = Exp(a) y = Neg(b) }")
    model.graph.node[1].name = "b"
    assert Parts(model, None).units() == [[0, 1, 2]]
    assert found(Picky("b"), model) == ["b"]


def test_a_convolution_of_too_wide_a_dilation_is_named(tmp_path: Path) -> None:
    if version_of(DEVICES["qnn-htp"]) is None:
        pytest.skip("onnxruntime-qnn is not installed")
    model = parse(
        """net (float[1, 4, 32778] x) => (float[1, 4, 10] y)
        <float[8, 4, 1] u, float[8, 8, 3] v, float[4, 8, 1] w> {
            a = Conv(x, u)
            b = Conv<dilations = [16384]>(a, v)
            y = Conv(b, w)
        }"""
    )
    model.graph.node[1].name = "wide"
    feeds = [{"x": np.random.default_rng(0).normal(size=(1, 4, 32778)).astype(np.float32)}]
    passes = "insert-quantizers, annotate-per-channel, tie-quantizers, calibrate, insert-qdq"  # as it is
    made = qc.compile(model, passes, data=feeds, target="qnn-htp").model
    found = qc.check(made, "qnn-htp")
    assert [(op.name, op.rule) for op in found.ops if op.runs == "refused"] == [
        ("Conv 'wide'", "not compiled")
    ]
    ((_, _, why),) = [one for one in found.broken if one[1] == "not opened"]
    assert "MEM_ALLOC" in why and why.endswith("; at fault is Conv 'wide', which is refused alone")
    with pytest.raises(ModelError, match=r"the HTP gives the model up: .*; 'qc check' looks for the ops"):
        open_device("qnn-htp").open(made)
