"""TableMap: a parsed TABLE_MAP event, optional metadata included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode import java_text, types
from canal_ha.decode.charsets import label_codec
from canal_ha.decode.values import packed, packed_integer

_NUMERIC = frozenset(
    {
        types.TINY,
        types.SHORT,
        types.INT24,
        types.LONG,
        types.LONGLONG,
        types.NEWDECIMAL,
        types.FLOAT,
        types.DOUBLE,
        types.YEAR,  # has a sign bit too, always unsigned (seen on MySQL 9.7 and MariaDB 10.11)
    }
)
_ONE_BYTE_META = frozenset(
    {
        types.FLOAT,
        types.DOUBLE,
        types.TINY_BLOB,
        types.BLOB,
        types.MEDIUM_BLOB,
        types.LONG_BLOB,
        types.BLOB_COMPRESSED,
        types.GEOMETRY,
        types.JSON,
        types.VECTOR,
        types.TIMESTAMP2,
        types.DATETIME2,
        types.TIME2,
    }
)
_LITTLE_ENDIAN_META = frozenset({types.VARCHAR, types.VARCHAR_COMPRESSED, types.VAR_STRING, types.BIT})
_RAW_META = frozenset({types.STRING, types.ENUM, types.SET, types.NEWDECIMAL})

_COLUMNS_MAX = 4096  # the limit of MySQL and MariaDB

# Table_map_log_event::Optional_metadata_field_type
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME, _SET_VALUES, _ENUM_VALUES, _GEOMETRY_TYPE = range(1, 8)
_PRIMARY_KEY, _PRIMARY_KEY_PREFIXES = 8, 9
_LABELS_DEFAULT_CHARSET, _LABELS_CHARSETS = 10, 11

# The columns that have a collation in the event. MariaDB counts geometry, MySQL does not; each has types of its own
# (seen on MySQL 9.7 and MariaDB 10.11).
_BLOBS = frozenset({types.TINY_BLOB, types.MEDIUM_BLOB, types.LONG_BLOB, types.BLOB})
_WITH_COLLATION = _BLOBS | {types.VARCHAR, types.VAR_STRING, types.STRING, types.VECTOR}
_WITH_COLLATION_MARIADB = _BLOBS | {
    types.VARCHAR,
    types.VAR_STRING,
    types.STRING,
    types.GEOMETRY,
    types.BLOB_COMPRESSED,
    types.VARCHAR_COMPRESSED,
}


def with_collation(mariadb: bool) -> frozenset[int]:
    """Return the types of the columns that have a collation in an event. mariadb: the flavor of its server."""
    return _WITH_COLLATION_MARIADB if mariadb else _WITH_COLLATION


@dataclass(frozen=True, slots=True)
class TableMap:
    """One parsed TABLE_MAP event.

    types: MySQL type code of each column.
    metas: type metadata of each column, as the event's little-endian integers. The two-byte metadata of STRING, ENUM,
    SET and DECIMAL is kept as two raw bytes, the first one in the high half.
    nullable: for each column.
    labels: of ENUM and SET columns, by ordinal. A column whose labels cannot be decoded is missing.
    The other fields are None if the source does not send them. (binlog_row_metadata=MINIMAL sends only signedness and
    charsets.)
    """

    table_id: int
    schema: str
    name: str
    types: bytes
    metas: tuple[int, ...]
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None  # for each column; False for non-numeric ones
    names: tuple[str, ...] | None = None
    primary_key: tuple[int, ...] | None = None  # ordinals; () if the table has none; None if unknown
    labels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    geometry_types: tuple[int, ...] | None = None
    default_collation: int = 0  # of texts that `other_collations` does not list; 0 if the source does not tell any
    other_collations: tuple[int, ...] = ()  # pairs of an index among the texts, and a collation
    each_collation: tuple[int, ...] = ()  # of every text, in the place of a default
    mariadb: bool = False  # the flavor of the server that wrote the event

    @property
    def real_types(self) -> bytes:
        """The types, with ENUM and SET, which travel as STRING, told apart."""
        return _real_types(self.types, self.metas)

    def collations(self) -> tuple[int, ...]:
        """Return the collation id of each column; 0 where there is none or the event does not tell one."""
        counted = with_collation(self.mariadb)
        texts = [index for index, code in enumerate(self.real_types) if code in counted]
        told = list(self.each_collation) or [self.default_collation] * len(texts)
        for place, collation in zip(self.other_collations[::2], self.other_collations[1::2], strict=False):
            if place < len(told):
                told[place] = collation
        found = [0] * len(self.types)
        if len(told) == len(texts):
            for index, collation in zip(texts, told, strict=True):
                found[index] = collation
        return tuple(found)


def table_map_body(table_map: TableMap) -> bytes:
    """Return the event that `parse_table_map` parses, without header and checksum.

    Of the optional fields it has signs, charsets from each_collation, and the primary key if it is known.
    """
    schema, name = table_map.schema.encode(), table_map.name.encode()
    count = len(table_map.types)
    metas = b"".join(map(_packed_meta, table_map.types, table_map.metas))
    nullable = sum(1 << index for index, null in enumerate(table_map.nullable) if null)
    unsigned = table_map.unsigned or (False,) * count
    signs = [sign for code, sign in zip(table_map.real_types, unsigned, strict=True) if code in _NUMERIC]
    bits = sum(1 << (len(signs) + 7) // 8 * 8 - 1 - bit for bit, sign in enumerate(signs) if sign)
    optional = b""
    for kind, content in (
        (_SIGNEDNESS, bits.to_bytes((len(signs) + 7) // 8, "big")),
        (_COLUMN_CHARSET, b"".join(map(packed, table_map.each_collation))),
        (_PRIMARY_KEY, b"".join(map(packed, table_map.primary_key or ()))),
    ):
        optional += bytes([kind]) + packed(len(content)) + content if content else b""
    return (
        table_map.table_id.to_bytes(6, "little")
        + b"\1\0"
        + b"%c%b\0%c%b\0" % (len(schema), schema, len(name), name)
        + packed(count)
        + table_map.types
        + packed(len(metas))
        + metas
        + nullable.to_bytes((count + 7) // 8, "little")
        + optional
    )


def _packed_meta(code: int, meta: int) -> bytes:
    if code in _ONE_BYTE_META:
        return bytes([meta])
    if code in _LITTLE_ENDIAN_META:
        return meta.to_bytes(2, "little")
    return meta.to_bytes(2, "big") if code in _RAW_META else b""


class _Cursor:
    """Reads one event's bytes with bounds checks."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def left(self) -> int:
        return len(self.data) - self.pos

    def take(self, size: int) -> bytes:
        if self.left() < size:
            raise p.Broken("a table map ends early")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def byte(self) -> int:
        return self.take(1)[0]

    def packed(self) -> int:
        value, self.pos = packed_integer(self.data, self.pos, len(self.data))
        return value

    def text(self, length: int) -> str:
        return self.take(length).decode("utf-8", "replace")

    def rest(self, item: Callable[[], int]) -> tuple[int, ...]:
        """Read items to the end."""
        items = []
        while self.left():
            items.append(item())
        return tuple(items)


