"""Finding passes, describing them, and refusing those that are declared wrongly."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge

import qc.passes
from qc.ir.base.plugins import subclasses_below
from qc.ir.errors import UsageError
from qc.passes import Pass, Registry, Stage, describe, option, registry


def make(name="toy", body="", decorator="@dataclass(frozen=True)", doc='"""Does a thing."""'):
    """A pass class from pieces of source, any of which a test can spoil."""
    source = (
        f"{decorator}\nclass Toy(Pass):\n    {doc}\n    name = {name!r}\n    stage = Stage.FLOAT\n{body}\n"
    )
    source += "    def run(self, model, context): pass\n"
    space = {**globals(), "__name__": "toys"}
    exec(source, space)
    return space["Toy"]


def test_get_and_names():
    known = Registry([make("b-pass"), make("a-pass")])
    assert known.names() == ["a-pass", "b-pass"]
    assert known.get("a-pass").name == "a-pass"
    assert [cls.name for cls in known] == known.names()
    with pytest.raises(UsageError, match=r"unknown pass 'a-pas' \(did you mean 'a-pass'\?\)"):
        known.get("a-pas")


def test_a_name_clash_names_both():
    with pytest.raises(UsageError, match=r"two passes are named 'toy': toys\.Toy and toys\.Toy"):
        Registry([make(), make()])


def test_the_same_class_twice_is_no_clash():
    cls = make()
    assert Registry([cls, cls]).names() == ["toy"]


@pytest.mark.parametrize(
    ("pieces", "fault"),
    [
        ({"name": "Not Dashed"}, "needs a class attribute 'name' of lower-case words joined by dashes"),
        ({"name": "fixpoint"}, "may not be named 'fixpoint'"),
        ({"body": "    stage = 'float'"}, "needs a class attribute 'stage'"),
        ({"decorator": ""}, r"must be decorated with @dataclass\(frozen=True\)"),
        ({"doc": ""}, "needs a docstring"),
        (
            {"body": "    needs = frozenset({'gpu'})"},
            "needs 'gpu', but a pass can only need data",
        ),
        ({"body": "    x: int = 3"}, "must explain option 'x'"),
        ({"body": "    x: int"}, "must give option 'x' a default"),
        ({"body": "    x: dict = option(None, 'a dict')"}, "has an option whose type has no text form"),
        (
            {"body": "    x: tuple = option((), 'a tuple')"},
            "has an option whose type has no text form",
        ),
        (
            {"body": "    x: int = option('3', 'wrong')"},
            "has a default that does not fit: option 'x'",
        ),
        ({"body": "    x: int | None = option(3, 'wrong')"}, "must have None as default of option 'x'"),
        ({"body": "    passes: int = option(3, 'wrong')"}, "may not call an option 'passes'"),
    ],
)
def test_a_wrong_declaration_is_refused(pieces, fault):
    with pytest.raises(UsageError, match=rf"pass class toys\.Toy {fault}"):
        Registry([make(**pieces)])


MODULE = '''
from __future__ import annotations
from dataclasses import dataclass
from qc.passes import Pass, Stage
{imports}

@dataclass(frozen=True)
class {cls}(Pass):
    """A pass."""

    name = "{name}"
    stage = Stage.FLOAT

    def run(self, model, context): ...

class _Hidden({cls}): ...
class Abstract(Pass): ...
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a pass at its top and one in a folder."""
    root = tmp_path / "toy_plugin"
    (root / "folder").mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "folder" / "__init__.py").touch()
    (root / "zeta.py").write_text(MODULE.format(cls="Zeta", name="zeta", imports=""))
    source = MODULE.format(cls="Alpha", name="alpha", imports="from toy_plugin.zeta import Zeta")
    (root / "folder" / "alpha.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_plugin"]:
        del sys.modules[name]


def test_a_package_is_searched_with_its_folders(package):
    import toy_plugin

    assert [cls.name for cls in subclasses_below(toy_plugin, Pass)] == ["alpha", "zeta"]


def test_every_folder_of_passes_is_searched():
    (root,) = map(Path, qc.passes.__path__)
    folders = {path.parent for path in root.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_every_pass_of_qc_is_found_and_fully_described():
    for cls in registry():
        words = describe(cls)
        assert words.summary.endswith(".") and words.docstring.startswith(words.summary)
        assert str(cls()) == cls.name
        assert all(option.help and option.type for option in words.options)


def test_describe():
    @dataclass(frozen=True)
    class Toy(Pass):
        """Does a thing.

        And says more.
        """

        name = "toy"
        stage = Stage.ANNOTATE
        needs = frozenset({"target", "data"})

        bins: Annotated[int, Ge(1)] = option(8, "number of bins")
        method: Literal["a", "b"] | None = option(None, "how")
        names: tuple[str, ...] = option(("x y",), "which")

        def run(self, model, context):
            pass

    words = describe(Toy)
    assert (words.name, words.stage, words.needs) == ("toy", Stage.ANNOTATE, ("data", "target"))
    assert words.summary == "Does a thing."
    assert words.docstring == "Does a thing.\n\nAnd says more."
    assert [(option.name, option.type, option.default, option.help) for option in words.options] == [
        ("bins", "an integer, at least 1", "8", "number of bins"),
        ("method", "one of a, b", "none", "how"),
        ("names", "a list, each item text", '["x y"]', "which"),
    ]
