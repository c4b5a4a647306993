"""Patterns: the language, the matcher and the catalogue of supergroups."""

from .catalogue import blocks, is_block, supergroup_names, supergroups
from .fragments import chain
from .matcher import Matcher, find_all, match_at, matches_at
from .mismatch import Mismatch
from .near import NearMatch, best_attempts, near_matches
from .pattern import Pattern, attribute, choice, constant, op, optional, results, value
from .supergroup import Match, Supergroup

__all__ = [
    "Match",
    "Matcher",
    "Mismatch",
    "NearMatch",
    "Pattern",
    "Supergroup",
    "attribute",
    "best_attempts",
    "blocks",
    "chain",
    "choice",
    "constant",
    "find_all",
    "is_block",
    "match_at",
    "matches_at",
    "near_matches",
    "op",
    "optional",
    "results",
    "supergroup_names",
    "supergroups",
    "value",
]
