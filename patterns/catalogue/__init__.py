"""The catalogue of supergroups: groups, which count as one operator, and blocks of several."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from qc.ir.base.plugins import Plugin, cached_for_plugins, plugins
from qc.ir.errors import UsageError, nearest

from ..supergroup import BLOCK, Supergroup
from .activations import activation_groups
from .attention import rotary_embedding, scaled_dot_product_attention
from .convolutions import depthwise_separable, fully_connected, squeeze_and_excite
from .group_norms import group_norm, instance_norm
from .linear import linear_groups
from .normalizations import l2_norm, layer_norm, layer_norm_with_statistics, rms_norm
from .recurrent import gru_cell, lstm_cell
from .resize import resize
from .softmax import masked_softmax, softmax

_NORMS = (group_norm, instance_norm, layer_norm, layer_norm_with_statistics, rms_norm, l2_norm, softmax)
_BLOCKS = (
    scaled_dot_product_attention,
    rotary_embedding,
    lstm_cell,
    gru_cell,
    depthwise_separable,
    squeeze_and_excite,
    fully_connected,
    masked_softmax,
    resize,
)


@cache
def _own() -> tuple[Supergroup, ...]:
    """The groups of qc that are no family, then its blocks."""
    return (*(norm() for norm in _NORMS), *activation_groups(), *(block() for block in _BLOCKS))


@cache
def _families() -> tuple[Supergroup, ...]:
    return linear_groups()


@cached_for_plugins
def _single() -> tuple[Supergroup, ...]:
    """All supergroups that are no family: those of qc, then those that plugins define in their modules.

    Raises:
        UsageError: a plugin has one with the name of another, or of one of qc's.
    """
    own = (*_own(), *_families())
    owners = dict.fromkeys((name for group in own for name in group.names), "qc")
    found = list(_own())
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


@cached_for_plugins
def blocks() -> tuple[Supergroup, ...]:
    """The supergroups that devices run as several operators, those of plugins last.

    They are there to be found and counted. A match may overlap with those of groups inside it, and becomes
    a region only for a target that names the block.
    """
    return tuple(group for group in _single() if group.kind == BLOCK)


@cached_for_plugins
def _block_names() -> frozenset[str]:
    return frozenset(block.name for block in blocks())


@cached_for_plugins
def _names() -> tuple[str, ...]:
    groups = (group for group in _single() if group.kind != BLOCK)
    return tuple(dict.fromkeys(name for each in (*groups, *blocks(), *_families()) for name in each.names))


def supergroup_names() -> list[str]:
    """The names of all matches that the catalogue can make, in catalogue order."""
    return list(_names())


def is_block(name: str) -> bool:
    """Whether matches of this name are blocks."""
    return name in _block_names()


def supergroups(names: Iterable[str] | None = None) -> tuple[Supergroup, ...]:
    """The supergroups whose matches have the given names, in catalogue order.

    Args:
        names: names such as ``layer_norm``, ``conv_relu`` or ``matmul_bias_gelu``; None for all that count
            as one operator, which are all but the blocks.

    Raises:
        UsageError: a name that the catalogue does not have.
    """
    if names is None:
        return _chosen(None, plugins())
    wanted, known = list(names), supergroup_names()
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no supergroup '{name}'{nearest(name, known)}")
    return _chosen(frozenset(wanted), plugins())


@lru_cache(maxsize=64)
def _chosen(wanted: frozenset[str] | None, _: tuple[Plugin, ...]) -> tuple[Supergroup, ...]:
    """The supergroups of these names. Patterns never change, so everybody may have the same ones."""
    groups = (group for group in _single() if group.kind != BLOCK)
    if wanted is None:
        return (*groups, *_families())
    chosen = (group for group in (*groups, *blocks()) if group.name in wanted)
    return (*chosen, *linear_groups(wanted))
