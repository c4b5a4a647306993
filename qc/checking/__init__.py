"""Checking a quantized model against a target: what runs in integers, what does not, and why."""

from .judging import check
from .results import Check, CheckedOp
from .runtimes import device_here, runs_here

__all__ = ["Check", "CheckedOp", "check", "device_here", "runs_here"]
