"""The table of operators says what ONNX's definitions and ONNX Runtime say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto
from support.operator_cases import operator_cases

from qc.ir.facts.op_table import ANY_NUMBER, TABLE, OpTraits

_QUALCOMM = {"BatchToSpace", "SpaceToBatch"}  # ops of other domains that exporters write without it
_OLD = {"Scatter", "Upsample"}  # which the cases of the newest opset lack


@cache
def schemas() -> dict[str, list[onnx.defs.OpSchema]]:
    found: dict[str, list[onnx.defs.OpSchema]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found[schema.name].append(schema)
    return found


def test_all_operators_exist() -> None:
    assert TABLE.keys() - _QUALCOMM <= schemas().keys()


@pytest.mark.parametrize("op_type", sorted(name for name, traits in TABLE.items() if traits.parameters))
def test_parameters_have_the_names_and_ports_of_the_definitions(op_type: str) -> None:
    given = {
        (inputs.name, port) for schema in schemas()[op_type] for port, inputs in enumerate(schema.inputs)
    }
    attributes = {name for schema in schemas()[op_type] for name in schema.attributes}
    for name, port in TABLE[op_type].parameters.items():
        assert any(other == port for _, other in given)
        assert (name, port) in given or name in attributes or (op_type, name) == ("Pad", "value")


def test_every_port_is_one_of_the_operator() -> None:
    for op_type, traits in TABLE.items():
        ports = {*traits.trained.values(), *traits.settings}
        known = max((len(schema.inputs) for schema in schemas().get(op_type, ())), default=99)
        assert all(port < known for port in ports), op_type


@cache
def _cases() -> dict[str, list[tuple[str, ModelProto, list[object]]]]:
    found = defaultdict(list)
    for name, model, arrays in operator_cases():
        if len(model.graph.node) == 1 and not model.graph.node[0].domain:
            found[model.graph.node[0].op_type].append((name, model, arrays))
    return found


def runnable(op_type: str) -> Iterator[tuple[str, Callable[..., list[np.ndarray]], list[np.ndarray]]]:
    """The cases of an op that ONNX Runtime runs: their names, what runs them on arrays, and the arrays."""
    for name, model, arrays in _cases()[op_type]:
        model.ir_version = min(model.ir_version, 10)  # newer than ONNX Runtime, some of them
        model.opset_import[0].version = min(model.opset_import[0].version, 21)
        if not all(isinstance(array, np.ndarray) for array in arrays):
            continue
        inputs = [info.name for info in model.graph.input]
        try:
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            session.run(None, dict(zip(inputs, arrays, strict=True)))
        except Exception:  # not every case has a kernel
            continue

        def run(*given: np.ndarray, session: ort.InferenceSession = session) -> list[np.ndarray]:
            return session.run(
                None, dict(zip([one.name for one in session.get_inputs()], given, strict=True))
            )

        yield name, run, [np.asarray(array) for array in arrays]


def having(accepts: Callable[[OpTraits], bool]) -> list[str]:
    return sorted(name for name, traits in TABLE.items() if accepts(traits) and name not in _QUALCOMM | _OLD)


@pytest.mark.parametrize("op_type", having(lambda traits: traits.grid == "keeps"))
def test_ops_that_keep_a_grid_make_no_other_numbers(op_type: str) -> None:
    seen = 0
    for name, run, arrays in runnable(op_type):
        if "train" in name or "empty" in name:  # a Dropout that drops, a ReduceMax of nothing
            continue
        result = run(*arrays)[0]
        assert np.isin(result, arrays[0]).all(), name
        seen += 1
    assert seen or op_type == "MaxRoiPool"


@pytest.mark.parametrize("op_type", having(lambda traits: traits.grid == "joins"))
def test_ops_that_join_grids_make_no_other_numbers(op_type: str) -> None:
    seen = 0
    for name, run, arrays in runnable(op_type):
        if not any(reduction in name for reduction in ("_add", "_mul", "_max", "_min", "duplicate")):
            given = np.concatenate([array.ravel() for array in arrays])
            assert np.isin(run(*arrays)[0], given).all(), name
            seen += 1
    assert seen


@pytest.mark.parametrize("op_type", having(lambda traits: traits.commutative))
def test_commutative_ops_are(op_type: str) -> None:
    seen = 0
    for name, run, arrays in runnable(op_type):
        if len({array.shape for array in arrays}) == 1 and len(arrays) > 1:
            np.testing.assert_allclose(run(*arrays)[0], run(*arrays[::-1])[0], rtol=1e-6, err_msg=name)
            seen += 1
    assert seen


@pytest.mark.parametrize("op_type", having(lambda traits: traits.reads_shape))
def test_ops_that_read_a_shape_do_not_read_numbers(op_type: str) -> None:
    for _, run, arrays in runnable(op_type):
        np.testing.assert_array_equal(run(*arrays)[0], run(*(np.zeros_like(array) for array in arrays))[0])


@pytest.mark.parametrize("op_type", having(lambda traits: traits.limits != ANY_NUMBER))
def test_no_result_is_beyond_the_limits(op_type: str) -> None:
    low, high = TABLE[op_type].limits
    seen = 0
    for name, run, arrays in runnable(op_type):
        for factor in (1, -100, 1000):
            given = [array * factor if array.dtype == np.float32 else array for array in arrays]
            result = run(*given)[0]
            assert np.all((result >= low) & (result <= high) | np.isnan(result)), name
            seen += 1
    assert seen
