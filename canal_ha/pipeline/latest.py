"""Reduces the changes of a portion to the last one of each key, for targets that mirror tables. Pure; vectorised.

Rows before an ALTER TABLE get the columns that they have behind it. If the key's columns change, the rows before and
behind that are reduced apart, because the old key cannot find the new rows. Without rows behind it, a key that gets
another name is found by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.arrow_types import column_type
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.altered import altered, find
from canal_ha.pipeline.conversions import converted
from canal_ha.pipeline.done import statement_ids
from canal_ha.pipeline.given_key import given_key
from canal_ha.pipeline.kept_columns import drops_of, renames_of
from canal_ha.pipeline.reading import GIVEN, KEY, TYPE
from canal_ha.pipeline.statements import StatementEffect, effects

_DELETE = "delete"
_STATEMENT = "ddl"
_MOMENTS = frozenset({"datetime", "timestamp"})  # types whose values may be texts (Portion.batches)


@dataclass(frozen=True, slots=True)
class LatestChanges:
    """What a copy of one table has to take over, in this order: `emptied`, `statements`, `deletes`, `upserts`.

    schema, table: its names.
    keys: names of the key's columns; () if there are no rows.
    emptied: remove all rows of the copy first, because of TRUNCATE, DROP, RENAME or CREATE.
    statements: texts of the table's DDL, in order.
    statement_ids: what recognises each of them (canal_ha.pipeline.done).
    deletes: the key columns of rows that are gone.
    upserts: the newest row of each key, without META's columns, with the metadata of `Portion.batches`. Without rows:
        the newest columns that are known, maybe none.
    """

    schema: str
    table: str
    keys: tuple[str, ...]
    emptied: bool
    statements: tuple[str, ...]
    statement_ids: tuple[str, ...]
    deletes: pa.Table
    upserts: pa.Table


def latest(batches: Iterable[TableBatch], keys: Mapping[str, Sequence[str]]) -> list[LatestChanges]:
    """Reduce the batches of a portion, in the order of the tables' first rows.

    There is one result for each table. A table whose key has other columns in the middle of the portion has one for
    each key, to be taken over one after the other; it does no harm to take them over again from the first one on.

    batches: of `Portion.batches`.
    keys: `schema.table` -> key columns of tables without a primary key, or to use instead of it.
    Raises SinkRefused for a table without a key, for NULL in a key, and for rows that do not fit together.
    """
    tables: dict[tuple[str, str], _TableHistory] = {}
    for batch in batches:
        name = (batch.schema, batch.table)
        if name not in tables:
            tables[name] = _TableHistory(*name, tuple(keys.get(f"{batch.schema}.{batch.table}", ())))
        tables[name].add(batch.rows)
    return [changes for table in tables.values() for changes in table.reduced()]


@dataclass(slots=True)
class _Stretch:
    """Rows with the same key, and the statements before and between them.

    keys: names of the key's columns.
    emptied: as in LatestChanges.
    steps: rows, and effects of statements, in order.
    statements, statement_ids: their texts, and what recognises them.
    """

    keys: tuple[str, ...] = ()
    emptied: bool = False
    steps: list[pa.RecordBatch | tuple[str, StatementEffect]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    statement_ids: list[str] = field(default_factory=list)


class _TableHistory:
    """The changes of one table. keys: given ones; () for those of the rows."""

    def __init__(self, schema: str, table: str, keys: tuple[str, ...]) -> None:
        self._schema = schema
        self._table = table
        self._name = f"{schema}.{table}"
        self._given = keys
        self._stretches = [_Stretch()]
        self._between = _Stretch()  # statements behind the newest rows

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, or the row of a statement."""
        operations = rows.column(rows.num_columns - len(META))
        if rows.num_rows and operations[0].as_py() == _STATEMENT:
            for sql, own_id in zip(rows.column(rows.num_columns - 1).to_pylist(), statement_ids(rows), strict=True):
                self._statement(sql, own_id)
        elif rows.num_rows:
            keys = key_columns(rows.schema, self._name, self._given)
            if self._stretches[-1].keys and _lower(self._stretches[-1].keys) != _lower(keys):
                self._stretches.append(_Stretch())
            self._stretches[-1].keys = keys
            self._settle()
            self._stretches[-1].steps.append(rows)

    def reduced(self) -> list[LatestChanges]:
        """Return the changes."""
        self._follow_key()
        self._settle()
        return [self._reduced(stretch) for stretch in self._stretches]

    def _follow_key(self) -> None:
        """Give the newest rows' key the names that it has behind all statements, as the rows get them.

        Rows whose key loses a column are reduced apart from the statements.
        """
        newest = self._stretches[-1]
        keys = newest.keys
        for step in self._between.steps:
            alter = step[1].alter if isinstance(step, tuple) else None
            if alter is None:
                continue
            if _lower(keys) & _lower(drops_of(alter)):
                self._stretches.append(_Stretch())
                return
            names = {old.lower(): new for old, new in renames_of(alter)}
            keys = tuple(names.get(key.lower(), key) for key in keys)
        newest.keys = keys

    def _settle(self) -> None:
        """Put the statements behind the newest rows into the newest stretch."""
        newest = self._stretches[-1]
        newest.steps += self._between.steps
        newest.statements += self._between.statements
        newest.statement_ids += self._between.statement_ids
        self._between = _Stretch()

    def _statement(self, sql: str, own_id: str) -> None:
        self._between.statements.append(sql)
        self._between.statement_ids.append(own_id)
        mine = [each for each in effects(sql, self._schema) if (each.schema, each.table) == (self._schema, self._table)]
        for effect in mine or [StatementEffect(self._schema, self._table, readable=bool(sql))]:
            if effect.emptied:
                every = [*self._stretches, self._between]
                texts = [text for stretch in every for text in stretch.statements]
                ids = [each for stretch in every for each in stretch.statement_ids]
                self._stretches = [_Stretch(emptied=True, statements=texts, statement_ids=ids)]
                self._between = _Stretch()
            elif effect.alter is not None or not effect.readable:
                self._between.steps.append((sql, effect))

    def _reduced(self, stretch: _Stretch) -> LatestChanges:
        table, operations = self._aligned(stretch)
        places = [find(table.schema, key) for key in stretch.keys]
        keys = [table.column(place) for place in places]
        check_keys(table, [table.schema.names[place] for place in places], self._name)
        at = _last_rows(keys, len(table))
        newest, gone = table.take(at), pc.equal(operations.take(at), _DELETE)
        fields = [table.schema.field(place) for place in places]
        deletes = newest.filter(gone)
        return LatestChanges(
            schema=self._schema,
            table=self._table,
            keys=tuple(each.name for each in fields),
            emptied=stretch.emptied,
            statements=tuple(stretch.statements),
            statement_ids=tuple(stretch.statement_ids),
            deletes=pa.Table.from_arrays([deletes.column(place) for place in places], schema=pa.schema(fields)),
            upserts=newest.filter(pc.invert(gone)),
        )

    def _aligned(self, stretch: _Stretch) -> tuple[pa.Table, pa.ChunkedArray]:
        """Return the rows of a stretch with the columns of the newest ones, and what happened to each."""
        parts: list[tuple[pa.Table, pa.Array]] = []
        doubtful = False  # a statement is unknown, so columns may come and go
        for step in stretch.steps:
            if isinstance(step, tuple):
                sql, effect = step
                doubtful = doubtful or effect.alter is None
                if effect.alter is not None:
                    parts = [(altered(rows, sql, effect.alter, self._retyped), done) for rows, done in parts]
            else:
                own = step.num_columns - len(META)
                fields = list(step.schema)[:own]
                rows = pa.Table.from_arrays(step.columns[:own], schema=pa.schema(fields))
                parts.append((rows, step.column(own)))
        whole = [rows for rows, done in parts if not _only_deletes(done)] or [rows for rows, _ in parts]
        schema = whole[-1].schema if whole else pa.schema([])
        tables = [self._fitted(rows, schema, lenient=doubtful or _only_deletes(done)) for rows, done in parts]
        operations = pa.chunked_array([done for _, done in parts], pa.string())
        return pa.concat_tables(tables) if tables else schema.empty_table(), operations

    def _retyped(self, rows: pa.Table, at: int, mysql_type: str) -> pa.Table:
        before = rows.schema.field(at)
        kind = column_type(mysql_type, 0)
        wanted = kind.arrow
        if pa.types.is_string(before.type) and pa.types.is_temporal(wanted):
            wanted = before.type  # Portion.batches gives dates as texts
        metadata = {**(before.metadata or {}), TYPE: mysql_type.encode()}
        changed = pa.field(before.name, wanted, metadata=metadata)
        return rows.set_column(at, changed, self._cast(rows.column(at), changed, kind.name))

    def _fitted(self, rows: pa.Table, schema: pa.Schema, *, lenient: bool) -> pa.Table:
        """Return rows with the columns of a schema. lenient: columns may be missing."""
        names = {name.lower() for name in schema.names}
        extra = [name for name in rows.schema.names if name.lower() not in names]
        columns = []
        for wanted in schema:
            at = find(rows.schema, wanted.name)
            if at < 0:
                extra.append(wanted.name)
                columns.append(pa.nulls(len(rows), wanted.type))
            else:
                columns.append(self._cast(rows.column(at), wanted))
        if extra and not lenient:
            raise SinkRefused(
                f"canal: rows of {self._name} have the column {extra[0]}, and rows beside them do not, without a"
                " statement between them: run SET GLOBAL binlog_row_image = FULL at the source, and remove"
                " canal.instance.filter.query.ddl from the node's configuration. Then read the table again with a"
                " snapshot"
            )
        return pa.Table.from_arrays(columns, schema=schema)

    def _cast(self, values: pa.ChunkedArray, wanted: pa.Field, name: str = "") -> pa.ChunkedArray:
        """Return values with the type of a field. name: family of the MySQL type that a statement gives it; else ""."""
        if values.type == wanted.type:
            return values
        declared = column_type((wanted.metadata or {}).get(TYPE, b"").decode(), 0).name
        if pa.types.is_timestamp(values.type) and pa.types.is_string(wanted.type) and declared in _MOMENTS:
            return values.cast(pa.timestamp(values.type.unit)).cast(wanted.type)  # a text of Arrow's has the time zone
        try:
            return converted(values, wanted.type, name)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkRefused(
                f"canal: a statement changed {self._name}.{wanted.name} from {values.type} to {wanted.type}, and values"
                f" from before it do not fit: {error}. Read the table again with a snapshot"
            ) from error


