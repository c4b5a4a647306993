"""What the tab key offers, as click asks for it."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from qc.cli.run import cli


def offered(*words: str) -> list[tuple[str, str]]:
    """What is offered for the last word."""
    *before, last = words
    found = ShellComplete(cli, {}, "qc", "_QC_COMPLETE").get_completions(list(before), last)
    return [(item.type, item.value) for item in found]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("insp",), ["inspect"]),
        (("model.onnx", "--pipeline", "quantsim"), ["quantsim", "quantsim-qdq"]),
        (("eval", "model.onnx", "--target", "openvino-"), ["openvino-avx2"]),
        (("model.onnx", "--passes", "fold-constants,fold-b"), ["fold-constants,fold-batch-norms"]),
        (("model.onnx", "--append", "to-enc"), ["to-encodings"]),
        (("data", "preview", "model.onnx", "--preset", "cl"), ["clip"]),
        (("why", "model.onnx", "flat"), ["flatten_1"]),
        (("view", "model.onnx", "--around", "clip_3"), ["clip_3"]),
        (("why", "absent.onnx", "c"), []),
        (("help", "calibrate-"), ["calibrate-as-aimet"]),
        (("help", "insp"), ["inspect"]),
        (("model.onnx", "--pipeline", "quantsim", "--config", "htp_v7"), ["htp_v73", "htp_v75", "htp_v79"]),
        (("model.onnx", "--set", "G"), ["GlobalAveragePool", "Gemm"]),
        (("model.onnx", "--set", "op:fl"), ["op:flatten_1"]),
        (("model.onnx", "--opt", "calibrate.m"), ["calibrate.method"]),
    ],
)
def test_names_are_completed(qc, words: tuple[str, ...], names: list[str]) -> None:
    assert offered(*words) == [("plain", name) for name in names]


@pytest.mark.parametrize(
    "words", [("mod",), ("model.onnx", "--data", "cal"), ("eval", "mod"), ("explain-config", "own")]
)
def test_files_are_completed_elsewhere(qc, words: tuple[str, ...]) -> None:
    assert offered(*words) == [("file", words[-1])]
