"""Maps a column's mysqlType to an Arrow type, and canal's texts to values of that type.

    tinyint, smallint, mediumint, int, bigint    int8, int16, int32, int32, int64; unsigned: one step wider,
                                                 bigint unsigned: decimal128(20,0)
    decimal(p,s)                                 decimal128(p,s); string when p > 38
    float, double                                float32, float64
    bit(n)                                       bool when n = 1, int64, decimal128(20,0) when n = 64
    date                                         date32
    datetime, timestamp                          timestamp[us], timestamp[us, UTC]
    time, enum, set, json, char, text, ...       string; enum and set as their labels
    year                                         int32
    binary, varbinary, blob, geometry, vector    binary; binary(n) padded to n, as the binlog omits padding

A date that is no day (0000-00-00, 2020-00-00, 2023-02-31) is NULL if the target is a date or timestamp; a target of
type string keeps its text. A partial JSON update that the server could not apply is refused.

The kernel fills most columns itself (see `target_of`); this module converts the texts of the others. Pure.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.columns import Target
from canal_ha.decode.kernel.layouts import BINARY_TYPES, UTC_TYPE
from canal_ha.decode.labels import labelled, labels_of
from canal_ha.errors import SinkRefused

_TEXT = re.compile(
    r"\s*([a-z_][\w ]*?)\s*(?:\((.*)\))?\s*((?:unsigned|zerofill|signed|\s)*)", re.IGNORECASE | re.DOTALL
)
_CALL = "JSON_"  # of JSON_REPLACE(...) and others; no document begins so
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_INTEGERS = {  # name -> Arrow type signed, unsigned
    1: (pa.int8(), pa.int16()),
    2: (pa.int16(), pa.int32()),
    3: (pa.int32(), pa.int32()),
    4: (pa.int32(), pa.int64()),
    8: (pa.int64(), pa.decimal128(20, 0)),
}
_WIDTHS = {
    "tinyint": 1,
    "int1": 1,
    "bool": 1,
    "boolean": 1,
    "smallint": 2,
    "int2": 2,
    "mediumint": 3,
    "middleint": 3,
    "int3": 3,
    "int": 4,
    "integer": 4,
    "int4": 4,
    "bigint": 8,
    "int8": 8,
    "serial": 8,
}
_DECIMALS = frozenset({"decimal", "dec", "numeric", "fixed"})
_DOUBLES = frozenset({"double", "double precision", "real", "float8"})
_TEXTS = frozenset(
    {"char", "character", "nchar", "national char", "national character", "tinytext", "text", "mediumtext", "longtext"}
    | {"varchar", "varcharacter", "nvarchar", "varchar2", "national varchar", "character varying", "char varying"}
    | {"long", "long varchar", "clob"}
)
_BINARIES = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", "raw"}
    | {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection", "geomcollection"}
)
NTZ = pa.timestamp("us")
UTC = pa.timestamp("us", tz="UTC")
MAX_PRECISION = 38  # of Arrow's, Spark's and Delta's decimals
_EXACT = frozenset({"integer", "decimal", "bit", "year"})  # families whose texts have no exponent
_NUMBERS = _EXACT | {"float", "double"}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column.

    text: mysqlType as declared.
    name: the family of types, in lower case.
    arrow: the Arrow type.
    size: n of binary(n), else 0.
    labels: of enum and set.
    utc: texts of a timestamp are in UTC, whatever the zone of the server process (docs/protocol.md#exact).
    """

    text: str
    name: str
    arrow: pa.DataType
    size: int = 0
    labels: tuple[str, ...] = ()
    utc: bool = False


