"""What must hold of the text of an IR."""

from __future__ import annotations

from pathlib import Path

from qc.ir.model import Model
from qc.ir.text import load_text, parse_model, print_model, print_parts, save_text

from .equality import differences

MODEL = """<ir_version: 10, opset_import: ["" : 21, "my" : 2]>
g (float[N, 4] x, bool c) => (float[N, 2] y, float[N, 2] z) <float[4, 2] w> {
    a = MatMul(x, w)
    y = my.scaled<slope = 0.25>(a)
    z = If(c) <
        then_branch = t () => (float[N, 2] r) { r = Clip(a, , w) },
        else_branch = e () => (float[N, 2] u) { u = Cast<to = 1>(y) }
    >
}
<domain: "my", opset_import: ["" : 21]>
scaled <slope> (v) => (s) { s = LeakyRelu<alpha: float = @slope>(v) }
"""


def trip(ir: Model) -> Model:
    """The IR after printing and parsing, which must be the same and print the same text."""
    printed = print_parts(ir)
    again = parse_model(printed.text, printed.left_out, ir.base_dir)
    check_same(ir, again, printed.text)
    return again


def trip_through_files(ir: Model, folder: Path) -> Model:
    """The IR after saving and loading its text, which must be the same and save the same files."""
    path, other = folder / "trip.qcir", folder / "again.qcir"
    written = save_text(ir, path)
    again = load_text(path)
    check_same(ir, again, print_model(ir))
    rewritten = save_text(again, other)
    assert [file.read_bytes() for file in rewritten] == [file.read_bytes() for file in written]
    return again


def check_same(ir: Model, again: Model, text: str) -> None:
    """Raises AssertionError unless two IRs are the same and print that text."""
    assert list(differences(ir, again)) == []
    assert print_model(again) == text
