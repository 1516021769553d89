"""All kinds of column types: how MySQL and MariaDB store a value, and how canal shows it."""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from canal_ha.decode import types
from lab.dump import ColumnType

EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Kind:
    """A column type: its table-map entry, its text, and how a value is stored and shown."""

    column: ColumnType
    mysql_type: str
    sql_type: int
    null_sql_type: int
    value: st.SearchStrategy[Any]
    store: Any
    text: Any = str


def _blob(length: int) -> Callable[[bytes], bytes]:
    return lambda raw: len(raw).to_bytes(length, "little") + raw


def _latin1(raw: bytes) -> str:
    return raw.decode("latin-1")


def squeezed(raw: bytes) -> bytes:
    """Store a value of a COMPRESSED column; only long values are compressed."""
    if len(raw) < 20:
        return b"\0" + raw if raw else b""
    return b"\x81" + bytes([len(raw)]) + zlib.compress(raw)


def decimal_bytes(value: int) -> bytes:
    """Store value / 10000 as DECIMAL(14,4): one, nine and four digits, with the sign in the top bit."""
    whole, fraction = divmod(abs(value), 10**4)
    high, low = divmod(whole, 10**9)
    raw = high.to_bytes(1, "big") + low.to_bytes(4, "big") + fraction.to_bytes(2, "big")
    if value < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


def decimal_text(value: int) -> str:
    """Show a decimal; a zero fraction has one digit (docs/protocol.md#decimals)."""
    whole, fraction = divmod(abs(value), 10**4)
    return f"{'-' if value < 0 else ''}{whole}." + (f"{fraction:04}" if fraction else "0")


QUARTERS = st.integers(-(2**20), 2**20).map(lambda number: number / 4)
"""Numbers that Java and Python format equally, and that FLOAT holds exactly."""


def _fraction(micros: int, digits: int) -> bytes:
    """Store a fraction with two digits a byte, for the kept digits only."""
    kept: int = micros // 10 ** (6 - digits) * 10 ** (digits % 2)
    return kept.to_bytes((digits + 1) // 2, "big")


def _seconds(moment: dt.datetime) -> int:
    return int((moment - EPOCH).total_seconds())


def _datetime2(digits: int) -> Callable[[dt.datetime], bytes]:
    def store(v: dt.datetime) -> bytes:
        days = (v.year * 13 + v.month) << 5 | v.day
        packed = days << 17 | v.hour << 12 | v.minute << 6 | v.second
        return (packed + (1 << 39)).to_bytes(5, "big") + _fraction(v.microsecond, digits)

    return store


def _timestamp2(digits: int) -> Callable[[dt.datetime], bytes]:
    return lambda v: struct.pack(">I", _seconds(v)) + _fraction(v.microsecond, digits)


def _time2(digits: int) -> Callable[[int], bytes]:
    def store(v: int) -> bytes:
        seconds, micros = divmod(abs(v), 10**6)
        size = (digits + 1) // 2
        clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        packed = clock << 8 * size | int.from_bytes(_fraction(micros, digits), "big")
        return ((-packed if v < 0 else packed) + (1 << 23 + 8 * size)).to_bytes(3 + size, "big")

    return store


def _digits(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def _moment(digits: int) -> Callable[[dt.datetime], str]:
    return lambda v: v.replace(microsecond=0).isoformat(" ") + _digits(v.microsecond, digits)


def _duration(digits: int) -> Callable[[int], str]:
    def text(v: int) -> str:
        kept = abs(v) // 10 ** (6 - digits) * 10 ** (6 - digits)
        seconds, micros = divmod(kept, 10**6)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return ("-" if v < 0 and kept else "") + clock + _digits(micros, digits)

    return text


SECONDS_OF_32_BITS = st.datetimes(EPOCH + dt.timedelta(seconds=1), dt.datetime(2106, 2, 7))
MICROSECONDS = st.integers(-838 * 3600 * 10**6, 838 * 3600 * 10**6)

_NAMES = st.text("abcxyz", max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | QUARTERS | _NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=10,
)


def json_text(value: Any) -> str:
    """Format JSON with keys in MySQL's order: by length, then by bytes."""
    return json.dumps(_ordered(value), separators=(", ", ": "))


def _ordered(value: Any) -> Any:
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=lambda key: (len(key), key))}
    return value


