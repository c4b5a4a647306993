"""A model on Rockchip's simulator, in the process that :mod:`qc.runtime.devices.process` makes for it."""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.errors import ModelError, UsageError

from .process import Run

_LONGEST = 300  # of a message, which can be a traceback


@dataclass(frozen=True)
class Request:
    """What to open.

    Attributes:
        path: the file of the model.
        log: the file for what the toolkit says, its table of layers among it.
        folder: where the toolkit works, as it leaves files there.
        options: those of ``RKNN.config``, as text.
        inputs: the names of the inputs, in their order.
        file: where the model for the device is written; None if it is not wanted.
        runs: whether it will be run, for which the simulator is made.
    """

    path: Path
    log: Path
    folder: Path
    options: dict[str, str]
    inputs: tuple[str, ...]
    file: Path | None = None
    runs: bool = True


def opened(request: Request) -> Run:
    """Compiles a model, and gives what runs it.

    Raises:
        ModelError: the toolkit does not take the model.
        UsageError: it cannot be loaded, or does not know an option, or its value.
    """
    os.chdir(request.folder)
    try:
        toolkit: Any = importlib.import_module("rknn.api")
        rknn = toolkit.RKNN(verbose=True)
    except (Exception, SystemExit) as error:
        raise UsageError(f"rknn-toolkit2 cannot be loaded: {_plain(error)}") from error
    options = {name: _value(text) for name, text in request.options.items()}
    try:
        _done(rknn.config, **options)
    except ModelError as error:
        raise UsageError(f"a device option of rknn is not valid: {error}") from error
    try:
        _done(rknn.load_onnx, model=str(request.path))
        _done(rknn.build, do_quantization=False)
        if request.file is not None:
            _done(rknn.export_rknn, str(request.file))
        if request.runs:
            _done(rknn.init_runtime)
    except ModelError as error:
        raise ModelError(f"Rockchip's compiler gives the model up: {error}") from error
    return lambda feed: _run(rknn, [np.asarray(feed[name]) for name in request.inputs])


def _run(rknn: Any, arrays: list[np.ndarray]) -> list[Any]:
    try:
        found = rknn.inference(inputs=arrays, data_format=["nchw"] * len(arrays))
    except Exception as error:  # of many kinds
        raise ModelError(f"Rockchip's simulator failed to run the model: {_plain(error)}") from error
    if found is None:
        raise ModelError("Rockchip's simulator failed to run the model, and does not say why")
    return list(found)


def _done(step: Callable[..., int], *arguments: Any, **named: Any) -> None:
    """Takes a step of the toolkit; ModelError with its own reason where it fails."""
    try:
        code = step(*arguments, **named)
    except Exception as error:
        raise ModelError(_plain(error)) from error
    if code != 0:
        raise ModelError(f"{step.__name__} failed with code {code}")


def _value(text: str) -> Any:
    """An option as its type: a number, a truth value or a list, or else text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _plain(error: BaseException) -> str:
    """The first line that names the error within the traceback that is the toolkit's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if "Error: " in line and not line.endswith("Traceback (most recent call last):")
    ]
    return (named or lines or [type(error).__name__])[0][:_LONGEST]
