"""`canal-ha filter`: tries a table filter before a client uses it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from canal_ha.cli.configured import configured
from canal_ha.config.model import FilterMode, InstanceConfig
from canal_ha.decode.filters import TableFilter, effective
from canal_ha.model.excerpt import printable
from canal_ha.source.connection.session import SourceSession

NONE_MATCH = 1  # exit code
LIST_TABLES = (
    "SELECT table_schema AS s, table_name AS t FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND"
    " table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2"
)


@click.group()
def command() -> None:
    """Try a table filter before a client uses it."""


@command.command()
@click.argument("filter_text", metavar="FILTER")
@click.option("--tables", metavar="SCHEMA.TABLE,...", help="Try these names; excludes --conf and --destination.")
@click.option("--conf", type=click.Path(path_type=Path), metavar="DIR", help="Configuration directory of a node.")
@click.option("--destination", help="With --conf: try the tables of this destination's source, with its own filters.")
def test(filter_text: str, tables: str | None, conf: Path | None, destination: str | None) -> None:
    """Print which tables a client with FILTER gets. The exit code is 1 if there are none, and hints say why.

    The account of the destination sees only tables on which it has a right.
    """
    if tables is not None and not conf and not destination:
        found = [_name(each) for each in tables.split(",")]
        made = effective("", "", filter_text, FilterMode.REPLACE)
    elif tables is None and conf and destination:
        _, config = configured(conf, destination)
        found = _tables_of(config)
        made = effective(config.filter_regex, config.filter_black_regex, filter_text, config.filter_client_mode)
    else:
        raise click.UsageError("give either --tables, or --conf and --destination")
    matching = _print(found, made)
    if not matching:
        for hint in hints(filter_text, found):
            click.echo(f"hint: {hint}", err=True)
        sys.exit(NONE_MATCH)


def _name(text: str) -> tuple[str, str]:
    schema, dot, table = text.strip().partition(".")
    if not (schema and dot and table):
        raise click.BadParameter(f"{text.strip()!r} is not SCHEMA.TABLE", param_hint="--tables")
    return schema, table


def _tables_of(config: InstanceConfig) -> list[tuple[str, str]]:
    """Return the tables that the accounts of a destination see. Raises CanalError."""
    if config.local:
        raise click.UsageError(f"{config.destination} reads files: use --tables")
    found: list[tuple[str, str]] = []
    for member in config.members if config.group else (config,):
        with closing(SourceSession(member, member.master)) as session:
            found += ((row["s"], row["t"]) for row in session.query(LIST_TABLES))
    return found


def _print(found: Sequence[tuple[str, str]], made: TableFilter) -> int:
    """Print the tables that match, and a summary; return how many they are. Raises FilterInvalid."""
    matching = [f"{schema}.{table}" for schema, table in found if made.accepts(schema, table)]
    for name in matching:
        click.echo(printable(name))
    click.echo(f"{len(matching)} of {len(found)} tables match", err=True)
    return len(matching)


def hints(filter_text: str, found: Sequence[tuple[str, str]]) -> list[str]:
    r"""Return why a filter may match nothing.

    filter_text: of a client.
    found: schema and name of each table that it was tried on.
    """
    told = []
    single = filter_text.replace(r"\\", "\\")
    if single != filter_text:
        told.append(f"doubled backslashes are for properties files; here write {single}")
    bare = [item.strip() for item in filter_text.split(",") if "." not in item]
    if bare:
        schema = next((schema for schema, table in found if table == bare[0]), "SCHEMA")
        told.append(rf"{bare[0]} has no schema: a filter matches SCHEMA.TABLE as a whole; write {schema}\.{bare[0]}")
    if not found:
        told.append("no table was found: look at the rights of the account")
    return told
