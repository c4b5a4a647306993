"""Patterns: the language, the matcher and the catalogue of supergroups."""

from .catalogue import supergroup_names, supergroups
from .fragments import chain
from .match import Match, find_all, match_at, matches_at
from .mismatch import Mismatch
from .pattern import Pattern, attribute, choice, constant, op, optional, value
from .supergroup import Supergroup

__all__ = [
    "Match",
    "Mismatch",
    "Pattern",
    "Supergroup",
    "attribute",
    "chain",
    "choice",
    "constant",
    "find_all",
    "match_at",
    "matches_at",
    "op",
    "optional",
    "supergroup_names",
    "supergroups",
    "value",
]
