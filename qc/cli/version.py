"""``--version``."""

from __future__ import annotations

from importlib.metadata import version

import click

_PARTS = ("qc-onnx", "onnx", "onnxruntime")


def _show(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        first, *others = (f"{name} {version(name)}" for name in _PARTS)
        click.echo(f"{first} ({', '.join(others)})")
        ctx.exit()


version_option = click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show,
    help="Show the versions of qc and of what it stands on.",
)
