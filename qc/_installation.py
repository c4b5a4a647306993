"""Tells a user who imports the source folder instead of the installed package what is going on."""

import importlib.util

if importlib.util.find_spec("qc.ir") is None:
    raise ImportError(
        "this is the source folder of qc, not the installed package: run from another folder, "
        "or install with 'pip install --editable .'"
    )
