"""XA transactions between XA PREPARE and XA COMMIT, whose rows a stream delivers when they commit.

The server writes the rows to the binlog at XA PREPARE, and only a statement at XA COMMIT. The events of the prepared
part are kept here, up to a number of bytes. A part that is not kept, because it is too large or was read by an earlier
connection, is read from the binlog again when it commits. So no position has to remember it (ARCHITECTURE.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import canal_ha.decode.kernel.primitives as p
from canal_ha.model.position import LogPosition

_FORMAT_BITS = 0xFFFFFFFF  # a server writes the format id with a sign in the event, and without one in statements


@dataclass(frozen=True, slots=True)
class Xid:
    """The identifier of an XA transaction. format_id: without a sign."""

    format_id: int
    global_id: bytes
    branch: bytes

    def __str__(self) -> str:
        return f"X'{self.global_id.hex()}',X'{self.branch.hex()}',{self.format_id}"


def xid_of_statement(text: str) -> Xid:
    """Parse what stands behind XA COMMIT in a binlog: X'61',X'62',1. Raises Broken."""
    parts = [part.strip() for part in text.split(",")]
    try:
        global_id, branch = (bytes.fromhex(part[2:-1]) for part in parts[:2] if part[:2].upper() == "X'")
        return Xid(int(parts[2]) & _FORMAT_BITS, global_id, branch)
    except (ValueError, IndexError) as error:
        raise p.Broken(f"an XA statement with the invalid identifier {text!r}") from error


def xid_of_event(body: bytes) -> tuple[Xid, bool]:
    """Parse an XA_PREPARE event into the identifier, and whether it is XA COMMIT ... ONE PHASE. Raises Broken.

    Source: MySQL libs/mysql/binlog/event/control_events.h, XA_prepare_event.
    """
    if len(body) < 13:
        raise p.Broken("an XA_PREPARE event without its identifier")
    one_phase, format_id, global_size, branch_size = struct.unpack_from("<BiII", body)
    end = 13 + global_size
    if end + branch_size > len(body):
        raise p.Broken("an XA_PREPARE event that ends inside its identifier")
    return Xid(format_id & _FORMAT_BITS, body[13:end], body[end : end + branch_size]), bool(one_phase)


@dataclass(frozen=True, slots=True)
class XaCommit:
    """An XA COMMIT in a binlog. at: its event; behind: the offset where that ends."""

    xid: Xid
    at: LogPosition
    behind: int


class PreparedParts(Protocol):
    """What a decoder does with the events of prepared parts; see KeptParts."""

    def begin(self, at: LogPosition) -> None: ...

    def add(self, event: bytes, offset: int) -> None: ...

    def prepared(self, xid: Xid) -> None: ...

    def rolled_back(self, xid: Xid, at: LogPosition) -> None: ...

    def committed(self, commit: XaCommit) -> Iterator[bytes]: ...


ReadAgain = Callable[[XaCommit, LogPosition | None], Iterator[bytes]]


@dataclass(slots=True)
class _Part:
    """A part. at: its first event; events: None if they are not kept."""

    at: LogPosition
    events: list[bytes] | None = field(default_factory=list)
    size_bytes: int = 0


class KeptParts:
    """The prepared parts that one decoder has read."""

    def __init__(self, most_bytes: int, read_again: ReadAgain, start: LogPosition | None = None) -> None:
        """Keep nothing yet.

        most_bytes: of all kept events together.
        read_again: returns the events of a part from the binlog, whole events in pieces, given its XA COMMIT, and the
            part's first event if that is known. It may raise any CanalError.
        start: where reading begins. If it is a consumed XA COMMIT, nothing of that is read again.
        """
        self._most_bytes = most_bytes
        self._read_again = read_again
        self._done = (start.journal, start.offset) if start is not None and start.consumed else None
        self._kept_bytes = 0
        self._open: _Part | None = None
        self._parts: dict[Xid, _Part] = {}

    def begin(self, at: LogPosition) -> None:
        """Begin a part with the event at this position; a part that did not reach XA PREPARE is forgotten."""
        self._forget(self._open)
        self._open = _Part(at)

    def add(self, event: bytes, offset: int) -> None:
        """Take an event of the part, without a checksum; a compressed payload is one event.

        offset: where it starts in the journal.
        """
        del offset
        part = self._open
        if part is None or part.events is None:
            return
        if self._kept_bytes + len(event) > self._most_bytes:
            self._forget(part)
            part.events = None
            return
        part.events.append(event)
        part.size_bytes += len(event)
        self._kept_bytes += len(event)

    def prepared(self, xid: Xid) -> None:
        """End the part."""
        if self._open is not None:
            self._forget(self._parts.pop(xid, None))
            self._parts[xid] = self._open
            self._open = None

    def rolled_back(self, xid: Xid, at: LogPosition) -> None:
        """Forget a part."""
        del at
        self._forget(self._parts.pop(xid, None))

    def committed(self, commit: XaCommit) -> Iterator[bytes]:
        """Yield the events of a part, whole events in pieces, and forget it."""
        part = self._parts.pop(commit.xid, None)
        self._forget(part)
        if (commit.at.journal, commit.at.offset) == self._done:
            return
        if part is not None and part.events is not None:
            yield b"".join(part.events)
        else:
            yield from self._read_again(commit, None if part is None else part.at)

    def _forget(self, part: _Part | None) -> None:
        if part is not None:
            self._kept_bytes -= part.size_bytes
            part.size_bytes = 0
