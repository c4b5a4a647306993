"""Plugins that are named on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from qc.ir.base.plugins import use_plugin, used_plugins
from qc.passes import registry
from qc.passes.framework.target import target_names
from qc.patterns.catalogue import supergroup_names
from qc.runtime.metrics.parse import known_metrics

from .output import print_warning


def use_plugins(files: Iterable[str]) -> None:
    """Makes files, packages or modules plugins of this process; warns of one that brings nothing by itself.

    Raises:
        UsageError: one cannot be imported.
    """
    for file in files:
        before, used = _known(), used_plugins()
        use_plugin(file)
        if used_plugins() != used and _known() == before:
            print_warning(f"plugin '{file}' brings nothing: it has no pass, metric, supergroup or target")


def _known() -> tuple[int, ...]:
    """How many passes, metrics, supergroups and targets there are."""
    return len([*registry()]), len(known_metrics()), len(supergroup_names()), len(target_names())
