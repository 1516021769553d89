"""`canal-ha`: the subcommands, each imported on use, so that `canal-ha version` loads no networking."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from canal_ha.errors import CanalError, ConfigError, OptionInvalid
from canal_ha.model.excerpt import message
from canal_ha.model.surrogates import has_surrogate
from canal_ha.version import VERSION

COMMANDS = {
    "server": "Run a node: follow MySQL and serve canal's protocol.",
    "client": "Print the changes of a destination.",
    "pipeline": "Run a pipeline on Spark or in this process, check it, or show its progress.",
    "decode": "Turn binlog files into rows or entries, without a server.",
    "cursor": "Show cursors of clients, move one, or delete one.",
    "snapshot": "Read the existing rows of tables into a client's stream.",
    "destination": "Show where destinations run; add, move, pause, resume and remove them.",
    "source": "Move a running destination between its master and its standby.",
    "filter": "Try a table filter before a client uses it.",
    "check": "Check a configuration and the servers that it names.",
    "migrate": "Say what becomes of a deployer of canal, and write a configuration of it.",
    "config": "Show, check or compare a configuration.",
    "status": "Show destinations, their owners, their clients and their lag.",
    "debug": "Collect what somebody else needs to find a fault.",
    "version": "Print versions and which kernel decodes rows.",
}
"""name -> its line in --help. The module of the same name in this package defines the command."""


class LazyGroup(click.Group):
    """A command group that imports each command's module on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"canal_ha.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="canal-ha %(version)s")
def group() -> None:
    """canal-ha: change data capture for MySQL and MariaDB that speaks canal's protocol."""


def main() -> None:
    """Run a subcommand; print our own errors without a traceback."""
    try:
        _check_encoding(sys.argv[1:])
        group(prog_name="canal-ha")
    except ConfigError as error:
        click.echo(f"canal-ha: {message(str(error), lines=True)}", err=True)
        sys.exit(2)
    except CanalError as error:
        click.echo(f"canal-ha: {message(str(error), lines=isinstance(error, OptionInvalid))}", err=True)
        sys.exit(1)


def _check_encoding(arguments: Sequence[str]) -> None:
    """Raise OptionInvalid for an argument that is no UTF-8, unless a file has this name."""
    for each in arguments:
        if has_surrogate(each) and not Path(each).exists():
            raise OptionInvalid(f"the argument {message(each)} is no UTF-8: write it in the encoding of the terminal")
