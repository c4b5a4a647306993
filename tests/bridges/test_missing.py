"""What a bridge says where the package that it leads to is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("olive", "olive.package_config"),
        ("optimum", "optimum.quantization_base"),
        ("polygraphy", "polygraphy.backend.base"),
    ],
)
def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    for module in ("olive.common.config_utils", package):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"qc.bridges.{name}", raising=False)
    with pytest.raises(
        ImportError, match=rf"^qc\.bridges\.{name} needs an extra: pip install 'qc-onnx\[{name}\]'"
    ):
        importlib.import_module(f"qc.bridges.{name}")
