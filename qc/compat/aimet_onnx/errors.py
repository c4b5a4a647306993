"""Errors as scripts for AIMET catch them."""

from qc.ir.errors import UsageError


class ArgumentError(UsageError, ValueError, AssertionError):
    """An argument that is wrong: of all the types that AIMET raises for one, here or there."""
