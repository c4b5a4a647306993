"""``qc encodings``: convert, compare, check and apply encodings files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.text import Text

import qc
from qc.ir.base.files import atomic_write
from qc.ir.errors import DemandError, UsageError
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.model import Model
from qc.passes.encodings import (
    VERSIONS,
    Document,
    by_layer,
    check_axes,
    converted,
    dump_encodings,
    located,
    read_encodings,
)
from qc.passes.encodings.comparison import Comparison, compare
from qc.report.table import Column, Table, text
from qc.report.terminal import lines, rendered
from qc.report.words import count, printable

from .applying import apply_command, strip_command
from .files import FileType, InputFile, WordType, check_outputs, writing
from .output import print_note, standard_output

_MODEL_HELP = "The float model, which tells axes, blocks and layers."


@click.group("encodings", short_help="Convert, compare, check and apply encodings files.")
def encodings_group() -> None:
    """Works with encodings files of the versions 0.6.1, 1.0.0, 2.0.0 and 2.1.0."""


@encodings_group.command("convert", short_help="Write a file in another version.")
@click.argument("file", metavar="FILE", type=WordType())
@click.option("-o", "--output", metavar="FILE", type=FileType(), required=True, help="Where to write.")
@click.option("--version", metavar="V", required=True, help=f"One of {', '.join(VERSIONS)}.")
@click.option("--model", metavar="MODEL.onnx", type=WordType(), help=_MODEL_HELP)
@click.option(
    "--layout",
    type=click.Choice(["tensors", "layers"]),
    help="By tensor, or by layer as in _torch.encodings.  [default: tensors with --model, else that of FILE]",
)
def convert_command(file: str, output: Path, version: str, model: str | None, layout: str | None) -> None:
    """Writes FILE in another version. What that version cannot say is an error that names the tensor."""
    inputs = [InputFile(Path(name), "an input") for name in (file, model) if name is not None]
    check_outputs([output], inputs)
    ir = _lifted(model)
    document = _read(file, ir)
    if layout not in (None, document.layout) and ir is None:
        raise UsageError(f"only a model tells which tensor belongs to which layer of '{file}'; add --model")
    if model is None and any(record.as_stored for record in document.records):
        print_note("without --model, several scales of a tensor count as those of its channels")
    if ir is not None and not version.startswith("2"):
        check_axes(document, ir)
    document = converted(document, version)
    if layout == "layers" and ir is not None:
        document, unnamed = by_layer(document, ir)
        for name in unnamed:
            print_note(f"'{name}' lies inside a layer, or is unknown to '{model}'; left out")
    text = dump_encodings(document)
    with writing(output), atomic_write(output) as target:
        target.write(text.encode())


@encodings_group.command("diff", short_help="Compare two files, of any versions.")
@click.argument("first", metavar="A", type=WordType())
@click.argument("second", metavar="B", type=WordType())
@click.option("--model", metavar="MODEL.onnx", type=WordType(), help=_MODEL_HELP)
@click.option(
    "--tolerance", type=float, default=0.0, help="Relative difference of scales that counts as equal."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff_command(first: str, second: str, model: str | None, tolerance: float, as_json: bool) -> int:
    """Tells which tensors have another grid in B than in A, and which one of them lacks.

    The exit code is 0 if they say the same, else 1.
    """
    ir = _lifted(model)
    ours, theirs = _read(first, ir), _read(second, ir)
    if ours.layout != theirs.layout:
        raise UsageError(
            f"'{first}' is by {ours.layout} and '{second}' by {theirs.layout}; add --model, which tells what "
            "belongs together"
        )
    result = compare(ours, theirs, tolerance)
    if as_json:
        click.echo(json.dumps(asdict(result), indent=2, ensure_ascii=False))
    else:
        _show(result, first, second)
    return 0 if result.is_equal else 1


@encodings_group.command("check", short_help="Check a file against the model it belongs to.")
@click.argument("file", metavar="FILE", type=WordType())
@click.argument("model", metavar="MODEL.onnx", type=WordType())
def check_command(file: str, model: str) -> None:
    """Checks that every tensor of FILE is a float tensor of MODEL, and that its scales fit it."""
    ir = _lifted(model)
    assert ir is not None
    document = _read(file, ir)
    problems = list(_problems(document, ir))
    standard_output().show(*map(Text, map(printable, problems)), wrap=False)
    if problems:
        raise DemandError(f"'{file}' does not belong to '{model}': {count(len(problems), 'tensor')} at fault")
    standard_output().show(Text(f"{count(len(document.records), 'encoding')}, all of them fit the model"))


encodings_group.add_command(apply_command)
encodings_group.add_command(strip_command)


def _lifted(model: str | None) -> Model | None:
    return qc.read_model(model) if model is not None else None


def _read(file: str, model: Model | None) -> Document:
    document = read_encodings(file)
    return located(document, model) if model is not None else document


def _problems(document: Document, model: Model) -> Iterator[str]:
    values = tensors_by_name(model)
    for record in document.records:
        value = values.get(record.name)
        if value is None:
            yield f"'{record.name}': the model has no such tensor"
        elif value.type.elem_type and not value.is_float:
            yield f"'{record.name}': it is {value.type}, not a float tensor"


def _show(result: Comparison, first: str, second: str) -> None:
    console = standard_output()
    if result.different:
        table = Table((text("tensor"), text("what"), text("detail"), Column("relative", ".3g")))
        for difference in result.different:
            table.add(difference.name, difference.what, difference.detail, difference.relative or None)
        console.show(Text("different", style="bold"), rendered(table, titles=False))
    for names, file in ((result.only_first, first), (result.only_second, second)):
        if names:
            console.show(lines([f"only in {file}"], "bold"), lines(names))
    lacking = len(result.only_first) + len(result.only_second)
    console.show(
        Text(f"{len(result.equal)} equal, {len(result.different)} different, {lacking} in one file only")
    )
