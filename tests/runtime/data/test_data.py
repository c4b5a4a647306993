"""Single feeds are checked against the model, and random data fits it."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.data import ANYTHING, DEFAULT, IMAGE, LENGTH, MASK, STATE, images, shapes

from qc.ir.errors import DataError
from qc.ir.executor import Feed
from qc.runtime import InputInfo, load_data, model_inputs, random_data


def test_inputs_of_a_model() -> None:
    value = helper.make_tensor_value_info
    inputs = [
        value("a", TensorProto.FLOAT16, ["n", 4, None, -1]),
        value("b", TensorProto.STRING, None),
        value("w", TensorProto.FLOAT, [2]),
        helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None),
    ]
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    node = helper.make_node("Identity", ["a"], ["y"])
    graph = helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT16, None)], [weight])
    assert model_inputs(helper.make_model(graph)) == (
        InputInfo("a", TensorProto.FLOAT16, ("n", 4, None, None)),
        InputInfo("b", TensorProto.STRING, None),
        InputInfo("w", TensorProto.FLOAT, (2,), optional=True),
        InputInfo("s", TensorProto.UNDEFINED, None),
    )
    assert [str(info) for info in model_inputs(helper.make_model(graph))] == [
        "float16 (n, 4, ?, ?)",
        "string of any shape",
        "float32 (2)",
        "not a tensor",
    ]


# Single feeds


def good() -> dict[str, object]:
    return {"image": images(2), "length": np.array(3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": ()}, "input 'length' must be a numpy array, got a 'tuple'"),
        ({"length": None}, "input 'length' must be a numpy array, got a 'NoneType'"),
        ({"length": 3}, "input 'length' must be a numpy array, got an 'int'"),
        (
            {"length": np.array(3, np.int32)},
            "input 'length' has dtype int32, the model takes int64; save array.astype('int64'): qc never",
        ),
        ({"image": images(1).astype(np.float64)}, "input 'image' has dtype float64, the model takes float32"),
        ({"image": images(1).astype(">f4")}, "input 'image' has dtype >f4, the model takes float32"),
        (
            {"image": images(1)[0]},
            "input 'image' has rank 2, shape (3, 2); the model takes float32 (batch, 3, 2)",
        ),
        (
            {"image": images(1)[:, :, :1]},
            "input 'image' has size 1 on axis 2, shape (1, 3, 1); the model takes",
        ),
        ({"image": images(1) * np.float32(np.nan)}, "input 'image' holds NaN or infinity"),
        ({"image": np.full((1, 3, 2), np.inf, np.float32)}, "input 'image' holds NaN or infinity"),
        (
            {"image": np.float32([[[0, 0], [0, -np.inf], [0, 0]]])},
            "input 'image' holds NaN or infinity; of a mask give -10000 for it here",
        ),
    ],
)
def test_careless_feeds(change: dict[str, object], message: str) -> None:
    data = load_data([good(), good() | change], [IMAGE, LENGTH])
    with pytest.raises(DataError) as caught:
        list(data)
    assert str(caught.value).startswith(f"the given data, feed 1: {message}")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_numbers_whose_squares_overflow_are_finite_and_nan_is_not(dtype: type) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [InputInfo("x", element, ("n",), False)]
    large = np.full(9, ml_dtypes.finfo(dtype).max, dtype)
    assert len(list(load_data([{"x": large}, {"x": -large}, {"x": large[:0]}], inputs))) == 3
    for bad in (np.nan, np.inf, -np.inf):
        wrong = large.copy()
        wrong[4] = bad
        with pytest.raises(DataError, match="feed 0: input 'x' holds NaN or infinity"):
            list(load_data([{"x": wrong}], inputs))


def test_a_misspelt_input_is_not_taken_for_something_else() -> None:
    with pytest.raises(DataError, match=r"the model has no input 'imagé' \(did you mean 'image'\?\)"):
        list(load_data([{"imagé": images(1), "length": np.array(3)}], [IMAGE, LENGTH]))


def test_a_feed_must_hold_all_inputs() -> None:
    with pytest.raises(DataError, match="feed 0: expected a dictionary of arrays by input name, got a 'str'"):
        list(load_data(["image"], [IMAGE]))
    with pytest.raises(
        DataError, match="feed 0: 3 values are neither one for each of the 1 inputs nor those"
    ):
        list(load_data([(images(1), 3, 4)], [IMAGE]))
    with pytest.raises(DataError, match=r"feed 0: no array for the input 'length' \(int64 \(\)\)"):
        list(load_data([{"image": images(1)}], [IMAGE, LENGTH]))


def test_feeds_of_all_kinds_that_fit() -> None:
    text = InputInfo("text", TensorProto.STRING, ("n",))
    brain = InputInfo("brain", TensorProto.BFLOAT16, (2,))
    feed: dict[str, object] = {
        "text": np.array(["a", "b"]),
        "brain": np.ones(2, ml_dtypes.bfloat16),
        "anything": np.zeros((0, 4), np.float32),
        "state": [np.ones(3)],
    }
    inputs = [text, brain, ANYTHING, STATE, DEFAULT]
    assert len(list(load_data([feed], inputs))) == 1
    with pytest.raises(DataError, match="'text' has dtype int64, the model takes strings"):
        list(load_data([feed | {"text": np.array([1])}], inputs))
    with pytest.raises(DataError, match="'brain' holds NaN"):
        list(load_data([feed | {"brain": np.full(2, np.nan, ml_dtypes.bfloat16)}], inputs))


# Random data


@given(st.integers(1, 4), st.integers(0, 3))
def test_random_data_fits_and_repeats(samples: int, seed: int) -> None:
    half = InputInfo("half", TensorProto.FLOAT16, (None, "time"))
    inputs = [IMAGE, LENGTH, MASK, half, DEFAULT]
    data = random_data(inputs, samples, seed, sizes={"time": 5, "half[0]": 2})
    first, second = list(data), list(data)
    assert len(first) == samples == data.length
    assert shapes(data)[0] == {"image": (1, 3, 2), "length": (), "mask": (2, 2), "half": (2, 5)}
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a)
    assert all(0 <= feed["length"].item() <= 1 for feed in first)


def test_random_data_that_cannot_be_made() -> None:
    free = InputInfo("x", TensorProto.FLOAT, ("n", "time"))
    with pytest.raises(DataError, match=r"--size time=N, in Python sizes=\{\"time\": N\}, or real data"):
        random_data([free], 1)
    with pytest.raises(DataError, match=r"--size 'x\[2\]=N'"):
        random_data([InputInfo("x", TensorProto.FLOAT, (None, 1, None))], 1)
    with pytest.raises(DataError, match=r"'tine', which no input has \(did you mean 'time'\?\)"):
        random_data([free], 1, sizes={"tine": 3})
    for info in (ANYTHING, STATE, InputInfo("text", TensorProto.STRING, (1,))):
        with pytest.raises(DataError, match=f"cannot make random data for the input '{info.name}'"):
            random_data([info], 1)
    with pytest.raises(DataError, match="at least 1 sample, not 0"):
        random_data([IMAGE], 0)


def endless() -> Iterator[Feed]:
    while True:
        yield {"image": images(1)}


def test_reading_is_lazy() -> None:
    assert next(iter(load_data(endless, [IMAGE])))["image"].shape == (1, 3, 2)
