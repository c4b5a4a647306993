"""How often every supergroup occurs in the models of the corpus, and that no norm and no GELU is missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto
from support.census import census, census_line, missed, telltales
from support.corpus import exported_samples, heavy_samples, operator_samples, own_samples
from support.spellings import SPELLINGS

from qc.ir import lift
from qc.ir.model import Model

FOLDER = Path(__file__).parent / "census"


@cache
def onnx_models() -> dict[str, Model]:
    """The models that come with ONNX."""
    samples = (*exported_samples(), *heavy_samples(), *operator_samples())
    return {sample.name: lift(sample.model) for sample in samples}


@cache
def own_models() -> dict[str, Model]:
    """The fixtures and the spellings."""
    protos: dict[str, ModelProto] = {sample.name: sample.model for sample in own_samples()}
    protos |= {str(spelling): spelling.model() for spelling in SPELLINGS}
    return {name: lift(proto) for name, proto in protos.items()}


def listed(models: dict[str, Model]) -> Iterator[str]:
    counts = {name: census(model) for name, model in sorted(models.items())}
    yield from (census_line(name, found) for name, found in counts.items() if found)
    yield census_line("all", sum(counts.values(), Counter()))


def compare(lines: list[str], path: Path, request: pytest.FixtureRequest) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_census_of_the_fixtures_and_spellings(request: pytest.FixtureRequest) -> None:
    compare(list(listed(own_models())), FOLDER / "own.txt", request)


def test_census_of_the_models_of_onnx(request: pytest.FixtureRequest) -> None:
    path = FOLDER / "onnx.txt"
    head = f"onnx {onnx.__version__}"
    if not request.config.getoption("--update-golden") and path.read_text("utf-8").splitlines()[0] != head:
        pytest.skip(f"the census is of the models of another version than {head}")
    compare([head, *listed(onnx_models())], path, request)


@pytest.mark.parametrize("models", [onnx_models, own_models])
def test_no_norm_and_no_gelu_is_missed(models) -> None:
    graphs = [graph for model in models().values() for graph in model.graphs()]
    kinds = Counter(names[0] for graph in graphs for _, names in telltales(graph))
    assert kinds["gelu"] > 5 and kinds["layer_norm"] > 20 and kinds["rms_norm"] > 0
    assert [f"{op.label} of {graph.model.graph.name}" for graph in graphs for op in missed(graph)] == []
