"""Target files: what is wrong with one is said with its place, and with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.folders import ROOT
from support.models import parse, random_feeds
from support.placement import placed

import qc
from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.journal import MATCH
from qc.passes.framework.target import load_target, target_names
from qc.reading import with_opset

GOOD = """
name = "mine"
summary = "a device"
[activation]
dtype = "uint8"
[weight]
dtype = "int4"
symmetric = true
[default]
runs = "float"
why = "the device cannot"
"""


def message(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_target(str(folder / "mine.toml"))
    assert "mine.toml" in str(caught.value)
    return str(caught.value).split("mine.toml'", 1)[1]


def test_a_target_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f"{GOOD}[ops]\nConv = {{ per_channel = false }}\n")
    target = load_target(str(tmp_path / "mine.toml"))
    assert (target.name, str(target.weight.spec())) == ("mine", "int4 symmetric")
    assert (target.rule_for("Conv").runs, target.rule_for("Conv").per_channel) == ("integer", False)
    assert target.rule_for("Gemm").why == "the device cannot"


def test_channels_are_counted_from_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f"{GOOD}[lowering]\nleast_channels = 8\n")
    assert load_target(str(tmp_path / "mine.toml")).lowering.least_channels == 8
    assert "'least_channels' in [lowering]" in message(tmp_path, f"{GOOD}[lowering]\nleast_channels = 0\n")


def test_a_key_at_the_top_that_belongs_in_a_table(tmp_path: Path) -> None:
    wrong = GOOD.replace("[activation]", "least_channels = 8\n[activation]", 1)
    assert message(tmp_path, wrong).endswith("'least_channels' belongs in the table [lowering]")


def test_what_a_table_does_not_say_is_as_in_the_target_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("extends = 'qnn-htp'\nname = 'mine'\n[models]\nopset = 21\n")
    own, base = load_target(str(tmp_path / "mine.toml")), load_target("qnn-htp")
    assert own.models == base.models.model_copy(update={"opset": 21})
    assert (own.grids, own.lowering) == (base.grids, base.lowering)


@pytest.mark.parametrize("name", target_names())
def test_the_targets_of_qc_can_be_read(name: str) -> None:
    assert load_target(name).name == name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name =", "nmae =", ": there is no 'nmae' (did you mean 'name'?); known here: name, summary, "),
        ('dtype = "int4"', "dtpye = 4", ": there is no 'dtpye' in [weight] (did you mean 'dtype'?)"),
        ('summary = "a device"', "", ": 'summary' is missing"),
        ("uint8", "uin8", ": 'dtype' in [activation]: unknown number format 'uin8'; use int2 to int16, "),
        (
            '"float"',
            '"flaot"',
            ": 'runs' in [default]: input should be 'integer', 'between', 'carry', 'weights' or",
        ),
        ("name =", "name", " is not valid TOML: "),
        ("name =", "x = " + "9" * 5000 + "\nname =", " is not valid TOML: "),
        ("name =", "x = " + "[" * 5000 + "]" * 5000 + "\nname =", " is not valid TOML: "),
    ],
)
def test_a_faulty_target(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert message(tmp_path, GOOD.replace(old, new)).startswith(said)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[ops]\nCovn = { runs = 'float' }", "ONNX has no op 'Covn' (did you mean 'Conv'?)"),
        ("[ops]\nConv = { run = 'float' }", "there is no 'run' in [ops.Conv] (did you mean 'runs'?)"),
        (
            "[ops]\nResize = { only = { mod = 'linear' } }",
            "'Resize' has no attribute 'mod' (did you mean 'mode'?)",
        ),
        ("[ops]\nConv = { without = ['dilation'] }", "'Conv' has no attribute 'dilation' (did you mean"),
        (
            "[regions]\nconv_clip = { only = { mni = 0 } }",
            "'conv_clip' has no attribute 'mni' (did you mean 'min'?)",
        ),
        (
            "[ops]\nConv = { constant_weight = ['uint61'] }",
            "'constant_weight' in [ops.Conv]: integer formats have 2 to 16 bits, signed ones",
        ),
        (
            "[ops]\nConv = { constant_weight = 'uint16' }",
            "it is true, false or a list of formats such as 'uint16', not 'uint16'",
        ),
        ("[ops]\nConv = { constant_weight = [16] }", "or a list of formats such as 'uint16', not [16]"),
        ("[ops]\nConv = 3", "'Conv' in [ops] must be a table"),
        ("[regions]\nconv_rleu = {}", "'conv_rleu' fits no supergroup (did you mean 'conv_relu'?)"),
        ("[regions]\n'lstm_*' = {}", "'lstm_*' fits no supergroup (did you mean 'lstm_cell'?)"),
    ],
)
def test_a_faulty_rule(tmp_path: Path, table: str, said: str) -> None:
    assert said in message(tmp_path, f"{GOOD}{table}\n")


def test_a_block_has_a_rule_only_under_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "device.toml"
    path.write_text(f"{GOOD}[regions]\nlstm_cell = {{ runs = 'float' }}\n'*' = {{ runs = 'integer' }}\n")
    target = load_target(str(path))
    rules = {name: target.region_rule(name) for name in ("lstm_cell", "gru_cell", "gelu")}
    runs = {name: rule.runs for name, rule in rules.items() if rule is not None}
    assert runs == {"lstm_cell": "float", "gelu": "integer"}


# -- supergroups of a target file ----------------------------------------------------------------------

POOL = """
[[supergroups]]
name = "conv_relu_pool"
op_list = ["Conv", "Relu", "MaxPool"]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"Relu"',
            '"Rellu"',
            "'op_list' in number 1 of [[supergroups]]: ONNX has no op 'Rellu' (did you mean 'Relu'",
        ),
        (
            '"Conv", "Relu", ',
            "",
            "'op_list' in number 1 of [[supergroups]]: a supergroup is made of at least two ops",
        ),
        ("conv_relu_pool", "conv_relu", "there is a supergroup 'conv_relu' already; choose another name"),
        ("conv_relu_pool", "conv relu", "'conv relu' is not made of letters, digits and underscores"),
        (
            "op_list",
            "op_lists",
            "there is no 'op_lists' in number 1 of [[supergroups]] (did you mean 'op_list'?)",
        ),
        (POOL, POOL + POOL, "two supergroups are named 'conv_relu_pool'; rename one of them"),
        (POOL, "supergroups = 3", "'supergroups'"),
    ],
)
def test_a_faulty_supergroup(tmp_path: Path, old: str, new: str, said: str) -> None:
    head, tail = ("", GOOD) if new.startswith("supergroups") else (GOOD, "")
    assert said in message(tmp_path, head + POOL.replace(old, new) + tail)


