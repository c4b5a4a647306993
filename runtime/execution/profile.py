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

from qc.ir.executor import Feed

from ..sessions.open import run_session

_SUFFIX = "_kernel_time"


@dataclass(frozen=True)
class NodeTime:
    """The time that one node of the optimized graph takes.

    Attributes:
        name: its name in the optimized graph.
        op_type: its op type there, such as ``QLinearConv``.
        seconds: the time in one run of the model, the median over the runs; of a node in a loop, the sum over
            the iterations.
    """

    name: str
    op_type: str
    seconds: float


def profile_nodes(session: ort.InferenceSession, feeds: Iterable[Feed], warmup: int = 1) -> list[NodeTime]:
    """Runs a session on every feed and gives the time of every node, in the order of their first runs.

    Args:
        session: a session opened with ``profile_prefix``; its profile ends here. The file is removed.
        feeds: one run each.
        warmup: how many of the first runs do not count.
    """
    for feed in feeds:
        run_session(session, feed)
    path = Path(session.end_profiling())
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return node_times(events, warmup)


def node_times(events: Iterable[dict], warmup: int = 1) -> list[NodeTime]:
    """The times by node of a profile of ONNX Runtime: its list of events, each with times in microseconds."""
    events = list(events)
    starts = sorted(event["ts"] for event in events if event.get("name") == "model_run")
    taken: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith(_SUFFIX):
            continue
        key = event["name"].removesuffix(_SUFFIX), event["args"]["op_name"]
        taken[key][bisect_right(starts, event["ts"]) - 1] += event["dur"] / 1e6
    counted = range(min(warmup, len(starts) - 1), len(starts))
    return [
        NodeTime(name, op_type, median(seconds.get(run, 0.0) for run in counted) if counted else 0.0)
        for (name, op_type), seconds in taken.items()
    ]
