"""What a test lets ``aimet_onnx`` be ends with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from qc.compat.aimet_onnx import imports


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    yield
    imports._FINDER.aliases = {}
    for name in [name for name in sys.modules if name.partition(".")[0] in ("aimet_onnx", "aimet_common")]:
        if sys.modules[name].__name__.startswith("qc."):
            del sys.modules[name]