def key_columns(schema: pa.Schema, name: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the key's columns.

    schema: of rows of `Portion.batches`.
    name: of the table, for messages.
    given: key columns of the pipeline's file; () for the primary key.
    Raises SinkRefused.
    """
    columns = list(schema)[: -len(META)]
    if not given:
        keys = tuple(each.name for each in columns if (each.metadata or {}).get(KEY) == b"1")
        if not keys:
            raise SinkRefused(
                f"canal: {name} has no primary key: list its key columns under keys in the pipeline's file"
            )
        return keys
    others = {each.name.lower(): own.decode() for each in columns if (own := (each.metadata or {}).get(GIVEN))}
    return given_key((each.name for each in columns), given, name, others)


def check_keys(rows: pa.Table, keys: Sequence[str], name: str) -> None:
    """Raise SinkRefused if a key has NULL: a unique key can have it in many rows, and a copy would take them for one.

    rows: all columns of the table.
    keys: names of the key's columns.
    name: of the table.
    """
    for key in keys:
        if rows.column(key).null_count:
            raise SinkRefused(
                f"canal: {name}.{key}, a column of the key, is NULL in a row, or has a date that is no day, as"
                " 0000-00-00: several rows can have that, and a copy could not tell them apart. List columns without"
                f" such values under keys in the pipeline's file, leave {name} out of its tables, or use mode:"
                " changelog, which needs no key"
            )


def _only_deletes(operations: pa.Array) -> bool:
    return bool(pc.all(pc.equal(operations, _DELETE)).as_py())


def _last_rows(keys: Sequence[pa.ChunkedArray], count: int) -> pa.Array:
    """Return the index of the last row of each key, ascending. count: of all rows."""
    if not count:
        return pa.array([], pa.int64())
    names = [f"k{number}" for number in range(len(keys))]
    table = pa.Table.from_arrays([*keys, row_numbers(count)], [*names, "row"])
    rows = table.group_by(names, use_threads=False).aggregate([("row", "max")]).column("row_max").combine_chunks()
    return rows.take(pc.sort_indices(rows))


def row_numbers(count: int) -> pa.Array:
    """Return 0, 1, 2, ..., without an object for each."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
