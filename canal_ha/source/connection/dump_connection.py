"""The connection through which mysql-replication dumps: received bytes go to a decoder, not to the library.

The library gets this class through its public `pymysql_wrapper=` and drives login, TLS, checksum, registration and the
dump command. After that command, bytes are received in large chunks, or where a large event is put together, and passed
to an eater; the library sees only the packets that it returns. Errors while dumping are ours: on PyMySQL's own 2006 and
2013 the library would reconnect by itself, from a position that does not move because it sees no rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socket import socket
from ssl import SSLSocket
from struct import Struct
from typing import Any, Protocol

from pymysql.protocol import MysqlPacket

from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.encoded_gtids import dump_command
from canal_ha.source.connection.reactor_reads import PIECE_BYTES, Lent, ReactorReads, something_waits
from canal_ha.source.connection.session import Interruptible

COM_BINLOG_DUMP = 0x12
SEND_ANNOTATE_ROWS = 0x02

FEW_BYTES = 64 * 1024
_COMMAND_AT = 4  # behind the packet's header
_COMMAND = Struct("<BIHI")  # command, position, flags, server id; the journal follows


@dataclass(frozen=True, slots=True)
class Eater:
    """Who takes the received bytes, and returns payloads of packets for the library.

    eat: takes bytes, as a view of a whole bytes object.
    room: returns memory for the next bytes, or None if `eat` takes them.
    received: takes the first bytes in that memory, by their number.
    lends: whether somebody else may receive, and eat, the next bytes: reading ends with Lending then.
    """

    eat: Callable[[memoryview], Iterable[bytes]]
    room: Callable[[], memoryview | None] = lambda: None
    received: Callable[[int], Iterable[bytes]] = lambda count: ()
    lends: Callable[[], bool] = lambda: False


class Lending(Exception):
    """The connection's socket, which does not block now, is for somebody else, until reading goes on."""

    def __init__(self, connection: Lendable) -> None:
        self.connection = connection


class Lendable(Protocol):
    """A connection that the reactor may read for a dump.

    piece_bytes: how much it reads at once.
    """

    piece_bytes: int

    @property
    def something_waits(self) -> bool:
        """Whether something is left to read while the connection is lent."""

    def lent(self, reads: ReactorReads, eat: Callable[[bytes], bool], back: Callable[[], None]) -> Borrowed:
        """Return what the reactor is to read. See ReactorReads.lent."""

    def hand_over(self, packets: Iterable[bytes]) -> None:
        """Let the library see packets that came while the connection was lent."""

    def silence(self) -> SourceUnavailable:
        """Return the error of a source that was silent for too long."""


class Borrowed(Protocol):
    """What the reactor reads. See Lent."""

    @property
    def lending(self) -> bool:
        """Whether the reactor reads."""

    @property
    def silent(self) -> bool:
        """Whether it was given back because nothing came for too long."""

    def begin(self) -> None:
        """Begin to read; the reactor's thread."""

    def detach(self) -> None:
        """Read no longer, without giving back; the reactor's thread."""

    def raise_error(self) -> None:
        """Raise what decoding raised."""


class ReceiveSize:
    """How many bytes to receive next: few at the end of the binlog, because a large buffer takes longer to allocate."""

    def __init__(self, most: int) -> None:
        """most: bytes."""
        self._most = most
        self.next = min(most, FEW_BYTES)

    def received(self, count: int) -> None:
        """Adapt to the number of bytes that came."""
        if count == self.next:
            self.next = min(self._most, 4 * count)
        elif count < self.next // 16:
            self.next = min(self._most, FEW_BYTES)


