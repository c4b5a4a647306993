"""The help: short where nothing is asked, in sections with examples that can be run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from qc.cli.command import _ClickCommand
from qc.cli.group import EXAMPLES
from qc.cli.run import cli
from qc.cli.sections import OPTIONS
from qc.runtime.devices.known import DEVICES

Path = tuple[str, ...]


def commands(group: click.Group = cli, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """All commands with the words that call them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command is not None:
            yield (*path, name), command


COMMANDS = dict(commands())
LEAVES = {path: one for path, one in COMMANDS.items() if isinstance(one, _ClickCommand)}
EVERY_EXAMPLE = [*EXAMPLES, *(line for one in LEAVES.values() for line in one.examples)]


def test_without_anything_the_usage_is_short(qc) -> None:
    result = qc()
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) <= 12
    assert result.out.startswith("Usage: qc [OPTIONS] MODEL.onnx\n")
    assert "qc model.onnx --data photos --preset imagenet\n" in result.out and "'qc --help'" in result.out


def test_python_runs_the_package(tmp_path) -> None:
    run = subprocess.run([sys.executable, "-m", "qc", "-h"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.startswith("Usage: qc [OPTIONS] MODEL.onnx\n")


def test_the_help_lists_every_command_once_in_sections(qc) -> None:
    lines = qc("--help").out.splitlines()
    sections = lines[lines.index("Quantize:") : lines.index("Options:")]
    listed = [line.split()[0] for line in sections if re.match(r"  \S", line)]
    assert sorted(listed) == cli.list_commands(click.Context(cli))


def test_options_stand_in_sections_each_once(qc) -> None:
    out = qc("compile", "--help").out
    headings = re.findall(r"^(\w.*):$", out, re.MULTILINE)
    assert headings == ["Examples", "Options", *OPTIONS]
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", out, re.MULTILINE)
    assert len(set(flags)) == len(flags) and {
        "--passes",
        "--fail-if-unquantized",
        "--plugin",
        "--help",
    } <= set(flags)
    assert out.index("--resize") > out.index("\nData:") > out.index("--pipeline")


def test_every_option_of_a_section_exists() -> None:
    found = {param.name for command in COMMANDS.values() for param in command.params}
    assert {name for names in OPTIONS.values() for name in names} - found == {"help"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_every_command_fits(qc, path: Path) -> None:
    out = qc(*path, "--help").out
    examples = out.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert all(len(line) <= 80 for line in out.splitlines() if line not in examples)
    assert all(len(line) <= 100 for line in examples)


@pytest.mark.parametrize("command", ["auto", "bench", "eval"])
def test_every_device_is_listed_where_one_may_be_named(qc, command: str) -> None:
    said = re.sub(r"-\n +", "-", qc(command, "--help").out).partition("--on NAME")[2].partition("\n  -")[0]
    assert set(DEVICES) <= set(re.findall(r"[\w-]+", said))


@pytest.mark.parametrize("line", EVERY_EXAMPLE)
def test_an_example_is_understood(line: str) -> None:
    """Every option of it exists and takes its value."""
    program, *words = shlex.split(line)
    path = next((path for path in COMMANDS if tuple(words[: len(path)]) == path), ())
    command = COMMANDS[path or ("compile",)]
    assert program == "qc" and command.make_context(words[0], words[len(path) :]).params


def test_every_command_that_reads_a_model_has_an_example() -> None:
    without = [path for path, one in LEAVES.items() if not one.examples]
    assert all(path[0].startswith("list-") for path in without)
