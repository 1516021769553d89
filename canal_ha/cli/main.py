"""`canal-ha`: the subcommands, imported one at a time so that `canal-ha version` loads no networking."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from canal_ha.errors import CanalError, ConfigError

COMMANDS = {
    "server": "Run a node: follow MySQL and serve canal's protocol.",
    "client": "Print what a destination delivers.",
    "pipeline": "Run changes through Spark into Parquet, Delta or MySQL; check and inspect such a pipeline.",
    "decode": "Turn binlog files into rows or entries, without a server.",
    "cursor": "Show where a client stands, or move it.",
    "source": "Move a running destination between its master and its standby.",
    "check": "Go through a configuration as an operator would.",
    "status": "Show destinations, who runs them, their clients and how far behind they are.",
    "version": "Print versions and which kernel decodes rows.",
}
"""name -> what --help says of it; the module of the same name in this package has the command."""


class LazyGroup(click.Group):
    """A group whose commands are modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"canal_ha.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """canal-ha: change data capture for MySQL and MariaDB that speaks canal's protocol."""


def main() -> None:
    """Run a subcommand; our own errors end it with their text instead of a traceback."""
    try:
        group(prog_name="canal-ha")
    except ConfigError as error:
        click.echo(f"canal-ha: {error}", err=True)
        sys.exit(2)
    except CanalError as error:
        click.echo(f"canal-ha: {error}", err=True)
        sys.exit(1)
