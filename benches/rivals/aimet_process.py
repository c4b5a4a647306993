"""AIMET in a Python of its own, which answers one question after the other."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """What AIMET makes of a model.

    Attributes:
        encodings: its encodings file, version 1.0.0.
        ties: the tensors that share a quantizer, where several do.
        outputs: what its simulation gives for each feed.
        seconds: what a method that chooses weights took.
        error: what it failed with; the rest is empty then.
    """

    encodings: dict[str, Any] = field(default_factory=dict)
    ties: Sequence[Sequence[str]] = ()
    outputs: Sequence[Feed] = ()
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Forms:
    """All that is made of one simulation.

    Attributes:
        files: encodings files by version, or what one failed with, as text.
        models: QDQ models by form, or what one failed with.
        outputs: what the simulation gives for each feed.
        error: what the simulation failed with; the rest is empty then.
    """

    files: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, onnx.ModelProto | str] = field(default_factory=dict)
    outputs: Sequence[Feed] = ()
    error: str = ""


def read_forms(folder: str) -> Forms:
    """Reads what ``aimet_settings.simulate`` wrote."""
    found = json.loads(Path(folder, "forms.json").read_text(encoding="utf-8"))
    models = {path.stem: onnx.load(path) for path in sorted(Path(folder).glob("qdq*.onnx"))}
    failed = {name: said for name, said in found.items() if name.startswith("qdq") and said is not None}
    files = {name: content for name, content in found.items() if not name.startswith("qdq")}
    return Forms(files, models | failed, read_arrays(folder, "outputs"))


class Aimet:
    """A process with AIMET, for a ``with`` block.

    Args:
        python: a Python that has aimet-onnx 2.42.
    """

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "rivals.aimet_oracle"],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Aimet:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(
        self,
        model: onnx.ModelProto | Path,
        feeds: Sequence[Feed],
        others: Sequence[Feed] | None = None,
        **settings: str,
    ) -> Answer:
        """Calibrates a model on feeds and runs it on them.

        Args:
            others: run it on these instead.
            settings: ``config``, ``scheme``, ``parameters``, ``activations``, ``method``, ``steps``; see
                ``aimet_oracle.py``.

        Raises:
            RuntimeError: the process ended.
        """
        with tempfile.TemporaryDirectory() as folder:
            job = {"folder": folder, "model": str(model), **settings}
            if isinstance(model, onnx.ModelProto):
                job["model"] = f"{folder}/model.onnx"
                onnx.save(model, job["model"])
            write_arrays(folder, "feeds", feeds)
            write_arrays(folder, "run", feeds if others is None else others)
            self._do(job)
            result = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
            return Answer(**result, outputs=() if "error" in result else read_arrays(folder, "outputs"))

    def forms(self, model: onnx.ModelProto, feeds: Sequence[Feed], config: str, setting: str) -> Forms:
        """All that AIMET makes of a model in a setting of ``aimet_settings.py``."""
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(model, f"{folder}/model.onnx")
            write_arrays(folder, "feeds", feeds)
            job = {"folder": folder, "model": f"{folder}/model.onnx", "config": config, "setting": setting}
            self._do(job)
            result = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
            return Forms(error=result["error"]) if "error" in result else read_forms(folder)

    def _do(self, job: Mapping[str, str]) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"AIMET does not run: {self._process.args!r} ended")


def write_arrays(folder: str, name: str, groups: Sequence[Feed]) -> None:
    """Writes arrays by group and name."""
    numbered = [(index, *item) for index, group in enumerate(groups) for item in group.items()]
    np.savez(Path(folder, name), **{f"{index}/{name}": array for index, name, array in numbered})


def read_arrays(folder: str, name: str) -> list[dict[str, np.ndarray]]:
    """Reads what :func:`write_arrays` wrote."""
    groups: dict[int, dict[str, np.ndarray]] = {}
    with np.load(Path(folder, f"{name}.npz")) as archive:
        for key in archive.files:
            index, _, array = key.partition("/")
            groups.setdefault(int(index), {})[array] = archive[key]
    return [groups[index] for index in sorted(groups)]
