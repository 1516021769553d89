"""Writes changes into copies in MySQL or MariaDB: first their columns, then their rows in the transaction of a commit.

The comment of a column is its type at the source. A column without such a comment was made by hand, and keeps its type.
Statements that change columns commit at once. So the table's comment ends with what recognises the last statement of
the source whose drops and renames it has, and a portion that comes again after a crash leaves them out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import CR, ER

from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.arrow_types import NTZ, ColumnType, column_type, to_arrow
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.added import Added, added_columns
from canal_ha.pipeline.cells import literals, statements, value_rows
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
    renamed,
    renames_in,
    steps,
)
from canal_ha.pipeline.databases import CopyPlaces
from canal_ha.pipeline.declaration import declaration
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.history import CURRENT, FROM, POSITION, TO, RowVersions, check_columns
from canal_ha.pipeline.latest import LatestChanges
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import TYPE
from canal_ha.pipeline.sql_copies import Owner, SqlCopy, interrupted, lacking, other_key, stopped, taken, unwritten

LENIENT = "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
STRICT = f"{LENIENT},STRICT_ALL_TABLES"
CHUNK = 10_000  # rows that are made text at once
KEYS = 500  # of a DELETE statement
STATEMENT_BYTES = 1 << 20
NAME_CHARACTERS = 64
_VARCHAR = 12  # java.sql.Types
_OLD, _NEW = 2, 4  # in the column CURRENT within a transaction: a version that is replaced; added to one that replaces
_COMMENT_CHARACTERS = 1024
_OWN_COMMENT = 2000  # characters of a table's comment that are not ours; MySQL has 2048
_MOVED = re.compile(r"(?s)(.*?) ?(?:\[canal-ha ([0-9a-f]{16})\])?")
_MOVES = (NewName, NoColumn)
_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin")  # the last one ignores trailing spaces
_GREATEST_OF_UTF8MB3 = "\uffff"
_RETRIED = frozenset(
    {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}
    | {CR.CR_SERVER_LOST_EXTENDED, CR.CR_UNKNOWN_HOST, 0}
    | {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.QUERY_INTERRUPTED}
    | {ER.OPTION_PREVENTS_STATEMENT, ER.DISK_FULL, ER.RECORD_FILE_FULL, ER.OUT_OF_RESOURCES, ER.OUTOFMEMORY}
    | {1020, 1047, 1158, 1159, 1160, 1161, 1180, 1205, 1792, 1836, 1927, 3100, 3101, 4031}
)
"""Lost connections, locks, resources, shutdown, read-only servers, members that are not ready or lost a conflict."""
_CHANGE_TYPES = {
    "_run": "varchar(64)",
    "_commit": "bigint",
    "_entry": "int",
    "_row": "int",
    "_op": "varchar(10)",
    "_ts": "datetime(6)",
    "_server": "bigint",
    "_journal": "varchar(255)",
    "_offset": "bigint",
    "_sub": "int",
    "_gtid": "longtext",
    "_ddl": "longtext",
}


@dataclass(slots=True)
class _MySQLCopy(SqlCopy):
    """A copy. The type of a column is its comment.

    ddl: what has to be done before the rows are written.
    later: by stretch of changes, the names that columns get after it.
    comment: of the table, without what `moved` is.
    moved: id of the last statement whose drops and renames the table had when it was read; "" if it is unknown.
    follows: whether names change or columns are added, so no statement behind that is done.
    added: of a history, by stretch: the columns that statements after it add, with their values in older rows.
    """

    ddl: list[str] = field(default_factory=list)
    later: list[dict[str, str]] = field(default_factory=list)
    comment: str = ""
    moved: str = ""
    follows: bool = False
    added: list[dict[str, pa.Scalar]] = field(default_factory=list)

    @property
    def table(self) -> str:
        """Its quoted name."""
        return f"{quoted(self.place)}.{quoted(self.name)}"


class MySQLWriter:
    """Writes the changes of one commit. First `plan_mirror` or `plan_log`, then `change_columns`, then the rows."""

    def __init__(self, cursor: Any, name: str, description: Description, places: CopyPlaces, destination: str) -> None:
        """Take what one commit needs.

        cursor: of the connection.
        name: of the target, for messages.
        description: the pipeline.
        places: where copies are.
        destination: its name.
        """
        self._cursor = cursor
        self._name = name
        self._mine = (description.name, destination)
        self._evolve = description.target.evolve
        self._places = places
        self._copies: dict[tuple[str, str], _MySQLCopy] = {}
        self._collation = ""  # not read yet
        cursor.execute("SELECT @@lower_case_table_names, @@max_allowed_packet")
        ignores_case, packet = cursor.fetchone()
        self._ignores_case = bool(ignores_case)
        self._most_bytes = int(packet) - 1024

    @property
    def changes_columns(self) -> bool:
        """Whether the plan has statements that commit separately."""
        return any(copy.ddl for copy in self._copies.values())

    def check_copy(self, schema: str, table: str) -> None:
        """Check that the copy of a table may be written. Raises SinkRefused and PyMySQL's errors."""
        self._copy(schema, table)

    def plan_mirror(self, changes: Sequence[LatestChanges]) -> None:
        """Find how the columns of the copies change. Raises SinkRefused and PyMySQL's errors."""
        for at, each in enumerate(changes):
            copy = self._copy(each.schema, each.table)
            with self._about(copy):
                fields = list(each.upserts.schema) if each.upserts.num_rows else None
                if copy.columns:
                    ids = [
                        own_id for other in changes[at + 1 :] if _same(each, other) for own_id in other.statement_ids
                    ]
                    if fields is not None and copy.moved in ids:
                        raise interrupted(self._name, copy)
                    done = _done(copy, each, ids)
                    found = steps(copy.columns, each.statements, fields, done=done)
                    self._follow(copy, found, each.statement_ids, empty=each.emptied)
                    if fields is not None:
                        self._follow_key(copy, each.keys)
                elif fields is None:
                    copy.later.append({})
                else:
                    self._create(copy, {field.name: kind_of(field) for field in fields}, each.keys)

    def plan_history(self, changes: Sequence[RowVersions]) -> None:
        """Find how the columns of the histories change. Raises SinkRefused and PyMySQL's errors."""
        for at, each in enumerate(changes):
            copy = self._copy(each.schema, each.table)
            with self._about(copy):
                others = [other for other in changes[at + 1 :] if _same(each, other)]
                later = [sql for other in others for sql in other.statements]
                ids = [own_id for other in others for own_id in other.statement_ids]
                fields = None if each.fields is None else list(_own_types(pa.schema(each.fields).empty_table()).schema)
                if copy.columns:
                    check_columns(copy.columns, copy.shown)
                    for sql in each.statements:
                        self._note_added(copy, sql)
                    found = history_steps(copy.columns, each.statements, fields, done=_done(copy, each, ids))
                    rows = each.keys if fields is None else [field.name for field in fields]
                    known = ids.index(copy.moved) if copy.moved in ids else -1
                    unknown = copy.follows or self._evolve == "ignore"
                    names = {} if unknown else renamed(rows, copy.columns, later, known)
                    found = [step for step in found if step.name.lower() not in names]
                    self._follow(copy, found, each.statement_ids, empty=False)
                    copy.later[-1].update(names)
                    if fields is not None:
                        self._follow_key(copy, [names.get(key.lower(), key) for key in each.version_key])
                elif fields is None:
                    copy.later.append({})
                else:
                    self._create(copy, {field.name: kind_of(field) for field in fields}, each.version_key)
                copy.added.append({})

    @staticmethod
    def _note_added(copy: _MySQLCopy, sql: str) -> None:
        """Note the columns that a statement adds, and the new names of those that others before it have added."""
        new = renames_in(sql)
        columns = added_columns(sql)
        for at, before in enumerate(copy.added):
            copy.added[at] = before = {new.get(name, name): value for name, value in before.items()}
            for column in columns:
                before.setdefault(column.name.lower(), _older(column))

    def plan_log(self, batches: Iterable[TableBatch]) -> None:
        """Find how the columns of the logs change. Raises SinkRefused and PyMySQL's errors."""
        own = {name: column_type(text, _VARCHAR) for name, text in _CHANGE_TYPES.items()}
        for batch in batches:
            copy = self._copy(batch.schema, batch.table)
            with self._about(copy):
                fields = list(batch.rows.schema)[: -len(META)]
                check_names([field.name for field in fields], self._name, copy.source)
                if copy.columns:
                    found = steps(copy.columns, (), fields)
                    self._follow(copy, [step for step in found if not isinstance(step, LackingColumn)], (), empty=False)
                else:
                    self._create(copy, own | {field.name: kind_of(field) for field in fields}, CHANGE_KEY)

    def change_columns(self) -> None:
        """Create and change copies as planned. Raises SinkRefused and PyMySQL's errors."""
        for copy in self._copies.values():
            with self._about(copy):
                for statement in copy.ddl:
                    self._cursor.execute(statement)

    def mirror(self, changes: LatestChanges) -> None:
        """Let the copy of a table take over rows. Raises SinkRefused and PyMySQL's errors."""
        copy = self._copy(changes.schema, changes.table)
        if not copy.columns:
            return
        with self._about(copy):
            self._own(copy)
            names = copy.later.pop(0)
            if changes.emptied:
                self._cursor.execute(f"DELETE FROM {copy.table}")
            if changes.deletes.num_rows:
                self._delete(copy, changes.deletes, names)
            if changes.upserts.num_rows:
                keys = {copy.find(names.get(key.lower(), key)) for key in changes.keys}
                if keys != set(copy.keys):
                    self._delete(copy, changes.upserts.select(list(changes.keys)), names)
                self._write(copy, "REPLACE", changes.upserts, names)

    def keep(self, changes: RowVersions) -> None:
        """Let the history of a table take over versions. Raises SinkRefused and PyMySQL's errors."""
        copy = self._copy(changes.schema, changes.table)
        if not copy.columns:
            return
        with self._about(copy):
            self._own(copy)
            names, added = copy.later.pop(0), copy.added.pop(0)
            if changes.ended_at is not None:
                self._cursor.execute(_ending(copy, changes.ended_at))
            for moment in pc.unique(changes.ends.column(TO)) if changes.ends.num_rows else ():
                ends = changes.ends.filter(pc.equal(changes.ends.column(TO), moment)).select(list(changes.keys))
                self._with_keys(copy, f"{_ending(copy, moment.as_py())} AND ", ends, names)
            if changes.read.num_rows:
                self._take_over_read(copy, changes, names, added)
            if changes.begun.num_rows:
                self._write(copy, "INSERT", self._whole(copy, changes.begun, names, added), {})

    @staticmethod
    def _whole(copy: _MySQLCopy, rows: pa.Table, names: Mapping[str, str], added: Mapping[str, pa.Scalar]) -> pa.Table:
        """Return versions with all columns of the copy under its names: in dropped ones NULL, not their DEFAULT."""
        rows = _own_types(rows)
        rows = rows.rename_columns([names.get(name.lower(), name) for name in rows.schema.names])
        own = {name.lower() for name in rows.schema.names}
        for name in copy.columns:
            if name.lower() not in own:
                value = added.get(name.lower(), pa.scalar(None, pa.string()))
                rows = rows.append_column(name, pa.repeat(value, len(rows)))
        return rows

    def _take_over_read(
        self, copy: _MySQLCopy, changes: RowVersions, names: Mapping[str, str], added: Mapping[str, pa.Scalar]
    ) -> None:
        """Write what a snapshot read: a current version keeps when and where it began, and takes the rest over."""
        keys = changes.read.select(list(changes.keys))
        old = (
            f"UPDATE {copy.table} SET {CURRENT} = {_OLD}, {POSITION} = CONCAT('~', {POSITION}) WHERE {CURRENT} = 1 AND "
        )
        self._with_keys(copy, old, keys, names)
        rows = self._whole(copy, changes.read, names, added)
        kept = rows.schema.names[len(changes.read.schema) :]
        at = rows.schema.get_field_index(CURRENT)
        marked = pc.add(rows.column(at), pa.scalar(_NEW, pa.int8()))
        self._write(copy, "INSERT", rows.set_column(at, rows.schema.field(at), marked), {})
        owned = [name for _, name in self._owned(copy, keys, names)]
        same = " AND ".join(f"n.{quoted(name)} = o.{quoted(name)}" for name in owned)
        took = f"n.{FROM} = o.{FROM}, n.{POSITION} = SUBSTRING(o.{POSITION}, 2)"
        took += "".join(f", n.{quoted(name)} = o.{quoted(name)}" for name in kept)
        pairs = f"UPDATE {copy.table} n JOIN {copy.table} o ON {same} SET {took}"
        self._with_keys(copy, f"{pairs} WHERE n.{CURRENT} >= {_NEW} AND o.{CURRENT} = {_OLD} AND ", keys, names, "n.")
        self._with_keys(copy, f"DELETE FROM {copy.table} WHERE {CURRENT} = {_OLD} AND ", keys, names)
        done = f"UPDATE {copy.table} SET {CURRENT} = {CURRENT} - {_NEW} WHERE {CURRENT} >= {_NEW} AND "
        self._with_keys(copy, done, keys, names)

    def append(self, batch: TableBatch, progress: Progress) -> None:
        """Add changes to the log of a table. Raises SinkRefused and PyMySQL's errors."""
        copy = self._copy(batch.schema, batch.table)
        with self._about(copy):
            self._own(copy)
            columns = dict(change_columns(batch.rows, progress))
            fields = [pa.field(name, column.type) for name, column in columns.items()]
            own = batch.rows.num_columns - len(META)
            rows = pa.Table.from_arrays(
                [*columns.values(), *batch.rows.columns[:own]],
                schema=pa.schema([*fields, *list(batch.rows.schema)[:own]]),
            )
            self._write(copy, "INSERT", rows, {})

    @contextmanager
    def _about(self, copy: _MySQLCopy) -> Iterator[None]:
        """Name the table in errors."""
        try:
            yield
        except pymysql.MySQLError as error:
            if passes(error):
                raise
            raise SinkRefused(f"{self._name}: {copy.source}: {error}") from error

    def _copy(self, schema: str, table: str) -> _MySQLCopy:
        """Return a table's copy, which belongs to this table alone. Raises SinkRefused."""
        found = self._copies.get((schema, table))
        if found is None:
            found = _MySQLCopy(f"{schema}.{table}", self._places.place(schema, table), table)
            for name in (found.place, found.name):
                self._check_name(found, name)
            with self._about(found):
                is_new = self._check_owner(found)
                self._read(found)
                if is_new and found.columns and self._some(found, "TRUE"):
                    owner = (*self._mine, found.source)
                    raise unwritten(self._name, found, self._place_of(found), owner, self._places)
            self._copies[schema, table] = found
        return found

    def _check_name(self, copy: _MySQLCopy, name: str) -> None:
        """Raise SinkRefused for a name that the server cannot hold, or holds as another one."""
        whole = 0 < len(name) <= NAME_CHARACTERS and max(name) <= _GREATEST_OF_UTF8MB3
        if not whole or "\0" in name or name != name.rstrip(" "):
            raise SinkRefused(
                f"{self._name}: {copy.source}: MySQL has no name {name!r}: a name has 1 to {NAME_CHARACTERS} characters"
                " below U+10000, without U+0000 and without blanks at the end; rename it in the pipeline"
            )

    def _place_of(self, copy: _MySQLCopy) -> tuple[str, str]:
        """Return the copy's names as the server distinguishes them."""
        names = (copy.place, copy.name)
        return (names[0].lower(), names[1].lower()) if self._ignores_case else names

    def _check_owner(self, copy: _MySQLCopy) -> bool:
        """Return whether nobody owns a copy. Raises SinkRefused if another one does."""
        self._cursor.execute(
            f"SELECT pipeline, destination, source FROM {bound(self._places.state)}.copies"
            " WHERE `database` = %s AND `table` = %s",
            self._place_of(copy),
        )
        row = self._cursor.fetchone()
        others = [each for each in self._copies.values() if self._place_of(each) == self._place_of(copy)]
        owner: Owner | None = (*self._mine, others[0].source) if others else None
        if row:
            pipeline, destination, table = (each.decode() for each in row)
            owner = (pipeline, destination, table)
        if owner is not None and owner != (*self._mine, copy.source):
            raise taken(self._name, copy, self._mine[1], owner, self._places)
        return owner is None

    def _own(self, copy: _MySQLCopy) -> None:
        """Store whose copy it is."""
        self._cursor.execute(
            f"INSERT IGNORE INTO {bound(self._places.state)}.copies"
            " (`database`, `table`, pipeline, destination, source) VALUES (%s, %s, %s, %s, %s)",
            (*self._place_of(copy), *self._mine, copy.source),
        )
        self._check_owner(copy)

    def _read(self, copy: _MySQLCopy) -> None:
        """Read columns and key; there are none without the table."""
        try:
            self._cursor.execute(f"SHOW FULL COLUMNS FROM {copy.table}")
        except pymysql.MySQLError as error:
            if error.args[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
                return
            raise
        copy.columns = {row[0]: row[8] for row in self._cursor.fetchall()}
        self._cursor.execute(f"SHOW KEYS FROM {copy.table} WHERE Key_name = 'PRIMARY'")
        copy.keys = tuple(row[4] for row in self._cursor.fetchall())
        self._cursor.execute(
            "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            self._place_of(copy),
        )
        row = self._cursor.fetchone()
        found = _MOVED.fullmatch(row[0] if row else "")
        copy.comment, copy.moved = (found[1], found[2] or "") if found else ("", "")

    def _create(self, copy: _MySQLCopy, columns: Mapping[str, ColumnType], keys: Sequence[str]) -> None:
        parts = [f"{quoted(name)} {self._declared(copy, name, kind, keys)}" for name, kind in columns.items()]
        key = ", ".join(map(quoted, keys))
        copy.ddl += [
            f"CREATE DATABASE IF NOT EXISTS {quoted(copy.place)}",
            f"CREATE TABLE IF NOT EXISTS {copy.table} ({', '.join(parts)}, PRIMARY KEY ({key}))"
            " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
        ]
        copy.columns = {name: comment(kind) for name, kind in columns.items()}
        copy.keys = tuple(keys)
        copy.later.append({})

    def _declared(self, copy: _MySQLCopy, name: str, kind: ColumnType, keys: Iterable[str]) -> str:
        """Declare a column as the source does, but generated columns become plain ones and others may be NULL."""
        self._check_name(copy, name)
        made = declaration(kind.text, copy.source, name).sql(self._binary_collation())
        null = "NOT NULL" if name.lower() in {key.lower() for key in keys} else "NULL"
        return f"{made} {null} COMMENT {text_literal(comment(kind))}"

    def _binary_collation(self) -> str:
        """Return the server's strictest binary collation; reads the list once."""
        if not self._collation:
            self._cursor.execute("SHOW COLLATION WHERE Charset = 'utf8mb4'")
            known = {row[0] for row in self._cursor.fetchall()}
            self._collation = next(name for name in _COLLATIONS if name in known)
        return self._collation

    def _follow(self, copy: _MySQLCopy, found: Sequence[Step], ids: Sequence[str], *, empty: bool) -> None:
        """Plan how the copy's columns change, as the policy says.

        found: the steps.
        ids: what recognises the statements that they number.
        empty: its rows are removed anyway.
        """
        needed = [step for step in found if not isinstance(step, NewType) or self._retypes(copy, step)]
        copy.later.append({})
        if not needed or self._evolve == "ignore":
            return
        if self._evolve == "stop":
            raise stopped(self._name, copy, needed[0])
        if not empty:
            needed, empty = self._safe(copy, needed)
        if empty:
            copy.ddl.append(f"DELETE FROM {copy.table}")  # old values need not fit into new types
        copy.follows = copy.follows or any(isinstance(step, NewName | NewColumn) for step in needed)
        for number, group in groupby(needed, lambda step: step.statement if isinstance(step, _MOVES) else None):
            if number is not None:
                self._move(
                    copy, [step for step in group if isinstance(step, _MOVES)], ids[number] if number >= 0 else ""
                )
                continue
            for step in (step for step in group if not isinstance(step, _MOVES)):
                if not isinstance(step, NewType) or self._retypes(copy, step):  # a step before may have set the type
                    copy.ddl.append(f"ALTER TABLE {copy.table} {self._change(copy, step)}")

    def _move(self, copy: _MySQLCopy, moves: Sequence[NewName | NoColumn], statement: str) -> None:
        """Plan the drops and renames of a statement as one, so that a process that dies leaves all or none of them.

        statement: its id; "" without one.
        """
        origins: dict[str, str] = {}
        items = []
        for step in moves:
            if isinstance(step, NoColumn):
                items.append(self._change(copy, step))
                continue
            old, new = step.old, step.name
            origins[new] = origins.pop(old, old)
            copy.columns = {new if own == old else own: kind for own, kind in copy.columns.items()}
            copy.keys = tuple(new if key == old else key for key in copy.keys)
            for later in copy.later[:-1]:
                for own in [own for own, name in later.items() if name == old]:
                    later[own] = new
                later.setdefault(old.lower(), new)
        items += [f"RENAME COLUMN {quoted(old)} TO {quoted(new)}" for new, old in origins.items() if new != old]
        if items and statement:
            items.append(f"COMMENT = {text_literal(f'{copy.comment[:_OWN_COMMENT]} [canal-ha {statement}]'.lstrip())}")
        if items:
            copy.ddl.append(f"ALTER TABLE {copy.table} {', '.join(items)}")

    def _safe(self, copy: _MySQLCopy, needed: list[Step]) -> tuple[list[Step], bool]:
        """Return the steps that lose no values, and whether the copy is empty. Raises SinkRefused if others are needed.

        A column that rows lack stays if each row has its default, as after an interrupted commit that added it.
        """
        lacked = [step.name for step in needed if isinstance(step, LackingColumn)]
        if not lacked or not self._some(copy, "TRUE"):
            return needed, bool(lacked)
        others: list[Step] = [step for step in needed if not isinstance(step, LackingColumn)]
        has_new = any(isinstance(step, NewColumn) for step in others)  # a lacking column may be one of them
        for name in lacked:
            if has_new or self._some(copy, f"NOT {quoted(name)} <=> DEFAULT({quoted(name)})"):
                raise lacking(self._name, copy, name)
        return others, False

    def _some(self, copy: _MySQLCopy, condition: str) -> bool:
        """Return whether a row meets a condition, or the server cannot tell, as with a default that is computed."""
        try:
            return bool(self._cursor.execute(f"SELECT 1 FROM {copy.table} WHERE {condition} LIMIT 1"))
        except pymysql.MySQLError as error:
            if passes(error):
                raise
            return True

    def _retypes(self, copy: _MySQLCopy, step: NewType) -> bool:
        own = copy.find(step.name)
        return own is None or copy.columns[own] not in ("", comment(step.kind))

    def _change(self, copy: _MySQLCopy, step: NewColumn | NewType | NoColumn | LackingColumn) -> str:
        """Return the item of ALTER TABLE, and note the column."""
        name = quoted(step.name)
        match step:
            case NoColumn() | LackingColumn():
                del copy.columns[step.name]
                copy.keys = tuple(key for key in copy.keys if key != step.name)
                return f"DROP COLUMN {name}"
            case NewColumn(_, kind, default):
                copy.columns[step.name] = comment(kind)
                declared = self._declared(copy, step.name, kind, ())
                return f"ADD COLUMN {name} {declared}{_default(default, kind)}"
            case NewType(_, kind, default):
                copy.columns[step.name] = comment(kind)
                declared = self._declared(copy, step.name, kind, copy.keys)
                return f"MODIFY COLUMN {name} {declared}{_default(default, kind)}"

    def _follow_key(self, copy: _MySQLCopy, keys: Sequence[str]) -> None:
        own = copy.found_keys(keys)
        if set(own) == set(copy.keys):
            return
        if self._evolve != "evolve":
            raise other_key(self._name, copy, own, self._evolve)
        parts = ["DROP PRIMARY KEY"] if copy.keys else []
        parts.append(f"ADD PRIMARY KEY ({', '.join(map(quoted, own))})")
        copy.ddl.append(f"ALTER TABLE {copy.table} {', '.join(parts)}")
        copy.keys = own

    def _delete(self, copy: _MySQLCopy, rows: pa.Table, later: Mapping[str, str]) -> None:
        self._with_keys(copy, f"DELETE FROM {copy.table} WHERE ", rows, later)

    def _with_keys(
        self, copy: _MySQLCopy, begin: str, rows: pa.Table, later: Mapping[str, str], alias: str = ""
    ) -> None:
        """Run a statement for the rows with these keys.

        copy: of a table.
        begin: the statement up to WHERE, or up to AND.
        rows: the keys.
        later: see _MySQLCopy.
        alias: of the copy, with a dot.
        """
        owned = self._owned(copy, rows, later)
        kinds = [kind_of(rows.schema.field(place)) for place, _ in owned]
        for (_, name), kind in zip(owned, kinds, strict=True):
            if kind.name == "float" and pa.types.is_float32(kind.arrow):
                raise SinkRefused(
                    f"{self._name}: the key column {name!r} of {copy.source} is a FLOAT, whose values MySQL does not"
                    " find again; choose another key under keys, or exclude the table"
                )
        head, tail = f"{begin}(", ")"
        if len(owned) == 1:
            head = f"{begin}{alias}{quoted(owned[0][1])} IN ("
        for part in rows.to_batches(max_chunksize=CHUNK):
            cells = [_key_literals(part.column(place), kind) for (place, _), kind in zip(owned, kinds, strict=True)]
            items = cells[0]
            if len(owned) > 1:
                texts = [f"{' AND ' if at else '('}{alias}{quoted(name)}=" for at, (_, name) in enumerate(owned)]
                pieces = [piece for text, cell in zip(texts, cells, strict=True) for piece in (pa.scalar(text), cell)]
                items = pc.binary_join_element_wise(*pieces, pa.scalar(")"), "")
            self._run(copy, head, items, tail, KEYS, "," if len(owned) == 1 else " OR ")

    def _write(self, copy: _MySQLCopy, verb: str, rows: pa.Table, later: Mapping[str, str]) -> None:
        owned = self._owned(copy, rows, later)
        head = f"{verb} INTO {copy.table} ({', '.join(quoted(name) for _, name in owned)}) VALUES "
        enums = {place for place, _ in owned if _lacks_blank(kind_of(rows.schema.field(place)))}
        for part in rows.to_batches(max_chunksize=CHUNK):
            made = value_rows([part.column(place) for place, _ in owned])
            odd = _blank(part, enums)
            if odd is None:
                self._run(copy, head, made, "", CHUNK, ",")
                continue
            self._run(copy, head, made.filter(pc.invert(odd)), "", CHUNK, ",")
            self._write_odd(copy, head, made.filter(odd), {name for place, name in owned if place in enums})

    def _write_odd(self, copy: _MySQLCopy, head: str, rows: pa.Array, enums: Iterable[str]) -> None:
        """Write rows with an ENUM that has an invalid value, shown as ''. Strict mode rejects it."""
        self._cursor.execute("SET SESSION sql_mode = %s", (LENIENT,))
        for row in rows.to_pylist():
            self._cursor.execute((head + row).encode())
            self._cursor.execute("SHOW WARNINGS")
            bent = [text for _, _, text in self._cursor.fetchall() if not any(f"'{name}'" in text for name in enums)]
            if bent:
                raise SinkRefused(f"{self._name}: {copy.source}: {bent[0]}")
        self._cursor.execute("SET SESSION sql_mode = %s", (STRICT,))

    def _run(self, copy: _MySQLCopy, head: str, items: pa.Array, tail: str, most: int, separator: str) -> None:
        size = min(STATEMENT_BYTES, self._most_bytes)
        for statement in statements(items, head.encode(), tail.encode(), size, most, separator):
            if len(statement) > self._most_bytes:
                raise SinkRefused(
                    f"{self._name}: a row of {copy.source} is a statement of {len(statement)} bytes, and the server"
                    f" takes {self._most_bytes}: SET GLOBAL max_allowed_packet to more"
                )
            self._cursor.execute(statement)

    @staticmethod
    def _owned(copy: _MySQLCopy, rows: pa.Table, later: Mapping[str, str]) -> list[tuple[int, str]]:
        """Return place and copy's name of each column that the copy has."""
        names = [copy.find(later.get(name.lower(), name)) for name in rows.schema.names]
        return [(place, name) for place, name in enumerate(names) if name is not None]


def _ending(copy: _MySQLCopy, moment: datetime) -> str:
    """Return the statement that ends all current versions of a history."""
    return f"UPDATE {copy.table} SET {TO} = '{moment:%Y-%m-%d %H:%M:%S.%f}', {CURRENT} = 0 WHERE {CURRENT} = 1"


def _same(one: LatestChanges | RowVersions, other: LatestChanges | RowVersions) -> bool:
    """Return whether changes are of one table."""
    return (one.schema, one.table) == (other.schema, other.table)


def _done(copy: _MySQLCopy, changes: LatestChanges | RowVersions, later: Sequence[str]) -> int:
    """Return the number of the statement whose drops and renames the copy has, with all before it; -1: none.

    changes: they have the statements.
    later: ids of the statements of changes behind them.
    """
    if copy.moved in later:
        return len(changes.statements)
    return changes.statement_ids.index(copy.moved) if copy.moved in changes.statement_ids else -1


def _older(column: Added) -> pa.Scalar:
    """Return the value of an added column in older rows."""
    if column.default is None or column.column.name in ("date", "datetime", "timestamp"):
        return pa.scalar(column.default, pa.string())  # maybe a zero date
    return to_arrow([column.default], column.column, column.column.arrow, "UTC")[0]


def _own_types(rows: pa.Table) -> pa.Table:
    """Return versions with the types that they have in MySQL: times in UTC without a zone, and 0 or 1."""
    for own, kind, arrow in (
        (FROM, b"datetime(6)", NTZ),
        (TO, b"datetime(6)", NTZ),
        (CURRENT, b"tinyint", pa.int8()),
    ):
        at = rows.schema.get_field_index(own)
        rows = rows.set_column(at, pa.field(own, arrow, metadata={TYPE: kind}), rows.column(at).cast(arrow))
    return rows


def passes(error: pymysql.MySQLError) -> bool:
    """Return whether a later try may succeed."""
    return isinstance(error, pymysql.InterfaceError) or (bool(error.args) and error.args[0] in _RETRIED)


def quoted(name: str) -> str:
    """Return a quoted identifier."""
    return f"`{name.replace('`', '``')}`"


def bound(name: str) -> str:
    """Return a quoted identifier for a statement with values, where PyMySQL interprets percent signs."""
    return quoted(name).replace("%", "%%")


def text_literal(text: str) -> str:
    """Return a text as a literal."""
    literal: str = literals(pa.array([text]))[0].as_py()
    return literal


def comment(kind: ColumnType) -> str:
    """Return the comment of a column: its type at the source; of a long ENUM, a digest."""
    if len(kind.text) <= _COMMENT_CHARACTERS:
        return kind.text if kind.labels else kind.text.lower()
    return f"{kind.name} {hashlib.sha256(kind.text.encode()).hexdigest()}"


def _default(default: str | None, kind: ColumnType) -> str:
    """Return the DEFAULT of an added column, which existing rows get."""
    if default is None:
        return ""
    if kind.name in ("date", "datetime", "timestamp"):
        return f" DEFAULT {text_literal(default)}"  # maybe a zero date
    literal = literals(to_arrow([default], kind, kind.arrow, "UTC"))[0].as_py()
    long = kind.text.lower().endswith(("text", "blob", "json"))  # takes an expression only
    return f" DEFAULT ({literal})" if long else f" DEFAULT {literal}"


def _key_literals(column: pa.Array, kind: ColumnType) -> pa.Array:
    """Return literals that compare exactly with a column of this type."""
    made = literals(column)
    if kind.name != "decimal":
        return made
    numbers = declaration(kind.text, "", "").numbers
    digits = ",".join(map(str, numbers or (10,)))
    return pc.binary_join_element_wise(pa.scalar("CAST("), made, pa.scalar(f" AS DECIMAL({digits}))"), "")


def _lacks_blank(kind: ColumnType) -> bool:
    """Return whether '' is no label of an ENUM."""
    return kind.name == "enum" and "" not in kind.labels


def _blank(rows: pa.RecordBatch, places: Iterable[int]) -> pa.Array | None:
    """Return which rows have '' in one of the columns; None if there are none."""
    found = None
    for place in places:
        blank = pc.fill_null(pc.equal(rows.column(place), ""), False)
        if pc.any(blank).as_py():
            found = blank if found is None else pc.or_(found, blank)
    return found
