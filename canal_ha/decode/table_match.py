"""Compares known columns with a TABLE_MAP event: whether they agree, and what the event adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from canal_ha.decode import types
from canal_ha.decode.charsets import BINARY, beyond_doubt, charset_of, in_doubt
from canal_ha.decode.column_text import ADDRESSES
from canal_ha.decode.labels import labels_of, with_labels
from canal_ha.decode.table_map import TableMap
from canal_ha.decode.told_types import told_types, untold
from canal_ha.decode.type_codes import compatible
from canal_ha.model.table import Column

_NUMBERS = frozenset(
    {types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG, types.FLOAT, types.DOUBLE, types.NEWDECIMAL}
)
_HASH = re.compile(r"DB_ROW_HASH_\d+")  # MariaDB: the hash of a unique key that is too long for an index
_VERSIONING = ("row_start", "row_end")  # MariaDB: of a system-versioned table
_LONG = re.compile(r"char|binary|text|blob|json|clob|xml|raw|long|geom|point|line|polygon", re.IGNORECASE)  # its types


def agreeing(columns: tuple[Column, ...], table_map: TableMap) -> tuple[Column, ...] | None:
    """Return the columns with the event's names, signs, keys and nullability; None if they are not of this table.

    columns: as known.
    table_map: the event.
    The counts must be equal: a shorter event lacks any of the columns, not necessarily the last ones. A longer one is
    possible only behind a unique key that may be too long for an index, because MariaDB logs hidden columns there. If
    the event does not confirm a column's name, a different sign counts as a contradiction. If it confirms the name but
    cannot tell the type, the column's type must be known.
    """
    count = len(table_map.types)
    if any(column.unique and _LONG.search(column.mysql_type) for column in columns):
        columns += _hashes(table_map, len(columns))
    if len(columns) != count:
        return None
    collations = table_map.collations()
    hidden = dict(untold(table_map)) if table_map.names is not None else {}
    for index, column in enumerate(columns):
        fits = _fits(column.mysql_type, table_map, index, collations)
        if table_map.names is not None:
            unfit = not fits if index in hidden else fits is False
            if unfit or table_map.names[index].lower() != column.name.lower():
                return None
        elif not fits or _sign(table_map, index) not in (None, column.unsigned):
            return None
    return _confirmed(columns, table_map)


def rebuilt(table_map: TableMap, *known: Mapping[str, Column]) -> tuple[Column, ...]:
    """Return the columns of an event with names (binlog_row_metadata=FULL).

    known: columns by lower-case name. Each column gets the type text of the first source that agrees, else what
    the event tells; "" if it does not tell it.
    """
    assert table_map.names is not None
    columns = []
    told, collations = told_types(table_map), table_map.collations()
    for index, name in enumerate(table_map.names):
        found = (source[name.lower()] for source in known if name.lower() in source)
        fitting = (column for column in found if _fits(column.mysql_type, table_map, index, collations) is not False)
        column = next((column for column in fitting if column.mysql_type), None)
        if column is None:
            hash_ = table_map.types[index] == types.LONGLONG and _HASH.fullmatch(name)
            column = _hash(name) if hash_ else Column(name, told[index])
        columns.append(replace(column, name=name))
    return _confirmed(columns, table_map)


def tells_columns(table_map: TableMap) -> bool:
    """Return whether an event tells enough of its columns to read their values without a definition."""
    return table_map.names is not None and not any(untold(table_map))


def shows_added(table_map: TableMap) -> bool:
    """Return whether the server may have added some column of an event with names itself.

    Statements pass over such columns, or put others before them, but act on ordinary ones of the same names.
    """
    names, codes = table_map.names or (), table_map.types
    if not table_map.mariadb:
        return names[:1] == ("my_row_id",) and codes[0] == types.LONGLONG
    versioned = names[-2:] == _VERSIONING and set(codes[-2:]) == {types.TIMESTAMP2}
    return versioned or any(map(_HASH.fullmatch, names))


def with_texts(columns: tuple[Column, ...], texts: Mapping[str, Column], table_map: TableMap) -> tuple[Column, ...]:
    """Return the columns with those type texts (by lower-case name) that agree with the event.

    columns: as known.
    texts: columns with type texts.
    table_map: the event.
    """
    taken = list(columns)
    for index, column in enumerate(columns):
        text = texts[column.name.lower()].mysql_type if column.name.lower() in texts else ""
        if _address(text) != _address(column.mysql_type):
            continue
        if text and compatible(text, table_map.types[index], table_map.metas[index]) is not False:
            taken[index] = replace(column, mysql_type=text, unsigned=texts[column.name.lower()].unsigned)
    return _confirmed(taken, table_map)


def with_charsets(columns: tuple[Column, ...], table_map: TableMap) -> tuple[Column, ...] | None:
    """Return the columns without doubt in their charsets; None if the event leaves a doubt.

    Servers that tell charsets in events, and MariaDB, carry out every conversion: see default_charset.
    """
    if not any(in_doubt(column.charset) for column in columns):
        return columns
    if table_map.mariadb or table_map.default_collation or table_map.each_collation:
        return tuple(replace(column, charset=beyond_doubt(column.charset)) for column in columns)
    return None


def _fits(mysql_type: str, table_map: TableMap, index: int, collations: Sequence[int]) -> bool | None:
    """Return whether a declaration can produce a column of the event; None if its type is unknown."""
    charset = charset_of(collations[index])
    if charset not in ("", BINARY) and types.type_name(mysql_type) in types.BINARIES:
        return False
    return compatible(mysql_type, table_map.types[index], table_map.metas[index])


def by_name(columns: tuple[Column, ...]) -> dict[str, Column]:
    """Return columns by lower-case name."""
    return {column.name.lower(): column for column in columns}


def _address(mysql_type: str) -> str:
    """Return which of MariaDB's addresses a type is, because events do not tell them apart; "" for other types."""
    name = types.type_name(mysql_type)
    return name if name in ADDRESSES else ""


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
