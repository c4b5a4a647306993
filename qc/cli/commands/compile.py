"""Quantize a model; the command when none is named."""

from __future__ import annotations

from dataclasses import dataclass

from ..command import Command
from ..options import Collecting, Instrumentation, Job, Keeping, Wishes


@dataclass(frozen=True, kw_only=True)
class Compile(Command):
    """Quantizes MODEL.onnx. Files are written only when everything went well."""

    job: Job
    wishes: Wishes
    collecting: Collecting
    keeping: Keeping
    watch: Instrumentation

    def run(self) -> None:
        from ..quantizing import quantize  # all of qc, which the help of these options does not need

        quantize(self.job, self.wishes, self.collecting, self.keeping, self.watch)
