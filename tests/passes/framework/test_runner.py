"""Running pipelines: order, loops, timing, verification and blame."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx import TensorProto
from support.models import parse

from qc.ir import lift
from qc.ir.analysis import TYPES, Analyses, Epochs, analysis
from qc.ir.errors import DataError, UsageError, VerificationError
from qc.ir.graph import Graph
from qc.ir.journal import Journal
from qc.ir.model import Model as IR
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType
from qc.passes import Artifact, Fixpoint, Pass, PassContext, Pipeline, Repeat, Stage, option, run_pipeline
from qc.runtime.data.inputs import InputInfo
from qc.runtime.data.load import load_data


@dataclass
class Model:
    """Counts actions as the real one does, and remembers what ran."""

    journal: Journal = field(default_factory=Journal)
    analyses: Analyses = field(default_factory=lambda: Analyses(Epochs()))
    trace: list[str] = field(default_factory=list)
    broken: bool = False

    @property
    def action_count(self) -> int:
        return self.journal.action_count


@dataclass(frozen=True)
class Count(Pass):
    """Makes actions until the model has so many of them."""

    name = "count"
    stage = Stage.FLOAT

    up_to: int = option(0, "stop at this number of actions")
    step: int = option(1, "actions for each run")

    def run(self, model, context):
        model.trace.append(str(self))
        if model.action_count < self.up_to:
            model.journal.action_count += self.step


@dataclass(frozen=True)
class Fail(Pass):
    """Goes wrong."""

    name = "fail"
    stage = Stage.FLOAT

    how: str = option("crash", "in which way")

    def run(self, model, context):
        model.journal.action_count += 2
        model.broken = self.how == "break"
        if self.how == "crash":
            raise KeyError("weight")
        if self.how == "complain":
            raise DataError("the data is empty")


@dataclass(frozen=True)
class Lower(Pass):
    """Makes an artifact."""

    name = "lower"
    stage = Stage.LOWER

    artifact: str = option("model", "name of the artifact")
    meddle: bool = option(False, "change the model, which is forbidden")

    def run(self, model, context):
        model.journal.action_count += self.meddle
        context.add_artifact(self.artifact, Artifact("onnx", b"", ".onnx"))


def verify(model):
    if model.broken:
        raise VerificationError("op 'Conv_3' has no output")


def run(*steps, model=None, **context):
    model = model or Model()
    return run_pipeline(Pipeline(steps), model, PassContext(**context)), model


def test_passes_run_in_order_and_are_reported():
    report, model = run(Count(), Count(up_to=1), Count(up_to=9, step=3))
    assert model.trace == ["count", "count{up_to=1}", "count{up_to=9 step=3}"]
    assert [(step.text, step.first_action, step.actions) for step in report.steps] == [
        ("count", 1, 0),
        ("count{up_to=1}", 1, 1),
        ("count{up_to=9 step=3}", 2, 3),
    ]
    assert report.actions == 4
    assert report.seconds == sum(step.seconds for step in report.steps)


def test_an_empty_pipeline_does_nothing():
    report, model = run()
    assert report.steps == [] and report.seconds == 0 and model.action_count == 0


def test_fixpoint_stops_after_a_round_without_change():
    report, model = run(Fixpoint([Count(up_to=2), Count(up_to=3)]))
    assert model.action_count == 3 and len(model.trace) == 6
    assert [(step.name, step.depth, step.actions) for step in report.steps] == [
        ("fixpoint", 0, 3),
        *[("count", 1, actions) for actions in (1, 1, 0, 1, 0, 0)],
    ]


def test_fixpoint_needs_one_round_to_see_that_nothing_changes():
    run(Fixpoint([Count(up_to=2)], max=3))
    with pytest.raises(UsageError) as caught:
        run(Fixpoint([Count(), Count(up_to=2)], max=2))
    assert str(caught.value) == (
        "fixpoint<max=2>(count,count{up_to=2}) did not settle: 'count' still changed the model in round 2; "
        "raise max, or take the passes that undo each other apart"
    )


def test_a_restless_pass_in_an_inner_combinator_is_named():
    with pytest.raises(UsageError, match="did not settle: 'count'"):
        run(Fixpoint([Repeat([Count(up_to=99)])], max=2))


def test_repeat_runs_so_many_rounds():
    report, model = run(Repeat([Count(), Repeat([Count(up_to=9)], n=3)]))
    assert model.trace == ["count", *["count{up_to=9}"] * 3] * 2
    assert report.actions == 6


def test_times_add_up():
    report, _ = run(Repeat([Count(), Fixpoint([Count(up_to=2)])]), verify=verify)
    for index, step in enumerate(report.steps):
        below = report.steps[index + 1 :]
        end = next((i for i, other in enumerate(below) if other.depth <= step.depth), len(below))
        inner = sum(other.seconds for other in below[:end] if other.depth == step.depth + 1)
        assert step.seconds >= step.self_seconds + step.verify_seconds + inner - 1e-9
        assert step.self_seconds >= 0 and step.verify_seconds >= 0


def test_the_pass_that_breaks_the_model_is_blamed_with_its_actions():
    with pytest.raises(VerificationError) as caught:
        run(Count(up_to=1), Fail("break"), Count(), verify=verify)
    assert str(caught.value) == (
        "pass 'fail' left the model broken: op 'Conv_3' has no output (it made actions 2 to 3); "
        "this is a defect of the pass"
    )


def test_a_broken_input_is_not_blamed_on_the_first_pass():
    model = Model(broken=True)
    with pytest.raises(VerificationError, match="the model is broken before the first pass: op 'Conv_3'"):
        run(Count(), model=model, verify=verify)
    assert model.trace == []


def test_an_unexpected_exception_names_the_pass_and_keeps_its_cause():
    with pytest.raises(VerificationError, match=r"pass 'fail' failed with KeyError: 'weight' \(") as caught:
        run(Fail())
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        ({"notes": [3]}, "a note or a warning in the context is 3, and no str"),
        ({"artifacts": {"a": b""}}, "an artifact in the context is b'', and no Artifact"),
    ],
)
def test_what_a_pass_leaves_of_the_wrong_kind_is_its_own_defect(left, sentence):
    class Leave(Count):
        def run(self, model, context):
            vars(context).update(left)

    with pytest.raises(VerificationError, match=rf"pass 'count' failed with TypeError: {sentence}"):
        run(Leave())


def test_what_a_pass_tells_the_user_passes_unchanged():
    with pytest.raises(DataError, match=r"^the data is empty$"):
        run(Fail("complain"))


def test_nothing_runs_when_the_check_fails():
    model = Model()
    with pytest.raises(UsageError, match="in front of 'lower'"):
        run(Count(), Lower(), Count(), model=model)
    assert model.trace == []


def test_one_model_is_lowered_many_times():
    context = PassContext()
    run_pipeline(Pipeline([Lower("a"), Lower("b")]), Model(), context)
    assert list(context.artifacts) == ["a", "b"]
    with pytest.raises(UsageError, match="two passes of the pipeline make an artifact 'a'"):
        run(Lower("a"), Lower("a"))


def test_two_passes_for_one_artifact_are_refused_before_anything_runs():
    class Declared(Lower):
        makes = "a"

    model = Model()
    with pytest.raises(UsageError, match="pass 'lower' makes 'a', which 'lower' before it makes"):
        run(Count(), Declared("a"), Declared("b"), model=model)
    assert model.trace == []


def test_a_subclass_with_a_run_of_its_own_may_make_another_artifact():
    class Declared(Lower):
        makes = "a"

    class Other(Declared):
        def run(self, model: Model, context: PassContext) -> None:
            context.add_artifact("b", Artifact("text", "b", ".txt"))

    class Same(Declared):
        pass

    context = PassContext()
    run_pipeline(Pipeline([Declared("a"), Other()]), Model(), context)
    assert list(context.artifacts) == ["a", "b"]
    with pytest.raises(UsageError, match="makes 'a', which 'lower' before it makes"):
        run(Declared("a"), Same("a"))


def test_a_lowering_pass_may_not_change_the_model():
    with pytest.raises(VerificationError, match=r"pass 'lower' changed the model, .* made action 1"):
        run(Lower(meddle=True))


def test_only_pass_objects_make_a_pipeline():
    with pytest.raises(UsageError, match="a pipeline is made of Pass and combinator objects, not 'count'"):
        Pipeline(["count"])
    with pytest.raises(UsageError, match=r"fixpoint\(...\) is made of .*write its name followed by \(\)"):
        Fixpoint([Count])


def test_required_services():
    context = PassContext(data=[{}])
    assert context.required_data() == [{}]
    with pytest.raises(UsageError, match="this pass needs an executor"):
        context.required_executor()
    with pytest.raises(UsageError, match="this pass needs a target"):
        context.required_target()


def test_progress_counts_items_that_were_worked_on_and_always_finishes():
    log = []

    class Recorder:
        def start(self, description, total):
            log.append((description, total))
            return self

        def advance(self, steps=1):
            log.append(steps)

        def finish(self):
            log.append("finished")

    context = PassContext(progress=Recorder())
    items = context.track("abc", "calibrating", total=3)
    assert next(items) == "a" and next(items) == "b"
    items.close()
    assert log == [("calibrating", 3), 1, "finished"]
    assert list(PassContext().track("abc", "silent")) == ["a", "b", "c"]


# -- analyses -------------------------------------------------------------------------------------------


@analysis(TYPES)
def known_types(graph: Graph) -> list[str]:
    return [str(value.type) for value in graph.values()]


@dataclass(frozen=True)
class Retype(Pass):
    """Changes a type, through the Rewriter or behind its back."""

    name = "retype"
    stage = Stage.FLOAT

    unseen: bool = option(False, "change it behind the back of the Rewriter")

    def run(self, model: IR, context: PassContext) -> None:
        known_types(model.graph)
        value, type = model.graph.values()[0], ValueType(1, (5,))
        if self.unseen:
            value.type = type
            return
        rewriter = Rewriter(model)
        with rewriter.action("retype", value):
            rewriter.set_type(value, type)


def relu() -> IR:
    return lift(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))


def test_a_pass_that_changes_the_model_unseen_is_named_with_the_analysis() -> None:
    run_pipeline(Pipeline([Retype()]), relu(), PassContext(check_analyses=True))
    run_pipeline(Pipeline([Retype(unseen=True)]), relu(), PassContext())
    with pytest.raises(VerificationError) as caught:
        run_pipeline(Pipeline([Retype(unseen=True)]), relu(), PassContext(check_analyses=True))
    start = "pass 'retype' changed the model unseen: the analysis 'known_types' of graph 'g' is out of date"
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("this is a defect of the pass")


def test_the_analyses_that_each_pass_asked_for_are_reported() -> None:
    pipeline = Pipeline([Retype(), Retype(unseen=True), Retype(unseen=True)])
    report = run_pipeline(pipeline, relu(), PassContext())
    asked = [step.analyses["known_types"] for step in report.steps]
    assert [(count.computed, count.reused) for count in asked] == [(1, 0), (1, 0), (0, 1)]
    assert report.analyses["known_types"][:2] == (2, 1)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 100])
def test_samples_are_from_all_over_the_data(length: int) -> None:
    feeds = [{"x": np.full(1, number, np.float32)} for number in range(length)]
    data = load_data(feeds, [InputInfo("x", TensorProto.FLOAT, (1,))])
    found = [int(feed["x"][0]) for feed in PassContext(data=data).samples(8, "a test")]
    assert len(found) == min(8, length)
    distances = np.diff([*found, length])
    assert min(distances) >= 1 and max(distances) <= 2 * (length // 8 + 1)
