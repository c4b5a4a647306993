"""Precision by hand: which tensors a rule changes, where rules may stand, and that the result runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, run_model
from support.placement import of_value, of_weight, value

import qc
from qc.ir.errors import UsageError
from qc.ir.journal import RESPEC
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.passes import dumps, loads, parse_pipeline
from qc.passes.encodings import read_encodings
from qc.passes.framework.target import load_target
from qc.passes.quantize.precision.rules import parse_rule
from qc.passes.quantize.set_precision import SetPrecision, set_precision

# Neither BatchNorm can be folded: another op reads the input of the first, and padding follows the second.
NETWORK = """g (float[2, 3, 6, 6] x) => (float[2, 5] y)
<float[4, 3, 3, 3] w1, float[4] b1, float[4] s1, float[4] o1, float[4] m1, float[4] var1,
 float[4, 4, 3, 3] w2, float[4] s2, float[4] o2, float[4] m2, float[4] var2, float[4, 5] w3, float[5] b3> {
    c1 = Conv(x, w1, b1)
    n1 = BatchNormalization(c1, s1, o1, m1, var1)
    a1 = Add(c1, n1)
    r1 = Relu(a1)
    n2 = BatchNormalization(r1, s2, o2, m2, var2)
    c2 = Conv<pads=[1, 1, 1, 1]>(n2, w2)
    p = GlobalAveragePool(c2)
    f = Flatten(p)
    y = Gemm(f, w3, b3)
}"""
FLOAT16 = "BatchNormalization=float16"


@pytest.fixture(scope="module")
def network() -> ModelProto:
    return parse(NETWORK)


def placed(model: ModelProto | Model, rules: Iterable[str], target: str = "npu") -> Model:
    ir = apply(PLACE, model, target)[0] if isinstance(model, ModelProto) else model
    set_precision(ir, [parse_rule(rule, f"rule '{rule}'") for rule in rules], load_target(target))
    return ir


def format_of(model: Model, name: str) -> str | None:
    quantizer = of_value(model, name)
    return str(quantizer.spec.format) if quantizer is not None else None


def weight_format(model: Model, result: str, port: int = 1) -> str | None:
    quantizer = of_weight(model, result, port)
    return str(quantizer.spec.format) if quantizer is not None else None


# -- what rules change --------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(2, 17))
def test_widths(network: ModelProto, bits: int) -> None:
    model = placed(network, [f"Conv=w{bits}a{bits}"])
    assert weight_format(model, "c1") == weight_format(model, "c2") == f"int{bits}"
    assert format_of(model, "c1") == format_of(model, "c2") == format_of(model, "n2") == f"uint{bits}"
    assert weight_format(model, "y") == "int8"
    weight = of_weight(model, "c1")
    assert weight is not None and weight.spec.symmetric
    assert weight.spec.narrow == (bits >= 8), "of few codes none is left out"
    assert str(weight.spec.granularity) == "channel(0)"


def test_a_weight_that_gets_8_bits_is_as_the_target_wants_it(network: ModelProto) -> None:
    weight = of_weight(placed(network, ["Conv=w4a8", "Conv=w8a8"]), "c1")
    assert weight is not None and str(weight.spec) == "int8 symmetric narrow channel(0)"


@pytest.mark.parametrize("format", ["int4", "uint8", "float16", "bfloat16", "float8e4m3fn", "float8e5m2"])
def test_formats_of_a_named_tensor(network: ModelProto, format: str) -> None:
    assert format_of(placed(network, [f"tensor:a1={format}"]), "a1") == format  # had none, inside of add_relu
    assert format_of(placed(network, [f"tensor:r1={format}"]), "r1") == format


@pytest.mark.parametrize(
    "selector", ["op:second", "second", "op~sec.*", "type:Gemm", "Gemm", "tensor:w3", "tensor~w[3]", "w3"]
)
def test_ways_to_select(selector: str) -> None:
    model = parse(NETWORK)
    model.graph.node[-1].name = "second"
    assert weight_format(placed(model, [f"{selector}=w4"]), "y") == "int4"


def test_a_region_is_selected_by_its_name(network: ModelProto) -> None:
    model = placed(network, ["region:add_relu=a16"])
    assert {name for name in ("c1", "n1", "r1", "c2") if format_of(model, name) == "uint16"} == {
        "c1",
        "n1",
        "r1",
    }


def test_an_op_inside_of_a_region_has_its_result() -> None:
    text = """g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <float[2, 2, 1, 1] w> {
        c = Conv(x, w)
        y = Relu(c)
    }"""
    model = placed(parse(text), ["Conv=a16"], "ort-cpu")
    assert (format_of(model, "x"), format_of(model, "c"), format_of(model, "y")) == ("uint16", None, "uint16")


def test_off_takes_quantizers_away_and_says_so(network: ModelProto) -> None:
    model = placed(network, ["Gemm=off"])
    assert weight_format(model, "y") is weight_format(model, "y", 2) is format_of(model, "y") is None
    assert model.quant.why_not(value(model, "y")) == "set to float by hand"
    assert format_of(model, "c2") == "uint8"


def test_later_rules_win_and_the_journal_tells(network: ModelProto) -> None:
    model = placed(network, ["Conv=w4", "tensor:w1=w6"])
    assert (weight_format(model, "c1"), weight_format(model, "c2")) == ("int6", "int4")
    asked = [remark.asked_by for remark in model.journal.remarks if remark.kind == RESPEC]
    assert asked[-3:] == ["rule 'Conv=w4'", "rule 'Conv=w4'", "rule 'tensor:w1=w6'"]


def test_tied_tensors_change_together() -> None:
    text = """g (float[1, 4, 4] x) => (float[1, 8, 4] y) <float[4, 4] w, float[4, 4] v> {
        a = MatMul(x, w)
        b = MatMul(x, v)
        c = Concat<axis=1>(a, b)
        y = Relu(c)
    }"""
    model = placed(parse(text), ["tensor:a=a16"])
    assert of_value(model, "a") is of_value(model, "b") is of_value(model, "c")
    assert format_of(model, "b") == format_of(model, "c") == "uint16"
    assert "tied" in model.journal.remarks[-1].reason


def test_biases_follow(network: ModelProto) -> None:
    feeds = random_feeds(network, 2)
    rules = "set-precision{rules=['Conv=w4a16','Gemm=weight:float16']}"
    model = apply(f"{PLACE},{rules},calibrate", network, "npu", feeds)[0]
    assert (weight_format(model, "c1", 2), weight_format(model, "y", 2)) == ("int32", "float16")


# -- float beside integers ----------------------------------------------------------------------------


@needs_exact_sums
@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@pytest.mark.parametrize("rules", [[FLOAT16], ["Conv=w4", "Gemm=w4", FLOAT16]], ids=["w8a8", "w4a8"])
def test_float16_batch_norms_in_an_integer_network(
    network: ModelProto, tmp_path: Path, target: str, rules: list[str]
) -> None:
    feeds = random_feeds(network, 8)
    passes = (
        "fold-constants,fold-batch-norms,eliminate-dead-code,match-supergroups,insert-quantizers,"
        "annotate-per-channel,tie-quantizers,calibrate,insert-qdq,to-encodings"
    )
    result = qc.compile(network, passes, data=feeds, target=target, precision=rules, threads=1)
    bits = 4 if len(rules) > 1 else 8
    for name in ("c1", "c2", "y"):
        assert weight_format(result.ir, name) == f"int{bits}"
    for name, port in (("n1", 1), ("n1", 4), ("n2", 2), ("n2", 3)):
        assert weight_format(result.ir, name, port) == "float16"
    assert format_of(result.ir, "n1") == format_of(result.ir, "n2") == "float16"
    assert weight_format(result.ir, "n1", 0) == "float16"  # reads what the Conv makes in integers
    assert format_of(result.ir, "c1") == "uint8"
    assert weight_format(result.ir, "c2", 0) == "uint8"  # reads what the BatchNorm makes in float16

    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds.count("Cast") >= 12 and kinds.count("Cast") % 2 == 0 and "QuantizeLinear" in kinds
    feed = feeds[0]
    floats, rounded = run_model(network, feed)["y"], run_model(result.model, feed, optimize=True)["y"]
    assert np.abs(rounded - floats).max() < (0.1 if bits == 8 else 0.6) * np.abs(floats).max()
    np.testing.assert_allclose(
        run_model(result.simulation, feed)["y"], rounded, atol=0.02 * np.abs(floats).max()
    )

    (tmp_path / "f.encodings").write_text(str(result.artifacts["encodings"].payload))
    records = {record.name: record for record in read_encodings(tmp_path / "f.encodings").records}
    assert str(records["n1"].format) == str(records["s1"].format) == "float16"
    assert str(records["c1"].format) == "uint8"
    assert isinstance(records["w1"].format, IntFormat) and records["w1"].format.bits == bits


def test_the_convolution_before_a_float16_op_is_not_changed(network: ModelProto) -> None:
    """Off, as float16, lets the weighted ops beside it run in integers."""
    model = placed(network, ["BatchNormalization=off"])
    assert format_of(model, "c1") == "uint8"
    assert format_of(model, "n2") is None and weight_format(model, "c2", 0) == "uint8"


def test_a_result_that_only_some_readers_have_on_a_grid() -> None:
    text = """g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) <float[4, 4] w> {
        e = Exp(x)
        y = MatMul(e, w)
        z = Neg(e)
    }"""
    model = placed(parse(text), ["Exp=a16"], "ort-cpu")
    assert (format_of(model, "e"), weight_format(model, "y", 0)) == (None, "uint16")
    model = placed(parse(text), ["Exp=float16"], "ort-cpu")
    assert (format_of(model, "e"), weight_format(model, "y", 0)) == ("float16", "uint8")


def test_a_constant_too_large_for_float16_stays() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] y) <float k = {-100000.0}> { y = Mul(x, k) }"
    model = placed(parse(text), ["Mul=float16"])
    assert format_of(model, "y") == "float16"
    assert format_of(model, "k") != "float16"
    assert any("float16 does not have" in remark.reason for remark in model.journal.remarks)


# -- frozen quantizers --------------------------------------------------------------------------------


def frozen(network: ModelProto, folder: Path) -> str:
    """A pipeline that loads and freezes the grids of the parameters."""
    feeds = random_feeds(network, 2)
    context = apply(f"{PLACE},calibrate,to-encodings", network, "npu", feeds)[1]
    (folder / "f.encodings").write_text(str(context.artifacts["encodings"].payload))
    return f"{PLACE},load-encodings{{file={str(folder / 'f.encodings')!r} only=parameters}}"


def test_frozen_quantizers_are_left_alone(network: ModelProto, tmp_path: Path) -> None:
    load = frozen(network, tmp_path)
    feeds = random_feeds(network, 2, seed=9)
    before = of_weight(apply(load, network, "npu")[0], "c1")
    pipeline = f"{load},set-precision{{rules=['Conv=a16']}},annotate-per-channel,calibrate{{weights=mse}}"
    after = of_weight(apply(pipeline, network, "npu", feeds)[0], "c1")
    assert before is not None and after is not None and before.encoding and after.encoding
    assert after.frozen and after.encoding.equals(before.encoding)


def test_changing_a_frozen_quantizer_is_an_error_unless_it_is_asked_for(
    network: ModelProto, tmp_path: Path
) -> None:
    load = frozen(network, tmp_path)
    with pytest.raises(UsageError, match=r"'w1' into Conv of 'c1' is frozen at int8.*'!'"):
        apply(f"{load},set-precision{{rules=['Conv=w4']}}", network, "npu")
    same = apply(f"{load},set-precision{{rules=['Conv=w8']}}", network, "npu")[0]
    assert of_weight(same, "c1").frozen  # type: ignore[union-attr]
    model = apply(f"{load},set-precision{{rules=['Conv=w4!']}}", network, "npu")[0]
    assert weight_format(model, "c1") == "int4" and weight_format(model, "y") == "int8"
    assert any("no longer frozen" in remark.reason for remark in model.journal.remarks)


# -- where rules may stand ----------------------------------------------------------------------------


TOML = """target = "npu"
[pipeline]
passes = "match-supergroups,insert-quantizers,tie-quantizers,calibrate,insert-qdq"