@lru_cache(maxsize=8192)
def column_type(mysql_type: str, sql_type: int) -> ColumnType:
    """Parse a mysqlType text. sql_type: java.sql.Types code; decides if the text is unknown."""
    found = _TEXT.fullmatch(mysql_type)
    if not found:
        return ColumnType(mysql_type, "unknown", pa.binary() if sql_type in BINARY_TYPES else pa.string())
    name = " ".join(found[1].lower().split())
    arguments = found[2] or ""
    unsigned = "unsigned" in found[3].lower() or "zerofill" in found[3].lower() or name == "serial"
    numbers = [int(item) for item in re.findall(r"\d+", arguments)] if name not in ("enum", "set") else []
    if name in _WIDTHS:
        return ColumnType(mysql_type, "integer", _INTEGERS[_WIDTHS[name]][unsigned])
    if name in _DECIMALS:
        precision, scale = precision_of(numbers)
        fits = precision <= MAX_PRECISION >= scale
        return ColumnType(mysql_type, "decimal", pa.decimal128(precision, scale) if fits else pa.string())
    if name in _DOUBLES:
        return ColumnType(mysql_type, "double", pa.float64())
    if name in ("float", "float4"):
        double = len(numbers) == 1 and numbers[0] > 24
        return ColumnType(mysql_type, "float", pa.float64() if double else pa.float32())
    if name == "bit":
        bits = (numbers[0] if numbers else 0) or 1
        kind = pa.bool_() if bits == 1 else pa.int64() if bits < 64 else pa.decimal128(20, 0)
        return ColumnType(mysql_type, "bit", kind)
    if name in ("date", "datetime", "timestamp", "time", "year"):
        kinds = {"date": pa.date32(), "datetime": NTZ, "timestamp": UTC, "time": pa.string(), "year": pa.int32()}
        return ColumnType(mysql_type, name, kinds[name], utc=sql_type == UTC_TYPE)
    if name in ("enum", "set"):
        return ColumnType(mysql_type, name, pa.string(), labels=labels_of(mysql_type))
    if name in _BINARIES:
        size = (numbers or [1])[0] if name == "binary" else 0
        return ColumnType(mysql_type, name, pa.binary(), size=size)
    if name == "json" or name in _TEXTS:
        # canal sends some texts byte by byte, like blobs, if it does not recognise their declaration
        family = "json" if name == "json" else "text"
        return ColumnType(mysql_type, "latin text" if sql_type in BINARY_TYPES else family, pa.string())
    return ColumnType(mysql_type, "unknown", pa.binary() if sql_type in BINARY_TYPES else pa.string())


def precision_of(numbers: Sequence[int]) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL. numbers: those that are declared; a precision of 0 is the default."""
    precision, scale = (*numbers, *(0, 0)[len(numbers) :])[:2]
    return precision or 10, scale


def decimals_of(column: ColumnType) -> int:
    """Return how many digits of a second's fraction the texts of a datetime or timestamp have."""
    return int((re.findall(r"\d", column.text) or ["0"])[0])


def to_arrow(texts: Sequence[str | None], column: ColumnType, target: pa.DataType, time_zone: str) -> pa.Array:
    """Convert canal's texts to the target type. Raises SinkRefused for a value that does not fit."""
    return values_of(pa.array(texts, pa.string()), column, target, time_zone)


def values_of(texts: pa.Array, column: ColumnType, target: pa.DataType, time_zone: str) -> pa.Array:
    """Convert a string array like `to_arrow`."""
    try:
        return _values(texts, column, target, time_zone)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, UnicodeError) as error:
        raise refusal(column, target, str(error)) from error


def refusal(column: ColumnType, target: pa.DataType, why: str) -> SinkRefused:
    """Return the error for a value that does not fit."""
    return SinkRefused(f"canal: values of type {column.text} do not fit into {target}: {why}")


