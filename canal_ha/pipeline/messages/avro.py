"""Writes Debezium's envelope as Avro in Confluent's wire format: a zero byte, the id of the schema, the datum.

The id has four bytes, the highest first.

Types of columns, all of them nullable; names are those of Debezium's logical types:

    integers up to INT, year     int          BIGINT UNSIGNED, DECIMAL   bytes, logicalType decimal
    INT UNSIGNED, BIGINT         long         FLOAT, DOUBLE              float, double
    bit(1)                       boolean      bit(n), binary types       bytes
    date                         int, days    datetime, time             long, see debezium_values
    timestamp                    string       everything else            string

Characters that Avro does not allow in a name become `_`, those beyond ASCII `_u` with their number. The subjects are
TOPIC-key and TOPIC-value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

from canal_ha.client.arrow_types import ColumnType, decimals_of, plain
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.envelopes import ColumnForm, Envelopes, Pieces
from canal_ha.errors import SinkRefused
from canal_ha.model.entry import EventType
from canal_ha.pipeline.messages.debezium_json import debezium_source
from canal_ha.pipeline.messages.debezium_values import bits_of, in_utc, value
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.messages.row_changes import RowOperations
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry

Register = Callable[[str, str], int]
"""A subject, a schema's text -> the id of the schema. Raises SinkRefused and TargetUnavailable."""

_DECIMALS = frozenset({"decimal", "dec", "numeric", "fixed"})
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")
_FORMS = {
    "text": codes.TEXT,
    "json": codes.DOCUMENT,
    "date": codes.DAY,
    "datetime": codes.INSTANT,
    "time": codes.CLOCK,
}
_SOURCE: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.mysql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": "string"},
        {"name": "db", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "server_id", "type": "long"},
        {"name": "gtid", "type": ["null", "string"], "default": None},
        {"name": "file", "type": "string"},
        {"name": "pos", "type": "long"},
        {"name": "row", "type": "int"},
    ],
}
_SOURCE_WRITTEN = parse_schema(_SOURCE)
_LONG_OR_NULL = parse_schema(["null", "long"])
_NULL, _PRESENT = b"\x00", b"\x02"  # the branches of a union with null


class _Column(NamedTuple):
    """A column of a schema. name: in Avro. avro: its type. key: it is part of the key. form: of its values."""

    name: str
    avro: Any
    key: bool
    form: ColumnForm


class _Schemas(NamedTuple):
    """The schemas of a table, as long as its columns stay the same. pieces: with the schemas' ids."""

    pieces: Pieces
    forms: list[ColumnForm]


