"""The Columns of existing rows equal those of the binlog's INSERTs of the same rows, byte for byte.

Each test copies the rows of a table into another one with INSERT ... SELECT, and compares what the ordinary decoder
makes of the binlog with what it makes of a SELECT's rows.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.definitions import columns_of
from canal_ha.decode.history.history import History
from canal_ha.model.entry import SNAPSHOT_PROP
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.model.table import TableSchema
from canal_ha.source.connection.flavor import flavor
from canal_ha.source.snapshot.table import SESSION, SnapshotTable
from canal_ha.source.snapshot.transaction import SnapshotTransactions
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from lab import MariaDB, MySQL, SqlServer
from lab.golden import DIRECTORY
from lab.result_set import raw_rows
from tests.source.snapshot.every_type import GROUPS, Group

pytestmark = pytest.mark.real

Columns = list[bytes]
SERVERS: tuple[type[SqlServer], ...] = (MySQL, MariaDB)
TAGS = {"mysql": "mysql9", "mariadb": "mariadb10.11"}
COPY = "copied"
TIME_MS = 1_700_000_000_000

# The text of a JSON document does not tell all types of its values, see binary_json.
_DATES = "a DATE, or a zero TIME or DATETIME, in JSON is a string in the text; canal's form shows it in another way"
_BYTES = "a string that looks like MySQL's text of bytes in JSON is read as such bytes"
_DECIMALS = "a DECIMAL in JSON that MySQL writes like a DOUBLE is read as one; Java writes it in another way"
UNEQUAL = {
    ("t_json", "canal"): _DATES,
    ("dates_in_json", "canal"): _DATES,
    ("bytes_in_json", "canal"): _BYTES,
    ("decimals_in_json", "canal"): _DECIMALS,
    ("decimals_in_json", "exact"): _DECIMALS,
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """Yield a server of its own, whose binlog is one short file."""
    with request.param() as started:
        started.execute("CREATE DATABASE s CHARACTER SET utf8mb4")
        yield started


class Copies:
    """The rows of tables, as a server's binlog and its SELECTs tell them."""

    def __init__(self, server: SqlServer) -> None:
        self.server = server
        self.flavor = flavor(
            {str(row["Variable_name"]): str(row["Value"]) for row in server.query("SHOW GLOBAL VARIABLES")}
        )

    def definition(self, schema: str, table: str) -> str | None:
        """Return SHOW CREATE TABLE; None for a view."""
        hidden = not self.flavor.mariadb and self.flavor.number >= (8, 0, 30)
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', sql_quote_show_create = 1")
            if hidden:
                cursor.execute("SET SESSION show_gipk_in_create_table_and_information_schema = ON")
            cursor.execute(f"SHOW CREATE TABLE `{schema}`.`{table}`")
            text = str(cursor.fetchone()[1])
        return text if text.startswith("CREATE TABLE") else None

    def decoder(self, journal: str, offset: int, history: History, *, exact: bool) -> Decoder:
        """Return an ordinary decoder."""
        return Decoder(
            source=Source("localhost", 3306),
            journal=journal,
            position=offset,
            options=DecodeOptions(),
            tables=TableFilter(r".*\..*", ""),
            fields=FieldFilter("", ""),
            history=history.view(None),
            exact=exact,
        )

    def written(self, since: LogPosition, history: History, *, exact: bool) -> list[Segment]:
        """Return what the binlog has from a position on."""
        data = (self.server.data / since.journal).read_bytes()
        format_end = 4 + struct.unpack_from("<I", data, 4 + 9)[0]
        decoder = self.decoder(since.journal, 4, history, exact=exact)
        outputs = decoder.feed_file(data[:format_end] + data[since.offset :])
        return [output for output in outputs if isinstance(output, Segment)]

    def table(self, schema: str, table: str) -> SnapshotTable:
        """Return what to ask of a table that need not have a key."""
        definition = self.definition(schema, table)
        assert definition is not None
        columns = columns_of(definition)
        return SnapshotTable(TableSchema(schema, table, columns), self.flavor, [columns[0].name])

    def selected(self, table: SnapshotTable) -> bytes:
        """Return the rows of a table, as packets."""
        with self.server.connect() as connection:
            connection.cursor().execute(SESSION)
            name = f"`{table.schema.schema}`.`{table.schema.name}`"
            return raw_rows(connection, f"SELECT {table.select_list} FROM {name}")

    def copy(self, schema: str, table: str) -> LogPosition:
        """Copy the rows of a table; return the position before that."""
        with self.server.connect(database=schema, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
            cursor.execute(f"DROP TABLE IF EXISTS {COPY}")
            cursor.execute(f"CREATE TABLE {COPY} LIKE `{table}`")
            cursor.execute(f"SHOW COLUMNS FROM {COPY}")
            columns = [row[0].replace("`", "``") for row in cursor.fetchall() if not row[5].endswith(" GENERATED")]
            names = ", ".join(f"`{name}`" for name in columns)
            journal, offset = self.server.position()
            cursor.execute(f"INSERT INTO {COPY} ({names}) SELECT {names} FROM `{table}`")
        return LogPosition(journal, offset, TIME_MS, 7)

    def read(self, table: SnapshotTable, at: LogPosition, history: History, *, exact: bool) -> SnapshotTransactions:
        """Return what makes segments of a table's rows."""
        return SnapshotTransactions(
            table, "snapshot", lambda place: self.decoder(place.journal, place.offset, history, exact=exact)
        )

    def differences(self, schema: str, table: str) -> Iterator[str]:
        """Yield how the rows of a copy differ, in each form, at most one column a form."""
        since = self.copy(schema, table)
        copied = self.table(schema, COPY)
        packets = self.selected(copied)
        count = len(list(self.server.query(f"SELECT 1 FROM `{schema}`.`{table}`")))
        history = History(self.definition)
        for form in ("canal", "exact"):
            expected = sorted(inserted(self.written(since, history, exact=form == "exact")))
            segment = self.read(copied, since, history, exact=form == "exact").segment(packets, since)
            made = sorted(inserted([segment] if segment is not None else []))
            assert len(expected) == count
            if (made == expected) == (not self.flavor.mariadb and (table, form) in UNEQUAL):
                yield f"{table}, {form}: {first_difference(made, expected)}"
            if segment is not None:
                check_shape(segment, since, count)


def inserted(segments: list[Segment]) -> Iterator[Columns]:
    """Yield the serialized Columns of each inserted row of the copy."""
    for segment in segments:
        for raw in segment.entries():
            one = entry.Entry.FromString(raw)
            if one.entryType == entry.ROWDATA and one.header.tableName == COPY:
                change = entry.RowChange.FromString(one.storeValue)
                if not change.isDdl and not change.sql:
                    for row in change.rowDatas:
                        yield [column.SerializeToString() for column in row.afterColumns]


def first_difference(made: list[Columns], expected: list[Columns]) -> str:
    """Return the first columns that differ."""
    for ours, theirs in zip(made, expected, strict=True):
        for got, wanted in zip(ours, theirs, strict=True):
            if got != wanted:
                return f"{entry.Column.FromString(got)} instead of {entry.Column.FromString(wanted)}"
    return "no column"


def check_shape(segment: Segment, place: LogPosition, count: int) -> None:
    """Check everything of a segment but its columns."""
    entries = [entry.Entry.FromString(raw) for raw in segment.entries()]
    assert bytes(segment.kinds) == bytes([EntryKind.BEGIN, *[EntryKind.ROWS] * (len(entries) - 2), EntryKind.END])
    assert not segment.cut
    assert [segment.position(index).offset for index in range(len(segment))] == [place.offset] * len(entries)
    assert sum(segment.row_counts) == segment.rows(0, len(segment)) == count
    frames = b"".join(b"\x12" + _varint(len(raw)) + raw for raw in segment.entries())
    assert bytes(segment.frames) == frames
    for one in entries:
        assert (one.header.logfileName, one.header.logfileOffset) == (place.journal, place.offset)
        assert (one.header.executeTime, one.header.serverId) == (place.timestamp_ms, place.server_id)
        told = {pair.key: pair.value for pair in one.header.props}
        assert (told.get(SNAPSHOT_PROP) == "snapshot") == (one.entryType == entry.ROWDATA)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def statements(flavor: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield the recorded statements of each case, with the number of their session."""
    lines = gzip.decompress((DIRECTORY / f"{TAGS[flavor]}.statements.jsonl.gz").read_bytes()).splitlines()
    for case, group in groupby(map(json.loads, lines), key=lambda line: str(line["case"])):
        yield case, [(line["session"], line["sql"]) for line in group]


def test_every_table_of_the_recordings(server: SqlServer) -> None:
    """The rows of every table of the recorded statements are equal, except those named in UNEQUAL."""
    copies = Copies(server)
    sessions: dict[int, Any] = {}
    done: set[str] = set()
    found: list[str] = []
    for _, lines in statements(server.flavor):
        for number, sql in lines:
            if number not in sessions:
                sessions[number] = server.connect(autocommit=True)
            sessions[number].cursor().execute(sql)
        tables = server.query(
            "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'golden' AND"
            " table_type = 'BASE TABLE'"
        )
        for name in {str(row["name"]) for row in tables} - done - {COPY}:
            found += copies.differences("golden", name)
            done.add(name)
    assert len(done) > 20
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("server", "group"),
    [
        pytest.param(made, group, id=f"{made.flavor}-{group.name}")
        for made in SERVERS
        for group in GROUPS
        if made.flavor in group.flavors
    ],
    indirect=["server"],
)
def test_every_type(server: SqlServer, group: Group) -> None:
    """Columns of every type, with extreme values, are equal, except those named in UNEQUAL."""
    group.create(server, "s")
    assert not list(Copies(server).differences("s", group.name))
