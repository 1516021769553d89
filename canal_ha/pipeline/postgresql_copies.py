"""Writes changes into copies in PostgreSQL, inside the transaction of a commit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.arrow_types import ColumnType, to_arrow
from canal_ha.errors import SinkRefused
from canal_ha.model.excerpt import excerpt, one_line, printable
from canal_ha.pipeline.cells import copy_rows, has_nul, payload, without_nul
from canal_ha.pipeline.change_columns import CHANGE_KEY, change_columns, check_names
from canal_ha.pipeline.copy_columns import (
    LackingColumn,
    NewColumn,
    NewName,
    NewType,
    NoColumn,
    Step,
    history_steps,
    kind_of,
    steps,
)
from canal_ha.pipeline.databases import CopyPlaces
from canal_ha.pipeline.description import Description, Evolve
from canal_ha.pipeline.history import CURRENT, TO, VERSION_KEY, RowVersions, check_columns
from canal_ha.pipeline.latest import LatestChanges
from canal_ha.pipeline.postgresql_types import conversion, postgresql_type
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.sql_copies import SqlCopy, lacking, other_key, stopped, taken, unwritten

CHUNK = 10_000  # rows that are made text at once
NAME_BYTES = 63  # of an identifier; PostgreSQL cuts longer ones off
_DIGEST = 16  # hexadecimal digits of a shortened name
_CREATION = 0x63616E616C  # key of the lock on the creation of schemas and of the state
_RETRIED = ("08", "40", "53", "57")  # classes: connection, rollback, resources, intervention
_RETRIED_STATES = frozenset({"25006", "55P03"})  # read-only, lock not available
_DATA = "22"  # class: of values
_QUOTED = re.compile('".*"', re.S)
_DETAILS = frozenset({r"\u0000 cannot be converted to text."})  # without values
_COPY_PLACE = re.compile("^COPY [^,\n]+, line [0-9]+(?:, column [^:\n]+)?", re.M)
_CHANGE_TYPES = {
    "_run": "text",
    "_commit": "bigint",
    "_entry": "integer",
    "_row": "integer",
    "_op": "text",
    "_ts": "timestamp(6) with time zone",
    "_server": "bigint",
    "_journal": "text",
    "_offset": "bigint",
    "_sub": "integer",
    "_gtid": "text",
    "_ddl": "text",
}

_TO, _CURRENT = sql.Identifier(TO), sql.Identifier(CURRENT)

Cursor = psycopg.Cursor[tuple[Any, ...]]


class _PostgreSQLCopy(SqlCopy):
    """A copy."""

    __slots__ = ()

    @property
    def table(self) -> sql.Identifier:
        """Its quoted name."""
        return sql.Identifier(self.place, self.name)


class PostgreSQLWriter:
    """Writes changes into copies, inside the caller's transaction."""

    def __init__(
        self, cursor: Cursor, name: str, description: Description, places: CopyPlaces, destination: str
    ) -> None:
        """Take what one commit needs.

        cursor: of the transaction.
        name: of the target, for messages.
        description: the pipeline.
        places: where copies are.
        destination: its name.
        """
        self._cursor = cursor
        self._name = name
        self._pipeline = description.name
        self._evolve: Evolve = description.target.evolve
        self._json = description.target.options.get("json", "jsonb")
        self._replaces_nul = description.target.options.get("nulCharacters", "refuse") == "replace"
        self._places = places
        self._destination = destination
        self._copies: dict[tuple[str, str], _PostgreSQLCopy] = {}

    def check_copy(self, schema: str, table: str) -> None:
        """Check that the copy of a table may be written. Raises SinkRefused and psycopg's errors."""
        self._copy(schema, table)

    def mirror(self, changes: LatestChanges) -> None:
        """Let the copy of a table take over changes. Raises SinkRefused and psycopg's errors."""
        copy = self._copy(changes.schema, changes.table)
        with self._about(copy):
            fields = list(changes.upserts.schema) if changes.upserts.num_rows else None
            if not copy.columns:
                if fields is None:
                    return
                self._create(copy, {identifier(each.name): self._type(each) for each in fields}, changes.keys)
            else:
                if changes.emptied:
                    self._cursor.execute(sql.SQL("TRUNCATE {}").format(copy.table))
                self._follow(copy, steps(copy.columns, changes.statements, fields, identifier), empty=changes.emptied)
                if fields is not None:
                    self._follow_key(copy, tuple(map(identifier, changes.keys)))
            if changes.deletes.num_rows:
                self._delete(copy, changes.deletes)
            if changes.upserts.num_rows:
                self._upsert(copy, changes.upserts)

    def keep(self, changes: RowVersions) -> None:
        """Let the history of a table take over versions. Raises SinkRefused and psycopg's errors."""
        copy = self._copy(changes.schema, changes.table)
        with self._about(copy):
            fields = changes.fields
            if copy.columns:
                check_columns(copy.columns, copy.shown)
                self._follow(copy, history_steps(copy.columns, changes.statements, fields, identifier), empty=False)
            elif fields is None:
                return
            else:
                columns = {identifier(each.name): self._type(each) for each in fields}
                self._create(copy, columns, changes.version_key)
            if fields is not None:
                self._follow_key(copy, tuple(map(identifier, changes.version_key)))
            if changes.ended_at is not None:
                end = sql.SQL("UPDATE {} SET {} = {}, {} = false WHERE {}")
                at = sql.Literal(changes.ended_at)  # no parameter: the table's name can have %
                self._cursor.execute(end.format(copy.table, _TO, at, _CURRENT, _CURRENT))
            keys = [identifier(key) for key in changes.keys]
            if changes.ends.num_rows:
                self._set_current(copy, changes.ends, keys, ())
            if changes.read.num_rows:
                self._set_current(copy, changes.read, keys, VERSION_KEY)
            if changes.begun.num_rows:
                self._upsert(copy, changes.begun)

    def _set_current(
        self, copy: _PostgreSQLCopy, rows: pa.Table, keys: Sequence[str], version_key: Sequence[str]
    ) -> None:
        """Give the current versions other values.

        copy: of a table.
        rows: the values, and CURRENT if versions may go on; else they end.
        keys: the key's columns.
        version_key: columns that a current version keeps; with them, a key without a current version gets these rows.
        """
        with self._staged(copy, rows) as (staged, names):
            same = [sql.SQL("own.{0} = given.{0}").format(sql.Identifier(key)) for key in keys]
            which = sql.SQL(" AND ").join([sql.SQL("own.{}").format(_CURRENT), *same])
            if version_key:
                self._cursor.execute(
                    sql.SQL(
                        "INSERT INTO {0} ({1}) SELECT {1} FROM {2} AS given WHERE NOT EXISTS"
                        " (SELECT FROM {0} AS own WHERE {3})"
                    ).format(copy.table, _names(names), staged, which)
                )
            others = [name for name in names if name not in (*keys, *version_key)]
            sets = [sql.SQL("{0} = given.{0}").format(sql.Identifier(name)) for name in others]
            if CURRENT not in names:
                sets.append(sql.SQL("{} = false").format(_CURRENT))
            self._cursor.execute(
                sql.SQL("UPDATE {} AS own SET {} FROM {} AS given WHERE {}").format(
                    copy.table, sql.SQL(", ").join(sets), staged, which
                )
            )

    def append(self, batch: TableBatch, progress: Progress) -> None:
        """Add changes to the log of a table. Raises SinkRefused and psycopg's errors."""
        copy = self._copy(batch.schema, batch.table)
        own = batch.rows.num_columns - len(META)
        with self._about(copy):
            fields = list(batch.rows.schema)[:own]
            check_names([field.name for field in fields], self._name, copy.source)
            if not copy.columns:
                self._create(
                    copy, _CHANGE_TYPES | {identifier(each.name): self._type(each) for each in fields}, CHANGE_KEY
                )
            else:
                found = steps(copy.columns, (), fields, identifier)
                self._follow(copy, [step for step in found if not isinstance(step, LackingColumn)], empty=False)
            columns = dict(change_columns(batch.rows, progress))
            for place, field in enumerate(fields):
                columns[identifier(field.name)] = batch.rows.column(place)
            self._load(copy, copy.table, pa.table(columns))

    @contextmanager
    def _about(self, copy: _PostgreSQLCopy) -> Iterator[None]:
        """Name the table in errors."""
        try:
            yield
        except psycopg.Error as error:
            if passes(error):
                raise
            raise SinkRefused(f"{self._name}: {copy.source}: {text_of(error)}") from error

    def _copy(self, schema: str, table: str) -> _PostgreSQLCopy:
        """Return a table's copy, which belongs to this table alone. Raises SinkRefused."""
        found = self._copies.get((schema, table))
        if found is None:
            place, name = identifier(self._places.place(schema, table)), identifier(table)
            copy = _PostgreSQLCopy(f"{schema}.{table}", place, name)
            with self._about(copy):
                is_new = self._own(copy)
                self._read(copy)
                if is_new and copy.columns and self._has_rows(copy):
                    owner = (self._pipeline, self._destination, copy.source)
                    raise unwritten(self._name, copy, (copy.place, copy.name), owner, self._places)
            found = self._copies[schema, table] = copy
        return found

    def _own(self, copy: _PostgreSQLCopy) -> bool:
        """Store whose copy it is; return whether nobody's was known. Raises SinkRefused for another owner."""
        table = sql.Identifier(self._places.state, "copies")
        mine = (self._pipeline, self._destination, copy.source)
        self._cursor.execute(
            sql.SQL(
                "INSERT INTO {} (schema, name, pipeline, destination, source) VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING"
            ).format(table),
            (copy.place, copy.name, *mine),
        )
        if self._cursor.rowcount:
            return True
        self._cursor.execute(
            sql.SQL("SELECT pipeline, destination, source FROM {} WHERE schema = %s AND name = %s").format(table),
            (copy.place, copy.name),
        )
        row = self._cursor.fetchone()
        if row is not None and row != mine:
            pipeline, destination, source = row
            raise taken(self._name, copy, self._destination, (pipeline, destination, source), self._places)
        return False

    def _read(self, copy: _PostgreSQLCopy) -> None:
        """Read columns and key."""
        path = quoted_path(copy.place, copy.name)
        self._cursor.execute(
            "SELECT attname::text, format_type(atttypid, atttypmod),"
            " coalesce(array_position(indkey::int2[], attnum), -1)"
            " FROM pg_attribute LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (path,),
        )
        rows = self._cursor.fetchall()
        copy.columns = {name: kind for name, kind, _ in rows}
        copy.keys = tuple(name for _, name in sorted((place, name) for name, _, place in rows if place >= 0))

    def _type(self, field: pa.Field) -> str:
        return postgresql_type(kind_of(field), self._json)

    def _create(self, copy: _PostgreSQLCopy, columns: Mapping[str, str], keys: Sequence[str]) -> None:
        own_keys = [identifier(key) for key in keys]
        create_schema(self._cursor, copy.place)
        collated = {name for name, kind in columns.items() if kind == "text" and name in own_keys}
        parts = [
            sql.SQL("{} {} {}").format(
                sql.Identifier(name), sql.SQL(kind), sql.SQL('COLLATE "C"' if name in collated else "")
            )
            for name, kind in columns.items()
        ]
        key = sql.SQL("PRIMARY KEY ({})").format(_names(own_keys))
        self._cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(copy.table, sql.SQL(", ").join([*parts, key])))
        copy.columns, copy.keys = dict(columns), tuple(own_keys)

    def _follow(self, copy: _PostgreSQLCopy, found: Sequence[Step], *, empty: bool) -> None:
        """Change the copy's columns as the policy says. empty: the copy has no rows, so any type can change."""
        needed = [step for step in found if not isinstance(step, NewType) or self._retypes(copy, step)]
        if not needed or self._evolve == "ignore":
            return
        if self._evolve == "stop":
            raise stopped(self._name, copy, needed[0])
        lost = [step.name for step in needed if isinstance(step, LackingColumn)]
        if lost and not empty and self._has_rows(copy):
            raise lacking(self._name, copy, lost[0])
        for step in needed:
            self._change(copy, step, empty=empty)
        self._read(copy)

    def _has_rows(self, copy: _PostgreSQLCopy) -> bool:
        self._cursor.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(copy.table))
        return self._cursor.fetchone() is not None

    def _retypes(self, copy: _PostgreSQLCopy, step: NewType) -> bool:
        own = copy.find(step.name)
        return own is None or copy.columns[own] != postgresql_type(step.kind, self._json)

    def _change(self, copy: _PostgreSQLCopy, step: Step, *, empty: bool) -> None:
        alter = sql.SQL("ALTER TABLE {} ").format(copy.table)
        name = sql.Identifier(step.name)
        match step:
            case NoColumn() | LackingColumn():
                self._cursor.execute(alter + sql.SQL("DROP COLUMN {}").format(name))
            case NewName(old, _):
                self._cursor.execute(alter + sql.SQL("RENAME COLUMN {} TO {}").format(sql.Identifier(old), name))
            case NewColumn(_, kind, default):
                declared = sql.SQL(postgresql_type(kind, self._json))
                add = sql.SQL("ADD COLUMN {} {} DEFAULT {}::{}")
                value = sql.Literal(_value(default, kind))
                self._cursor.execute(alter + add.format(name, declared, value, declared))
                if default is not None:
                    self._cursor.execute(alter + sql.SQL("ALTER COLUMN {} DROP DEFAULT").format(name))
            case NewType(_, kind):
                after = postgresql_type(kind, self._json)
                self._read(copy)  # after a new name
                before = copy.columns[step.name]
                using = "NULL::" + after if empty else conversion(before, after)
                if using is None:
                    is_history = {*VERSION_KEY, CURRENT} <= copy.columns.keys()
                    way = (
                        f"Rename this column of {copy.shown}, and start the pipeline again: it adds a new one"
                        if is_history
                        else f"Drop or rename {copy.shown}, and read the table again with a snapshot"
                    )
                    raise SinkRefused(
                        f"{self._name}: column {step.name!r} of {copy.source} is of type {kind.text} now, and the copy"
                        f" has {before}: the binlog does not have the values that the source made of the old ones."
                        f" {way}"
                    )
                change = sql.SQL("ALTER COLUMN {} TYPE {} USING ").format(name, sql.SQL(after))
                self._cursor.execute(alter + change + sql.SQL(using.replace("{}", "{0}")).format(name))

    def _follow_key(self, copy: _PostgreSQLCopy, keys: tuple[str, ...]) -> None:
        own = copy.found_keys(keys)
        if set(own) == set(copy.keys):
            return
        if self._evolve != "evolve":
            raise other_key(self._name, copy, own, self._evolve)
        self._cursor.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'",
            (quoted_path(copy.place, copy.name),),
        )
        parts = [sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(name)) for (name,) in self._cursor.fetchall()]
        parts += [
            sql.SQL('ALTER COLUMN {} TYPE text COLLATE "C"').format(sql.Identifier(name))
            for name in own
            if copy.columns[name] == "text"
        ]
        parts.append(sql.SQL("ADD PRIMARY KEY ({})").format(_names(own)))
        self._cursor.execute(sql.SQL("ALTER TABLE {} {}").format(copy.table, sql.SQL(", ").join(parts)))
        parts = [
            sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(sql.Identifier(name))
            for name in copy.keys
            if name not in own
        ]
        if parts:
            self._cursor.execute(sql.SQL("ALTER TABLE {} {}").format(copy.table, sql.SQL(", ").join(parts)))
        copy.keys = own

    def _delete(self, copy: _PostgreSQLCopy, keys: pa.Table) -> None:
        with self._staged(copy, keys) as (staged, names):
            same = [sql.SQL("own.{0} = gone.{0}").format(sql.Identifier(name)) for name in names]
            self._cursor.execute(
                sql.SQL("DELETE FROM {} AS own USING {} AS gone WHERE {}").format(
                    copy.table, staged, sql.SQL(" AND ").join(same)
                )
            )

    def _upsert(self, copy: _PostgreSQLCopy, rows: pa.Table) -> None:
        with self._staged(copy, rows) as (staged, names):
            others = [name for name in names if name not in copy.keys]
            sets = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
            self._cursor.execute(
                sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
                    copy.table,
                    _names(names),
                    _names(names),
                    staged,
                    _names(copy.keys),
                    sql.SQL("UPDATE SET {}").format(sets) if others else sql.SQL("NOTHING"),
                )
            )

    @contextmanager
    def _staged(self, copy: _PostgreSQLCopy, rows: pa.Table) -> Iterator[tuple[sql.Identifier, list[str]]]:
        """Yield a temporary table with these rows, and its columns."""
        owned = [(place, copy.find(identifier(name))) for place, name in enumerate(rows.schema.names)]
        names = [name for _, name in owned if name is not None]
        staged = sql.Identifier("pg_temp", "canal_ha_rows")
        self._cursor.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                staged, _names(names), copy.table
            )
        )
        kept = [rows.column(place) for place, name in owned if name is not None]
        self._load(copy, staged, pa.Table.from_arrays(kept, names))
        yield staged, names
        self._cursor.execute(sql.SQL("DROP TABLE {}").format(staged))

    def _load(self, copy: _PostgreSQLCopy, table: sql.Identifier, rows: pa.Table) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(rows.schema.names))
        with self._cursor.copy(statement) as stream:
            for part in rows.to_batches(max_chunksize=CHUNK):
                if part.num_rows:
                    columns = [self._clean(copy, name, part.column(name)) for name in part.schema.names]
                    stream.write(payload(copy_rows(columns)))

    def _clean(self, copy: _PostgreSQLCopy, name: str, column: pa.Array) -> pa.Array:
        """Return a column without U+0000. Raises SinkRefused."""
        if not has_nul(column):
            return column
        if self._replaces_nul:
            return without_nul(column)
        raise SinkRefused(
            f"{self._name}: a text in column {name!r} of {copy.source} has the character U+0000, which PostgreSQL"
            " cannot hold; set nulCharacters: replace to store U+FFFD in its place, or exclude the column"
        )