def json_bytes(value: Any) -> bytes:
    """Store JSON in MySQL's binary form."""
    kind, raw = _json(value)
    return bytes([kind]) + raw


def _json(value: Any) -> tuple[int, bytes]:
    """Return type and content; containers use the small form with two-byte offsets."""
    if value is None or isinstance(value, bool):
        return 4, bytes([(0, 2, 1)[0 if value is None else 1 + value]])
    if isinstance(value, int):
        return 9, struct.pack("<q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, bytes([len(value)]) + value.encode()
    ordered = _ordered(value)
    keys = [key.encode() for key in ordered] if isinstance(ordered, dict) else []
    items = [_json(item) for item in (ordered.values() if isinstance(ordered, dict) else ordered)]
    at = 4 + 4 * len(keys) + 3 * len(items)
    head, tail = b"", b""
    for key in keys:
        head += struct.pack("<HH", at + len(tail), len(key))
        tail += key
    for kind, raw in items:
        if kind == 4:  # literals are in the entry itself
            head += bytes([kind]) + raw + b"\0"
        else:
            head += bytes([kind]) + struct.pack("<H", at + len(tail))
            tail += raw
    return (0 if isinstance(ordered, dict) else 2), struct.pack("<HH", len(items), at + len(tail)) + head + tail


KINDS = [
    Kind(ColumnType(types.TINY), "tinyint(4)", -6, -6, st.integers(-128, 127), lambda v: struct.pack("<b", v)),
    Kind(ColumnType(types.SHORT), "smallint", 5, 5, st.integers(-32768, 32767), lambda v: struct.pack("<h", v)),
    Kind(
        ColumnType(types.INT24),
        "mediumint",
        4,
        4,
        st.integers(-(2**23), 2**23 - 1),
        lambda v: (v & 0xFFFFFF).to_bytes(3, "little"),
    ),
    Kind(ColumnType(types.LONG), "int", 4, 4, st.integers(-(2**31), 2**31 - 1), lambda v: struct.pack("<i", v)),
    Kind(
        ColumnType(types.LONGLONG), "bigint", -5, -5, st.integers(-(2**63), 2**63 - 1), lambda v: struct.pack("<q", v)
    ),
    Kind(ColumnType(types.LONG), "int unsigned", 4, 4, st.integers(0, 2**31 - 1), lambda v: struct.pack("<I", v)),
    Kind(ColumnType(types.LONG), "int unsigned", -5, 4, st.integers(2**31, 2**32 - 1), lambda v: struct.pack("<I", v)),
    Kind(
        ColumnType(types.LONGLONG),
        "bigint(20) unsigned",
        3,
        -5,
        st.integers(2**63, 2**64 - 1),
        lambda v: struct.pack("<Q", v),
    ),
    Kind(ColumnType(types.TINY), "tinyint unsigned", 5, -6, st.integers(128, 255), lambda v: bytes([v])),
    Kind(
        ColumnType(types.VARCHAR, struct.pack("<H", 400)),
        "varchar(100)",
        12,
        12,
        st.text(max_size=100),
        lambda v: _blob(2)(v.encode()),
    ),
    Kind(ColumnType(types.STRING, b"\xfe\x28"), "char(10)", 1, 1, st.text(max_size=10), lambda v: _blob(1)(v.encode())),
    Kind(
        ColumnType(types.VARCHAR, struct.pack("<H", 300)),
        "varbinary(300)",
        2004,
        2004,
        st.binary(max_size=300),
        _blob(2),
        _latin1,
    ),
    Kind(
        ColumnType(types.BLOB, b"\3"),
        "mediumtext",
        2005,
        2005,
        st.text(max_size=20) | st.just("long " * 4000),
        lambda v: _blob(3)(v.encode()),
    ),
    Kind(
        ColumnType(types.BLOB, b"\2"),
        "blob",
        2004,
        2004,
        st.binary(max_size=20),
        _blob(2),
        _latin1,
    ),
    Kind(ColumnType(types.STRING, b"\xf7\x01"), "enum('a','b')", 4, 4, st.integers(0, 2), lambda v: bytes([v])),
    Kind(
        ColumnType(types.STRING, b"\xf8\x02"),
        "set('a','b')",
        -7,
        2004,
        st.integers(0, 65535),
        lambda v: struct.pack("<H", v),
    ),
    Kind(ColumnType(types.BIT, b"\1\1"), "bit(9)", -7, -7, st.integers(0, 511), lambda v: struct.pack(">H", v)),
    Kind(ColumnType(types.YEAR), "year", 12, 12, st.integers(1901, 2155), lambda v: bytes([v - 1900])),
    Kind(
        ColumnType(types.DATE),
        "date",
        91,
        91,
        st.dates(),
        lambda v: (v.year << 9 | v.month << 5 | v.day).to_bytes(3, "little"),
    ),
    # ---- the other widths of unsigned numbers, below and above the middle of the range
    Kind(ColumnType(types.TINY), "tinyint unsigned", -6, -6, st.integers(0, 127), lambda v: bytes([v])),
    Kind(ColumnType(types.SHORT), "smallint unsigned", 5, 5, st.integers(0, 2**15 - 1), lambda v: struct.pack("<H", v)),
    Kind(
        ColumnType(types.SHORT),
        "smallint unsigned",
        4,
        5,
        st.integers(2**15, 2**16 - 1),
        lambda v: struct.pack("<H", v),
    ),
    Kind(
        ColumnType(types.INT24),
        "mediumint unsigned",
        4,
        4,
        st.integers(0, 2**24 - 1),
        lambda v: v.to_bytes(3, "little"),
    ),
    Kind(
        ColumnType(types.LONGLONG), "bigint unsigned", -5, -5, st.integers(0, 2**63 - 1), lambda v: struct.pack("<Q", v)
    ),
    # ---- fractional numbers
    Kind(
        ColumnType(types.NEWDECIMAL, b"\x0e\x04"),
        "decimal(14,4)",
        3,
        3,
        st.integers(1 - 10**14, 10**14 - 1),
        decimal_bytes,
        decimal_text,
    ),
    Kind(ColumnType(types.FLOAT, b"\4"), "float", 7, 7, QUARTERS, lambda v: struct.pack("<f", v)),
    Kind(ColumnType(types.DOUBLE, b"\x08"), "double", 8, 8, QUARTERS, lambda v: struct.pack("<d", v)),
    # ---- longer and binary texts
    Kind(
        ColumnType(types.STRING, b"\xee\x90"), "char(100)", 1, 1, st.text(max_size=100), lambda v: _blob(2)(v.encode())
    ),
    Kind(ColumnType(types.STRING, b"\xfe\x10"), "binary(16)", 2004, 2004, st.binary(max_size=16), _blob(1), _latin1),
    Kind(
        ColumnType(types.VARCHAR, b"\x28\0"),
        "varchar(10)",
        12,
        12,
        st.text(max_size=10),
        lambda v: _blob(1)(v.encode()),
    ),
    Kind(ColumnType(types.BLOB, b"\1"), "tinytext", 2005, 2005, st.text(max_size=60), lambda v: _blob(1)(v.encode())),
    Kind(ColumnType(types.BLOB, b"\4"), "longtext", 2005, 2005, st.text(max_size=60), lambda v: _blob(4)(v.encode())),
    Kind(ColumnType(types.BLOB, b"\4"), "json", 2005, 2005, st.text(max_size=60), lambda v: _blob(4)(v.encode())),
    Kind(ColumnType(types.BLOB, b"\1"), "tinyblob", 2004, 2004, st.binary(max_size=255), _blob(1), _latin1),
    Kind(ColumnType(types.BLOB, b"\4"), "longblob", 2004, 2004, st.binary(max_size=300), _blob(4), _latin1),
    Kind(ColumnType(types.GEOMETRY, b"\4"), "geometry", 2004, 2004, st.binary(max_size=50), _blob(4), _latin1),
    Kind(
        ColumnType(types.VECTOR, b"\4"), "vector(4)", 2004, 2004, st.binary(min_size=16, max_size=16), _blob(4), _latin1
    ),
    Kind(
        ColumnType(types.VARCHAR_COMPRESSED, b"\xf4\1"),
        "varchar(500)",
        12,
        12,
        st.text(max_size=50),
        lambda v: _blob(2)(squeezed(v.encode())),
    ),
    Kind(
        ColumnType(types.BLOB_COMPRESSED, b"\2"),
        "blob",
        2004,
        2004,
        st.binary(max_size=90),
        lambda v: _blob(2)(squeezed(v)),
        _latin1,
    ),
    # ---- sets of bits and labels
    Kind(
        ColumnType(types.STRING, b"\xf7\x02"), "enum('a')", 4, 4, st.integers(0, 65535), lambda v: struct.pack("<H", v)
    ),
    Kind(
        ColumnType(types.STRING, b"\xf8\x08"),
        "set('a')",
        -7,
        2004,
        st.integers(0, 2**64 - 1),
        lambda v: struct.pack("<Q", v),
    ),
    Kind(
        ColumnType(types.BIT, b"\0\x08"), "bit(64)", -7, -7, st.integers(0, 2**64 - 1), lambda v: struct.pack(">Q", v)
    ),
    # ---- JSON of MySQL
    Kind(ColumnType(types.JSON, b"\4"), "json", 12, 1111, JSON_VALUES, lambda v: _blob(4)(json_bytes(v)), json_text),
    # ---- times, in the formats since MySQL 5.6 and before it
    *(
        Kind(
            ColumnType(types.DATETIME2, bytes([f])), f"datetime({f})", 93, 93, st.datetimes(), _datetime2(f), _moment(f)
        )
        for f in range(7)
    ),
    *(
        Kind(
            ColumnType(types.TIMESTAMP2, bytes([f])),
            f"timestamp({f})",
            93,
            93,
            SECONDS_OF_32_BITS,
            _timestamp2(f),
            _moment(f),
        )
        for f in range(7)
    ),
    *(
        Kind(ColumnType(types.TIME2, bytes([f])), f"time({f})", 92, 92, MICROSECONDS, _time2(f), _duration(f))
        for f in range(7)
    ),
    Kind(
        ColumnType(types.DATETIME),
        "datetime",
        93,
        93,
        st.datetimes(),
        lambda v: struct.pack("<Q", int(f"{v:%m%d%H%M%S}") + v.year * 10**10),
        _moment(0),
    ),
    Kind(
        ColumnType(types.TIMESTAMP),
        "timestamp",
        93,
        93,
        SECONDS_OF_32_BITS,
        lambda v: struct.pack("<I", _seconds(v)),
        _moment(0),
    ),
    Kind(ColumnType(types.DATE), "date", 91, 91, st.just(0), lambda v: bytes(3), lambda v: "0000-00-00"),
]


def random_decimal(chance: random.Random, precision: int, decimals: int) -> bytes:
    """Return a random packed DECIMAL with these digits, many of them zero."""
    groups: list[int] = []
    whole = precision - decimals
    for digits in (whole % 9, *[9] * (whole // 9), *[9] * (decimals // 9), decimals % 9):
        if digits:
            groups += [digits]
    raw = b"".join(
        chance.choice((0, 1, 10**digits - 1, chance.randrange(10**digits))).to_bytes(
            (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[digits], "big"
        )
        for digits in groups
    )
    if chance.random() < 0.5:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]
