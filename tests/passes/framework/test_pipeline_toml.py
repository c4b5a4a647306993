"""Pipelines in TOML files."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from qc.ir.errors import UsageError
from qc.passes import (
    Fixpoint,
    Pass,
    Pipeline,
    PipelineFile,
    Registry,
    Stage,
    dumps,
    load_pipeline_file,
    option,
)
from qc.passes import loads as loads_with


@dataclass(frozen=True)
class Fold(Pass):
    """Stands for a float pass."""

    name = "fold"
    stage = Stage.FLOAT

    limit: int = option(4, "an integer")
    names: tuple[str, ...] = option((), "a list")

    def run(self, model, context):
        pass


KNOWN = Registry([Fold])


NAMED = {"twice": Pipeline([Fold(limit=1), Fold()])}


def loads(text):
    return loads_with(text, "p.toml", KNOWN, NAMED)


def message(text):
    with pytest.raises(UsageError) as caught:
        loads(text)
    return str(caught.value)


def test_text_and_tables_in_one_file():
    file = loads("""
        target = "ort-cpu"

        [pipeline]
        name = "mine"
        description = "all of it"
        passes = '''
          fold,
          fold{limit=1},
        '''

        [[pass]]
        name = "fixpoint"
        max = 2
        passes = "fold"
        [[pass.pass]]
        name = "fold"
        names = ["a", "b"]

        [[pass]]
        name = "fold"
        limit = 9
        """)
    inner = Fixpoint([Fold(), Fold(names=("a", "b"))], max=2)
    assert file == PipelineFile(
        Pipeline([Fold(), Fold(limit=1), inner, Fold(limit=9)]), "mine", "all of it", "ort-cpu"
    )


def test_name_defaults_to_the_stem(tmp_path):
    path = tmp_path / "w8a8.toml"
    path.write_text('pipeline.passes = "fold"')
    assert load_pipeline_file(path, KNOWN) == PipelineFile(Pipeline([Fold()]), "w8a8")


def test_an_empty_pipeline_can_be_said():
    assert loads("pipeline.passes = ''").pipeline == Pipeline()


def test_an_empty_pipeline_is_written_as_one() -> None:
    for steps in ([], [Fixpoint([])]):
        assert loads(dumps(PipelineFile(Pipeline(steps)))).pipeline == Pipeline(steps)


def test_a_mark_in_front_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[pipeline]\npasses = "fold-constants"\n', encoding="utf-8-sig")
    assert str(load_pipeline_file(path).pipeline) == "fold-constants"


def test_dumps_writes_only_what_differs_from_the_defaults():
    file = PipelineFile(Pipeline([Fold(), Fixpoint([Fold(limit=1)])]), "mine", target="ort-cpu")
    assert dumps(file).split("\n") == [
        'target = "ort-cpu"',
        "",
        "[pipeline]",
        'name = "mine"',
        "",
        "[[pass]]",
        'name = "fold"',
        "",
        "[[pass]]",
        'name = "fixpoint"',
        "",
        "[[pass.pass]]",
        'name = "fold"',
        "limit = 1",
        "",
    ]


HEAD = "[pipeline]\n"
MISTAKES = [
    ("passes = 'fold'", "p.toml, line 1: unknown key 'passes' (did you mean 'pass'?)"),
    (HEAD + "steps = 'fold'", "p.toml, line 2: unknown key 'steps'; known here: name, description, passes"),
    (HEAD + "pases = 'fold'", "p.toml, line 2: unknown key 'pases' (did you mean 'passes'?)"),
    (HEAD + "name = 'x'", 'p.toml: no pipeline in it; give passes = "..." in [pipeline], or [[pass]] tables'),
    ("passes.x = 'fold'", "p.toml, line 1: unknown key 'passes' (did you mean 'pass'?)"),
    ("[passes]", "p.toml, line 1: unknown key 'passes' (did you mean 'pass'?)"),
    ("pipeline = 'fold'", "p.toml, line 1: 'pipeline' must be a table, [pipeline]"),
    ("[pass]\nname = 'fold'", "p.toml, line 1: 'pass' must be an array of tables, [[pass]]"),
    (HEAD + "passes = ['fold']", "p.toml, line 2: 'passes' must be text, not ['fold']"),
    ("target = 3\n[[pass]]\nname='fold'", "p.toml, line 1: 'target' must be text, not 3"),
    (
        HEAD + "\npasses = 'fold,fodl'",
        "p.toml, line 3: unknown pass 'fodl' (did you mean 'fold'?); 'qc list-passes' shows all\n"
        "  fold,fodl\n       ^^^^",
    ),
    (
        "[[pass]]\nname = 'fold'\n\n[[pass]]\nname = 'fodl'",
        "p.toml, line 5: unknown pass 'fodl' (did you mean 'fold'?); 'qc list-passes' shows all",
    ),
    ("[[pass]]\nlimit = 1", "p.toml, line 1: a [[pass]] table has no name"),
    (
        "[[pass]]\nname = 'fold'\nlimit = 1\n[[pass]]\nname = 'fold'\n# x\n'limit' = '1'",
        "p.toml, line 7: option 'limit' of pass 'fold' must be an integer, not '1'",
    ),
    (
        "[[pass]]\nname = 'fold'\nnames = [1979-05-27]",
        "p.toml, line 3: option 'names' of pass 'fold' must be a list, each item text, "
        "not [datetime.date(1979, 5, 27)]",
    ),
    (
        "[[pass]]\nname = 'repeat'\n  [[pass.pass]]\n  name = 'fold'\n  limt = 1",
        "p.toml, line 5: pass 'fold' has no option 'limt' (did you mean 'limit'?); "
        "its options are limit, names",
    ),
    (
        "[[pass]]\nname = 'fold'\npasses = 'fold'",
        "p.toml, line 3: 'fold' is a pass and holds no other passes; only fixpoint and repeat do",
    ),
    (
        "pass = [{name = 'fold', limit = 'x'}]",
        "p.toml: option 'limit' of pass 'fold' must be an integer, not 'x'",
    ),
    (
        "pass = [{name = 'fold', limit = {a = 1}}]",
        "p.toml: option 'limit' of pass 'fold' must be an integer, not {'a': 1}",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistake(text, expected):
    assert message(text) == expected


def test_broken_toml_names_file_and_line():
    assert "p.toml is not valid TOML" in message("[pipeline\n") and "line 1" in message("[pipeline\n")
    assert "p.toml is not valid TOML" in message("x = " + "9" * 5000)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="there is no pipeline file"):
        load_pipeline_file(tmp_path / "missing.toml", KNOWN)
    with pytest.raises(UsageError, match="cannot be read"):
        load_pipeline_file(tmp_path, KNOWN)
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(UsageError, match="cannot be read: it is not a text in UTF-8"):
        load_pipeline_file(tmp_path / "latin.toml", KNOWN)


@pytest.mark.parametrize(
    "steps",
    [
        "[pipeline]\npasses = 'fold, twice{fold.limit=3}'",
        "[[pass]]\nname = 'fold'\n[[pass]]\nname = 'twice'\nfold.limit = 3",
        "[[pass]]\nname = 'fold'\n[[pass]]\nname = 'twice'\n'fold.limit' = 3",
        "[pipeline]\npasses = 'fold'\n[[pass]]\nname = 'twice'\n[pass.fold]\nlimit = 3",
    ],
)
def test_a_file_may_name_pipelines(steps):
    expected = Pipeline([Fold(), Fold(limit=3), Fold(limit=3)])
    assert loads(steps).pipeline == expected
    assert loads(dumps(loads(steps))).pipeline == expected


def test_a_combinator_may_hold_a_named_pipeline():
    assert loads("[[pass]]\nname = 'fixpoint'\n[[pass.pass]]\nname = 'twice'").pipeline == Pipeline(
        [Fixpoint(steps=(Fold(limit=1), Fold()))]
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("fold.limits = 3", "p.toml, line 3: pass 'fold' has no option 'limits'"),
        ("flod = {}", "p.toml, line 3: an option of a pipeline is written PASS.OPTION"),
        ("flod.limit = 3", "p.toml, line 3: the pipeline has no pass 'flod' (did you mean 'fold'?)"),
        ("limit = 3", "p.toml, line 3: an option of a pipeline is written PASS.OPTION"),
    ],
)
def test_wrong_options_of_a_named_pipeline(options, expected):
    assert expected in message(f"[[pass]]\nname = 'twice'\n{options}")


@pytest.mark.parametrize("steps", ["[pipeline]\npasses = 'twcie'", "[[pass]]\nname = 'twcie'"])
def test_a_misspelt_name_of_a_pipeline_is_found(steps):
    assert "p.toml, line 2: unknown pass 'twcie' (did you mean 'twice'?)" in message(steps)
