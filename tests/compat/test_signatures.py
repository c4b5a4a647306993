"""Every public function, class and method of AIMET-ONNX takes here what it takes there, or is a sentence.

``signatures.txt`` was written by ``make_signatures.py`` beside it with AIMET 2.42, and is written again where
``QC_AIMET_PYTHON`` names a Python that has it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.folders import AIMET

from qc.compat.aimet_onnx import imports
from qc.compat.missing import MissingAttributesError, NotProvidedError, PartlyProvided

TABLE = AIMET / "signatures.txt"
# Classes that scripts ask for and do not make: what makes them takes other arguments than in AIMET.
MADE_BY_OTHERS = {
    "amp.utils.Layer": "find_layer_database_for_mac_calculation",
    "common.defs.qtype": "qtype.int and the like",
    "meta.operations.Op": "ConnectedGraph",
}
# Bases for several frameworks: the layer has the class for ONNX in their place.
BASES = (
    "common.amp.mixed_precision_algo.",
    "common.connected_graph.",
    "common.cross_layer_equalization.CrossLayerScaling",
)


def found(path: str) -> tuple[Any, str]:
    """What the layer has at a path, up to a class, and the name of its member that is left, if any."""
    parts = path.split(".")
    count = max(n for n in range(len(parts)) if ".".join(parts[:n]) in imports.modules())
    module = importlib.import_module(f"qc.compat.aimet_onnx.{'.'.join(parts[:count])}")
    return getattr(module, parts[count]), ".".join(parts[count + 1 :])


def differences(parameters: list[str], callable: Any) -> list[str]:
    """What can be given there and not here, or must be given here alone."""
    ours = [one for name, one in inspect.signature(callable).parameters.items() if name != "self"]
    named = {one.name: one for one in ours}
    kinds = {one.kind for one in ours}
    places = [one.name for one in ours if one.kind is one.POSITIONAL_OR_KEYWORD]
    wrong = []
    by_name = False
    given = [word.strip("=*") for word in parameters]
    for number, word in enumerate(parameters):
        name = given[number]
        by_name = by_name or word.startswith("*")
        if word.startswith("*"):
            continue
        if name in named and word.endswith("=") and named[name].default is inspect.Parameter.empty:
            wrong.append(f"'{name}' may not be left out")
        if name not in named and inspect.Parameter.VAR_KEYWORD not in kinds:
            wrong.append(f"there is no '{name}'")
        elif not by_name and inspect.Parameter.VAR_POSITIONAL not in kinds and places[number] != name:
            wrong.append(f"'{name}' is not number {number}")
    must = (one for one in ours if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD)
    return wrong + [f"'{one.name}' must be given" for one in must if one.name not in given]


def test_every_call_of_aimet_is_a_call_here_or_a_sentence() -> None:
    outcomes: Counter[str] = Counter()
    wrong = {}
    for path, *parameters in map(str.split, TABLE.read_text().splitlines()):
        path = path.removesuffix(".")
        if path.startswith(BASES) or path in MADE_BY_OTHERS:
            continue
        try:
            holder, member = found(path)
        except (MissingAttributesError, NotProvidedError):
            outcomes["sentence"] += 1
            continue
        if member and not hasattr(holder, member):
            fields = getattr(holder, "__dataclass_fields__", {})
            if member not in fields and not issubclass(holder, PartlyProvided):
                wrong[path] = ["is missing without a sentence"]
            continue
        called = getattr(holder, member) if member else holder
        if callable(called):
            outcomes["call"] += 1
            if problems := differences(parameters, called):
                wrong[path] = problems
    assert wrong == {}
    assert outcomes["call"] > 150


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="needs AIMET")
def test_the_table_is_what_aimet_says(tmp_path: Path) -> None:
    again, names = tmp_path / "signatures.txt", Path(imports.__file__).with_name("names.toml")
    command = [os.environ["QC_AIMET_PYTHON"], str(AIMET / "make_signatures.py"), str(names), str(again)]
    subprocess.run(command, check=True, capture_output=True)
    assert again.read_text() == TABLE.read_text()
