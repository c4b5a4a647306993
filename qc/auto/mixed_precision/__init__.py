"""Mixed precision: groups of quantizers, candidates for them, what these do, and the front of all choices.

::

    candidates = parse_candidates("w4a8,w8a8,float", compiled.target)
    front = find_front(compiled, candidates, judge.reference, judge.metric, judge.data)
    points = front.spread(64)
    point = cheapest(points, 0, lambda point: accepts(point.rules))
"""

from .candidates import FLOAT, Candidate, parse_candidates, supported_candidates, wider_candidates
from .costs import Cost
from .front import Front, Point, cheapest, find_front
from .groups import Group, find_groups
from .mixer import Mixer
from .mixing import Mixing
from .page import front_page
from .survey import Measured, Survey, survey

__all__ = [
    "FLOAT",
    "Candidate",
    "Cost",
    "Front",
    "Group",
    "Measured",
    "Mixer",
    "Mixing",
    "Point",
    "Survey",
    "cheapest",
    "find_front",
    "find_groups",
    "front_page",
    "parse_candidates",
    "supported_candidates",
    "survey",
    "wider_candidates",
]
