"""What to do when something goes wrong: find the action at fault, keep what is needed to see it again,
and shrink the model that shows it."""

from qc.compiler import Compilation

from .bisect import Finding, Probe, bisect
from .blame import Failure, blame_action, find_failure
from .interest import Interest, parse_interest
from .oracle import Oracle, OracleVerdict, Outcome, parse_oracle
from .quantizers import QuantizerFacts, Removal
from .record import Record
from .reduce import Reduction
from .replay import Replay, replay
from .reproducer import Reproducer, write_reproducer

__all__ = [
    "Compilation",
    "Failure",
    "Finding",
    "Interest",
    "Oracle",
    "OracleVerdict",
    "Outcome",
    "Probe",
    "QuantizerFacts",
    "Record",
    "Reduction",
    "Removal",
    "Replay",
    "Reproducer",
    "bisect",
    "blame_action",
    "find_failure",
    "parse_interest",
    "parse_oracle",
    "replay",
    "write_reproducer",
]