TARGET = GOOD.replace("[default]", "[ops]\nConv = {}\nRelu = {}\nMaxPool = {}\n[default]")
CHAIN = """g (float[1,1,8,8] x) => (float[1,1,3,3] y, more) <float[1,1,3,3] w> {
    a = Conv(x, w)
    b = Relu(a)
    y = MaxPool<kernel_shape = [2, 2]>(b)
    rest
}"""


def quantized(folder: Path, target: str, text: str) -> tuple[list[str], list[str]]:
    """The remarks of matches, and the tensors of the data flow that get a quantizer."""
    (folder / "mine.toml").write_text(target)
    model = placed(text, str(folder / "mine.toml"))
    matches = [str(remark) for remark in model.journal.remarks if remark.kind == MATCH]
    return matches, [site.value.name for site in model.quant.sites() if site.value.const is None]


def test_a_chain_of_ops_counts_as_one_operator(tmp_path: Path) -> None:
    text = CHAIN.replace(", more", "").replace("rest", "")
    (match,), sites = quantized(tmp_path, TARGET + POOL, text)
    line = (TARGET + POOL).split("\n").index("[[supergroups]]") + 1
    assert "conv_relu_pool" in match and match.endswith(f"mine.toml, line {line}]")
    assert sites == ["x", "y"]
    assert quantized(tmp_path, TARGET, text) == ([], ["x", "a", "b", "y"])


def test_a_chain_respects_other_readers_and_outputs(tmp_path: Path) -> None:
    read = CHAIN.replace("more", "float[1,1,6,6] z").replace("rest", "z = Neg(b)")
    shown = CHAIN.replace("more", "float[1,1,6,6] a").replace("rest", "")
    for text in (read, shown):
        assert quantized(tmp_path, TARGET + POOL, text) == ([], ["x", "a", "b", "y"])


def test_a_rule_for_a_chain(tmp_path: Path) -> None:
    rule = '[regions]\nconv_relu_pool = { runs = "float", why = "too large" }\n'
    text = CHAIN.replace(", more", "").replace("rest", "")
    matches, sites = quantized(tmp_path, TARGET + rule + POOL, text)
    assert len(matches) == 1 and sites == []


