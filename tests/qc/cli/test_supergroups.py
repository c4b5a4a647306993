"""What the command line tells about supergroups."""

from __future__ import annotations

import re

from qc.patterns import blocks, supergroups

MODEL = "model.onnx"


def test_list_supergroups(qc) -> None:
    result = qc("list-supergroups")
    assert (result.code, result.err) == (0, "")
    listed = set(result.out.replace(",", " ").split())
    for group in (*supergroups(), *blocks()):
        labels = {label for options in group.options.values() for label in options}
        assert {group.name, *labels} - {""} <= listed
    assert re.search(r"^  gelu +GELU by erf or tanh", result.out, re.MULTILINE)
    assert result.out.index("blocks") < result.out.index("lstm_cell")


def test_inspect_counts_blocks_beside_the_groups_inside_them(qc) -> None:
    out = qc("inspect", MODEL).out
    assert re.search(r"supergroups +conv_bn_clip 5 +conv_bn_relu 3", out)
    assert re.search(r"blocks +depthwise_separable 3 +fully_connected 1", out)
