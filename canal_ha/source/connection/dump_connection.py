"""The connection through which mysql-replication dumps: received bytes go to a decoder, not to the library.

The library gets this class through its public `pymysql_wrapper=` and drives login, TLS, checksum, registration and the
dump command. After that command, bytes are received in large chunks and passed to `eat`; the library sees only the
packets that `eat` returns. Errors while dumping are ours: on PyMySQL's own 2006 and 2013 the library would reconnect by
itself, from a position that does not move because it sees no rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from pymysql.protocol import MysqlPacket

from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.session import Interruptible

COM_BINLOG_DUMP = 0x12
COM_BINLOG_DUMP_GTID = 0x1E
SEND_ANNOTATE_ROWS = 0x02

_FLAGS_AT = 9  # 4 bytes packet header, command, 4 bytes position


class DumpConnection(Interruptible):
    """An ordinary connection until the dump command is written.

    eat: takes received bytes, as a view of a whole bytes object, and returns payloads of packets for the library.
    annotate: ask for the statements behind row events (MariaDB).
    receive_bytes: largest chunk to receive.
    options: PyMySQL's.
    Raises SourceUnavailable, and whatever `eat` raises, while dumping.
    """

    _sock: Any
    _current_timeout: float | None
    _read_timeout: float | None

    def __init__(
        self, eat: Callable[[memoryview], Iterable[bytes]], *, annotate: bool, receive_bytes: int, **options: Any
    ) -> None:
        self._eat = eat
        self._annotate = annotate
        self._dumping = False
        self._receive_bytes = receive_bytes
        self._packets: deque[bytes] = deque()
        super().__init__(**options)

    def _write_bytes(self, data: bytes) -> None:
        """Detect the dump command. Only commands have sequence number 0; parts of a login could look alike."""
        if not self._dumping and len(data) > _FLAGS_AT + 2 and data[3] == 0:
            self._dumping = data[4] in (COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID)
            if data[4] == COM_BINLOG_DUMP and self._annotate:
                # the library sets this flag only when it ignores file and position
                flags = int.from_bytes(data[_FLAGS_AT : _FLAGS_AT + 2], "little") | SEND_ANNOTATE_ROWS
                data = data[:_FLAGS_AT] + flags.to_bytes(2, "little") + data[_FLAGS_AT + 2 :]
        super()._write_bytes(data)  # type: ignore[misc]  # missing in the stubs

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """Return the next packet for the library; while dumping, `eat` takes everything else."""
        if not self._dumping:
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]  # the stubs name no types
        while not self._packets:
            self._packets.extend(self._eat(self._receive()))
        return packet_type(self._packets.popleft(), self.encoding)

    def _receive(self) -> memoryview:
        """Receive at least one byte. PyMySQL's buffered `_rfile` is empty, because a waiting server sends nothing."""
        try:
            if self._current_timeout != self._read_timeout:
                self._sock.settimeout(self._read_timeout)
                self._current_timeout = self._read_timeout
            data: bytes = self._sock.recv(self._receive_bytes)
        except TimeoutError as error:
            raise SourceUnavailable(
                f"{self.host}:{self.port}: nothing arrived for {self._read_timeout:g} s, not even a heartbeat"
            ) from error
        except OSError as error:
            raise SourceUnavailable(f"{self.host}:{self.port}: connection lost while dumping: {error}") from error
        if not data:
            raise SourceUnavailable(f"{self.host}:{self.port}: the server closed the connection while dumping")
        return memoryview(data)
