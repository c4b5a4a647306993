"""Text, TOML and objects are three spellings of one pipeline."""

import enum
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from annotated_types import Ge
from hypothesis import given
from hypothesis import strategies as st

from qc.passes import Fixpoint, Pass, Pipeline, PipelineFile, Registry, Repeat, Stage, dumps, loads, option
from qc.passes import parse_pipeline as parse


class Rounding(enum.Enum):
    EVEN = "half-even"
    AWAY = "half-away"


@dataclass(frozen=True)
class Plain(Pass):
    """Has no options."""

    name = "plain"
    stage = Stage.FLOAT

    def run(self, model, context):
        pass


@dataclass(frozen=True)
class Rich(Pass):
    """Has an option of every type."""

    name = "rich-options"
    stage = Stage.FLOAT

    flag: bool = option(False, "a boolean")
    count: int = option(3, "an integer")
    share: float = option(1, "a number")
    text: str = option("", "text")
    method: Literal["min-max", "mse", "2"] = option("mse", "a choice")
    rounding: Rounding = option(Rounding.EVEN, "an enum")
    limit: int | Literal["auto"] = option("auto", "an integer or a word")
    axis: int | None = option(None, "an optional integer")
    names: tuple[str, ...] = option((), "a list")
    pair: tuple[float, float] = option((0.0, 1.0), "two numbers")
    grid: tuple[tuple[int, ...], ...] = option((), "a list of lists")

    def run(self, model, context):
        pass


@dataclass(frozen=True)
class Bounded(Pass):
    """Has a bound."""

    name = "bounded"
    stage = Stage.FLOAT

    bins: Annotated[int, Ge(1)] = option(8, "bounded below")

    def run(self, model, context):
        pass


KNOWN = Registry([Plain, Rich, Bounded])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["true", "1", "-2.5e3", "none", "/layer.0/Conv_output_0", "it's", 'say "x"', "a\\b", "inf", "\x7f", "²"]
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(1 - 2**63, 2**63 - 1)
rich = st.builds(
    Rich,
    flag=st.booleans(),
    count=integers,
    share=numbers | st.integers(-9, 9),
    text=texts,
    method=st.sampled_from(["min-max", "mse", "2"]),
    rounding=st.sampled_from(Rounding),
    limit=integers | st.just("auto"),
    axis=st.none() | integers,
    names=st.lists(texts, max_size=3),
    pair=st.tuples(numbers, numbers),
    grid=st.lists(st.lists(st.integers(), max_size=2), max_size=2),
)
leaves = rich | st.builds(Plain) | st.builds(Bounded, bins=st.integers(1, 9))
steps = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Fixpoint, st.lists(inner, max_size=3), max=st.integers(1, 9))
        | st.builds(Repeat, st.lists(inner, max_size=3), n=st.integers(1, 9))
    ),
    max_leaves=6,
)
pipelines = st.lists(steps, max_size=4).map(Pipeline)


@given(pipelines)
def test_the_text_of_a_pipeline_reads_back_as_an_equal_pipeline(pipeline):
    text = str(pipeline)
    again = parse(text, KNOWN)
    assert again == pipeline
    assert str(again) == text


@given(pipelines.filter(lambda pipeline: pipeline.steps), texts, texts, st.none() | texts)
def test_toml_reads_back_as_an_equal_pipeline(pipeline, name, description, target):
    file = PipelineFile(pipeline, name or "unnamed", description, target)
    assert loads(dumps(file), known=KNOWN) == file


@given(pipelines)
def test_text_inside_toml_is_the_same_pipeline(pipeline):
    toml = f"[pipeline]\npasses = '''{pipeline!s}'''\n"
    if "'''" not in str(pipeline) and str(pipeline).isprintable():
        assert loads(toml, known=KNOWN).pipeline == pipeline


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("plain", "plain"),
        (" plain ,\n\tplain , ", "plain,plain"),
        ("bounded{}", "bounded"),
        ("bounded{bins=8}", "bounded"),
        ("bounded{ bins = 9 }", "bounded{bins=9}"),
        ("rich-options{count=1,share=2}", "rich-options{count=1 share=2.0}"),
        ("rich-options{text='a b' flag=true}", 'rich-options{flag=true text="a b"}'),
        ('rich-options{text="\\u00e9\\n"}', 'rich-options{text="é\\n"}'),
        ("rich-options{text=config/int8.toml}", "rich-options{text=config/int8.toml}"),
        ("rich-options{text='8'}", 'rich-options{text="8"}'),
        ("rich-options{method='2'}", 'rich-options{method="2"}'),
        ("rich-options{rounding=half-away}", "rich-options{rounding=half-away}"),
        ("rich-options{names=[a,'b c',]}", 'rich-options{names=[a, "b c"]}'),
        ("rich-options{grid=[[1],[]]}", "rich-options{grid=[[1], []]}"),
        ("fixpoint(plain)", "fixpoint(plain)"),
        ("fixpoint<max=8>(plain)", "fixpoint(plain)"),
        ("plain,fixpoint<max=2>(repeat(plain),bounded)", "plain,fixpoint<max=2>(repeat(plain),bounded)"),
    ],
)
def test_canonical_text(text, canonical):
    assert str(parse(text, KNOWN)) == canonical


def test_python_lists_members_and_integers_become_canonical():
    built = Rich(names=["a"], rounding="half-away", share=2)
    assert built == Rich(names=("a",), rounding=Rounding.AWAY, share=2.0)
    assert type(built.share) is float
    assert hash(built) == hash(parse(str(built), KNOWN).steps[0])


def test_pipeline_from_python_equals_its_text():
    built = Pipeline([Plain(), Fixpoint([Bounded(bins=2)], max=4)])
    assert built == parse("plain,fixpoint<max=4>(bounded{bins=2})", KNOWN)
    assert [step.name for step in built.passes()] == ["plain", "bounded"]
