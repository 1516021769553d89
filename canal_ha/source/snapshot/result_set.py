"""The rows of one SELECT as the server sends them: packets of the text protocol, with no Python object for a row.

PyMySQL sends the question and reads the definitions of the columns; from the first row on, bytes are taken from the
socket as they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants import COMMAND

from canal_ha.decode.kernel import images
from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.session import SourceSession

_RECEIVE_BYTES = 1 << 18
_HEADER = 4
_NULL = 0xFB
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows of a result set.

    packets: of whole rows, each with its header of 4 bytes.
    count: of rows.
    last: where the last row's first packet starts; -1 without rows.
    complete: whether these are all rows of the result.
    """

    packets: memoryview
    count: int
    last: int
    complete: bool


class RowStream:
    """The rows of a SELECT, piece by piece. The server waits while nobody takes them.

    The connection is useless until all rows are taken. Everything raises SourceUnavailable when the connection breaks,
    and PyMySQL's own errors for the server's.
    """

    def __init__(self, session: SourceSession, sql: str) -> None:
        """Run the SELECT."""
        connection: Any = session.connection
        connection._execute_command(COMMAND.COM_QUERY, sql)
        columns = connection._read_packet()
        if not columns.is_resultset_packet():
            raise SourceUnavailable(f"{session.where.address}: a statement without rows: {sql[:200]}")
        for _ in range(columns.read_length_encoded_integer()):
            connection._read_packet()
        connection._read_packet()
        self._session = session
        self._connection = connection
        self._data = bytearray()

    def take(self, most_bytes: int, most_rows: int = 0) -> RawRows:
        """Return the next rows; stop behind the row that exceeds the bytes, or reaches the number of rows.

        most_rows: 0 for any number.
        """
        data = self._data
        found = images.RowPackets()
        while True:
            state = found.scan(data, len(data), most_rows)
            if state == images.ERROR:
                pymysql.err.raise_mysql_exception(bytes(data[found.at + _HEADER :]))
            if state == images.END:
                return RawRows(memoryview(data)[: found.at], found.count, found.last, complete=True)
            if found.count and (found.count == most_rows or found.started > most_bytes):
                self._data = data[found.started :]
                return RawRows(memoryview(data)[: found.started], found.count, found.last, complete=False)
            data += _received(self._session, self._connection)


def read_rows(session: SourceSession, sql: str, most_bytes: int) -> RawRows:
    """Run a SELECT and return its rows; stop behind the row that exceeds `most_bytes`. See RowStream."""
    return RowStream(session, sql).take(most_bytes)


def _received(session: SourceSession, connection: Any) -> bytes:
    address = session.where.address
    try:
        received: bytes = connection._rfile.read1(_RECEIVE_BYTES)
    except TimeoutError as error:
        raise SourceUnavailable(f"{address}: no rows of a snapshot arrived in time") from error
    except OSError as error:
        raise SourceUnavailable(f"{address}: connection lost while rows of a snapshot came: {error}") from error
    if not received:
        raise SourceUnavailable(f"{address}: the server closed the connection while rows of a snapshot came")
    return received


def values_of(rows: RawRows) -> list[bytes | None]:
    """Return the values of the last row; None for NULL."""
    data = rows.packets
    content = bytearray()
    at = rows.last
    while at < len(data):
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        content += data[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length
    values: list[bytes | None] = []
    at = 0
    while at < len(content):
        first = content[at]
        at += 1
        if first == _NULL:
            values.append(None)
            continue
        width = _WIDTHS.get(first, 0)
        length = int.from_bytes(content[at : at + width], "little") if width else first
        at += width
        values.append(bytes(content[at : at + length]))
        at += length
    return values
