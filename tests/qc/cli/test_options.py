"""Python refuses what the command line does, by the same declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qc as package
from qc.cli.options import memory_size
from qc.ir.errors import UsageError

MODEL, DATA = "model.onnx", "calibration.npz"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threads": 0}, "threads=0 is not a whole number of at least 1"),
        ({"threads": 2.0}, "threads=2.0 is not a whole number"),
        ({"threads": True}, "threads=True is not a whole number"),
        ({"threads": 5000}, "threads=5000 is more than 1024"),
        ({"seed": -1}, "seed=-1 is not a whole number of at least 0"),
        ({"seed": None}, "seed=None is not a whole number"),
        ({"action_limit": -3}, "action_limit=-3 is not a whole number of at least 0"),
        ({"device": 3}, "device=3 is not text"),
        ({"verify_each": "no"}, "verify_each='no' is not True or False"),
        ({"precision": 3}, "a rule of precision is text such as 'Conv=w4a8', not 3"),
        ({"precision": ["Conv=w4a8", 3]}, "a rule of precision is text such as 'Conv=w4a8', not 3"),
    ],
)
def test_values_that_an_option_does_not_take(qc, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        package.compile(MODEL, data=[], **given)


def test_values_that_are_taken(qc) -> None:
    compilation = package.Compilation(MODEL, threads=np.int64(2), action_limit=None, seed=7)
    assert compilation.threads == 2 and compilation.seed == 7


@pytest.mark.parametrize(
    ("text", "size"),
    [("123", 123), ("2GB", 2 * 10**9), ("1.5 GiB", 3 << 29), ("500m", 5 * 10**8), ("64kib", 65536)],
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0MB", "-1GB", "two", "2GBB", "1e9", "2 PB"])
def test_texts_that_are_no_size(qc, text: str) -> None:
    result = qc(MODEL, "--data", DATA, "--memory", text)
    assert result.code == 2 and "is not a size such as 500MB or 2GB" in result.err


def test_with_little_memory_the_data_is_read_again(qc) -> None:
    Path("feeds.py").write_text(
        "import numpy as np\n"
        "def feeds():\n"
        "    open('readings', 'a').write('x')\n"
        f"    return [{{'image': image[None]}} for image in np.load('{DATA}')['image'][:4]]\n"
    )
    command = [
        MODEL,
        "--data",
        "feeds.py:feeds",
        "--passes",
        "insert-quantizers{slower=integer},calibrate{method=mse},insert-qdq",
    ]
    assert qc(*command, "-o", "once.onnx").code == 0
    once = Path("readings").stat().st_size
    assert qc(*command, "-o", "often.onnx", "--memory", "1MB").code == 0
    assert Path("readings").stat().st_size - once > once
