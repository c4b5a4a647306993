"""Say in words what a quantsim configuration does."""

from __future__ import annotations

from dataclasses import dataclass

from rich.padding import Padding
from rich.text import Text

from qc.options import argument
from qc.passes.quantize.quantsim.explanation import explain
from qc.passes.quantize.quantsim.reading import load_config

from ..command import Command
from ..output import standard_output


@dataclass(frozen=True, kw_only=True)
class ExplainConfig(Command):
    """Says in plain words what a quantsim configuration does.

    It is one that comes with qc, such as htp_v73, AIMET's JSON, or the same in TOML.

    Examples:
        qc explain-config htp_v73
    """

    config: str = argument("NAME|FILE")

    def run(self) -> None:
        console = standard_output()
        for index, (title, sentences) in enumerate(explain(load_config(self.config).config)):
            console.show(*([""] if index else []), Text(title, style="bold"))
            console.show(*(Padding(Text(sentence), (0, 0, 0, 2)) for sentence in sentences))