def test_a_chain_comes_before_a_supergroup_of_qc_of_its_size(tmp_path: Path) -> None:
    own = POOL.replace("conv_relu_pool", "mine").replace(', "MaxPool"', "")
    rule = "[regions]\nconv_relu = {}\n"
    text = CHAIN.replace(", more", "").replace("rest", "")
    (match,), _ = quantized(tmp_path, TARGET + rule + own, text)
    assert "mine [" in match


def test_a_target_that_extends_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'extends = "ort-cpu"\nname = "mine"\n[activation]\ndtype = "int8"\n[ops]\nAdd = { runs = "float" }\n'
    )
    mine, base = load_target(str(path)), load_target("ort-cpu")
    assert (mine.name, mine.summary, mine.weight) == ("mine", base.summary, base.weight)
    assert mine.rule_for("Add").runs == "float"
    assert mine.rule_for("Conv") == base.rule_for("Conv")
    assert mine.rule_for("Add").asked_by == f"{path}, line 6"
    assert mine.rule_for("Conv").asked_by == base.rule_for("Conv").asked_by != ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'extends = "ort-gpu"\nname = "mine"',
            " extends 'ort-gpu', which is no target; known: npu, ",
        ),
        ('extends = 3\nname = "mine"', " extends '3', which is no target"),
        ('extends = "ort-cpu"\nname = "mine"\nops = 3', ": 'ops' must be a table"),
    ],
)
def test_a_target_that_extends_what_is_none(tmp_path: Path, text: str, said: str) -> None:
    assert message(tmp_path, text).startswith(said)


def test_the_documented_targets_can_be_read(tmp_path: Path) -> None:
    own, page = (
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("own-target.md", "targets.md")
    )
    path, targets = tmp_path / "mine.toml", {}
    for part in own.split("```toml\n")[1:]:
        path.write_text(part.partition("```")[0])
        targets[load_target(str(path)).name] = load_target(str(path))
    assert list(targets) == ["device", "mine"] and targets["mine"].region_rule("conv_silu") is not None
    assert all(f"`{name}`" in page for name in target_names())


def test_a_newer_opset_leaves_the_interface_as_it_was_declared() -> None:
    """ONNX's converter fills in lengths that it can infer, here 3 for M."""
    header = '<ir_version: 9, opset_import: ["" : 17]>'
    text = "g (float[N, 4] x) => (float[N, M] y) <float[4, 3] w> { y = MatMul(x, w) }"
    converted = with_opset(lift(parse(f"{header} {text}")), 21, latest=25)
    assert converted.opset == 21
    (output,) = converted.origin.graph.output
    assert [dim.dim_param for dim in output.type.tensor_type.shape.dim] == ["N", "M"]


@pytest.mark.parametrize("target", ["ort-cpu", "openvino", "qnn-htp", "tensorrt", "npu"])
@pytest.mark.parametrize("pipeline", ["w8a8", "w4"])
def test_a_model_of_the_newest_opset_of_onnx_has_quantize_ops_that_onnx_runtime_runs(
    target: str, pipeline: str
) -> None:
    """ONNX Runtime runs a Conv of opset 28, and quantize ops up to opset 25."""
    header = f'<ir_version: 10, opset_import: ["" : {onnx.defs.onnx_opset_version()}]>'
    text = "g (float[1, 4, 6, 6] x) => (float[1, 8, 4, 4] y) <float[8, 4, 3, 3] w> { y = Conv(x, w) }"
    model = parse(f"{header} {text}")
    feeds = random_feeds(model, 2)
    compiled = qc.compile(model, pipeline, data=feeds, target=target)
    qc.runtime.open_session(compiled.model).run(None, feeds[0])


def test_a_model_with_ops_of_a_new_opset_is_converted_as_far_as_it_goes() -> None:
    """CumProd is of opset 26, and ONNX Runtime runs no quantize ops of opset 28."""
    header = f'<ir_version: 10, opset_import: ["" : {onnx.defs.onnx_opset_version()}]>'
    model = parse(f"""{header} g (float[4, 6] x) => (float[4, 64] y)
    <float[6, 64] w, float[64, 64] v, int64 axis = {{1}}> {{
        m = MatMul(x, w)  s = Sigmoid(m)  c = CumProd(s, axis)  y = MatMul(c, v)
    }}""")
    feeds = random_feeds(model, 2)
    compiled = qc.compile(model, "w8a8", data=feeds, threads=1, allow_unquantized=True)
    assert compiled.ir.opset == 26
    first = compiled.notes[0]
    assert first.endswith(" to 26, the first that has all of its ops"), first
    made, meant = (qc.runtime.open_session(one).run(None, feeds[0])[0] for one in (compiled.model, model))
    np.testing.assert_allclose(made, meant, atol=0.1 * np.abs(meant).max())


