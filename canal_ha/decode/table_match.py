"""Compares known columns with a TABLE_MAP event: whether they agree, and what the event adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from canal_ha.decode import types
from canal_ha.decode.labels import labels_of, with_labels
from canal_ha.decode.table_map import TableMap
from canal_ha.decode.type_codes import compatible
from canal_ha.model.table import Column

_NUMBERS = frozenset(
    {types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG, types.FLOAT, types.DOUBLE, types.NEWDECIMAL}
)
_HASH = re.compile(r"DB_ROW_HASH_\d+")  # MariaDB: the hash of a unique key that is too long for an index
_LONG = re.compile(r"char|binary|text|blob|json|clob|xml|raw|long|geom|point|line|polygon", re.IGNORECASE)  # its types


def agreeing(columns: tuple[Column, ...], table_map: TableMap) -> tuple[Column, ...] | None:
    """Return the columns with the event's names, signs, keys and nullability; None if they are not of this table.

    columns: as known.
    table_map: the event.
    The counts must be equal: a shorter event lacks any of the columns, not necessarily the last ones. A longer one is
    possible only behind a unique key that may be too long for an index, because MariaDB logs hidden columns there. If
    the event does not confirm a column's name, a different sign counts as a contradiction.
    """
    count = len(table_map.types)
    if any(column.unique and _LONG.search(column.mysql_type) for column in columns):
        columns += _hashes(table_map, len(columns))
    if len(columns) != count:
        return None
    for index, column in enumerate(columns):
        fits = compatible(column.mysql_type, table_map.types[index], table_map.metas[index])
        if table_map.names is not None:
            if fits is False or table_map.names[index].lower() != column.name.lower():
                return None
        elif not fits or _sign(table_map, index) not in (None, column.unsigned):
            return None
    return _confirmed(columns, table_map)


def rebuilt(table_map: TableMap, *known: Mapping[str, Column]) -> tuple[Column, ...]:
    """Return the columns of an event with names (binlog_row_metadata=FULL).

    known: columns by lower-case name. Each column gets the type text of the first source that agrees; "" if none does.
    """
    assert table_map.names is not None
    columns = []
    for index, name in enumerate(table_map.names):
        code, meta = table_map.types[index], table_map.metas[index]
        found = (source[name.lower()] for source in known if name.lower() in source)
        fitting = (column for column in found if compatible(column.mysql_type, code, meta) is not False)
        column = next((column for column in fitting if column.mysql_type), Column(name, ""))
        if not column.mysql_type and code == types.LONGLONG and _HASH.fullmatch(name):
            column = _hash(name)
        columns.append(replace(column, name=name))
    return _confirmed(columns, table_map)


def with_texts(columns: tuple[Column, ...], texts: Mapping[str, Column], table_map: TableMap) -> tuple[Column, ...]:
    """Return the columns with those type texts (by lower-case name) that agree with the event.

    columns: as known.
    texts: columns with type texts.
    table_map: the event.
    """
    taken = list(columns)
    for index, column in enumerate(columns):
        text = texts[column.name.lower()].mysql_type if column.name.lower() in texts else ""
        if text and compatible(text, table_map.types[index], table_map.metas[index]) is not False:
            taken[index] = replace(column, mysql_type=text, unsigned=texts[column.name.lower()].unsigned)
    return _confirmed(taken, table_map)


def by_name(columns: tuple[Column, ...]) -> dict[str, Column]:
    """Return columns by lower-case name."""
    return {column.name.lower(): column for column in columns}


def _confirmed(columns: Sequence[Column], table_map: TableMap) -> tuple[Column, ...]:
    """Return the columns with what the event adds: letter case of names, signs, labels, keys, nullability."""
    keys = _keys(columns, table_map)
    confirmed = []
    for index, column in enumerate(columns):
        unsigned, text = column.unsigned, column.mysql_type
        labels = table_map.labels.get(index)
        if labels is not None and text and labels_of(text) != labels:
            text = with_labels(text, labels)
        sign = _sign(table_map, index)
        if sign is not None and sign != unsigned:
            unsigned = sign
            if text:
                text = f"{text} unsigned" if sign else text.replace(" unsigned", "").replace(" zerofill", "")
        confirmed.append(
            replace(
                column,
                name=column.name if table_map.names is None else table_map.names[index],
                mysql_type=text,
                key=column.key if keys is None else index in keys,
                unsigned=unsigned,
                nullable=table_map.nullable[index],
            )
        )
    return tuple(confirmed)


def _keys(columns: Sequence[Column], table_map: TableMap) -> tuple[int, ...] | None:
    """Return the ordinals of the primary key; None to keep the columns' own keys.

    Without a primary key the event names the first unique key over NOT NULL columns instead, which canal does not
    count. So columns without a declared primary key stay without one if the event's key could be such a key.
    """
    keys = table_map.primary_key
    if keys and not any(column.key for column in columns) and not any(columns[index].nullable for index in keys):
        return None
    return keys


def _hashes(table_map: TableMap, start: int) -> tuple[Column, ...]:
    """Return the hidden columns from `start` on; () if some column there cannot be one."""
    names = table_map.names or [f"DB_ROW_HASH_{index - start + 1}" for index in range(len(table_map.types))]
    rest = range(start, len(table_map.types))
    if any(table_map.types[index] != types.LONGLONG or not _HASH.fullmatch(names[index]) for index in rest):
        return ()
    return tuple(_hash(names[index]) for index in rest)


def _hash(name: str) -> Column:
    return Column(name, "bigint unsigned", unsigned=True, hidden=True)


def _sign(table_map: TableMap, index: int) -> bool | None:
    """Return whether the event says this column is unsigned; None if it does not say."""
    if table_map.unsigned is None or table_map.types[index] not in _NUMBERS:
        return None
    return table_map.unsigned[index]
