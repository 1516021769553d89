"""SqlCopy: the copy of a table in a database, and what a target says when it cannot follow its table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.copy_columns import Step, describe
from canal_ha.pipeline.databases import SCHEMA, CopyPlaces
from canal_ha.pipeline.description import Evolve

Owner = tuple[str, str, str]
"""Pipeline, destination, and table of the source, as schema.table."""


@dataclass(slots=True)
class SqlCopy:
    """A copy.

    source: schema.table.
    place: its database of MySQL, or its schema of PostgreSQL.
    name: of the copy.
    columns: name -> type, as the target writes it, in order; none if there is no such table.
    keys: the columns of its primary key.
    """

    source: str
    place: str
    name: str
    columns: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Its name for messages."""
        return f"{self.place}.{self.name}"

    def find(self, name: str) -> str | None:
        """Return the copy's name of a column, which may differ in case; None if it has none."""
        return next((own for own in self.columns if own.lower() == name.lower()), None)

    def found_keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the copy's names of the key's columns."""
        return tuple(self.find(key) or key for key in keys)


def stopped(target: str, copy: SqlCopy, step: Step) -> SinkRefused:
    """Return the error for changed columns under `evolve: stop`. target: its name; step: the first change."""
    return SinkRefused(
        f"{target}: the columns of {copy.source} have changed ({describe(step)}), and evolve is stop. Change"
        f" {copy.shown} in the same way, or set evolve to evolve or ignore"
    )


def lacking(target: str, copy: SqlCopy, column: str) -> SinkRefused:
    """Return the error for rows that lack a column of the copy. target: its name."""
    return SinkRefused(
        f"{target}: rows of {copy.source} lack the column {column!r} of the copy, and no statement dropped it: it may"
        " be renamed, or an interrupted commit has changed the columns already. Nothing was written. Drop or rename"
        f" the copy {copy.shown}, and read the table again with a snapshot"
    )


def interrupted(target: str, copy: SqlCopy) -> SinkRefused:
    """Return the error for rows from before a statement that the copy has already. target: its name."""
    return SinkRefused(
        f"{target}: an interrupted commit has changed the columns of {copy.shown} already, and rows of {copy.source}"
        " from before the statement come again under another key. Nothing was written. Drop or rename the copy"
        f" {copy.shown}, and read the table again with a snapshot"
    )


def other_key(target: str, copy: SqlCopy, keys: Sequence[str], evolve: Evolve) -> SinkRefused:
    """Return the error for a key that has other columns than the copy's. target: its name; evolve: the policy."""
    return SinkRefused(
        f"{target}: the key of {copy.source} is ({', '.join(keys)}) now, and that of the copy ({', '.join(copy.keys)});"
        f" with evolve: {evolve} it does not change. Change the primary key of {copy.shown}, or set evolve: evolve"
    )


def taken(target: str, copy: SqlCopy, destination: str, owner: Owner, places: CopyPlaces) -> SinkRefused:
    """Return the error for a copy that belongs to another table.

    target: its name.
    destination: of this table.
    owner: of the copy.
    places: where copies are.
    """
    pipeline, other, table = owner
    return SinkRefused(
        f"{target}: {copy.source} of destination {destination} would go into the table {copy.shown}, which has the rows"
        f" of {table} of destination {other}, from pipeline {pipeline}. Give each its own {places.noun}, such as"
        f' {places.noun}: "copy_{SCHEMA}". If that pipeline or table no longer exists, delete the copy\'s row from'
        f" {places.state}.copies, and the copy"
    )


def unwritten(target: str, copy: SqlCopy, place: tuple[str, str], owner: Owner, places: CopyPlaces) -> SinkRefused:
    """Return the error for rows in a table that no pipeline has written.

    target: its name.
    place: the copy's names as `copies` has them.
    owner: that the copy would get.
    places: where copies are.
    """
    row = ", ".join("'" + each.replace("'", "''") + "'" for each in (*place, *owner))
    return SinkRefused(
        f"{target}: the table {copy.shown}, into which {copy.source} would go, exists and has rows that no pipeline"
        f" wrote: they would stay in the copy, or go with a TRUNCATE. Nothing was written. Drop or rename the table, or"
        f" give the copies another {places.noun}. If the pipeline may change these rows: INSERT INTO"
        f" {places.state}.copies VALUES ({row})"
    )
