"""The executor observes what the model computes, streams, and explains what goes wrong."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, repeat
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from support.corpus import external_model
from support.folders import FIXTURES
from support.models import parse

from qc.ir.errors import DataError, ModelError, UsageError
from qc.ir.executor import Executor, Feed, Observation
from qc.runtime import (
    OrtExecutor,
    TensorStatistics,
    add_observers,
    load_data,
    model_inputs,
    open_session,
    random_data,
)
from qc.runtime.protos.detach import detach_weights
from qc.runtime.sessions.open import run_session

BACKEND = Path(onnx.__file__).parent / "backend" / "test" / "data"
SINGLE = OrtExecutor(threads=1)
RANGE = Observation()
AS_PASSES_SEE_IT: Executor = SINGLE  # mypy checks the protocol here


def f32(values: object) -> np.ndarray:
    return np.array(values, np.float32)


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[str] = ("y",),
    weights: dict[str, np.ndarray] | None = None,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model of opset 17 whose outputs have no type."""
    graph = helper.make_graph(
        nodes,
        "test",
        inputs,
        [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def floats(name: str, *shape: int | str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def relu(domain: str = "", op_type: str = "Relu") -> ModelProto:
    node = helper.make_node(op_type, ["x"], ["y"], name="first", domain=domain)
    return make_model([node], [floats("x", "n", 2)], domains=[domain] if domain else [])


def matmul(weight: np.ndarray) -> ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    return make_model([node], [floats("x", "n", weight.shape[0])], weights={"w": weight})


def branches() -> ModelProto:
    """If whose branches capture tensors of the main graph, beside a part that nothing there needs."""
    then = helper.make_graph(
        [helper.make_node("Add", ["doubled", "w"], ["a"])], "then", [], [ValueInfoProto(name="a")]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["doubled"], ["b"])], "else", [], [ValueInfoProto(name="b")]
    )
    nodes = [
        helper.make_node("Add", ["x", "x"], ["doubled"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Mul", ["doubled", "unused"], ["z"]),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
    weights = {"w": f32([5, 5]), "unused": np.ones(2, np.float32)}
    return make_model(nodes, [floats("x", "n", 2), condition], ["y", "z"], weights)


@pytest.fixture(scope="module")
def digits() -> ModelProto:
    return onnx.load(FIXTURES / "digits_cnn.onnx")


def image_feeds(images: np.ndarray) -> list[Feed]:
    return [{"image": image[np.newaxis]} for image in images]


def inner_tensors(model: ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in node.output]


def test_statistics_are_those_of_the_tensors_themselves(digits: ModelProto) -> None:
    images = np.load(FIXTURES / "digits_calibration.npz")["image"][:8]
    names = ["image", *inner_tensors(digits)]
    request = Observation("histogram")
    observed = SINGLE.observe(digits, dict.fromkeys(names, (request,)), image_feeds(images))
    runs = list(SINGLE.run(digits, image_feeds(images), names))
    assert [name for name, _ in observed] == names and len(runs) == 8
    for name in names:
        together = reduce(
            TensorStatistics.merge, [TensorStatistics.from_array(run[name], request) for run in runs]
        )
        expected, got = together.to_arrays(), observed[name, request].to_arrays()
        assert all(np.array_equal(expected[key], got[key]) for key in expected), name


@given(order=st.permutations(range(6)), cut=st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_order_and_sharding_of_the_data_do_not_matter(order: list[int], cut: int) -> None:
    model = onnx.load(FIXTURES / "digits_cnn.onnx")
    images = np.load(FIXTURES / "digits_calibration.npz")["image"][:6]
    requests = {"relu_1": [Observation("histogram")], "conv_2": [Observation(axis=1)]}
    straight = SINGLE.observe(model, requests, image_feeds(images))
    first = SINGLE.observe(model, requests, image_feeds(images[order[:cut]]))
    second = SINGLE.observe(model, requests, image_feeds(images[order[cut:]]))
    for request, statistics in straight.items():
        merged = second[request].merge(first[request]).to_arrays()
        expected = statistics.to_arrays()
        assert all(np.array_equal(expected[key], merged[key]) for key in expected)


def test_channels_are_observed_along_the_axis() -> None:
    x = f32([[1, -2], [3, 4]])
    found = SINGLE.observe(relu(), {"x": [Observation(axis=1)], "y": [Observation(axis=1)]}, [{"x": x}])
    observed = {name: statistics for (name, _), statistics in found.items()}
    assert observed["x"].minimum.tolist() == [1, -2] and observed["x"].maximum.tolist() == [3, 4]
    assert observed["y"].minimum.tolist() == [1, 0] and observed["y"].count == 4


def test_only_what_is_observed_is_computed(digits: ModelProto) -> None:
    before = digits.SerializeToString()
    model, (group,) = add_observers(digits, [("relu_1", Observation())])
    kinds = [node.op_type for node in model.graph.node if node.op_type != "Concat"]
    assert kinds == ["Conv", "BatchNormalization", "Relu", "Observe"]
    assert len(model.graph.initializer) == 5 and len(digits.graph.initializer) > 40
    assert [output.name for output in model.graph.output] == list(group.names.values())
    assert digits.SerializeToString() == before


def test_what_a_branch_captures_is_kept() -> None:
    model, _ = add_observers(branches(), [("y", Observation())])
    kinds = [node.op_type for node in model.graph.node if node.op_type != "Concat"]
    assert kinds == ["Add", "If", "Observe"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]
    feeds = [{"x": f32([[1, 2]]), "c": np.array(flag)} for flag in (True, False)]
    observed = SINGLE.observe(branches(), {"y": [RANGE]}, feeds)["y", RANGE]
    assert observed.minimum == -4 and observed.maximum == 9 and observed.count == 4


def test_observers_do_not_take_names_that_are_in_use() -> None:
    node = helper.make_node("Relu", ["x"], ["qc.observe.0.minimum"])
    model = make_model([node], [floats("x", 2)], ["qc.observe.0.minimum"])
    name = "qc.observe.0.minimum"
    observed = SINGLE.observe(model, {name: [RANGE]}, [{"x": f32([-1, 3])}])[name, RANGE]
    assert observed.minimum == 0 and observed.maximum == 3


def test_inputs_constants_and_outputs_can_be_observed() -> None:
    requests = dict.fromkeys(["w", "x", "y"], (RANGE,))
    found = SINGLE.observe(matmul(f32([[2], [3]])), requests, [{"x": np.ones((1, 2), np.float32)}] * 2)
    observed = {name: statistics for (name, _), statistics in found.items()}
    assert observed["w"].maximum == 3 and observed["x"].count == 4 and observed["y"].minimum == 5


def test_an_input_with_a_default_may_be_fed_or_not() -> None:
    model = matmul(f32([[2], [3]]))
    model.graph.input.append(floats("w", 2, 1))
    x = np.ones((1, 2), np.float32)
    feeds: list[Feed] = [{"x": x}, {"x": x, "w": f32([[1], [1]])}]
    assert [run["y"].item() for run in SINGLE.run(model, feeds)] == [5, 2]
    assert SINGLE.observe(model, {"x": [RANGE]}, feeds)["x", RANGE].count == 4


def test_feeds_are_read_one_at_a_time_and_let_go() -> None:
    alive: list[int] = []
    most = 0

    def feeds() -> Iterator[Feed]:
        nonlocal most
        for number in range(20):
            array = np.ones((4, 2), np.float32)
            alive.append(number)
            weakref.finalize(array, alive.remove, number)
            most = max(most, len(alive))
            yield {"x": array}

    steps: list[int] = []
    asked = Observation("histogram")
    observed = SINGLE.observe(relu(), {"y": [asked]}, feeds(), on_feeds=steps.append)
    assert observed["y", asked].count == 160 and most <= 2
    assert steps == [1] * 20


def test_memory_does_not_grow_with_the_number_of_samples(digits: ModelProto) -> None:
    data = random_data(model_inputs(digits), 16)
    requests = dict.fromkeys(inner_tensors(digits), (Observation("histogram"),))

    def peak(feeds: Iterable[Feed]) -> int:
        tracemalloc.start()
        SINGLE.observe(digits, requests, feeds)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(data)
    few, many = peak(data), peak(chain.from_iterable(repeat(data, 8)))
    assert many < few * 1.05


def test_results_are_computed_when_they_are_asked_for() -> None:
    taken: list[int] = []

    def feeds() -> Iterator[Feed]:
        for number in range(3):
            taken.append(number)
            yield {"x": np.full((1, 2), number, np.float32)}

    results = SINGLE.run(relu(), feeds())
    assert not taken
    assert next(results)["y"].tolist() == [[0, 0]] and taken == [0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_values_name_the_first_tensor_and_the_feed(bad: float) -> None:
    nodes = [
        helper.make_node("Div", ["x", "x"], ["quotient"]),
        helper.make_node("Add", ["quotient", "offset"], ["y"]),
    ]
    model = make_model(nodes, [floats("x", 2)], weights={"offset": f32(1)})
    feeds = [{"x": f32([1, 2])}, {"x": f32([1, 0])}]
    if np.isinf(bad):
        model.graph.initializer.append(numpy_helper.from_array(f32(bad), "bad"))
        model.graph.node[1].input[1] = "bad"
        message = "tensor 'y' holds 2 NaN or infinite values on feed 0"
        feeds = feeds[:1]
    else:
        message = "tensor 'quotient' holds 1 NaN or infinite values on feed 1"
    with pytest.raises(DataError, match=message):
        SINGLE.observe(model, {"y": [RANGE], "quotient": [RANGE]}, feeds)
    tolerant = OrtExecutor(threads=1, allow_nonfinite=True)
    observed = tolerant.observe(model, {"y": [RANGE]}, feeds)["y", RANGE]
    assert observed.nonfinite == (2 if np.isinf(bad) else 1)


def test_careless_requests_are_explained() -> None:
    x = {"x": np.ones((1, 2), np.float32)}
    with pytest.raises(UsageError, match="no tensor 'yy' \\(did you mean 'y'\\?\\)"):
        SINGLE.observe(relu(), {"yy": [RANGE]}, [x])
    with pytest.raises(UsageError, match="inside a branch or loop body cannot be outputs"):
        SINGLE.element_types(branches(), ["a"])
    with pytest.raises(DataError, match="there is no sample"):
        SINGLE.observe(relu(), {"y": [RANGE]}, [])
    with pytest.raises(DataError, match="the given data, feed 1: no array for the input 'x'"):
        SINGLE.observe(relu(), {"y": [RANGE]}, [x, {}])
    with pytest.raises(ModelError, match="axis is 4, outside a tensor of shape"):
        SINGLE.observe(relu(), {"y": [Observation(axis=4)]}, [x])
    ints = make_model([helper.make_node("Shape", ["x"], ["y"])], [floats("x", "n", 2)])
    with pytest.raises(ModelError, match=r"'Observe' does not take tensor\(int64\).*'y'"):
        SINGLE.observe(ints, {"y": [RANGE]}, [x])
    assert SINGLE.observe(relu(), {}, [x]) == {}


def test_element_types_come_from_the_runtime() -> None:
    half = helper.make_tensor_value_info("h", TensorProto.FLOAT16, ["n", 4])
    nodes = [
        helper.make_node("Gelu", ["h"], ["gelu"], domain="com.microsoft"),
        helper.make_node("Cast", ["gelu"], ["brain"], to=TensorProto.BFLOAT16),
        helper.make_node("Shape", ["gelu"], ["shape"]),
        helper.make_node("SequenceConstruct", ["gelu"], ["list"]),
        helper.make_node("MatMul", ["gelu", "w"], ["y"]),
    ]
    model = make_model(nodes, [half], weights={"w": np.ones((4, 9), np.float16)}, domains=["com.microsoft"])
    assert SINGLE.element_types(model, ["y", "gelu", "brain", "shape", "list", "h", "w"]) == {
        "y": TensorProto.FLOAT16,
        "gelu": TensorProto.FLOAT16,
        "brain": TensorProto.BFLOAT16,
        "shape": TensorProto.INT64,
        "list": TensorProto.UNDEFINED,
        "h": TensorProto.FLOAT16,
        "w": TensorProto.FLOAT16,
    }


@pytest.mark.parametrize(
    "folder",
    [
        "simple/test_single_relu_model",
        "simple/test_expand_shape_model1",
        "simple/test_strnorm_model_nostopwords_nochangecase",
        "pytorch-converted/test_Conv2d_groups",
        "pytorch-converted/test_Embedding",
        "pytorch-operator/test_operator_conv",
        "pytorch-operator/test_operator_permute2",
    ],
)
def test_onnx_test_data_gives_the_expected_outputs(folder: str) -> None:
    if not (BACKEND / folder).is_dir():
        pytest.skip("this version of onnx does not carry the test")
    model = onnx.load(BACKEND / folder / "model.onnx")
    results = list(SINGLE.run(model, load_data(BACKEND / folder, model_inputs(model))))
    assert results
    for number, result in enumerate(results):
        for index, got in enumerate(result.values()):
            file = BACKEND / folder / f"test_data_set_{number}" / f"output_{index}.pb"
            expected = numpy_helper.to_array(onnx.load_tensor(file))
            if expected.dtype == object:
                assert expected.astype(str).tolist() == got.tolist()
            else:
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


WEIGHT = np.arange(40_000, dtype=np.float32).reshape(4, 10_000)


def test_large_weights_are_handed_over_not_serialized() -> None:
    light, weights = detach_weights(matmul(WEIGHT))
    assert len(light.SerializeToString()) < 1000 and list(weights) == ["w"]
    session = open_session(matmul(WEIGHT))
    del weights
    x = np.eye(4, dtype=np.float32)
    assert np.array_equal(run_session(session, {"x": x})[0], WEIGHT)
    half, half_weights = detach_weights(matmul(WEIGHT.astype(ml_dtypes.bfloat16)))
    assert not half_weights and half == matmul(WEIGHT.astype(ml_dtypes.bfloat16))


def test_external_data_is_found_from_a_path_and_from_a_folder(tmp_path: Path) -> None:
    path, x = tmp_path / "model.onnx", np.eye(4, dtype=np.float32)
    onnx.save_model(
        matmul(WEIGHT), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    light = onnx.load(path, load_external_data=False)
    assert np.array_equal(run_session(open_session(path), {"x": x})[0], WEIGHT)
    assert np.array_equal(run_session(open_session(str(path)), {"x": x})[0], WEIGHT)
    assert np.array_equal(run_session(open_session(light, base_dir=tmp_path), {"x": x})[0], WEIGHT)
    observed = SINGLE.observe(light, {"y": [RANGE]}, [{"x": x}], base_dir=tmp_path)
    assert observed["y", RANGE].maximum == 39_999
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"constant 'w' lies in a file that is missing .*\(base_dir\)$"):
        open_session(path)


def test_brain_floats_go_in_and_come_out() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    model = make_model([node], [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [3])])
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    (result,) = SINGLE.run(model, [{"x": x}])
    assert result["y"].dtype == x.dtype and result["y"].tolist() == x.tolist()
    node.attribute[0].i = TensorProto.FLOAT8E4M3FN
    model = make_model([node], [floats("x", 3)])
    (result,) = SINGLE.run(model, [{"x": x.astype(np.float32)}])
    assert result["y"].dtype == ml_dtypes.float8_e4m3fn and result["y"].astype(float).tolist() == [1, 2.5, -3]


def test_models_no_runtime_takes_are_explained(tmp_path: Path) -> None:
    cases = {
        "knows the operator 'Rule' of domain 'ai.onnx' version 17, used by node 'first'": relu(
            op_type="Rule"
        ),
        "no runtime here knows the operator 'Relu' of domain 'my.domain'; load its lib": relu("my.domain"),
        "no runtime here knows the operator 'Relu' of domain 'qc'": relu("qc"),
    }
    unimported = relu("my.domain")
    del unimported.opset_import[1]
    cases["the operator 'Relu' of domain 'my.domain' in node 'first' but imports no version"] = unimported
    integers = relu()
    integers.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    cases[r"'Relu' does not take tensor\(uint8\), which is the type of its input 'x' in node 'first'"] = (
        integers
    )
    brain = relu()
    brain.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    cases["cannot run the operator 'Relu' of node 'first' on the CPU"] = brain
    dangling = relu()
    dangling.graph.node[0].input[0] = "nowhere"
    cases["cannot load the model: .*'nowhere' is not a graph input"] = dangling
    shapes = matmul(np.ones((2, 3), np.float32))
    shapes.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7
    cases["cannot load the model: .*product.*Incompatible dimensions"] = shapes
    damaged = matmul(WEIGHT)
    damaged.graph.initializer[0].raw_data = damaged.graph.initializer[0].raw_data[:-5]
    cases["constant 'w' has 159995 bytes"] = damaged
    for message, model in cases.items():
        with pytest.raises(ModelError, match=message) as caught:
            open_session(model)
        assert "ONNXRuntimeError" not in str(caught.value) and "\n" not in str(caught.value)
    (tmp_path / "garbage.onnx").write_bytes(b"not a model")
    for name in ("garbage.onnx", "missing.onnx", ""):
        with pytest.raises(ModelError, match=f"model '{tmp_path / name}' "):
            open_session(tmp_path / name)


def test_failures_while_running_name_the_node() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="fold")
    model = make_model([node], [floats("x", "n", 2)], weights={"shape": np.array([3, 5])})
    with pytest.raises(ModelError) as caught:
        list(SINGLE.run(model, [{"x": np.ones((2, 2), np.float32)}]))
    assert str(caught.value).startswith("ONNX Runtime failed in Reshape node 'fold': ")
    assert "cannot be reshaped" in str(caught.value) and "reshape_helper" not in str(caught.value)


def test_external_data_without_a_folder_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = external_model()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="constant 'w' has external data; load the model from its file"):
        open_session(model, threads=1)
    assert open_session(model, base_dir=tmp_path, threads=1).get_inputs()[0].name == "x"


def test_a_large_constant_that_nothing_reads_is_left_out() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1 << 16, np.float32), "unread"))
    named = parse("g (float[2] x, float[65536] unread) => (float[2] y) { y = Neg(x) }")
    named.graph.initializer.extend(model.graph.initializer)  # the default of an input
    for one in (model, named):
        (found,) = open_session(one).run(None, {"x": np.ones(2, np.float32)})
        np.testing.assert_array_equal(found, [-1, -1])