class Avro:
    """The format `avro`. Statements are no messages: their columns show in the next schema."""

    statements_apart = True
    exact = True

    def __init__(
        self, keys: Mapping[str, Sequence[str]], time_zone: str, register: Register, *, tombstones: bool
    ) -> None:
        """Begin.

        keys: `schema.table` -> key columns of tables without a primary key.
        time_zone: of TIMESTAMP texts that are not in UTC.
        register: the schema registry.
        tombstones: whether one follows a delete.
        """
        self._keys = keys
        self._time_zone = time_zone
        self._register = register
        self._tombstones = tombstones
        self._known: dict[tuple[Any, ...], _Schemas] = {}

    def records(
        self, entry: RowEntry, topic: str, placement: Placement, origin: MessageOrigin
    ) -> Iterator[QueueMessage]:
        """See MessageFormat. Raises SinkRefused for rows without all columns."""
        if not entry.rows:
            return iter(())
        changes = RowOperations(entry, self._keys)
        columns = changes.columns
        different = entry.event == EventType.UPDATE and changes.before.names != columns.names
        if entry.partial or columns.partial or different:
            raise SinkRefused(
                f"canal: {entry.schema}.{entry.table}: the binlog omits columns of a row, and Avro needs all: set"
                " binlog_row_image=FULL, and remove filters and privacy rules that drop its columns"
            )
        place = placement.placing(entry.schema, entry.table, changes.keys)
        changes.keys = [name for name in columns.names if name in changes.keys]  # the order of the schema's fields
        schemas = self._schemas(entry, topic, changes.keys, columns)
        source = _encoded(_SOURCE_WRITTEN, {**debezium_source(entry, origin), "row": 0})[:-1]
        end = _encoded(_LONG_OR_NULL, origin.now_ms)
        made = Envelopes(changes.shape(schemas.pieces, lambda _: schemas.forms), source, end, self._tombstones)
        return changes.messages(made, place)

    def _schemas(self, entry: RowEntry, topic: str, keys: Sequence[str], columns: ImageColumns) -> _Schemas:
        found: _Schemas | None = columns.made.get(topic)
        if found is None:
            shape = tuple((kind.text, kind.utc) for kind in columns.kinds)
            known = (topic, entry.schema, entry.table, tuple(keys), tuple(columns.names), shape)
            found = self._known.get(known)
            if found is None:
                found = self._known[known] = self._made(entry, topic, keys, columns)
            columns.made[topic] = found
        return found

    def _made(self, entry: RowEntry, topic: str, keys: Sequence[str], columns: ImageColumns) -> _Schemas:
        table = f"{entry.schema}.{entry.table}"
        made = [
            _Column(_name(name), avro := _avro_type(kind), name in keys, self._form(kind, avro))
            for name, kind in zip(columns.names, columns.kinds, strict=True)
        ]
        names = [column.name for column in made]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SinkRefused(f"canal: {table}: two columns have the name {twice} in Avro: rename one of them")
        namespace = ".".join(map(_name, (entry.schema, entry.table)))
        row = {"type": "record", "name": "Value", "fields": [_field(column) for column in made]}
        envelope = {
            "type": "record",
            "name": "Envelope",
            "namespace": namespace,
            "fields": [
                {"name": "before", "type": ["null", row], "default": None},
                {"name": "after", "type": ["null", "Value"], "default": None},
                {"name": "source", "type": _SOURCE},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"], "default": None},
            ],
        }
        key = {
            "type": "record",
            "name": "Key",
            "namespace": namespace,
            "fields": [_field(column) for column in made if column.key],
        }
        pieces = Pieces(
            avro=True,
            key=self._registered(f"{topic}-key", key) if keys else b"",
            start=self._registered(f"{topic}-value", envelope),
            absent=_NULL,
            image=_PRESENT,
            image_end=b"",
            between=b"",
            row_end=b"\x02",  # the size of `op`, one byte
            key_end=b"",
        )
        return _Schemas(pieces, [column.form for column in made])

    def _registered(self, subject: str, schema: dict[str, Any]) -> bytes:
        """Return what stands before a datum."""
        number = self._register(subject, json.dumps(schema, separators=(",", ":")))
        parse_schema(schema)
        return b"\0" + number.to_bytes(4, "big")

    def _form(self, kind: ColumnType, avro: Any) -> ColumnForm:
        read = self._reader(kind, avro)
        nullable = parse_schema(["null", avro])
        form, size, scale = _FORMS.get(kind.name, codes.OTHER), 0, 0
        if avro == "bytes" and kind.name != "bit":
            form, size = codes.BINARY, kind.size
        elif isinstance(avro, dict) and "logicalType" in avro:
            form, size, scale = codes.DECIMAL, avro["precision"], avro.get("scale", 0)
        elif avro in ("int", "long") or kind.name == "year":
            form, size = codes.INTEGER, 8 if avro == "long" else 4
        elif avro in ("boolean", "float", "double"):
            form = {"boolean": codes.BOOLEAN, "float": codes.SINGLE, "double": codes.DOUBLE}[avro]
        elif kind.name == "timestamp" and (kind.utc or self._time_zone == "UTC"):
            form = codes.ZONED
        return ColumnForm(form, _PRESENT, _NULL, lambda text: _encoded(nullable, read(text)), size, scale)

    def _reader(self, kind: ColumnType, avro: Any) -> Callable[[str], Any]:
        """Return what makes Avro's values of a column's texts."""
        if avro == "bytes":
            size = (bits_of(kind) + 7) // 8
            return lambda text: int(text).to_bytes(size, "little") if kind.name == "bit" else plain(text, kind)
        if isinstance(avro, dict) and "logicalType" in avro:
            return Decimal
        if kind.name == "timestamp" and not kind.utc:
            return lambda text: value(in_utc(text, self._time_zone), kind)
        return lambda text: value(text, kind)


def _encoded(schema: Any, body: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, schema, body)
    return out.getvalue()


def _name(text: str) -> str:
    name = _ILLEGAL.sub(lambda found: "_" if found[0].isascii() else f"_u{ord(found[0]):04x}", text)
    return f"_{name}" if not name or name[0].isdigit() else name


def _field(column: _Column) -> dict[str, Any]:
    return {"name": column.name, "type": ["null", column.avro], "default": None}


def _avro_type(kind: ColumnType) -> Any:
    types = pa.types
    match kind.name:
        case "bit":
            return "boolean" if types.is_boolean(kind.arrow) else "bytes"
        case "date":
            return {"type": "int", "connect.name": "io.debezium.time.Date"}
        case "datetime":
            clock = "MicroTimestamp" if decimals_of(kind) > 3 else "Timestamp"
            return {"type": "long", "connect.name": f"io.debezium.time.{clock}"}
        case "timestamp":
            return {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}
        case "time":
            return {"type": "long", "connect.name": "io.debezium.time.MicroTime"}
        case "year":
            return {"type": "int", "connect.name": "io.debezium.time.Year"}
        case "json":
            return {"type": "string", "connect.name": "io.debezium.data.Json"}
        case "enum" | "set":
            logical = "Enum" if kind.name == "enum" else "EnumSet"
            return {"type": "string", "connect.name": f"io.debezium.data.{logical}"}
    if kind.name in _DECIMALS or types.is_decimal(kind.arrow):  # Arrow has no decimals of more than 38 digits
        numbers = [int(number) for number in re.findall(r"\d+", kind.text)]
        known = (kind.arrow.precision, kind.arrow.scale) if types.is_decimal(kind.arrow) else numbers
        size = dict(zip(("precision", "scale"), known, strict=False))
        return {"type": "bytes", "logicalType": "decimal", **size}
    if types.is_integer(kind.arrow):
        return "int" if kind.arrow.bit_width <= 32 else "long"
    if types.is_floating(kind.arrow):
        return "float" if types.is_float32(kind.arrow) else "double"
    return "bytes" if types.is_binary(kind.arrow) else "string"
