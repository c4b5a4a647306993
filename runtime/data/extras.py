"""Libraries that are installed only where their kind of data is read."""

from __future__ import annotations

import importlib
from typing import Any

from qc.ir.base.extras import install_command
from qc.ir.errors import DataError


def extra(module: str, name: str, what: str) -> Any:
    """Imports a module of an extra.

    Args:
        name: of the extra.
        what: what it is needed for, such as "reading text".

    Raises:
        DataError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(f"{what} needs an extra: {install_command(name)}") from error
