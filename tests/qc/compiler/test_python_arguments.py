"""The functions of ``import qc`` beside ``qc.compile``: the one sentence if they are given something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds

import qc
from qc.compiler.compiled import Compiled
from qc.ir.onnx.lower import lower
from qc.passes.framework.target import load_target

SOURCE = parse("g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w> { y = MatMul(x, w) }")
FEEDS = random_feeds(SOURCE, 2)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return qc.compile(SOURCE, data=FEEDS, threads=1)


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda made: qc.measure_sensitivity(SOURCE, FEEDS), "takes the result of qc.compile(), not a 'ModelP"),
    (
        lambda made: qc.measure_sensitivity(made, FEEDS, samples=1.5),
        "samples=1.5 is not a whole number of at",
    ),
    (
        lambda made: qc.measure_sensitivity(made, FEEDS, threads=0),
        "threads=0 is not a whole number of at lea",
    ),
    (lambda made: qc.measure_sensitivity(made, FEEDS, progress=3), "progress= takes what shows progress, se"),
    (
        lambda made: qc.measure_verdict("m.onnx", FEEDS),
        "measure_verdict() takes the result of qc.compile(), n",
    ),
    (lambda made: qc.save_weights(made, "w.npz"), "weights are given by name, as Compiled.weights has them"),
    (
        lambda made: qc.save_weights({"w": np.ones(2)}, "w.npz"),
        "as Compiled.weights has them, not as a 'ndar",
    ),
    (lambda made: qc.save_weights(None, "w.npz"), "as Compiled.weights has them, not as a 'NoneType'"),
    (lambda made: qc.save_weights({"w": None}, "w.npz"), "as Compiled.weights has them, not as a 'NoneType'"),
    (
        lambda made: qc.set_precision(made, "MatMul=w4"),
        "a qc.ir.Model is due here, not a 'Compiled'; its .ir",
    ),
    (
        lambda made: qc.coverage_of(SOURCE),
        "a qc.ir.Model is due here, not a 'ModelProto'; qc.ir.lift() makes",
    ),
    (lambda made: qc.coverage_of(made.ir, "nqu"), "unknown target 'nqu' (did you mean 'npu'?)"),
    (lambda made: qc.set_precision(made.ir, "MatMul=w8", "nqu"), "unknown target 'nqu'"),
    (lambda made: lower(made), "a qc.ir.Model is due here, not a 'Compiled'; its .ir is one"),
    (lambda made: qc.compile_for(SOURCE, [], data=FEEDS), "there is no target to compile for: name at least"),
    (
        lambda made: qc.check(made),
        "a model is an onnx.ModelProto or the path of a file, not a 'Compiled'; its .m",
    ),
    (
        lambda made: qc.Simulation(made),
        "a model is an onnx.ModelProto or the path of a file, not a 'Compiled'",
    ),
    (lambda made: made.open_simulation().run(FEEDS[0]["x"]), "expected a dictionary of arrays by input name"),
    (lambda made: made.open_simulation().run(FEEDS[0], "y"), "outputs='y' is text, where a list of names is"),
    (
        lambda made: made.open_simulation().with_encodings(["q1"]),
        "settings are a dictionary such as {'q3': 4}",
    ),
    (lambda made: made.open_simulation().with_encodings({3: 4}), "is named by text, not by 3"),
    (lambda made: qc.DataFiles(None), "path=None is not the path of a file or folder"),
    (lambda made: qc.DataFiles(""), "path='' is not the path of a file or folder"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_what_does_not_fit_is_one_sentence(number: int, compiled: Compiled) -> None:
    call, said = MISTAKES[number]
    with pytest.raises(qc.QcError) as refused:
        call(compiled)
    assert said in str(refused.value)


def test_a_target_has_a_name_wherever_it_is_given(compiled: Compiled) -> None:
    assert qc.coverage_of(compiled.ir, "npu") == qc.coverage_of(compiled.ir, load_target("npu"))


def test_no_output_is_no_array(compiled: Compiled) -> None:
    assert compiled.open_simulation(threads=1).run(FEEDS[0], []) == {}


def test_a_result_is_written_again_when_its_source_is_gone(tmp_path: Path) -> None:
    source, result = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(SOURCE, source)
    made = qc.compile(source, data=FEEDS, threads=1)
    made.save(result)
    with pytest.raises(qc.UsageError, match="is the input model; write to another file"):
        made.save(source)
    shutil.move(source, tmp_path / "elsewhere.onnx")
    assert made.save(result) == [result]