def test_a_table_has_a_grid_where_the_device_looks_up_codes() -> None:
    """The HTP makes no graph of a large table in float; elsewhere what was looked up is quantized."""
    model = parse(
        """g (int64[2, 3] i) => (float[2, 3, 5] y) <float[40, 8] table, float[8, 5] w> {
            rows = Gather(table, i)
            y = MatMul(rows, w)
        }"""
    )
    feeds = [{"i": np.arange(6).reshape(2, 3)}]
    for target, has_grid in (("qnn-htp", True), ("ort-cpu", False)):
        compiled = qc.compile(model, "w8a8", data=feeds, target=target)
        ir = compiled.ir
        (lookup,) = (op for op in ir.graph.ops() if op.is_type("Gather"))
        table, (rows,) = lookup.inputs[0], lookup.outputs
        assert table is not None and rows is not None
        held = ir.quant.of_use(table, lookup, 0)
        assert (held is not None) is has_grid
        assert (held is ir.quant.of_value(rows)) is has_grid
        stored = {tensor.name: tensor.data_type for tensor in compiled.model.graph.initializer}
        assert (stored.get("table_quantized") == TensorProto.UINT8) is has_grid


def test_numbers_within_a_region_have_no_grid() -> None:
    """OpenVINO knows a GELU, and computes it with the product before, only by its numbers in float."""
    model = parse(
        """g (float[2, 8] x) => (float[2, 4] y)
        <float[8, 8] w, float[8] b, float[8, 4] v,
         float root = {1.4142135}, float one = {1}, float half = {0.5}> {
            p = MatMul(x, w)
            a = Add(b, p)
            d = Div(a, root)
            e = Erf(d)
            f = Add(e, one)
            m = Mul(a, f)
            h = Mul(m, half)
            y = MatMul(h, v)
        }"""
    )
    feeds = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
    written = qc.compile(model, "w8a8", data=feeds, target="openvino").model
    dequantized = {
        name for node in written.graph.node for name in node.output if "Dequantize" in node.op_type
    }
    reading = {node.op_type: set(node.input) for node in written.graph.node}
    assert {"h_DequantizeLinear_Output", "x_DequantizeLinear_Output"} <= dequantized
    assert reading["Div"] == {"a", "root"}
    assert not any(name.startswith(("root", "one", "half")) for name in dequantized)


def test_a_model_is_converted_to_where_the_target_has_integers_for_its_ops() -> None:
    """ONNX Runtime has a MaxPool of codes from opset 12 on."""
    model = parse("""<ir_version: 7, opset_import: ["" : 11]>
        g (float[1, 8, 8, 8] x) => (float[1, 8, 4, 4] y) <float[8, 8, 1, 1] w> {
            c = Conv(x, w)
            p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
            y = Conv(p, w)
        }""")
    feeds = random_feeds(model, 2)
    compiled = qc.compile(model, "w8a8", data=feeds, target="ort-cpu")
    assert compiled.model.opset_import[0].version == 12
    assert "the model was converted from opset 11 to 12" in compiled.notes[0]
    assert qc.check(compiled.model, "ort-cpu", feeds).share == 1.0
    assert qc.compile(model, "w8a8", data=feeds, target="openvino").model.opset_import[0].version == 13


@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16"])
def test_numbers_that_are_compared_with_the_largest_of_them_have_one_grid(pipeline: str) -> None:
    """Mixtures of experts keep what reaches the least of the largest, which on two grids none may do."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 16] x) => (bool[2, 16] kept) <float[16, 16] w, int64[1] k = {4}> {
        m = MatMul(x, w)
        s = Softmax(m)
        largest, places = TopK(s, k)
        least = ReduceMin<axes = [1]>(largest)
        kept = GreaterOrEqual(s, least)
    }""")
    feeds = random_feeds(model, 8)
    compiled = qc.compile(model, pipeline, data=feeds, target="qnn-htp")
    held = {value.name: compiled.ir.quant.of_value(value) for value in compiled.ir.graph.values()}
    assert held["s"] is not None and held["s"] is held["largest"] is held["least"]
    session = qc.runtime.open_session(compiled.model)
    assert np.min([session.run(None, feed)[0].sum(axis=1) for feed in feeds]) >= 4
