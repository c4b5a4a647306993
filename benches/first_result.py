"""How long a newcomer needs: the image tutorial, word for word, in an empty environment with a wheel.

    python benches/first_result.py dist/qc_onnx-*.whl

Prints a row for each command. Limit: ten minutes for all of them.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "docs/image-tutorial.md"
FILES = ROOT / "examples/tutorials/files.py"
MOST_SECONDS = 600.0


def blocks(kind: str) -> list[str]:
    """The blocks of a language on the page."""
    return re.findall(rf"```{kind}\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)


def timed(name: str, command: list[str], folder: Path) -> float:
    """Runs a command, prints a row, and ends with what it said if it fails."""
    begin = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode:
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"| `{name}` | {seconds:.0f} |", flush=True)
    return seconds


def main() -> int:
    """Goes through the page; 1 if it took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    judge, deploy = blocks("python")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        tools = folder / "env/bin"
        install = [str(tools / "pip"), "install", "--quiet", f"{wheel}[pictures]"]
        total = timed("pip install 'qc_onnx-*.whl[pictures]'", install, folder)
        (folder / "judge.py").write_text(judge, encoding="utf-8")
        (folder / "deploy.py").write_text(deploy, encoding="utf-8")
        subprocess.run([tools / "python", FILES, "image"], cwd=folder, check=True)
        for command in "".join(blocks("sh")).splitlines():
            if command.startswith("qc "):
                total += timed(command, [str(tools / "qc"), *shlex.split(command)[1:]], folder)
        total += timed("python deploy.py", [str(tools / "python"), "deploy.py"], folder)
    print(f"| all | {total:.0f} |")
    return int(total > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
