"""Quantize a model; the command when none is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..command import Command
from ..options import Collecting, Instrumentation, Job, Keeping, Wishes


@dataclass(frozen=True, kw_only=True)
class Compile(Command):
    """Quantizes MODEL.onnx. Files are written only when everything went well.

    Examples:
        qc model.onnx --data photos --preset imagenet
        qc model.onnx --data calibration.npz --pipeline w4a8 --target qnn-htp
        qc model.onnx --data calibration.npz --set Softmax=off --opt calibrate.method=percentile
        qc model.onnx --data calibration.npz --passes fold-batch-norms,mypass.py:MyPass
    """

    elsewhere: ClassVar = {
        "--calibration": "what is calibrated on is --data",
        "--labels": "'qc auto' and 'qc eval' judge by labels",
        "--quantized": "'qc eval MODEL.onnx --quantized FILE' compares two models",
    }

    job: Job
    wishes: Wishes
    collecting: Collecting
    keeping: Keeping
    watch: Instrumentation

    def run(self) -> None:
        from ..quantizing import quantize  # all of qc, which the help of these options does not need

        quantize(self.job, self.wishes, self.collecting, self.keeping, self.watch)
