"""Compiling one model for several targets, with one pass over the calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from qc.ir.errors import UsageError
from qc.passes import Pipeline, PipelineFile, Progress
from qc.passes.framework.target import Target, load_target
from qc.runtime import OrtExecutor, choose_provider
from qc.runtime.executors.sharing import SharingExecutor

from .compiled import Compiled
from .search import Compilation


def compile_for(
    model: ModelProto | str | Path,
    targets: Iterable[str | Path | Target],
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8",
    *,
    data: object = None,
    allow_unquantized: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    device: str = "auto",
    seed: int = 0,
) -> dict[str, Compiled]:
    """Compiles a model for several targets that share one calibration.

    Where quantizers stand depends on the target, and so does which tensors have to be observed. All that any
    of the targets needs is observed in one pass over the data, and every target takes its part. As ONNX
    Runtime fuses around what is observed, ranges can differ by float rounding from those of a target alone.

    Args:
        model: an ONNX model or the path of one; not changed.
        targets: names, paths of TOML files, or objects; each with a name of its own.
        pipeline, data, allow_unquantized, threads, device, progress, seed: as for :func:`qc.compile`.

    Returns:
        What was made, by the name of the target, in their order. Where data had to be read again for one (as
        for methods of calibration that look at single feeds), a note of its result says so.

    Raises:
        UsageError: two targets have the same name.
        QcError: what :func:`qc.compile` raises.
    """
    executor = SharingExecutor(OrtExecutor(threads=threads, provider=choose_provider(device)))
    chosen = [target if isinstance(target, Target) else load_target(str(target)) for target in targets]
    for name in (target.name for target in chosen):
        if sum(target.name == name for target in chosen) > 1:
            raise UsageError(f"two targets are named '{name}'; results are known by that name")
    first = Compilation(
        model,
        pipeline,
        data=data,
        allow_unquantized=allow_unquantized,
        threads=threads,
        seed=seed,
        executor=executor,
    )
    compilations = [replace(first, target=target) for target in chosen]
    return share(compilations, executor, lambda one: one.compile(progress=progress))


def share(
    compilations: Sequence[Compilation],
    executor: SharingExecutor,
    compile: Callable[[Compilation], Compiled],
) -> dict[str, Compiled]:
    """Compiles all of them with one pass over the data; results by the name of the target.

    Args:
        compilations: compilations that have ``executor``.
        executor: what they share.
        compile: how one of them is done.
    """
    for compilation in compilations if len(compilations) > 1 else ():
        executor.plan(compilation.compile)
    results: dict[str, Compiled] = {}
    for compilation in compilations:
        before = executor.passes
        compiled = compile(compilation)
        name = compiled.target.name
        if results and executor.passes > before:
            compiled.notes.append(
                f"the data was read again for {name}, as no statistics kept were what it needs"
            )
        results[name] = compiled
    return results