def parse_table_map(body: bytes, *, mariadb: bool = False) -> TableMap:
    """Parse an event.

    body: without header and checksum.
    mariadb: the flavor of the server that wrote it.
    Raises Broken.
    Source: MySQL libs/mysql/binlog/event/rows_event.h, Table_map_event.
    """
    cursor = _Cursor(body)
    table_id = int.from_bytes(cursor.take(6), "little")
    cursor.take(2)  # flags
    schema = cursor.text(cursor.byte())
    cursor.take(1)
    name = cursor.text(cursor.byte())
    cursor.take(1)
    count = cursor.packed()
    if count > _COLUMNS_MAX:
        raise p.Broken(f"a table of {count} columns")
    codes = cursor.take(count)
    metas_size = cursor.packed()
    metas = _metas(codes, _Cursor(cursor.take(metas_size)))
    null_bits = cursor.take((count + 7) // 8)
    nullable = tuple(bool(null_bits[i >> 3] >> (i & 7) & 1) for i in range(count))
    real = _real_types(codes, metas)
    optional = _optional(cursor)
    default = _integers(optional.get(_DEFAULT_CHARSET)) or ()
    return TableMap(
        table_id=table_id,
        schema=schema,
        name=name,
        types=codes,
        metas=metas,
        nullable=nullable,
        unsigned=_unsigned(real, optional),
        names=_names(optional, count),
        primary_key=_primary_key(optional, count),
        labels=_labels(real, optional),
        geometry_types=_integers(optional.get(_GEOMETRY_TYPE)),
        default_collation=default[0] if default else 0,
        other_collations=default[1:],
        each_collation=_integers(optional.get(_COLUMN_CHARSET)) or (),
        mariadb=mariadb,
    )


def _real_types(codes: bytes, metas: tuple[int, ...]) -> bytes:
    return bytes(
        types.split_string(meta)[0] if code == types.STRING else code for code, meta in zip(codes, metas, strict=True)
    )


def _metas(codes: bytes, cursor: _Cursor) -> tuple[int, ...]:
    metas = []
    for code in codes:
        if code in _ONE_BYTE_META:
            metas.append(cursor.byte())
        elif code in _LITTLE_ENDIAN_META:
            metas.append(int.from_bytes(cursor.take(2), "little"))
        elif code in _RAW_META:
            metas.append(int.from_bytes(cursor.take(2), "big"))
        else:
            metas.append(0)
    return tuple(metas)


def _optional(cursor: _Cursor) -> dict[int, bytes]:
    """Return the optional fields by type, undecoded."""
    fields = {}
    while cursor.left():
        kind = cursor.byte()
        fields[kind] = cursor.take(cursor.packed())
    return fields


def _unsigned(real: bytes, optional: dict[int, bytes]) -> tuple[bool, ...] | None:
    """Return the sign bits, one for each numeric column, most significant first."""
    bits = optional.get(_SIGNEDNESS)
    if bits is None:
        return None
    numeric = [index for index, code in enumerate(real) if code in _NUMERIC]
    if len(bits) < (len(numeric) + 7) // 8:
        raise p.Broken("a table map with too few signs")
    flags = [False] * len(real)
    for bit, index in enumerate(numeric):
        flags[index] = bool(bits[bit >> 3] >> (7 - (bit & 7)) & 1)
    return tuple(flags)


def _names(optional: dict[int, bytes], count: int) -> tuple[str, ...] | None:
    field = optional.get(_COLUMN_NAME)
    if field is None:
        return None
    cursor = _Cursor(field)
    names = []
    while cursor.left():
        names.append(cursor.text(cursor.packed()))
    if len(names) != count:
        raise p.Broken(f"a table map with {len(names)} names for {count} columns")
    return tuple(names)


def _primary_key(optional: dict[int, bytes], count: int) -> tuple[int, ...] | None:
    """Return the ordinals of the key. FULL metadata (it has column names) omits the field if there is no key."""
    simple = optional.get(_PRIMARY_KEY)
    prefixes = optional.get(_PRIMARY_KEY_PREFIXES)
    if simple is not None:
        key = _integers(simple) or ()
    elif prefixes is not None:
        key = (_integers(prefixes) or ())[::2]  # pairs of ordinal and prefix length
    else:
        return () if _COLUMN_NAME in optional else None
    if any(ordinal >= count for ordinal in key):
        raise p.Broken("a table map whose key names a column that does not exist")
    return key


def _integers(field: bytes | None) -> tuple[int, ...] | None:
    if field is None:
        return None
    cursor = _Cursor(field)
    return cursor.rest(cursor.packed)


def _labels(real: bytes, optional: dict[int, bytes]) -> dict[int, tuple[str, ...]]:
    """Return the labels of ENUM and SET columns, by ordinal. real: the columns' types."""
    values = {types.ENUM: _values(optional.get(_ENUM_VALUES)), types.SET: _values(optional.get(_SET_VALUES))}
    columns = [index for index, code in enumerate(real) if code in values]
    labels = {}
    for index, codec in zip(columns, _label_codecs(optional, len(columns)), strict=True):
        raw = next(values[real[index]], None)
        if raw is not None and codec:
            texts = tuple(java_text.decode(label, codec) for label in raw)
            if not any(java_text.MALFORMED in text for text in texts):
                labels[index] = texts
    return labels


def _label_codecs(optional: dict[int, bytes], count: int) -> list[str]:
    """Return the codec of each ENUM and SET column, in table order; "" if it is unknown."""
    collations = _integers(optional.get(_LABELS_CHARSETS))
    if collations is None:
        default, *pairs = _integers(optional.get(_LABELS_DEFAULT_CHARSET)) or (0,)
        others = dict(zip(pairs[::2], pairs[1::2], strict=False))
        collations = tuple(others.get(index, default) for index in range(count))
    if len(collations) != count:
        raise p.Broken(f"a table map with {len(collations)} charsets for {count} ENUM and SET columns")
    return [label_codec(collation) for collation in collations]


def _values(field: bytes | None) -> Iterator[list[bytes]]:
    """Yield the labels of each ENUM (or each SET) column, in table order."""
    cursor = _Cursor(field or b"")
    while cursor.left():
        yield [cursor.take(cursor.packed()) for _ in range(cursor.packed())]
