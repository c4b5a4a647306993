"""Changing options of passes within a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from qc.ir.errors import nearest

from .options import OptionError, build, changed_options
from .pipeline import Combinator, Pipeline, Step


def with_option(steps: Sequence[Step], name: str, value: object) -> list[Step]:
    """The steps with an option changed in every pass that the name fits.

    Args:
        name: the pass and its option, such as ``calibrate.method``.
        value: as it is written in a pipeline.

    Raises:
        OptionError: no such pass or option, or the value does not fit.
        UsageError: the options of the pass contradict each other.
    """
    pass_name, _, option = name.partition(".")
    if not option:
        sentence = "an option of a pipeline is written PASS.OPTION, such as calibrate.method"
        raise OptionError(sentence, name, unknown=True)
    known = [step.name for step in Pipeline(steps).passes()]
    if pass_name not in known:
        sentence = f"the pipeline has no pass '{pass_name}'{nearest(pass_name, known)}"
        raise OptionError(sentence, name, unknown=True)
    return [_changed(step, pass_name, option, value) for step in steps]


def _changed(step: Step, pass_name: str, option: str, value: object) -> Step:
    if isinstance(step, Combinator):
        inner = [_changed(one, pass_name, option, value) for one in step.steps]
        return dataclasses.replace(step, steps=inner)
    if step.name != pass_name:
        return step
    return build(type(step), {**changed_options(step), option: value})
