"""Reports: grouping of reasons, tables, JSON and progress."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from qc.coverage import Coverage, Multiplied, UnquantizedTensor
from qc.ir.analysis import Lookups
from qc.passes import PassContext, PipelineReport, StepReport
from qc.progress import RichProgress
from qc.rendering.coverage import coverage_document, coverage_summary, group_by_reason, unquantized_table
from qc.rendering.evaluation import accuracy_table, evaluation_document, latency_table
from qc.rendering.passes import analyses_table, timing_table
from qc.rendering.table import Table
from qc.rendering.table import text as column
from qc.rendering.terminal import facts_grid, rendered
from qc.rendering.words import file_size, in_three_digits, printable
from qc.runtime import CandidateScore, Evaluation, Latency, OutputScore


def text(*items: RenderableType | Table, width: int = 80, gap: int = 2) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    with console.capture() as capture:
        for item in items:
            console.print(rendered(item, gap) if isinstance(item, Table) else item)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def skipped(*pairs: tuple[str, str]) -> list[UnquantizedTensor]:
    return [UnquantizedTensor(name, reason) for name, reason in pairs]


# -- coverage -------------------------------------------------------------------------------------------


def test_reasons_that_differ_in_the_op_are_one_group() -> None:
    groups = group_by_reason(
        skipped(
            ("a", "Softmax 'soft_1' runs in float: no kernel"),
            ("b", "read by Add 'x', which runs in float"),
            ("c", "Tanh of 'c' runs in float: no kernel"),
            ("d", "layer_norm at Add 'n' runs in float: no kernel"),
            ("e", "nothing reads it"),
        )
    )
    assert [(group.reason, group.names) for group in groups] == [
        ("Softmax/Tanh/layer_norm runs in float: no kernel", ("a", "c", "d")),
        ("read by Add, which runs in float", ("b",)),
        ("nothing reads it", ("e",)),
    ]


def test_ops_at_several_places_of_a_reason_are_told_apart() -> None:
    reason = "{0} of 'x{0}' runs in float: it is inside {1} 'y', which runs in float"
    inside = [("Exp", "If"), ("Tanh", "If"), ("Tanh", "Loop"), ("Mul", "If"), ("Add", "If")]
    (group,) = group_by_reason(skipped(*((name, reason.format(name, owner)) for name, owner in inside)))
    said = "Exp/Tanh/Mul/... runs in float: it is inside If/Loop, which runs in float"
    assert (group.reason, len(group.names)) == (said, 5)


@given(st.lists(st.tuples(st.text(), st.text())))
def test_grouping_loses_no_tensor(pairs: list[tuple[str, str]]) -> None:
    names = [name for group in group_by_reason(skipped(*pairs)) for name in group.names]
    assert sorted(names) == sorted(name for name, _ in pairs)


def large_coverage() -> Coverage:
    """More of everything than a screen holds."""
    return Coverage(
        formats={f"uint{bits} asymmetric": bits for bits in (2, 4, 8, 16)},
        unquantized=tuple(
            UnquantizedTensor(
                f"model/layers.{index}/a/very/long/path/to/tensor_{index}", f"reason {index % 9}"
            )
            for index in range(1000)
        ),
        inner=7,
        ops={f"OpType{index}": (index % 3, 3) for index in range(60)},
    )


def test_a_summary_is_one_screen_however_large_the_model() -> None:
    lines = text(facts_grid(coverage_summary(large_coverage()))).splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert "30 of 1,030 float tensors" in lines[0]
    assert any("and 40 other types" in line for line in lines)
    assert any("for 5 other reasons" in line for line in lines)


def test_the_list_of_float_tensors_is_complete() -> None:
    listed = text(unquantized_table(large_coverage()), width=200).splitlines()
    assert len(listed) == 2000
    assert listed[-2:] == ["model/layers.999/a/very/long/path/to/tensor_999", "  reason 0"]
    assert text(unquantized_table(Coverage())) == "every float tensor is quantized"


@pytest.mark.parametrize(
    ("limits", "words"),
    [("0.0, 1.0", "from 0 to 1"), ("-2.9999999105930355, inf", "from -3"), ("-inf, 1.0", "to 1")],
)
def test_ranges_may_be_open_at_an_end(limits: str, words: str) -> None:
    shown = text(facts_grid(coverage_summary(Coverage(formats={f"uint8 asymmetric range({limits})": 20}))))
    assert shown.endswith(f"20 uint8 asymmetric, {words}")


def test_names_are_broken_behind_a_part_and_only_without_room() -> None:
    path = "/encoder/backbone/stages.3/blocks.11/attention/conv_2.weight"
    table = Table((column("tensor"), column("what it is", 17)))
    table.add(path, "made in one place")
    assert [line.split("  ")[0] for line in text(table, width=46).splitlines()[1:]] == [
        "/encoder/backbone/stages.3/",
        "blocks.11/attention/conv_2.",
        "weight",
    ]
    shown = text(facts_grid([("tensor", f"made beside {path}"), ("word", 40 * "x")]), width=36)
    assert [line[8:] for line in shown.splitlines()] == [
        "made beside",
        "/encoder/backbone/stages.3/",
        "blocks.11/attention/conv_2.",
        "weight",
        28 * "x",
        12 * "x",
    ]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, ["cost  size 0.43 x (39.2 KB), peak memory 1.03 x (11.4 MB)"]),
        (48, ["cost  size 0.43 x (39.2 KB),", "      peak memory 1.03 x (11.4 MB)"]),
        (24, ["cost  size 0.43 x (39.2", "      KB),", "      peak memory 1.03 x", "      (11.4 MB)"]),
    ],
)
def test_facts_are_wrapped_between_phrases(width: int, lines: list[str]) -> None:
    fact = ("cost", "size 0.43 x (39.2 KB), peak memory 1.03 x (11.4 MB)")
    assert [line.rstrip() for line in text(facts_grid([fact]), width=width).splitlines()] == lines


def test_a_summary_of_nothing() -> None:
    shown = text(facts_grid(coverage_summary(Coverage())))
    assert shown == "quantized  0 of 0 ops, 0 of 0 float tensors"


def test_a_summary_of_weights_alone() -> None:
    coverage = Coverage(formats={"int8": 1}, ops={"Conv": (0, 1)}, multiplied=Multiplied(weights=8, total=8))
    assert text(facts_grid(coverage_summary(coverage))).splitlines()[0] == (
        "quantized  weights alone, 1 of 1 float tensor"
    )


def test_data_on_a_grid_is_no_weight() -> None:
    coverage = Coverage(ops={"Conv": (0, 1)}, multiplied=Multiplied(weights=8, total=8), activations=1)
    assert text(facts_grid(coverage_summary(coverage))).startswith("quantized  0 of 1 op")


def test_the_document_holds_everything() -> None:
    document = json.loads(json.dumps(coverage_document(large_coverage())))
    assert document["quantized_tensors"] == 30
    assert len(document["float_tensors"]) == 1000
    assert document["ops"]["OpType1"] == {"quantized": 1, "total": 3}


# -- timing ---------------------------------------------------------------------------------------------


def test_the_timing_table_indents_what_a_loop_runs() -> None:
    asked = {"topological_order": Lookups(2, 1199, 0.25), "data_values": Lookups(0, 1)}
    report = PipelineReport(
        [
            StepReport("fixpoint", "combinator", "fixpoint<max=4>", 0, 3.0, 0.5, actions=5, analyses=asked),
            StepReport(
                "fold", "pass", "fold{x=1}", 1, 2.5, 2.0, 0.5, actions=5, memory=3 << 20, analyses=asked
            ),
            StepReport("lower", "pass", "lower", 0, 1.0, 1.0),
        ]
    )
    assert text(timing_table(report), gap=1).splitlines() == [
        "pass            seconds  self verify share  memory actions   analyses",
        "fixpoint<max=4>   3.000 0.500          75%               5 2 of 1,202",
        "  fold{x=1}       2.500 2.000  0.500       +3.0 MB       5 2 of 1,202",
        "lower             1.000 1.000          25%",
        "all               4.000 3.500  0.500                     5 2 of 1,202",
    ]
    name = "hoist-loop-invariants"
    slow = StepReport(
        name, "pass", f"{name}{{x=1}}", 1, 100.0, 100.0, 1.0, 1000, analyses=asked, memory=-(100 << 20)
    )
    lines = text(timing_table(PipelineReport([slow])), gap=1).splitlines()
    assert lines[1].startswith("  hoist-loop-invariants ") and max(map(len, lines)) <= 80


def test_the_analyses_that_were_kept() -> None:
    asked = {"topological_order": Lookups(2, 1199, 0.25), "data_values": Lookups(0, 1)}
    assert text(analyses_table(asked)).splitlines() == [
        "analysis           computed  reused  seconds",
        "topological order         2   1,199    0.250",
        "data values               0       1    0.000",
    ]


# -- evaluation -----------------------------------------------------------------------------------------


def evaluation(**changes: object) -> Evaluation:
    scores = (
        OutputScore("logits", 40, 0.25, 31.26, 0.99963, 0.125),
        OutputScore("same", 4, 1.0, math.inf, 1.0, 0.0),
        OutputScore("broken", 4, 0.0, -math.inf, math.nan, math.inf),
        OutputScore("label", 4, 0.75),
    )
    fields = {
        "feeds": 4,
        "rounds": 5,
        "device": "cpu",
        "threads": 1,
        "reference": Latency(0.002, 1.0, (0.0019, 0.0022), (1.0, 1.0)),
        "candidates": (CandidateScore("integer", scores, Latency(1.5, 750.0, (1.4, 2.0), (700.0, 800.0))),),
    }
    return Evaluation(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_accuracy_table() -> None:
    assert text(accuracy_table(evaluation())).splitlines() == [
        "output  model       SQNR    cosine  max error   equal",
        "logits  integer  31.3 dB  0.999630      0.125   25.0%",
        "same    integer    equal  1.000000          0  100.0%",
        "broken  integer  -inf dB       nan        inf    0.0%",
        "label   integer                                 75.0%",
    ]


def test_the_latency_table() -> None:
    assert text(latency_table(evaluation())).splitlines() == [
        "model    latency     ±  to float    ±",
        "float       2 ms   ±8%    1.00 x",
        "integer  1500 ms  ±20%  750.00 x  ±7%",
    ]


def test_json_has_no_infinity() -> None:
    document = evaluation_document(evaluation(reference=None))
    outputs = json.loads(json.dumps(document, allow_nan=False))["candidates"][0]["outputs"]
    assert [output["sqnr_db"] for output in outputs] == [31.26, "inf", "-inf", None]
    assert outputs[2]["cosine"] == "nan"


# -- small things ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (84_320, "84.3 KB"),
        (326_000, "326 KB"),
        (999_960, "1.0 MB"),
        (7_300_000_000, "7.3 GB"),
        (2_500_000_000_000, "2500 GB"),
    ],
)
def test_file_sizes(size: int, words: str) -> None:
    assert file_size(size) == words


@given(st.text())
def test_what_is_printable_has_no_control_characters(name: str) -> None:
    shown = printable(name)
    assert shown.replace("\n", "").isprintable()
    if name.isprintable():
        assert shown == name


# -- progress -------------------------------------------------------------------------------------------


def terminal(is_one: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_one, width=80)


def test_progress_is_silent_without_a_terminal() -> None:
    console = terminal(False)
    with RichProgress(console) as progress:
        assert list(PassContext(progress=progress).track(range(5), "calibrating", 5)) == [0, 1, 2, 3, 4]
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("total", [5, None])
def test_progress_shows_a_bar_and_takes_it_down(total: int | None) -> None:
    console = terminal(True)
    progress = RichProgress(console)
    outer = progress.start("outer", 2)
    list(PassContext(progress=progress).track(range(5), "calibrating", total))
    outer.advance()
    outer.finish()
    outer.finish()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    last = shown.rpartition("━")[2]
    assert "outer" in shown and "calibrating" in shown
    assert "\x1b[2K" in last and "\x1b[?25h" in last  # line erased, cursor back
    progress.start("again", None).finish()


def test_an_error_leaves_a_clean_line() -> None:
    console = terminal(True)
    with pytest.raises(KeyError), RichProgress(console) as progress:
        progress.start("calibrating", 3)
        raise KeyError
    console.print("qc: error: ...")
    assert console.file.getvalue().count("\x1b[?25h") == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("number", "told"), [(1013.2, "1,010"), (0.012345, "0.0123"), (999.6, "1,000"), (12.0, "12")]
)
def test_large_numbers_have_no_exponent(number: float, told: str) -> None:
    assert in_three_digits(number) == told
