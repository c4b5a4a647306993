"""A configuration in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qc.ir.facts.op_table import traits_of

from .config import Constraint, ParameterRule, QuantsimConfig

_FUSED = {
    "LayerNormalization": "a LayerNorm written out, with scale",
    "RMSNormalization": "an RMSNorm written out",
    "MatmulAdd": "a MatMul by a constant matrix, then a constant bias",
    "MaskedSoftmax": "a Softmax of four-dimensional scores that a Where masks",
}


def explain(config: QuantsimConfig) -> list[tuple[str, list[str]]]:
    """What a configuration does: titles, and the sentences under each."""
    sections = [
        ("results of ops", list(_results(config))),
        ("parameters", list(_parameters(config))),
        ("one scale per channel", [_per_channel(config)]),
        ("ops that count as one", list(_groups(config))),
        ("interface", list(_interface(config))),
        ("device", list(_device(config))),
    ]
    return [(title, sentences) for title, sentences in sections if sentences]


def _results(config: QuantsimConfig) -> Iterator[str]:
    ops = config.defaults.ops
    whose = "Every op's result is" if ops.is_output_quantized else "Results of the ops below alone are"
    yield f"{whose} quantized, {_symmetry(ops.is_symmetric)}."
    yield "What only moves data (Reshape, Transpose, MaxPool, ...) keeps the grid that it has."
    rules = config.op_type.items()
    off = [name for name, rule in rules if rule.is_output_quantized is False]
    on = [name for name, rule in rules if rule.is_output_quantized]
    if off:
        yield f"No quantizer after {_listed(off)}."
    if on:
        yield f"A quantizer after {_listed(on)} in any case."
    read = [name for name, rule in rules if rule.is_input_quantized]
    if read:
        yield f"What {_listed(read)} read is quantized in any case."
    for symmetric in (True, False):
        names = [name for name, rule in rules if rule.is_symmetric is symmetric]
        if names:
            yield f"Results of {_listed(names)} are {_symmetry(symmetric)}."
    yield from _constraints({name: rule.encoding_constraints for name, rule in rules})


def _constraints(constraints: Mapping[str, Constraint | None]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for name, limits in constraints.items():
        if limits is not None:
            end = f"to {limits.max:g}" if limits.max is not None else "on; its upper end is calibrated"
            groups.setdefault(f"a fixed range from {limits.min:g} {end}", []).append(name)
    for what, names in groups.items():
        yield f"Results of {_listed(names)} have {what}."


def _parameters(config: QuantsimConfig) -> Iterator[str]:
    params = config.defaults.params
    if params.is_quantized:
        yield f"Trained parameters are quantized, {_symmetry(params.is_symmetric)}."
    else:
        yield "Trained parameters stay float."
    for name, rule in config.params.items():
        yield f"{name}: {_rule(rule)}."
    for op_type, op_rule in config.op_type.items():
        for name, rule in op_rule.params.items():
            unknown = "" if name in traits_of(op_type).trained else ", without effect, as the op has none"
            yield f"{name} of {op_type}: {_rule(rule)}{unknown}."


def _rule(rule: ParameterRule) -> str:
    words = []
    if rule.is_quantized is not None:
        words.append("quantized" if rule.is_quantized else "float")
    if rule.is_symmetric is not None:
        words.append(_symmetry(rule.is_symmetric))
    return ", ".join(words) or "as all others"


def _per_channel(config: QuantsimConfig) -> str:
    default = bool(config.defaults.per_channel_quantization)
    rules = config.op_type.items()
    others = [name for name, rule in rules if _differs(rule.per_channel_quantization, default)]
    if default:
        return f"All parameters{f', but not those of {_listed(others)}' if others else ''}."
    with_parameters = [name for name in others if traits_of(name).trained]
    without = [name for name in others if not traits_of(name).trained]
    said = f"Parameters of {_listed(with_parameters)}." if with_parameters else "None: one scale per tensor."
    return f"{said} Without effect for {_listed(without)}: it has no parameters." if without else said


def _differs(chosen: bool | None, default: bool) -> bool:
    return chosen is not None and chosen is not default


def _groups(config: QuantsimConfig) -> Iterator[str]:
    for name in config.supergroup_pass_list:
        yield f"{name}: {_FUSED[name]}."
    by_rest: dict[tuple[str, ...], list[str]] = {}
    for group in config.supergroups:
        by_rest.setdefault(group.op_list[:-1], []).append(group.op_list[-1])
    for rest, ends in by_rest.items():
        yield f"{' + '.join(rest)} + {' or '.join(ends)}: only the last result is quantized."


def _interface(config: QuantsimConfig) -> Iterator[str]:
    if config.model_input.is_input_quantized:
        yield "Inputs of the model, and constants that are data, are quantized."
    else:
        yield "Inputs of the model, and constants that are data, stay float."
    if config.model_output.is_output_quantized:
        yield "Results that nobody reads are quantized whatever their op type says."


def _device(config: QuantsimConfig) -> Iterator[str]:
    defaults = config.defaults
    if defaults.hw_version is not None:
        yield f"Hardware {defaults.hw_version}: products of two activations have widths that it multiplies."
    if defaults.strict_symmetric:
        yield "Symmetric grids leave out the lowest code."
    if defaults.unsigned_symmetric:
        yield "Symmetric grids of what is never negative have no sign in AIMET; in qc they keep it."
    kernels = defaults.supported_kernels or any(rule.supported_kernels for rule in config.op_type.values())
    if kernels:
        yield "The kernels listed serve the search for mixed precision; they place nothing."


def _symmetry(symmetric: bool | None) -> str:
    return "symmetric" if symmetric else "asymmetric"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1]
