"""Reading and writing configurations: AIMET's JSON, TOML, what comes with qc, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import parse
from support.pipelines import apply

from qc.ir.errors import UsageError
from qc.passes.quantize.quantsim.config import FUSIONS, PARAMETERS, QuantsimConfig
from qc.passes.quantize.quantsim.explanation import explain
from qc.passes.quantize.quantsim.reading import config_names, load_config, parse_config
from qc.passes.quantize.quantsim.writing import config_toml

FLOAT8 = {"bitwidth": 8, "dtype": "float"}
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def aimet_json(content: object) -> str:
    """JSON with booleans as AIMET writes them."""
    return json.dumps(_quoted(content))


def _quoted(content: object) -> object:
    if isinstance(content, dict):
        return {key: _quoted(item) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [_quoted(item) for item in content]
    return str(content) if isinstance(content, bool) else content


def minimal(**sections: object) -> dict[str, object]:
    """The least that a configuration says, and more."""
    defaults = {"ops": {"is_output_quantized": True}, "params": {"is_quantized": True}}
    return {"defaults": defaults, **sections}


# -- what comes with qc ------------------------------------------------------------------------------


def test_configurations_that_come_with_qc() -> None:
    devices = [f"htp_v{version}" for version in (66, 68, 69, 73, 75, 79, 81, 85)]
    enpu = ["enpu_v6", "enpu_v7", "enpu_v7_per_channel"]
    assert config_names() == sorted(["default", "default_per_tensor", "dsp", *devices, *enpu])


@pytest.mark.parametrize(
    "name, linear",
    [
        ("default", LINEAR),
        ("default_per_tensor", ()),
        ("dsp", ()),
        ("htp_v66", ()),
        ("htp_v68", LINEAR[:2]),
        ("htp_v69", LINEAR),
        ("htp_v73", LINEAR),
        ("htp_v85", LINEAR),
        ("enpu_v6", ()),
        ("enpu_v7_per_channel", LINEAR),
    ],
)
def test_which_ops_have_scales_per_channel(name: str, linear: tuple[str, ...]) -> None:
    rules = load_config(name).config.op_type
    assert {op for op in LINEAR if op in rules and rules[op].per_channel_quantization} == set(linear)


def test_htp_v73_to_v85_differ_in_their_version_only() -> None:
    first = load_config("htp_v73").config.plain()
    for version in ("V75", "V79", "V81", "V85"):
        other = load_config(f"htp_{version.lower()}").config.plain()
        assert other["defaults"].pop("hw_version") == version
        assert {**other, "defaults": {"hw_version": "V73", **other["defaults"]}} == first


# -- reading and writing -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", config_names())
def test_json_and_toml_say_the_same(name: str) -> None:
    config = load_config(name).config
    assert parse_config(aimet_json(config.plain()), "aimet.json").config == config
    assert parse_config(config_toml(config), "own.toml").config == config


_flags = st.booleans()
_rules = st.fixed_dictionaries({}, optional={"is_quantized": _flags, "is_symmetric": _flags})
_params = st.dictionaries(st.sampled_from(PARAMETERS), _rules, max_size=3)
_ends = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda end: end == end)
_limits = st.tuples(_ends, _ends).filter(lambda ends: ends[0] < ends[1])
_constraints = st.one_of(
    _limits.map(lambda ends: {"min": ends[0], "max": ends[1]}), _ends.map(lambda low: {"min": low})
)
_formats = st.sampled_from([(8, "int"), (4, "int"), (16, "int"), (16, "float"), (32, "float")]).map(
    lambda pair: {"bitwidth": pair[0], "dtype": pair[1]}
)
_kernels = st.lists(st.fixed_dictionaries({"activation": _formats}, optional={"param": _formats}), max_size=2)
_ops = st.sampled_from(["Conv", "Gemm", "Relu", "Concat", "Softmax", "ChannelShuffle", "LSTM"])
_op_rules = st.fixed_dictionaries(
    {},
    optional={
        "is_input_quantized": st.just(True),
        "is_output_quantized": _flags,
        "is_symmetric": _flags,
        "params": _params,
        "per_channel_quantization": _flags,
        "supported_kernels": _kernels,
        "encoding_constraints": _constraints,
    },
)
_configs = st.fixed_dictionaries(
    {
        "defaults": st.fixed_dictionaries(
            {
                "ops": st.fixed_dictionaries(
                    {"is_output_quantized": st.just(True)}, optional={"is_symmetric": _flags}
                ),
                "params": _rules,
            },
            optional={
                "hw_version": st.text(max_size=8).filter(lambda text: text not in ("True", "False")),
                "strict_symmetric": _flags,
                "unsigned_symmetric": _flags,
                "per_channel_quantization": _flags,
                "supported_kernels": _kernels,
            },
        )
    },
    optional={
        "params": _params,
        "op_type": st.dictionaries(_ops, _op_rules, max_size=4),
        "supergroups": st.lists(
            st.lists(_ops, min_size=2, max_size=3).map(lambda ops: {"op_list": ops}), max_size=3
        ),
        "supergroup_pass_list": st.lists(st.sampled_from(FUSIONS), max_size=4),
        "model_input": st.sampled_from([{}, {"is_input_quantized": True}]),
        "model_output": st.sampled_from([{}, {"is_output_quantized": True}]),
    },
)


@given(_configs)
def test_any_configuration_survives_json_and_toml(content: dict[str, object]) -> None:
    config = parse_config(aimet_json(content), "a.json").config
    text = config_toml(config)
    assert parse_config(text, "a.toml").config == config
    assert config_toml(parse_config(text, "a.toml").config) == text
    assert explain(config) == explain(parse_config(text, "a.toml").config)


# -- files that are wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, culprit",
    [
        ({}, "'defaults' is missing"),
        (minimal(oops={}), "there is no key 'oops'"),
        (minimal(supergroup=[]), "'supergroup' (did you mean 'supergroups'?)"),
        (minimal(op_type={"Conv": {"is_quantised": True}}), "'op_type.Conv.is_quantised'"),
        (minimal(op_type={"Convv": {}}), "ONNX has no op 'Convv' (did you mean 'Conv'?)"),
        (minimal(supergroups=[{"op_list": ["Conv", "Rellu"]}]), "'supergroups[0].op_list': ONNX has no op"),
        (minimal(supergroups=[{"op_list": ["Conv"]}]), "'supergroups[0].op_list'"),
        (minimal(supergroups={"op_list": ["Conv", "Relu"]}), "'supergroups'"),
        (minimal(params={"weigth": {}}), "there is no parameter 'weigth' (did you mean 'weight'?)"),
        (minimal(params={"bias": {"is_quantized": "yes"}}), "'params.bias.is_quantized'"),
        (minimal(params=[]), "'params' must be"),
        (minimal(op_type={"Relu": {"encoding_constraints": {"min": 1.0, "max": 0.0}}}), "min 1 is not below"),
        (minimal(op_type={"Relu": {"encoding_constraints": {"min": float("nan")}}}), "min' must be a finite"),
        (minimal(op_type={"Relu": {"encoding_constraints": {"min": "0"}}}), "encoding_constraints.min'"),
        (minimal(op_type={"Relu": {"encoding_constraints": {"max": 1.0}}}), "min' is missing"),
        (minimal(op_type={"Relu": {"is_input_quantized": False}}), "can only be switched on"),
        (minimal(model_input={"is_input_quantized": False}), "can only be switched on"),
        (minimal(model_output={"is_output_quantized": False}), "can only be switched on"),
        (minimal(supergroup_pass_list=["LayerNorm"]), "'supergroup_pass_list[0]'"),
        (
            minimal(op_type={"Conv": {"supported_kernels": [{"activation": FLOAT8}]}}),
            "no floats of 8 bits",
        ),
        ({"defaults": {"ops": {"is_output_quantized": False}, "params": {}}}, "cannot be off for all ops"),
        (
            {"defaults": {"ops": {"is_input_quantized": True}, "params": {}}},
            "'defaults.ops.is_input_quantized'",
        ),
    ],
)
def test_one_sentence_about_a_wrong_file(content: dict[str, object], culprit: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(aimet_json(content), "folder/wrong.json")
    sentence = str(caught.value)
    assert sentence.startswith("'folder/wrong.json'") and culprit in sentence, sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "name, text, culprit",
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[" * 100_000, "not valid JSON"),
        ("a.json", "[]", "the file must be a table"),
        ("a.json", '{"params": {}, "params": {}}', "'params' stands twice"),
        ("a.json", '{"defaults": {"strict_symmetric": true}}', 'must be the text "True" in JSON'),
        ("a.toml", "[defaults", "not valid TOML"),
        ("a.toml", 'defaults.ops.is_output_quantized = "True"', "'defaults.ops.is_output_quantized'"),
        ("a.toml", "defaults.hw_version = 1979-05-27", "is missing"),
        (
            "a.toml",
            "defaults = { ops = { is_output_quantized = true }, params = {} }\n"
            "op_type.Relu.encoding_constraints.min = nan",
            "'op_type.Relu.encoding_constraints.min'",
        ),
    ],
)
def test_one_sentence_about_a_file_that_is_none(name: str, text: str, culprit: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(text, name)
    assert culprit in str(caught.value)
    assert "\n" not in str(caught.value).split(":")[0]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        name = str(path) if path.suffix else f"{path}.toml"
        with pytest.raises(UsageError, match="there is no configuration file"):
            load_config(name)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(str(tmp_path / "folder.json"))
    with pytest.raises(UsageError, match="did you mean 'htp_v73'"):
        load_config("htp73")


# -- in words ----------------------------------------------------------------------------------------


def test_htp_v73_in_words() -> None:
    sections = dict(explain(load_config("htp_v73").config))
    assert "Results of Sigmoid and Softmax have a fixed range from 0 to 1." in sections["results of ops"]
    assert "bias: float." in sections["parameters"]
    assert "without effect" not in " ".join(sections["parameters"])
    assert "Conv, ConvTranspose, Gemm and MatMul" in sections["one scale per channel"][0]


@pytest.mark.parametrize("name", config_names())
def test_every_configuration_has_words(name: str) -> None:
    assert all(
        sentence.endswith(".") for _, sentences in explain(load_config(name).config) for sentence in sentences
    )


def test_a_configuration_says_its_keys() -> None:
    assert isinstance(load_config("default").config, QuantsimConfig)
    assert load_config("default").key("op_type", "Cast") == "default.toml, op_type.Cast"


def test_a_configuration_without_a_default_for_results_says_so() -> None:
    content = minimal(defaults={"ops": {}, "params": {}}, op_type={"Relu": {"is_output_quantized": True}})
    said = dict(explain(QuantsimConfig.model_validate(content)))["results of ops"]
    assert said[0] == "Results of the ops below alone are quantized, asymmetric."


@pytest.mark.parametrize("option", ["tied", "untied"])
def test_an_op_type_that_there_is_not(option: str) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    apply(f"configure-quantizers{{{option}=[Relu,Concat,CropAndResize]}}", model)
    with pytest.raises(UsageError) as refused:
        apply(f"configure-quantizers{{{option}=[Rellu]}}", model)
    said = f"option '{option}' of pass 'configure-quantizers': ONNX has no op 'Rellu' (did you mean 'Relu'?)"
    assert str(refused.value) == said


def test_an_op_type_of_the_model_may_be_none_of_onnx() -> None:
    header = '<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>'
    model = parse(f"{header} g (float[2] x) => (float[2] y) {{ y = mine.Same(x) }}")
    assert apply("configure-quantizers{untied=[Same]}", model)[0].quant.sites()
