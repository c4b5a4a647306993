"""Write a quantsim configuration as TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.options import REQUIRED, argument, option
from qc.passes.quantize.quantsim.reading import CONFIG_SUFFIXES, load_config
from qc.passes.quantize.quantsim.writing import config_toml

from ..command import Command
from ..files import InputFile, check_outputs, writing


@dataclass(frozen=True, kw_only=True)
class ConvertConfig(Command):
    """Writes a quantsim configuration, such as AIMET's JSON, as TOML that says the same.

    Examples:
        qc convert-config default_config.json -o quantsim.toml
    """

    config: str = argument("NAME|FILE")
    output: Path = option(REQUIRED, "Where to write it.", "-o", metavar="FILE.toml")

    def run(self) -> None:
        if self.output.suffix != ".toml":
            raise UsageError(f"'{self.output}' must end in .toml, by which qc tells TOML from AIMET's JSON")
        is_file = self.config.endswith(CONFIG_SUFFIXES)
        check_outputs([self.output], [InputFile(Path(self.config), "the configuration")] if is_file else [])
        text = config_toml(load_config(self.config).config)
        with writing(self.output), atomic_write(self.output) as target:
            target.write(text.encode())
