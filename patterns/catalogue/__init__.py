"""The catalogue of supergroups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from qc.ir.errors import UsageError, nearest
from qc.ir.plugins import plugins

from ..supergroup import Supergroup
from .activations import activation_groups
from .linear import linear_groups, linear_names
from .normalizations import normalization_groups


@cache
def _plugin_groups() -> tuple[Supergroup, ...]:
    """The supergroups that plugins define at the top of their modules.

    Raises:
        UsageError: one has the name of another, or of one of qc's.
    """
    own = (*normalization_groups(), *activation_groups())
    owners = dict.fromkeys((*(group.name for group in own), *linear_names()), "qc")
    found = []
    for plugin in plugins():
        for _, group in sorted(vars(plugin.module).items()):
            if not isinstance(group, Supergroup):
                continue
            if group.name in owners:
                raise UsageError(
                    f"{owners[group.name]} and plugin '{plugin.name}' both have a supergroup "
                    f"'{group.name}'; rename one of them"
                )
            owners[group.name] = f"plugin '{plugin.name}'"
            found.append(group)
    return tuple(found)


@cache
def _alone() -> tuple[Supergroup, ...]:
    """The supergroups with one name each."""
    return (*normalization_groups(), *activation_groups(), *_plugin_groups())


@cache
def _names() -> tuple[str, ...]:
    return (*(group.name for group in _alone()), *linear_names())


def supergroup_names() -> list[str]:
    """The names of all matches that the catalogue can make, in catalogue order."""
    return list(_names())


def supergroups(names: Iterable[str] | None = None) -> tuple[Supergroup, ...]:
    """The supergroups whose matches have the given names, in catalogue order.

    Args:
        names: names such as ``layer_norm``, ``conv_relu`` or ``matmul_bias_gelu``; None for all.

    Raises:
        UsageError: a name that the catalogue does not have.
    """
    if names is None:
        return _all_groups(None)
    wanted, known = list(names), supergroup_names()
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no supergroup '{name}'{nearest(name, known)}")
    return _all_groups(frozenset(wanted))


@lru_cache(maxsize=64)
def _all_groups(wanted: frozenset[str] | None) -> tuple[Supergroup, ...]:
    """The groups of these names. Patterns never change, so everybody may have the same ones."""
    chosen = tuple(group for group in _alone() if wanted is None or group.name in wanted)
    return (*chosen, *linear_groups(wanted))
