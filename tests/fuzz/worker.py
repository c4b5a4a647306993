"""The process that models are tried in: ``python -m fuzz.worker FOLDER SECONDS MEGABYTES DEEDS MODELS``.

It says ``ready``, reads a seed from each line of standard input and answers on standard output with one line
of JSON. What qc and the libraries under it print goes to standard error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from qc.ir.errors import QcError

from .corpus import gather
from .external import SECRET
from .mutant import MODELS, Mutant
from .planted import PLANTED
from .subject import DEEDS, SOUND_DEEDS, Deed
from .watch import Watch


@dataclass(frozen=True)
class Yard:
    """The folders of a worker, all within one."""

    root: Path

    @property
    def model(self) -> Path:
        """Where the mutant lies; may be read."""
        return self.root / "model"

    @property
    def output(self) -> Path:
        """Where results go; may be written."""
        return self.root / "output"

    @property
    def temporary(self) -> Path:
        """Where temporary files go; may be written."""
        return self.root / "temporary"

    @property
    def outside(self) -> Path:
        """The working folder, with files that must not be touched."""
        return self.root / "outside"

    def prepare(self) -> None:
        """Makes the folders, and the bait."""
        for folder in (self.model, self.output, self.temporary, self.outside):
            folder.mkdir(parents=True, exist_ok=True)
        for name in (SECRET, "weights.bin"):
            (self.outside / name).write_bytes(bytes(1 << 20))


@dataclass(frozen=True)
class Answer:
    """What happened to one mutant.

    Attributes:
        seed: its number.
        story: its source and mutations.
        accepted: the deeds that succeeded.
        refused: the sentences of the errors with which others ended.
        failures: what must not happen: unexpected exceptions with their traceback, and trespasses.
    """

    seed: int
    story: str
    accepted: list[str]
    refused: list[str]
    failures: list[str]


def try_mutant(mutant: Mutant, deeds: list[Deed], yard: Yard, watch: Watch) -> Answer:
    """Does everything with a mutant, and tells what happened."""
    path = mutant.write(yard.model)
    answer = Answer(mutant.seed, mutant.story, [], [], [])
    print(f"mutant {mutant.seed}: {mutant.story}", file=sys.stderr, flush=True)
    watch.trespasses()  # those of this process itself
    for deed in deeds:
        try:
            deed(path, yard.output)
            answer.accepted.append(deed.__name__)
        except QcError as error:
            answer.refused.append(f"{deed.__name__}: {type(error).__name__}: {error}")
            if error.exit_code == QcError.exit_code or error.exit_code == 6:
                answer.failures.append(f"{deed.__name__}: {traceback.format_exc()}")
        except Exception:
            answer.failures.append(f"{deed.__name__}: {traceback.format_exc()}")
        answer.failures.extend(f"{deed.__name__}: trespass: {words}" for words in watch.trespasses())
    return answer


def answers(yard: Yard, deeds: list[Deed], seconds: float, models: str) -> Iterator[Answer]:
    """Tries the mutants whose seeds come from standard input; one that takes long says where it is."""
    yard.prepare()
    os.chdir(yard.outside)
    tempfile.tempdir = str(yard.temporary)
    watch = Watch([yard.model], [yard.output, yard.temporary], [yard.outside])
    for line in sys.stdin:
        mutant = MODELS[models](int(line), yard.outside)
        faulthandler.dump_traceback_later(0.9 * seconds)
        answer = try_mutant(mutant, deeds, yard, watch)
        faulthandler.cancel_dump_traceback_later()
        yield answer


def main(folder: str, seconds: str, megabytes: str, names: str, models: str) -> None:
    """Answers until standard input ends."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    limit = int(megabytes) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)
        deeds = [(DEEDS | SOUND_DEEDS | PLANTED)[name] for name in names.split(",")]
        if models == "hostile":
            gather()
        channel.write("ready\n")
        channel.flush()
        for answer in answers(Yard(Path(folder)), deeds, float(seconds), models):
            channel.write(json.dumps(asdict(answer)) + "\n")
            channel.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
