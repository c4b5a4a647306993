"""``qc explain-config`` and ``qc convert-config``: quantsim configurations, as AIMET has them."""

from __future__ import annotations

from pathlib import Path

import click
from rich.padding import Padding
from rich.text import Text

from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.passes.quantize.quantsim.explanation import explain
from qc.passes.quantize.quantsim.reading import load_config
from qc.passes.quantize.quantsim.writing import config_toml

from .files import FileType, InputFile, WordType, check_outputs, writing
from .output import standard_output


@click.command("explain-config", short_help="Say in words what a quantsim configuration does.")
@click.argument("config", metavar="NAME|FILE", type=WordType())
def explain_config_command(config: str) -> None:
    """Says in plain words what a quantsim configuration does.

    It is one that comes with qc, such as htp_v73, AIMET's JSON, or the same in TOML.
    """
    console = standard_output()
    for index, (title, sentences) in enumerate(explain(load_config(config).config)):
        console.show(*([""] if index else []), Text(title, style="bold"))
        console.show(*(Padding(Text(sentence), (0, 0, 0, 2)) for sentence in sentences))


@click.command("convert-config", short_help="Write a quantsim configuration as TOML.")
@click.argument("config", metavar="NAME|FILE", type=WordType())
@click.option(
    "-o", "--output", metavar="FILE.toml", type=FileType(), required=True, help="Where to write it."
)
def convert_config_command(config: str, output: Path) -> None:
    """Writes a quantsim configuration, such as AIMET's JSON, as TOML that says the same."""
    if output.suffix != ".toml":
        raise UsageError(f"'{output}' must end in .toml, by which qc tells TOML from AIMET's JSON")
    is_file = config.endswith((".json", ".toml"))
    check_outputs([output], [InputFile(Path(config), "the configuration")] if is_file else [])
    text = config_toml(load_config(config).config)
    with writing(output), atomic_write(output) as target:
        target.write(text.encode())
