"""qc as a pass of Microsoft's Olive.

A workflow names the pass ``QcQuantization``; Olive finds it by a package configuration, which
``python -m qc.bridges.olive FILE`` writes:

    olive run --config workflow.json --package-config FILE
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

import qc
from qc.ir.base.extras import install_command
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError

try:
    from olive.common.config_utils import validate_config
    from olive.data.config import DataConfig
    from olive.hardware.accelerator import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.pass_config import BasePassConfig, PassConfigParam
except ImportError as error:
    raise ImportError(f"qc.bridges.olive needs an extra: {install_command('olive')}") from error

_OPTIONS = {
    "pipeline": PassConfigParam(
        type_=str, default_value="w8a8", description="a pipeline of qc, by name or as a .toml file"
    ),
    "target": PassConfigParam(
        type_=str | None, default_value=None, description="what the model is for; default: the pipeline's"
    ),
    "data_config": PassConfigParam(
        type_=DataConfig | dict | None, default_value=None, description="the data that ranges are found on"
    ),
}


class QcQuantization(Pass):  # type: ignore[misc]  # Olive may not be installed
    """Quantizes an ONNX model by a pipeline of qc."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        return dict(_OPTIONS)

    def _run_for_config(
        self, model: ONNXModelHandler, config: BasePassConfig, output_model_path: str
    ) -> ONNXModelHandler:
        """Compiles a model.

        Raises:
            QcError: what :func:`qc.compile` raises.
        """
        path = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        data = list(_feeds(model, config.data_config)) if config.data_config is not None else None
        qc.compile(model.model_path, config.pipeline, data=data, target=config.target).save(path)
        return ONNXModelHandler(path)


def _feeds(model: ONNXModelHandler, asked: DataConfig | Mapping[str, Any]) -> Iterator[dict[str, np.ndarray]]:
    """The feeds of a data configuration; its labels are left out."""
    container = validate_config(asked, DataConfig).to_data_container()
    loader = container.create_calibration_dataloader(model_path=model.model_path, io_config=model.io_config)
    for sample in loader:
        feed = sample[0] if isinstance(sample, tuple | list) else sample
        yield {name: np.asarray(array) for name, array in feed.items()}


def package_config() -> dict[str, Any]:
    """Olive's own package configuration, and the pass of this module."""
    known: dict[str, Any] = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text("utf-8"))
    every = {f"supported_{kind}": ["*"] for kind in ("providers", "accelerators", "precisions")}
    found = {"module_path": f"{__spec__.name}.{QcQuantization.__name__}", **every}  # not __main__
    known["passes"][QcQuantization.__name__] = {**found, "dataset": "dataset_optional"}
    return known


@click.command(help="Writes Olive's package configuration with qc's pass to FILE.")
@click.argument("file", type=click.Path(path_type=Path))
def main(file: Path) -> None:
    """Writes the package configuration."""
    try:
        with atomic_write(file) as opened:
            opened.write(json.dumps(package_config(), indent=1).encode())
    except UsageError as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m qc.bridges.olive")
