"""Loading plugins from entry points."""

from importlib.metadata import EntryPoint

import pytest

from qc.ir.base.plugins import load_plugins
from qc.ir.errors import UsageError


def test_plugins_come_in_the_order_of_their_names():
    points = [EntryPoint("two", "json", "qc.plugins"), EntryPoint("one", "json.decoder", "qc.plugins")]
    found = load_plugins(points)
    assert [(plugin.name, plugin.module.__name__) for plugin in found] == [
        ("one", "json.decoder"),
        ("two", "json"),
    ]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("json:missing", r"plugin 'bad' \(json:missing\) cannot be imported: module 'json' has no attribute"),
        ("no_such_module", r"plugin 'bad' \(no_such_module\) cannot be imported: No module named"),
        ("json:dumps", r"plugin 'bad' \(json:dumps\) is not a module"),
    ],
)
def test_a_broken_plugin_is_named(value, fault):
    with pytest.raises(UsageError, match=fault):
        load_plugins([EntryPoint("bad", value, "qc.plugins")])