[[precision]]
op_type = "Conv"
weight = "int4"
activation = "uint16"

[[precision]]
tensor = "n[12]"
regex = true
precision = "float16"
override = true
"""


def test_tables_in_a_pipeline_file() -> None:
    file = loads(TOML, "p.toml")
    step = file.pipeline.steps[3]
    assert isinstance(step, SetPrecision) and file.pipeline.steps[4].name == "calibrate"
    assert step.rules == ("type:Conv=weight:int4,activation:uint16", "tensor~n[12]=float16!")
    assert step.asked_by == ("p.toml, line 5", "p.toml, line 10")
    assert loads(dumps(file)).pipeline == file.pipeline
    assert parse_pipeline(str(file.pipeline)) == file.pipeline


def test_the_ways_to_give_rules_are_the_same(network: ModelProto, tmp_path: Path) -> None:
    feeds = random_feeds(network, 2)
    (tmp_path / "r.toml").write_text('[[precision]]\nop_type = "Conv"\nprecision = "w4a16"\n')
    rules: list[object] = ["Conv=w4a16", ["Conv=w4a16"], [parse_rule("Conv=w4a16")], tmp_path / "r.toml"]
    results = [
        qc.compile(network, "w8a8", data=feeds, target="npu", precision=rule, threads=1) for rule in rules
    ]  # type: ignore[arg-type]
    assert len({result.model.SerializeToString() for result in results}) == 1
    assert weight_format(results[0].ir, "c1") == "int4"


def test_on_a_compiled_model(network: ModelProto) -> None:
    """Rules can be applied to the table of a model at any time; what they change is open again."""
    result = qc.compile(network, "w8a8", data=random_feeds(network, 2), target="npu", threads=1)
    qc.set_precision(result.ir, "Conv=w4")
    weight = of_weight(result.ir, "c1")
    assert weight is not None and weight.encoding is None and str(weight.spec.format) == "int4"


@pytest.mark.parametrize(
    "rule, sentence",
    [
        ("Conv", "is no rule"),
        ("=w4", "is no rule"),
        ("Conv=", "unknown number format ''"),
        ("Conv=w1", "2 to 16 bits"),
        ("Conv=w32", "int32 is for biases"),
        ("Conv=int32", "int32 is for biases"),
        ("Conv=float15", "unknown number format 'float15'"),
        ("Conv=w4,weight:int4", "sets the weight twice"),
        ("Conv=bias:int4", "not 'bias'"),
        ("op~(=w4", "is no regular expression"),
        ("op~a{99999999999999999999}=w4", "is no regular expression"),
        (f"op~{'(' * 5000}{')' * 5000}=w4", "is no regular expression"),
        (f"Conv=w{'9' * 5000}", "unknown number format"),
    ],
)
def test_rules_that_are_none(rule: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pipeline(f"set-precision{{rules=['{rule}']}}")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "rule, sentence",
    [
        (
            "Cnov=w4",
            "rule 'Cnov=w4': no op type, op, region or tensor of the model is called 'Cnov' (did you mean",
        ),
        ("op:frist=w4", "no op of the model is called 'frist' (did you mean 'first'?)"),
        ("region:conv=w4", "no region of the model is called 'conv'; passes before may have removed it"),
        ("tensor~zz.*=w4", "no tensor of the model fits 'zz.*'"),
        ("conv=w4", "is called 'conv' (did you mean 'Conv'?)"),
        (
            "op~fir=w4",
            "no op of the model fits 'fir'; the expression has to fit whole names, as 'fir.*' does",
        ),
        ("op~irs=w4", "as '.*irs.*' does"),
        ("op:f.i*=w4", "a name has no wildcards, and 'op~f\\.i.*' is a regular expression that fits several"),
        ("c1=w4", "'c1' is the name of several things; write 'op:c1' or 'tensor:c1'"),
        ("Flatten=w4", "nothing of what it is for (1 in all) has a quantizer"),
    ],
)
def test_rules_that_fit_nothing(rule: str, sentence: str) -> None:
    model = parse(NETWORK)
    model.graph.node[0].name, model.graph.node[5].name = "c1", "first"
    with pytest.raises(UsageError) as caught:
        placed(model, [rule])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "table, sentence",
    [
        ('op_typ = "Conv"', "p.toml, line 3: unknown key 'op_typ' (did you mean 'op_type'?)"),
        ('op_type = "Conv"', "p.toml, line 3: a [[precision]] table needs 'precision'"),
        ('precision = "off"', "p.toml, line 3: a [[precision]] table has one of op_type, op, region, tensor"),
        ('op = "a"\ntensor = "b"\nprecision = "off"', "not 2"),
        ("op = 3", "'op' must be text, not 3"),
        ('op = "a"\nregex = "yes"', "'regex' must be true or false, not 'yes'"),
        ('op = "a"\nprecision = "w99"', "p.toml, line 3: the rule 'op:a=w99': integer formats"),
    ],
)
def test_tables_that_are_wrong(table: str, sentence: str) -> None:
    text = f'[pipeline]\npasses = "calibrate"\n[[precision]]\n{table}\n'
    with pytest.raises(UsageError) as caught:
        loads(text, "p.toml")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "no [[precision]] table in it"),
        ("x = 1", "unknown key 'x'; a precision file holds"),
        ("[precision]\nop = 'a'", "'precision' must be an array of tables"),
        ("= 1", "is not valid TOML"),
        (None, "there is no precision file"),
    ],
)
def test_files_that_are_wrong(network: ModelProto, tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "r.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as caught:
        qc.compile(network, "w8a8", precision=path)
    assert sentence in str(caught.value) and "r.toml" in str(caught.value)
