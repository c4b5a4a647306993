"""The methods that choose codes, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Literal

import numpy as np

from .adaround import Annealing, adaround
from .beam import beam
from .coordinate import coordinate
from .gptq import gptq
from .problem import Problem
from .qronos import qronos

MethodName = Literal["beam", "gptq", "qronos", "coordinate", "adaround", "best"]
Method = Callable[[Problem], np.ndarray]


def method_of(name: MethodName, annealing: Annealing) -> Method:
    """The method of a name.

    Args:
        annealing: how ``adaround`` learns.
    """
    methods: dict[str, Method] = {
        "beam": beam,
        "gptq": gptq,
        "qronos": qronos,
        "coordinate": coordinate,
        "adaround": partial(adaround, annealing=annealing),
    }
    return methods[name] if name in methods else partial(_best, methods.values())


def _best(methods: Iterable[Method], problem: Problem) -> np.ndarray:
    """For each output the best codes that any method finds."""
    return reduce(problem.better, (method(problem) for method in methods))
