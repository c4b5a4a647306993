"""The time of every node that ONNX Runtime runs, read from its profile."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import onnxruntime as ort

from qc.ir.base.files import temporary_error
from qc.ir.executor import Feed
from qc.ir.facts.scopes import CONTROL_FLOW

from ..sessions.open import run_session

_SUFFIX = "_kernel_time"


@dataclass(frozen=True)
class NodeTime:
    """The time that one node of the optimized graph takes.

    Attributes:
        name: its name in the optimized graph.
        op_type: its op type there, such as ``QLinearConv``.
        seconds: the time in one run of the model, the median over the runs; of a node in a loop, the sum over
            the iterations, and of a node with bodies without the time of what is in them.
    """

    name: str
    op_type: str
    seconds: float


def profile_nodes(session: ort.InferenceSession, feeds: Iterable[Feed]) -> list[NodeTime]:
    """Runs a session on every feed and gives the time of every node, in the order of their first runs.

    Args:
        session: a session opened with ``profile_prefix``; its profile ends here. The file is removed.
        feeds: one run each; the first does not count, but where there is no other.

    Raises:
        UsageError: there is no room for the profile.
    """
    for feed in feeds:
        run_session(session, feed)
    path = Path(session.end_profiling())
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:  # ONNX Runtime does not say that it could not write all of it
        raise temporary_error() from error
    path.unlink()
    return node_times(events)


def node_times(events: Iterable[dict]) -> list[NodeTime]:
    """The times by node of a profile of ONNX Runtime: its list of events, each with times in microseconds.

    The first run is a warm-up, but where there is no other.
    """
    events = list(events)
    starts = sorted(event["ts"] for event in events if event.get("name") == "model_run")
    kernels = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX)]
    taken: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for event, duration in _own_durations(kernels):
        key = event["name"].removesuffix(_SUFFIX), event["args"]["op_name"]
        taken[key][bisect_right(starts, event["ts"]) - 1] += duration / 1e6
    counted = range(min(1, len(starts) - 1), len(starts))
    return [
        NodeTime(name, op_type, median(seconds.get(run, 0.0) for run in counted) if counted else 0.0)
        for (name, op_type), seconds in taken.items()
    ]


def _own_durations(events: Iterable[dict]) -> list[tuple[dict, float]]:
    """The events in the order of their beginnings, each with its duration without those of its bodies."""
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    own = [event["dur"] for event in ordered]
    around: list[int] = []
    for index, event in enumerate(ordered):
        while around and ordered[around[-1]]["ts"] + ordered[around[-1]]["dur"] <= event["ts"]:
            around.pop()
        if around:
            own[around[-1]] -= event["dur"]
        if event["args"]["op_name"] in CONTROL_FLOW:
            around.append(index)
    return list(zip(ordered, (max(duration, 0) for duration in own), strict=True))
