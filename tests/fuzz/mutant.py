"""A mutant: a folder with a hostile model, made from one number."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from onnx import ModelProto

from . import content, external, structure  # noqa: F401  (they register their mutations)
from .capturing import capturing_model
from .corpus import pick
from .damage import DAMAGES
from .draft import MUTATIONS, Draft, NothingToDo

MODEL = "model.onnx"
_DAMAGED = 0.3  # the share of mutants whose bytes are damaged; half of them are sound models before


@dataclass(frozen=True)
class Mutant:
    """A hostile model.

    Attributes:
        seed: the number it is made from; the same number and version of ONNX give the same mutant.
        story: the source and the mutations, in order.
        data: the bytes of the model file.
        files, links, pipes: what lies beside it; see :class:`Draft`.
    """

    seed: int
    story: str
    data: bytes
    files: dict[str, bytes]
    links: dict[str, str]
    pipes: tuple[str, ...]

    @classmethod
    def of(cls, seed: int, outside: Path) -> Mutant:
        """Makes the mutant of a number; ``outside`` is the folder that nothing may be read from."""
        rng = Random(seed)
        source = pick(rng)
        draft = Draft(rng, ModelProto(), outside, dict(source.files))
        draft.model.CopyFrom(source.model)
        damaged = rng.random() < _DAMAGED
        story = [source.name]
        if not damaged or rng.random() < 0.5:
            story += _mutate(draft, rng.choice([1, 1, 1, 2, 2, 3, 5]))
        data = bytearray(draft.model.SerializeToString())
        if damaged and data:
            damage = rng.choice(DAMAGES)
            damage(rng, data)
            story.append(damage.__name__)
        return cls(seed, ", ".join(story), bytes(data), draft.files, draft.links, tuple(draft.pipes))

    @classmethod
    def sound(cls, seed: int, outside: Path) -> Mutant:
        """Makes a sound model of a number, whose bodies capture all kinds of tensors."""
        return cls(seed, "a capturing model", capturing_model(Random(seed)).SerializeToString(), {}, {}, ())

    def write(self, folder: Path) -> Path:
        """Makes ``folder`` anew and writes the model with everything beside it; returns the model's path."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, content_ in self.files.items():
            with _if_there_is_room(folder / name) as place:
                place.write_bytes(content_)
        for name, target in self.links.items():
            with _if_there_is_room(folder / name) as place:
                place.symlink_to(target)
        for name in self.pipes:
            with _if_there_is_room(folder / name) as place:
                os.mkfifo(place)
        path = folder / MODEL
        path.write_bytes(self.data)
        return path


@contextmanager
def _if_there_is_room(place: Path) -> Iterator[Path]:
    """Makes the folder of ``place``; a file that cannot be beside the others is left out."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        yield place


def _mutate(draft: Draft, count: int) -> list[str]:
    done = []
    while len(done) < count:
        name = draft.rng.choice(list(MUTATIONS))
        try:
            MUTATIONS[name](draft)
        except NothingToDo:
            continue
        done.append(name)
    return done


# How the model of a number is made, by the name of the campaign.
MODELS = {"hostile": Mutant.of, "capturing": Mutant.sound}
