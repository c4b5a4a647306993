"""The tutorials do what they say: their files are written and their commands run, as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


@pytest.fixture
def photos(qc) -> None:
    """60 pictures of digits, in one folder for each."""
    test = np.load(ROOT / "tests/fixtures/digits_test.npz")
    for index, (image, label) in enumerate(zip(test["image"][:60], test["label"], strict=False)):
        folder = Path("photos") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round((image[0] + 1) * 127.5).astype(np.uint8)).save(folder / f"{index}.png")


def test_the_image_tutorial(qc, photos) -> None:
    text = (ROOT / "docs/image-tutorial.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    Path("judge.py").write_text(code)
    results = {
        command: qc(*shlex.split(command)[1:])
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for command in block.splitlines()
        if command.startswith("qc ")
    }
    assert len(results) == 8
    for command, result in results.items():
        assert result.code == 0, f"{command}: {result.err}"
    assert all(Path(name).exists() for name in ("samples.html", "small.onnx", "best.onnx"))
    (scores,) = [
        found
        for result in results.values()
        if (found := re.search(r"^judge.py:accuracy +(\S+) +(\S+) +(\S+)$", result.out, re.MULTILINE))
    ]
    assert min(map(float, scores.groups())) > 0.9
