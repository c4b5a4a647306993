"""What bodies capture, in forms that ONNX Runtime opens with all its optimizations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.lowered import assert_same_results
from support.machine import needs_exact_sums
from support.models import HEADER, parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, run_model

from qc.ir import lift
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site
from qc.runtime.execution.executed import execution_of

BODIES = {
    "If": """y = If(c) <
        then_branch = one () => (float[4, 4] p) { p = Tanh(t) },
        else_branch = two () => (float[4, 4] q) { q = Add(t, t) }
    >""",
    "nested If": """y = If(c) <
        then_branch = one () => (float[4, 4] p) {
            k = Identity(c)
            p = If(k) <
                then_branch = three () => (float[4, 4] r) { r = Tanh(t) },
                else_branch = four () => (float[4, 4] s) { s = Neg(t) }
            >
        },
        else_branch = two () => (float[4, 4] q) { q = Tanh(x) }
    >""",
    "Loop": """y = Loop(n, , x) <body = step (int64 i, bool k, float[4, 4] state)
        => (bool d, float[4, 4] next) {
        d = Identity(k)
        next = Sub(t, state)
    }>""",
    "Scan": """y, last = Scan<num_scan_inputs = 1, body = step (float[4, 4] state, float[4] row)
        => (float[4, 4] next, float[4] shown) { next = Sub(t, state)  shown = Tanh(row) }>(x, x)""",
}
CARRIERS = {
    "MaxPool": "pooled = MaxPool<kernel_shape = [1, 1]>(m)  t = Reshape(pooled, square)",
    "Reshape": "t = Reshape(m, square)",
    "Slice": "moved = Reshape(m, square)  t = Slice(moved, zero, four)",
    "Squeeze": "moved = Reshape(m, shape)  t = Squeeze(moved, zero)",
    "Transpose": "moved = Reshape(m, square)  t = Transpose<perm = [1, 0]>(moved)",
    "Unsqueeze": "moved = Reshape(m, flat)  wide = Unsqueeze(moved, zero)  t = Reshape(wide, square)",
    "what is removed": "moved = Reshape(m, square)  kept = Identity(moved)  t = Dropout(kept)",
}


def carried(carrier: str, body: str, outputs: str = "float[4, 4] y") -> ModelProto:
    """A convolution whose result a body captures behind ops that only move it."""
    return parse(
        HEADER.replace("21", "17")
        + f"""captures (float[4, 4] x, bool c, int64 n) => ({outputs})
        <float[1, 1, 1, 1] w, int64[2] square = {{4, 4}}, int64[3] shape = {{1, 4, 4}},
        int64[1] flat = {{16}}, int64[1] zero = {{0}}, int64[1] four = {{4}},
        int64[4] picture = {{1, 1, 4, 4}}> {{
            v = Reshape(x, picture)
            m = Conv(v, w)
            {carrier}
            {body}
        }}"""
    )


def open_all(folder: Path) -> None:
    """Opens the models of a folder as applications do, in another process."""
    lines = [
        "import pathlib, onnxruntime",
        f"for path in sorted(pathlib.Path({str(folder)!r}).glob('*.onnx')):",
        "    print(path.stem, flush=True)",
        "    onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{done.stdout.splitlines()[-1]}: {done.stderr[-500:]}"


def test_onnx_runtime_opens_what_carries_a_quantized_tensor_into_a_body(tmp_path: Path) -> None:
    for carrier, ops in CARRIERS.items():
        for body, control in BODIES.items():
            model = carried(ops, control)
            context = apply(f"{QUANTIZE},insert-qdq", model, feeds=random_feeds(model))[1]
            onnx.save(artifact(context, "qdq"), tmp_path / f"{carrier} into {body}.onnx")
    open_all(tmp_path)


@pytest.mark.parametrize("outputs", ["float[4, 4] y", "float[4, 4] y, float[4, 4] t"])
def test_it_computes_what_it_did(tmp_path: Path, outputs: str) -> None:
    model = carried(CARRIERS["Transpose"], BODIES["If"], outputs)
    feeds = random_feeds(model)
    context = apply(f"{QUANTIZE},insert-qdq,to-simulation", model, feeds=feeds)[1]
    qdq, simulation = artifact(context, "qdq"), artifact(context, "simulation")
    onnx.save(qdq, tmp_path / "qdq.onnx")
    open_all(tmp_path)
    for feed in feeds:
        for name, array in run_model(qdq, feed, optimize=True).items():
            np.testing.assert_array_equal(array, run_model(simulation, feed)[name])


SHARED_WEIGHT = """shared (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
    y = If(c) <
        then_branch = one () => (float[2, 4] p) { h = MatMul(x, w)  e = Exp(h)  p = MatMul(e, w) },
        else_branch = two () => (float[2, 4] q) { q = Gemm(x, w) }
    >
}"""


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_weight_is_dequantized_where_it_is_stored_if_a_body_multiplies_floats_by_it(
    tmp_path: Path, precision: str
) -> None:
    model = parse(SHARED_WEIGHT)
    ir = lift(model)
    (weight,) = (value for value in ir.graph.values() if value.const is not None)
    ir.quant.place(
        Site(weight), QuantSpec(IntFormat(int(precision[3:]), signed=True), symmetric=True), "asked for"
    )
    context = apply("calibrate,insert-qdq,to-simulation", ir)[1]
    qdq = artifact(context, "qdq")
    onnx.save(qdq, tmp_path / "qdq.onnx")
    open_all(tmp_path)
    assert [node.op_type for node in qdq.graph.node] == ["DequantizeLinear", "If"]
    for taken in (True, False):
        assert_same_results(context, {**random_feeds(model)[0], "c": np.asarray(taken)})


def test_a_maximum_stays_float_where_it_takes_no_integers() -> None:
    text = """maximum (float[1, 1, 4, 4] x) => (float[1, 1, 1, 1] y) <float[1, 1, 1, 1] w> {
        a = Conv(x, w)
        m = ReduceMax<axes = [2, 3]>(a)
        y = Conv(m, w)
    }"""
    for opset, runs in ((11, "float"), (12, "integer")):
        model = parse(HEADER.replace("21", str(opset)) + text)
        qdq = artifact(apply(f"{QUANTIZE},insert-qdq", model, feeds=random_feeds(model))[1], "qdq")
        (maximum,) = (op for op in execution_of(qdq).ops if op.node.op_type == "ReduceMax")
        assert maximum.integer == (runs == "integer")


@needs_exact_sums
def test_ifs_without_a_choice_in_front_of_a_capture() -> None:
    # ONNX Runtime takes such an If out itself, and then ended the process at what the next one captures.
    model = parse("""g (float[1, 2, 4, 4] x, bool c) => (float[1, 2, 4] y)
    <float[2, 2, 1, 1] w = {1, 2, 3, 4}, bool yes = {1}, int64[1] axis = {3}> {
        a = Conv(x, w)
        k = MaxPool<kernel_shape = [1, 4]>(a)
        d = If(yes) <then_branch = one () => (float[1, 2, 4] p) { p = Squeeze(k, axis) },
                     else_branch = two () => (float[1, 2, 4, 1] q) { q = Identity(k) }>
        y = If(c) <then_branch = three () => (float[1, 2, 4] r) { r = Sin(d) },
                   else_branch = four () => (float[1, 2, 4] s) { s = Cos(d) }>
    }""")
    feeds = [{**feed, "c": np.array(True)} for feed in random_feeds(model, 2)]
    _, context, _ = apply(f"{QUANTIZE},insert-qdq", model, "qnn-htp", feeds)
    written = artifact(context, "qdq")
    assert [node.op_type for node in written.graph.node].count("If") == 1
    result = run_model(written, feeds[0], optimize=True)["y"]
    np.testing.assert_allclose(result, run_model(model, feeds[0])["y"], atol=0.1)