def create_schema(cursor: Cursor, name: str) -> None:
    """Create a schema unless it is there, which takes no right then. Others that create one wait."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION,))
    cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,))
    if cursor.fetchone() is None:
        cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))


def identifier(name: str) -> str:
    """Return a name as PostgreSQL can hold it: at most NAME_BYTES; a longer one is cut and ends with a digest."""
    raw = name.encode()
    if len(raw) <= NAME_BYTES:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:_DIGEST]
    return f"{raw[: NAME_BYTES - _DIGEST - 1].decode(errors='ignore')}~{digest}"


def _value(default: str | None, kind: ColumnType) -> Any:
    """Return a default for psycopg."""
    return None if default is None else to_arrow([default], kind, kind.arrow, "UTC")[0].as_py()


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def quoted_path(schema: str, name: str) -> str:
    """Return a quoted name for to_regclass."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name))


def passes(error: psycopg.Error) -> bool:
    """Return whether a later try may succeed."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state.startswith(_RETRIED) or state in _RETRIED_STATES


def text_of(error: psycopg.Error) -> str:
    """Return the message with the names that the server tells, and without values: these may be secret."""
    about = error.diag
    message = about.message_primary or ""
    if (error.sqlstate or "").startswith(_DATA):
        message = _QUOTED.sub('"…"', message)
    named = [
        f"{what} {name}"
        for what, name in (
            ("table", about.table_name),
            ("column", about.column_name),
            ("constraint", about.constraint_name),
        )
        if name
    ]
    detail = about.message_detail if about.message_detail in _DETAILS else ""
    place = _COPY_PLACE.search(about.context or "")
    said = [message, detail, ", ".join(named), place[0] if place else ""]
    return "; ".join(printable(excerpt(" ".join(text.split()))) for text in said if text) or one_line(error)
