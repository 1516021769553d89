"""The rows of one SELECT as the server sends them: packets of the text protocol, with no Python object for a row.

PyMySQL sends the question and reads the definitions of the columns; from the first row on, bytes are taken from the
socket as they come.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.constants import COMMAND

from canal_ha.decode.kernel import images
from canal_ha.decode.kernel.buffers import Landing
from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.session import SourceSession

_RECEIVE_BYTES = 1 << 18
_FEW_BYTES = 1 << 17  # a server writes 16 KiB at a time (net_buffer_length), and each write would wake the thread
_GATHER_S = 0.001  # the wait for more than that; a fast server needs longer to fill the socket's buffer
_KEPT_BYTES = 8 << 20  # of the memory, for the next rows
_MARK_BYTES = 1 << 16  # between places where rows can be parted
_SCANNED_BYTES = 1 << 15  # at a time: megabytes can come at once, and rows have to be parted in between
_HEADER = 4
_NULL = 0xFB
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Some rows of a result set, one after the other.

    packets: of whole rows, each with its header of 4 bytes.
    first: the number of its first row; the first one of the result set is 0.
    count: of rows.
    last: where the last row's first packet starts; -1 without rows.
    """

    packets: bytes
    first: int
    count: int
    last: int


@dataclass(frozen=True, slots=True)
class _Mark:
    """A place between two rows: bytes and rows before it, and where the row before it starts."""

    size: int
    count: int
    last: int


@dataclass(frozen=True, slots=True)
class RowMemory:
    """The memory of one connection for the rows of its results, one after the other. A thread at a time uses it.

    rows: grows; its content does not matter.
    pieces: for pieces of the rows.
    """

    rows: bytearray = field(default_factory=bytearray)
    pieces: Landing = field(default_factory=Landing)


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows of a result set. Their memory is used again when the next rows of the connection are taken.

    complete: whether these are all rows of the result.
    """

    _memory: RowMemory
    _marks: tuple[_Mark, ...]  # the last one is behind all rows
    complete: bool

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._marks[-1].count

    @property
    def size(self) -> int:
        """The bytes of their packets."""
        return self._marks[-1].size

    def whole(self) -> RowPiece:
        """Return all rows."""
        (piece,) = self.pieces(lambda: self.size)
        return piece

    def pieces(self, size: Callable[[], int]) -> Iterator[RowPiece]:
        """Yield the rows in pieces; one piece without rows if there are none. size: returns the bytes of the next."""
        marks, at, before = self._marks, 0, _Mark(0, 0, 0)
        while at < len(marks):
            at = min(bisect_left(marks, before.size + size(), at, key=lambda mark: mark.size), len(marks) - 1)
            mark = marks[at]
            with memoryview(self._memory.rows) as view, self._memory.pieces.begin(mark.size - before.size) as room:
                room[:] = view[before.size : mark.size]
            packets = self._memory.pieces.finish()
            yield RowPiece(packets, before.count, mark.count - before.count, mark.last - before.size)
            before, at = mark, at + 1


class RowStream:
    """The rows of a SELECT, piece by piece. The server waits while nobody takes them.

    The connection is useless until all rows are taken. Everything raises SourceUnavailable when the connection breaks,
    and PyMySQL's own errors for the server's.
    """

    def __init__(self, session: SourceSession, sql: str, memory: RowMemory | None = None) -> None:
        """Run the SELECT. memory: for the rows; new memory by default."""
        connection: Any = session.connection
        connection._execute_command(COMMAND.COM_QUERY, sql)
        columns = connection._read_packet()
        if not columns.is_resultset_packet():
            raise SourceUnavailable(f"{session.where.address}: a statement without rows: {sql[:200]}")
        for _ in range(columns.read_length_encoded_integer()):
            connection._read_packet()
        connection._read_packet()
        self._session = session
        self._rfile = connection._rfile
        self._first = True
        self._encrypted = session.encrypted
        self._few = False  # the last bytes were few; more come soon
        self._memory = memory or RowMemory()
        self._data = self._memory.rows
        del self._data[_KEPT_BYTES:]
        self._taken = self._stop = 0  # what was received and not taken yet lies between these

    def take(self, most_bytes: int, most_rows: int = 0) -> RawRows:
        """Return the next rows; stop behind the row that exceeds the bytes, or reaches the number of rows.

        most_rows: 0 for any number.
        """
        data = self._data
        data[: self._stop - self._taken] = data[self._taken : self._stop]
        self._stop -= self._taken
        found = images.RowPackets()
        marks: list[_Mark] = []
        scanned = 0
        while True:
            scanned = min(scanned + _SCANNED_BYTES, self._stop)
            state = found.scan(data, scanned, most_rows)
            if state == images.ERROR:
                pymysql.err.raise_mysql_exception(bytes(data[found.at + _HEADER : self._stop]))
            left = scanned < self._stop
            full = found.count > 0 and (found.count == most_rows or (found.started > most_bytes and not left))
            ends = full or state == images.END
            behind = found.started - (marks[-1].size if marks else 0)
            if behind >= _MARK_BYTES or (ends and (behind or not marks)):
                marks.append(_Mark(found.started, found.count, found.last))
            if ends:
                self._taken = found.started
                return RawRows(self._memory, tuple(marks), complete=state == images.END)
            if not left:
                self._receive()

    def _receive(self) -> None:
        """Receive at least one byte behind the others."""
        data = self._data
        if self._few:
            time.sleep(_GATHER_S)
        if len(data) - self._stop < _RECEIVE_BYTES:
            images.widen(data, _RECEIVE_BYTES)
        with memoryview(data)[self._stop :] as room:
            received = _received(self._session, self._buffered if self._first else self._rfile.readinto1, room)
        self._stop += received
        # TLS returns a record of 16 KiB at most, however many there are
        self._few = not self._first and not self._encrypted and received < _FEW_BYTES
        self._first = False

    def _buffered(self, room: memoryview) -> int:
        """Receive what PyMySQL has received already, for which `readinto1` waits for more."""
        data: bytes = self._rfile.read1(_RECEIVE_BYTES)
        room[: len(data)] = data
        return len(data)


def read_rows(session: SourceSession, sql: str, most_bytes: int, memory: RowMemory | None = None) -> RawRows:
    """Run a SELECT and return its rows; stop behind the row that exceeds `most_bytes`. See RowStream."""
    return RowStream(session, sql, memory).take(most_bytes)


def _received(session: SourceSession, receive: Callable[[memoryview], int], room: memoryview) -> int:
    """Receive at least one byte into the room; return how many."""
    address = session.where.address
    try:
        received = receive(room)
    except TimeoutError as error:
        raise SourceUnavailable(f"{address}: no rows of a snapshot arrived in time") from error
    except OSError as error:
        raise SourceUnavailable(f"{address}: connection lost while rows of a snapshot came: {error}") from error
    if not received:
        raise SourceUnavailable(f"{address}: the server closed the connection while rows of a snapshot came")
    return received


def values_of(rows: RowPiece) -> list[bytes | None]:
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
