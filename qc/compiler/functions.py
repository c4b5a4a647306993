"""``qc.compile`` and the functions like it: a :class:`Compilation` that is made and done at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from qc.ir.errors import UsageError, nearest

from .compilation import Compilation
from .given import listed

if TYPE_CHECKING:
    from onnx import ModelProto

    from qc.passes import Pipeline, PipelineFile
    from qc.passes.framework.target import Target
    from qc.runtime import Recording

    from .compiled import Compiled

P = ParamSpec("P")
R = TypeVar("R")


# What the command line, or another package, calls an argument.
_OTHER_NAMES = {"calibration": "data", "feeds": "data", "passes": "pipeline", "set": "precision"}


def taking(declared: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Gives a function the arguments of a class, and their description; others are told by name."""
    signature = inspect.signature(declared)

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> R:
            for name in named:
                if name not in signature.parameters:
                    raise TypeError(f"{function.__name__}() has no argument '{name}'{_hint(name, signature)}")
            return function(*arguments, **named)

        result = inspect.signature(function).return_annotation
        checked.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
        arguments = inspect.cleandoc(declared.__doc__ or "").partition("Args:")[2]
        checked.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:{arguments}"
        return checked

    return decorate


def _hint(name: str, signature: inspect.Signature) -> str:
    meant = _OTHER_NAMES.get(name)
    return f" (it is called '{meant}')" if meant else nearest(name, list(signature.parameters))


@taking(Compilation)
def compile(*arguments: Any, **named: Any) -> Compiled:
    """Compiles a float model.

    Raises:
        UsageError: a pipeline, pass, option or target that does not exist or does not fit.
        ModelError: a model that cannot be read, is invalid, or cannot be run.
        DataError: data that does not fit the model.
        CoverageError: nothing, or not everything, was quantized.
        QcError: CUDA is asked for but cannot be used.
    """
    return Compilation(*arguments, **named).compile()


def compile_for(
    model: ModelProto | str | Path,
    targets: Iterable[str | Path | Target],
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8",
    **settings: Any,
) -> dict[str, Compiled]:
    """Compiles a model for several targets that share one calibration.

    Where quantizers stand depends on the target, and so does which tensors have to be observed. All that any
    of the targets needs is observed in one pass over the data, and every target takes its part. As ONNX
    Runtime fuses around what is observed, ranges can differ by float rounding from those of a target alone.

    Args:
        model: an ONNX model or the path of one; not changed.
        targets: names, paths of TOML files, or objects; each with a name of its own. A lone one is a list
            of one.
        pipeline: as for :func:`qc.compile`.
        settings: all that :func:`qc.compile` takes besides ``target``.

    Returns:
        What was made, by the name of the target, in their order. Where data had to be read again for one (as
        for methods of calibration that look at single feeds), a note of its result says so.

    Raises:
        UsageError: there is no target, two have the same name, or ``target`` is given as well.
        QcError: what :func:`qc.compile` raises.
    """
    if settings.get("target") is not None:
        raise UsageError("compile_for() has its targets as a list, and takes no target= beside them")
    return Compilation(model, pipeline, **settings).compile_for(listed(targets))


def observe(
    model: ModelProto | str | Path,
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8",
    *,
    data: object,
    also_for: Iterable[str | Path | Target] = (),
    **settings: Any,
) -> Recording:
    """Runs a pipeline up to its calibration and gives back the statistics that are collected there.

    Histograms are always among them, so that any method can calibrate on them later:
    ``qc.compile(model, pipeline, statistics=...)`` with the same model, target and passes before calibration.
    Statistics of shards of the data, see :meth:`qc.runtime.Data.shard`, merge to those of the whole.

    Args:
        model: an ONNX model or the path of one; not changed.
        pipeline: as for :func:`qc.compile`.
        data: as for :func:`qc.compile`.
        also_for: further targets that the statistics are to serve, which may need other tensors.
        settings: all else that :func:`qc.compile` takes; an ``executor`` should identify feeds, so that none
            can be merged in twice.

    Raises:
        UsageError: the pipeline has no calibration, or one that looks at tensors themselves.
        QcError: what :func:`qc.compile` raises.
    """
    return Compilation(model, pipeline, data=data, **settings).observe(listed(also_for))
