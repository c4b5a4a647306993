"""ONNX's test cases for its operators, kept on disk: making them takes long, and many processes want them."""

from __future__ import annotations

import os
import pickle
import warnings

import numpy as np
import onnx
from onnx import ModelProto

from .folders import ROOT

_KEPT = ROOT / "build" / "operator-cases"


def operator_cases() -> list[tuple[str, ModelProto, list[object]]]:
    """Names, models and inputs of all cases; those that this version of ONNX makes with this one of numpy."""
    path = _KEPT / f"onnx-{onnx.__version__}-numpy-{np.__version__}.pickle"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(pickle.dumps(_made()))
        unfinished.replace(path)
    kept = pickle.loads(path.read_bytes())
    return [(name, ModelProto.FromString(data), inputs) for name, data, inputs in kept]


def _made() -> list[tuple[str, bytes, list[object]]]:
    np.random.seed(0)  # some cases are made of numpy's global random numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = [case for case in collect_testcases(None) if case.model is not None]  # type: ignore[arg-type]
    return [(case.name, case.model.SerializeToString(), case.data_sets[0][0]) for case in cases]