def target_of(column: ColumnType, wanted: pa.DataType) -> Target:
    """Return the kernel's target for a column, which `finished` turns into the wanted type."""
    types = pa.types
    exact, number = column.name in _EXACT, column.name in _NUMBERS
    if exact and types.is_signed_integer(wanted):
        return Target(codes.INTEGER, wanted.bit_width // 8)
    if exact and types.is_decimal128(wanted):
        return Target(codes.DECIMAL, 0, wanted.precision, wanted.scale)
    if number and types.is_float64(wanted):
        return Target(codes.DOUBLE)
    if number and types.is_float32(wanted):
        return Target(codes.SINGLE)
    if column.name == "bit" and types.is_boolean(wanted):
        return Target(codes.BOOLEAN)
    if column.name == "date" and types.is_date32(wanted):
        return Target(codes.DAY)
    if column.name in ("datetime", "timestamp") and types.is_timestamp(wanted) and wanted.unit == "us":
        return Target(codes.INSTANT)
    if types.is_binary(column.arrow) and types.is_binary(wanted):
        return Target(codes.BINARY, column.size)
    return Target(codes.TEXT)


def finished(target: Target, column: ColumnType, wanted: pa.DataType, time_zone: str) -> pa.Array:
    """Return a filled target as an array of the wanted type. Raises SinkRefused."""
    if is_stored(target, column, wanted, time_zone):
        return wrapped(target, wanted)
    if target.format == codes.INSTANT:
        return _instants(wrapped(target, NTZ), column, wanted, time_zone)
    if target.format == codes.BOOLEAN:
        return wrapped(target, pa.int8()).cast(wanted)
    return values_of(wrapped(target, pa.string()), column, wanted, time_zone)


def is_stored(target: Target, column: ColumnType, wanted: pa.DataType, time_zone: str) -> bool:
    """Return whether the buffers of a filled target hold the values of the wanted type, whatever the values are."""
    types = pa.types
    if target.format == codes.INSTANT:
        return wanted.tz is None or (wanted.tz == "UTC" and _zone(column, time_zone) == "UTC")
    if target.format == codes.TEXT:
        own = not column.labels and column.name not in ("latin text", "json")
        return bool(types.is_string(wanted) and (own or types.is_binary(column.arrow)))
    return target.format != codes.BOOLEAN


def strings(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array. pa.array() would import pandas if installed, which is slower than many batches."""
    return wrapped(texts_of(texts), pa.string())


def texts_of(texts: Sequence[str]) -> Target:
    """Return texts as a target of the kernel."""
    target = Target(codes.TEXT)
    for text in texts:
        raw = text.encode()
        target.put(raw, 0, len(raw))
    return target


def wrapped(target: Target, kind: pa.DataType) -> pa.Array:
    """Return a target's buffers as an array without a copy; the target must not be filled any more."""
    validity = pa.py_buffer(target.validity) if target.nulls else None
    buffers = [validity, pa.py_buffer(target.data)]
    if target.size == 0:
        buffers.insert(1, pa.py_buffer(target.offsets))
    return pa.Array.from_buffers(kind, target.count, buffers, target.nulls)


def plain(text: str | None, column: ColumnType) -> str | bytes | None:
    """Convert one value without a target type: bytes for binary columns, labels for enum and set, else canal's text.

    Raises SinkRefused for a partial JSON update, and for a number that no label has.
    """
    if text is None:
        return None
    if column.name == "json" and text.startswith(_CALL):
        raise refusal(column, column.arrow, str(_partial(text)))
    if pa.types.is_binary(column.arrow):
        return text.encode("latin-1").ljust(column.size, b"\0")
    if column.name == "latin text":
        return text.encode("latin-1").decode(errors="replace")
    if column.labels:
        try:
            return labelled(int(text), column.labels, several=column.name == "set")
        except ValueError as error:
            raise refusal(column, column.arrow, str(error)) from error
    return text


def _values(texts: pa.Array, column: ColumnType, target: pa.DataType, time_zone: str) -> pa.Array:
    if pa.types.is_string(target) and pa.types.is_binary(column.arrow):
        return texts
    if pa.types.is_binary(column.arrow) or column.labels or column.name == "latin text":
        different = texts.dictionary_encode()
        values = pa.array([plain(text, column) for text in different.dictionary.to_pylist()], column.arrow)
        return values.take(different.indices).cast(target)
    if column.name == "json":
        _check_documents(texts)
    if pa.types.is_string(target):
        return texts
    if pa.types.is_boolean(target):
        from pyarrow import compute  # which takes 0.1 s to import, like every other import here in a function

        return compute.not_equal(texts, "0")
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        return _temporal(texts, column, target, time_zone)
    return texts.cast(target)


def _check_documents(texts: pa.Array) -> None:
    """Raise ValueError if one of the texts is a partial update."""
    from pyarrow import compute

    calls = compute.fill_null(compute.starts_with(texts, _CALL), False)
    if compute.any(calls).as_py():
        raise _partial(texts.filter(calls)[0].as_py())


def _partial(call: str) -> ValueError:
    """Return the error for a partial update: function calls stand where a document is."""
    return ValueError(
        f"{call[:80]!r} is a partial update without the document before it;"
        " set binlog_row_image=FULL or binlog_row_value_options='' on the source"
    )


def _temporal(texts: pa.Array, column: ColumnType, target: pa.DataType, time_zone: str) -> pa.Array:
    from pyarrow import compute

    days = compute.utf8_slice_codeunits(texts, 0, 10)
    no_days = [day for day in days.unique().to_pylist() if day is not None and _is_no_day(day)]
    dates = compute.if_else(compute.is_in(days, pa.array(no_days, pa.string())), pa.scalar(None, pa.string()), texts)
    if pa.types.is_date(target):
        return compute.utf8_slice_codeunits(dates, 0, 10).cast(target)
    return _instants(dates.cast(NTZ), column, target, time_zone)


def _is_no_day(text: str) -> bool:
    """Return whether MySQL stores this date, with zeros or ALLOW_INVALID_DATES, and no calendar has it."""
    found = _DAY.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    if not (year and month and day):
        return True
    return month <= 12 and day <= 31 and day > monthrange(year, month)[1]


def _instants(local: pa.Array, column: ColumnType, target: pa.DataType, time_zone: str) -> pa.Array:
    if target.tz is None:
        return local.cast(target)
    zone = _zone(column, time_zone)
    from pyarrow import compute

    instants = compute.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    return instants.cast(target)


def _zone(column: ColumnType, time_zone: str) -> str:
    """Return the time zone of the column's texts."""
    return time_zone if column.name == "timestamp" and not column.utc else "UTC"
