"""`canal-ha source`: switches a running destination to its other server."""

from __future__ import annotations

from typing import Any

import click

from canal_ha.cli.destination_node import DestinationNode, destination_node_options
from canal_ha.errors import SwitchRefused
from canal_ha.model.excerpt import printable

TIMEOUT_S = 60.0  # the node checks the other server first


@click.group()
def command() -> None:
    """Switch a destination between canal.instance.master.address and canal.instance.standby.address."""


@command.command()
@click.option("--destination", required=True, help="Name of the destination.")
@click.option("--to", type=click.Choice(["master", "standby", "other"]), default="other", show_default=True)
@click.option(
    "--source", type=click.IntRange(1), metavar="N", help="Number of the source, if the destination has several."
)
@destination_node_options
def switch(destination: str, to: str, source: int | None, **node: Any) -> None:
    """Read from the other server. Ask the node that runs the destination; without accounts, with its --conf.

    Clients notice nothing: reading continues after the last delivered transaction. If the other server cannot be read,
    nothing changes.
    """
    wanted = {"to": f"{source}/{to}" if source else to}
    answer = DestinationNode(destination, **node).post("source", wanted, {"source": str}, SwitchRefused, TIMEOUT_S)
    click.echo(f"{destination}: reads from {printable(answer['source'])}")
