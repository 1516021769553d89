"""`canal-ha version`."""

from __future__ import annotations

import platform

import click

from canal_ha.version import VERSION


@click.command()
def command() -> None:
    """Print versions and which kernel decodes rows."""
    from canal_ha.decode import kernel

    click.echo(f"canal-ha {VERSION}")
    click.echo(f"kernel   {kernel.BUILD}")
    click.echo(f"Python   {platform.python_version()} ({platform.python_implementation()})")
    click.echo(f"platform {platform.platform()}")
