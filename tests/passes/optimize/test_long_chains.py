"""Chains of more ops than Python may call functions within each other."""

from __future__ import annotations

import json
from pathlib import Path

from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply

from qc.passes.optimize.layers.layer import layers_of
from qc.passes.optimize.smoothing.channels import channels_of

LENGTH = 1100


def chain(op_type: str) -> ModelProto:
    """Two products with many ops of a kind in between."""
    ops = "".join(f"t{number + 1} = {op_type}(t{number}) " for number in range(LENGTH))
    return parse(f"""g (float[4, 4] x) => (float[4, 4] y) <float[4, 4] v, float[4, 4] w> {{
        t0 = MatMul(x, v) {ops} y = MatMul(t{LENGTH}, w)
    }}""")


def test_scales_are_followed_to_the_end() -> None:
    model = chain("LeakyRelu")
    ir, _, _ = apply(f"{PLACE},smooth", model, "npu", random_feeds(model, 4))
    (channels,) = channels_of(ir, layers_of(ir))
    assert [value.name for value, _ in channels.scaled] == [f"t{number}" for number in range(LENGTH + 1)]


def test_a_loaded_grid_is_passed_on_to_the_end(tmp_path: Path) -> None:
    model = chain("Transpose<perm = [1, 0]>")
    entry = {"name": "t0", "output_dtype": "uint8", "y_scale": 0.5}
    path = tmp_path / "f.encodings"
    path.write_text(json.dumps({"version": "2.0.0", "encodings": [entry]}))
    steps = f"insert-quantizers,load-encodings{{file={json.dumps(str(path))}}}"
    ir, _, _ = apply(steps, model, "npu", random_feeds(model, 4))
    last = ir.graph.value_named(f"t{LENGTH}")
    assert last is not None
    held = ir.quant.of_value(last)
    assert held is not None and held.encoding is not None and held.encoding.scale == 0.5