class DumpConnection(Interruptible):
    """An ordinary connection until the dump command is written.

    eater: takes received bytes.
    annotate: ask for the statements behind row events (MariaDB).
    gtid_set: ask for what this set of MySQL lacks, encoded; None asks for what the library asks for.
    receive_bytes: largest chunk to receive.
    options: PyMySQL's.
    Raises SourceUnavailable, and whatever `eater` raises, while dumping.

    piece_bytes: how much is received at once while the socket is lent.
    """

    piece_bytes = PIECE_BYTES
    _sock: Any
    _current_timeout: float | None
    _read_timeout: float | None

    def __init__(
        self, eater: Eater, *, annotate: bool, gtid_set: bytes | None, receive_bytes: int, **options: Any
    ) -> None:
        self._eater = eater
        self._annotate = annotate
        self._gtid_set = gtid_set
        self._dumping = False
        self._size = ReceiveSize(receive_bytes)
        self._packets: deque[bytes] = deque()
        super().__init__(**options)

    def _write_bytes(self, data: bytes) -> None:
        """Detect the dump command. Only commands have sequence number 0; parts of a login could look alike."""
        whole = len(data) >= _COMMAND_AT + _COMMAND.size
        if not self._dumping and whole and data[3] == 0 and data[_COMMAND_AT] == COM_BINLOG_DUMP:
            self._dumping = True
            data = self._asking(data)
        super()._write_bytes(data)  # type: ignore[misc]  # missing in the stubs

    def _asking(self, data: bytes) -> bytes:
        """Return the packet of the dump command with what the library cannot ask for.

        The library sets the flag of annotations only when it ignores file and position, and its GTIDs have no tags.
        """
        command, position, flags, server_id = _COMMAND.unpack_from(data, _COMMAND_AT)
        if self._gtid_set is not None:
            asked = dump_command(flags, server_id, self._gtid_set)
            return len(asked).to_bytes(3, "little") + b"\0" + asked
        if self._annotate:
            flags |= SEND_ANNOTATE_ROWS
        asked = _COMMAND.pack(command, position, flags, server_id)
        return data[:_COMMAND_AT] + asked + data[_COMMAND_AT + len(asked) :]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """Return the next packet for the library; while dumping, `eater` takes everything else."""
        if not self._dumping:
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]  # the stubs name no types
        while not self._packets:
            self._packets.extend(self._received())
        return packet_type(self._packets.popleft(), self.encoding)

    def _received(self) -> Iterable[bytes]:
        room = self._eater.room()
        if room is None:
            if self._eater.lends() and not self._decrypted():
                raise self._lending()
            data: bytes = self._receive(lambda: self._sock.recv(self._size.next))
            self._size.received(len(data))
            return self._eater.eat(memoryview(data))
        with room:
            count: int = self._receive(lambda: self._sock.recv_into(room))
        return self._eater.received(count)

    def _decrypted(self) -> bool:
        """Whether TLS has bytes at hand; they do not wake whoever waits for the socket."""
        return isinstance(self._sock, SSLSocket) and self._sock.pending() > 0

    def _lending(self) -> Lending:
        """Prepare the socket for somebody else. The next receive sets its time-out again."""
        self._sock.settimeout(0)
        self._current_timeout = 0.0
        return Lending(self)

    @property
    def socket(self) -> socket:
        """The socket."""
        found: socket = self._sock
        return found

    @property
    def something_waits(self) -> bool:
        """Whether bytes, or the end of the connection, wait in the socket while it is lent."""
        return something_waits(self._sock)

    def lent(self, reads: ReactorReads, eat: Callable[[bytes], bool], back: Callable[[], None]) -> Lent:
        """Return the socket for the reactor. See ReactorReads.lent."""
        assert self._read_timeout
        return reads.lent(self._sock, eat, self._read_timeout, back)

    def hand_over(self, packets: Iterable[bytes]) -> None:
        """Let the library see packets that came while the socket was lent."""
        self._packets.extend(packets)

    def _receive(self, receive: Callable[[], Any]) -> Any:
        """Receive at least one byte. PyMySQL's buffered `_rfile` is empty, because a waiting server sends nothing."""
        try:
            if self._current_timeout != self._read_timeout:
                self._sock.settimeout(self._read_timeout)
                self._current_timeout = self._read_timeout
            received = receive()
        except TimeoutError as error:
            raise self.silence() from error
        except OSError as error:
            raise SourceUnavailable(f"{self.host}:{self.port}: connection lost while dumping: {error}") from error
        if not received:
            raise SourceUnavailable(f"{self.host}:{self.port}: the server closed the connection while dumping")
        return received

    def silence(self) -> SourceUnavailable:
        """Return the error of a source that was silent for too long."""
        return SourceUnavailable(
            f"{self.host}:{self.port}: nothing arrived for {self._read_timeout:g} s, not even a heartbeat"
        )
